/* Credential files: whatever they hold, a config is complete and a refusal is one clean line. */
#include "gcs/credentials/exchange.h"
#include "gcs/credentials/external.h"
#include "gcs/wire/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const char *text)
{
    size_t left = strlen(text);
    RG_ASSERT(left > 0 && left < RG_CREDENTIALS_TEXT_SIZE);
    while (left > 0) {
        uint32_t code;
        int used = rg_utf8_decode(text, left, &code);
        RG_ASSERT(used > 0);
        RG_ASSERT(code >= ' ' && (code < 0x7f || code >= 0xa0));
        text += used;
        left -= (size_t)used;
    }
}

static void check_config(struct rg_secret_arena *arena, const struct rg_credentials_config *config)
{
    RG_ASSERT(config->kind != NULL && config->kind->obtain != NULL);
    RG_ASSERT(config->universe != NULL);
    RG_ASSERT(config->delegate_count <= RG_DELEGATES_MAX);
    RG_ASSERT((config->kind == &rg_credentials_impersonated) == (config->source != NULL));
    RG_ASSERT(config->token_url != NULL || config->source != NULL);
    const char *command = config->executable.command;
    if (command != NULL) {
        char *words[RG_COMMAND_WORDS_MAX + 1];
        char *copy = rg_secret_copy(arena, command, strlen(command));
        int count = copy != NULL ? rg_command_split(copy, words) : 0;
        RG_ASSERT(count <= RG_COMMAND_WORDS_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_secret_arena arena;
    if (size > RG_CREDENTIALS_FILE_SIZE_MAX || rg_secret_arena_init(&arena, RG_MIB(2)) < 0) {
        return 0;
    }
    struct rg_credentials_reader reader = {.arena = &arena, .path = "file"};
    char *text = rg_secret_copy(&arena, data, size);
    const struct rg_credentials_config *config = rg_credentials_parse(&reader, text, size);
    RG_ASSERT((config == NULL) == (reader.rc < 0));
    if (config != NULL) {
        check_config(&arena, config);
    } else {
        check_line(reader.text);
    }
    (void)rg_rfc3339_parse(text);
    rg_secret_arena_fini(&arena);
    return 0;
}
