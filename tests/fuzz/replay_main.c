/* Runs a fuzz target as a plain test: every file of its corpus, every prefix of the short ones, and
 * a fixed number of mutations of each, which depend on nothing but the file's name and bytes.
 *
 *     replay_TARGET CORPUS_FOLDER [MUTATIONS] */
#include "runtime/base.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MUTATIONS_DEFAULT = 2000,
    PREFIXES_MAX = 4096, /* a longer file is cut at this many places only */
    INPUT_SIZE_MAX = 1 << 20,
    EDITS_MAX = 8,
    EDIT_SIZE_MAX = 16, /* bytes that one edit removes or repeats */
    NAME_SIZE_MAX = 4096,
};

/* Declared by libFuzzer, not by a header. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t *data;
    size_t size;
};

static uint64_t random_state;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t random_below(uint64_t bound)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % bound;
}

/* FNV-1a, so that a file's mutations are the same wherever the corpus lies. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Every run gets memory of exactly its size, so that a sanitizer sees each byte read beyond it. */
static void run_target(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    RG_ASSERT(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void remove_bytes(struct input *input)
{
    size_t at = random_below(input->size);
    size_t count = 1 + random_below(RG_MIN(input->size - at, EDIT_SIZE_MAX));
    memmove(input->data + at, input->data + at + count, input->size - at - count);
    input->size -= count;
}

/* Needs room for EDIT_SIZE_MAX more bytes. */
static void repeat_bytes(struct input *input)
{
    size_t at = random_below(input->size);
    size_t count = 1 + random_below(RG_MIN(input->size - at, EDIT_SIZE_MAX));
    memmove(input->data + at + count, input->data + at, input->size - at);
    input->size += count;
}

static void edit_once(struct input *input)
{
    static const uint8_t telling[] = {0,   '\r', '\n', ' ',  ':',  ',',
                                      ';', '"',  '0',  0x7f, 0x80, 0xff};
    if (input->size == 0) {
        return;
    }
    uint8_t *byte = &input->data[random_below(input->size)];
    switch (random_below(5)) {
    case 0:
        *byte ^= (uint8_t)(1u << random_below(8));
        break;
    case 1:
        *byte = (uint8_t)random_below(256);
        break;
    case 2:
        *byte = telling[random_below(RG_ARRAY_LEN(telling))];
        break;
    case 3:
        remove_bytes(input);
        break;
    default:
        repeat_bytes(input);
        break;
    }
}

static void run_mutations(const struct input *original, unsigned count)
{
    struct input input = {.data = malloc(original->size + EDITS_MAX * EDIT_SIZE_MAX)};
    RG_ASSERT(input.data != NULL);
    for (unsigned i = 0; i < count; i++) {
        input.size = original->size;
        memcpy(input.data, original->data, original->size);
        for (uint64_t edits = 1 + random_below(EDITS_MAX); edits > 0; edits--) {
            edit_once(&input);
        }
        run_target(input.data, input.size);
    }
    free(input.data);
}

static void run_prefixes(const struct input *input)
{
    size_t step = 1 + input->size / PREFIXES_MAX;
    for (size_t size = 0; size <= input->size; size += step) {
        run_target(input->data, size);
    }
}

static struct input read_input(const char *folder, const char *name)
{
    char path[NAME_SIZE_MAX];
    RG_ASSERT(snprintf(path, sizeof(path), "%s/%s", folder, name) < NAME_SIZE_MAX);
    FILE *file = fopen(path, "rb");
    RG_ASSERT(file != NULL);
    struct input input = {.data = malloc(INPUT_SIZE_MAX)};
    RG_ASSERT(input.data != NULL);
    input.size = fread(input.data, 1, INPUT_SIZE_MAX, file);
    fclose(file);
    return input;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    RG_ASSERT(argc >= 2);
    unsigned mutations = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : MUTATIONS_DEFAULT;
    struct dirent **entries;
    int count = scandir(argv[1], &entries, is_visible, alphasort);
    if (count <= 0) {
        printf("no corpus in %s\n0 passed, 1 failed, 0 skipped\n", argv[1]);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        printf("%s\n", entries[i]->d_name);
        fflush(stdout);
        random_state = hash_name(entries[i]->d_name);
        struct input input = read_input(argv[1], entries[i]->d_name);
        run_target(input.data, input.size);
        run_prefixes(&input);
        run_mutations(&input, mutations);
        free(input.data);
        free(entries[i]);
    }
    free(entries);
    printf("%d passed, 0 failed, 0 skipped\n", count);
    return 0;
}
