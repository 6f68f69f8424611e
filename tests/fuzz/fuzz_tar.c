/* Tar archives: whatever they are, members lie one behind the other, and it does not matter in what
 * pieces an archive comes. What is found then goes through an index. */
#include "dataset/tar_index.h"

#include <errno.h>
#include <string.h>

#define MEMBERS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct found {
    int rc; /* of the last call */
    uint32_t count;
    uint64_t hash, end;
    char error[RG_TAR_ERROR_SIZE];
};

static uint64_t hash_add(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void member_note(struct found *found, const struct rg_tar_member *member)
{
    RG_ASSERT(member->offset % RG_TAR_BLOCK_SIZE == 0 && member->offset > found->end);
    RG_ASSERT(member->size <= RG_TAR_SIZE_MAX);
    RG_ASSERT(strlen(member->name) <= RG_TAR_NAME_SIZE_MAX);
    found->end = member->offset + member->size;
    found->hash = hash_add(found->hash, member->name, strlen(member->name) + 1);
    found->hash = hash_add(found->hash, &member->offset, sizeof(member->offset));
    found->hash = hash_add(found->hash, &member->size, sizeof(member->size));
    found->count++;
}

/* In pieces of `piece` bytes. The section may be NULL. */
static void parse(const uint8_t *data, size_t size, size_t piece, struct rg_tar_section *section,
                  struct found *found)
{
    static struct rg_tar_parser reused; /* large */
    struct rg_tar_parser *parser = &reused;
    rg_tar_parser_init(parser);
    *found = (struct found){.hash = UINT64_C(0xcbf29ce484222325)};
    bool is_full = false;
    while (found->count < MEMBERS_MAX) {
        struct rg_tar_member member;
        size_t at = (size_t)RG_MIN(parser->offset, (uint64_t)size);
        found->rc = rg_tar_parser_feed(parser, data + at, RG_MIN(piece, size - at), &member);
        if (found->rc == RG_TAR_RESULT_MEMBER) {
            member_note(found, &member);
            if (section != NULL && !is_full) {
                is_full = rg_tar_section_add(section, &member) < 0;
            }
        } else if (found->rc != RG_TAR_RESULT_MORE || at == size) {
            break;
        }
    }
    if (found->rc >= 0) {
        int rc = rg_tar_parser_finish(parser, size);
        RG_ASSERT(rc == 0 || rc == -EBADMSG);
        found->rc = rc < 0 ? rc : found->rc;
    }
    RG_ASSERT((found->rc == -EBADMSG) == (parser->error[0] != '\0'));
    memcpy(found->error, parser->error, sizeof(found->error));
}

static void index_check(const struct rg_tar_section *section)
{
    struct rg_tar_builder builder;
    struct rg_tar_index *index;
    RG_ASSERT(rg_tar_builder_init(&builder, "b") == 0);
    RG_ASSERT(rg_tar_builder_add(&builder, "s", 0, 1, section) == 0);
    RG_ASSERT(rg_tar_builder_finish(&builder, &index) == 0);
    rg_tar_builder_fini(&builder);
    RG_ASSERT(rg_tar_index_count(index) == section->sample_count);
    struct rg_tar_sample sample;
    for (uint64_t i = 0; i < section->sample_count; i++) {
        RG_ASSERT(rg_tar_index_get(index, i, &sample) == 0);
        RG_ASSERT(sample.part_count > 0 && sample.key_size == strlen(sample.key));
    }
    rg_tar_index_close(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {61, 513};
    struct rg_tar_section section;
    struct found whole, cut;
    RG_ASSERT(rg_tar_section_init(&section) == 0);
    parse(data, size, SIZE_MAX, &section, &whole);
    if (section.error[0] == '\0' && rg_tar_section_end(&section) == 0) {
        index_check(&section);
    }
    rg_tar_section_fini(&section);
    for (size_t i = 0; i < RG_ARRAY_LEN(pieces); i++) {
        parse(data, size, pieces[i], NULL, &cut);
        RG_ASSERT(cut.rc == whole.rc && cut.count == whole.count && cut.hash == whole.hash);
        RG_ASSERT(strcmp(cut.error, whole.error) == 0);
    }
    return 0;
}
