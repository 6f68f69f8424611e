/* Cursors: the same samples as by number, whichever way they are walked through, and with members
 * left out the pieces in which the others are read. */
#include "dataset/tar_cursor.h"
#include "tests/support/test.h"

#include <inttypes.h>

#define SHARDS 3
#define SAMPLES 150

/* Members of the samples: those of the second kind lie far apart without the picture. */
struct member {
    const char *extension;
    uint64_t size;
};
static const struct member kinds[2][4] = {
    {{"cls", 3}, {"jpg", 3000}, {"txt", 0}, {"json", 700}},
    {{"cls", 3}, {"jpg", RG_TAR_GAP_MAX + 1}, {"json", 700}, {NULL, 0}},
};

static void shard_add(struct rg_tar_builder *builder, uint64_t shard)
{
    struct rg_tar_section section;
    char name[64];
    uint64_t at = 0;
    RG_CHECK_EQ(rg_tar_section_init(&section), 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        for (const struct member *kind = kinds[i % 2]; kind < kinds[i % 2] + 4; kind++) {
            if (kind->extension != NULL) {
                snprintf(name, sizeof(name), "%" PRIu64 "/%04" PRIu64 ".%s", shard, i,
                         kind->extension);
                struct rg_tar_member member = {
                    .name = name, .offset = at + RG_TAR_BLOCK_SIZE, .size = kind->size};
                RG_CHECK_EQ(rg_tar_section_add(&section, &member), 0);
                at = rg_tar_blocks_end(member.offset, member.size);
            }
        }
    }
    RG_CHECK_EQ(rg_tar_section_end(&section), 0);
    snprintf(name, sizeof(name), "%" PRIu64 ".tar", shard);
    RG_CHECK_EQ(rg_tar_builder_add(builder, name, at, 5 + (int64_t)shard, &section), 0);
    rg_tar_section_fini(&section);
}

static struct rg_tar_index *index_make(void)
{
    struct rg_tar_builder builder;
    struct rg_tar_index *index;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "bucket"), 0);
    for (uint64_t i = 0; i < SHARDS; i++) {
        shard_add(&builder, i);
    }
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &index), 0);
    rg_tar_builder_fini(&builder);
    return index;
}

static void check_same(struct rg_tar_cursor *cursor, uint64_t number)
{
    struct rg_tar_sample right;
    const struct rg_tar_sample *got;
    RG_CHECK_EQ(rg_tar_index_get(cursor->index, number, &right), 0);
    RG_CHECK_EQ(rg_tar_cursor_get(cursor, number, &got), 0);
    RG_CHECK_EQ(got->shard, right.shard);
    RG_CHECK_EQ(got->offset, right.offset);
    RG_CHECK_EQ(got->size, right.size);
    RG_CHECK_EQ(got->part_count, right.part_count);
    RG_CHECK_STR(got->key, right.key);
    for (uint32_t i = 0; i < right.part_count; i++) {
        RG_CHECK_EQ(got->parts[i].offset, right.parts[i].offset);
        RG_CHECK_EQ(got->parts[i].size, right.parts[i].size);
        RG_CHECK(got->parts[i].extension == right.parts[i].extension);
    }
    RG_CHECK_EQ(cursor->piece_count, 1);
    RG_CHECK_EQ(cursor->pieces[0].offset, right.offset);
    RG_CHECK_EQ(cursor->pieces[0].size, right.size);
    RG_CHECK_EQ(cursor->block.generation, 5 + (int64_t)right.shard);
}

static void test_samples_are_the_same_in_any_order(void)
{
    static const uint64_t steps[] = {1, 0, 7, 64, SHARDS * SAMPLES - 1, 311};
    struct rg_tar_index *index = index_make();
    struct rg_tar_cursor *cursor;
    const struct rg_tar_sample *got;
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, index, NULL, 0), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(steps); i++) {
        for (uint64_t k = 0; k < SHARDS * SAMPLES; k++) {
            check_same(cursor, k * steps[i] % (SHARDS * SAMPLES));
        }
    }
    RG_CHECK_EQ(rg_tar_cursor_get(cursor, SHARDS * SAMPLES, &got), -ERANGE);
    check_same(cursor, SHARDS * SAMPLES - 1);
    rg_tar_cursor_close(cursor);
    rg_tar_cursor_close(NULL);
    rg_tar_index_close(index);
}

/* Going on, only what comes next is decoded: without a look at the blocks of the index. */
static void test_the_next_sample_is_decoded_alone(void)
{
    struct rg_tar_index *index = index_make();
    struct rg_tar_cursor *cursor;
    const struct rg_tar_sample *got;
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, index, NULL, 0), 0);
    RG_CHECK_EQ(rg_tar_cursor_get(cursor, 10, &got), 0);
    for (uint64_t number = 11; number < 64; number++) {
        const uint8_t *before = cursor->block.decoder.at;
        RG_CHECK_EQ(rg_tar_cursor_get(cursor, number, &got), 0);
        RG_CHECK(cursor->block.decoder.at > before && cursor->block.decoder.at < before + 64);
        before = cursor->block.decoder.at;
        RG_CHECK_EQ(rg_tar_cursor_get(cursor, number, &got), 0);
        RG_CHECK(cursor->block.decoder.at == before);
    }
    rg_tar_cursor_close(cursor);
    rg_tar_index_close(index);
}

static void check_part(const struct rg_tar_sample *sample, uint32_t number, const char *extension,
                       uint64_t offset, uint64_t size)
{
    const struct rg_tar_part *part = &sample->parts[number];
    RG_CHECK_EQ(part->extension_size, strlen(extension));
    RG_CHECK(memcmp(part->extension, extension, part->extension_size) == 0);
    RG_CHECK_EQ(part->offset, offset);
    RG_CHECK_EQ(part->size, size);
}

static void test_members_that_are_not_wanted_are_left_out(void)
{
    static const char *const members[] = {"json", "cls", "txt"};
    struct rg_tar_index *index = index_make();
    struct rg_tar_cursor *cursor;
    const struct rg_tar_sample *got;
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, index, members, RG_ARRAY_LEN(members)), 0);
    RG_CHECK_EQ(rg_tar_cursor_get(cursor, 0, &got), 0);
    RG_CHECK_EQ(got->part_count, 3);
    RG_CHECK_STR(got->key, "0/0000");
    /* Read along: the block of "cls", header and 6 blocks of "jpg", the headers of the others. */
    check_part(got, 0, "cls", 0, 3);
    check_part(got, 1, "txt", 0, 0);
    check_part(got, 2, "json", (uint64_t)10 * 512, 700);
    RG_CHECK_EQ(cursor->piece_count, 1);
    RG_CHECK_EQ(got->offset, 512);
    RG_CHECK_EQ(got->size, 10 * 512 + 700);
    uint64_t begin = got->offset + 12 * 512; /* of the sample behind it */
    RG_CHECK_EQ(rg_tar_cursor_get(cursor, 1, &got), 0);
    RG_CHECK_EQ(got->part_count, 2);
    check_part(got, 0, "cls", 0, 3);
    check_part(got, 1, "json", RG_CACHE_LINE, 700);
    RG_CHECK_EQ(cursor->piece_count, 2);
    RG_CHECK_EQ(cursor->pieces[0].offset, begin + 512);
    RG_CHECK_EQ(cursor->pieces[0].size, 3);
    RG_CHECK_EQ(cursor->pieces[1].offset, begin + 512 * (1 + 1 + 1 + 33 + 1));
    RG_CHECK_EQ(cursor->pieces[1].size, 700);
    RG_CHECK_EQ(cursor->pieces[1].place, RG_CACHE_LINE);
    RG_CHECK_EQ(got->offset, begin + 512);
    RG_CHECK_EQ(got->size, RG_CACHE_LINE + 700);
    rg_tar_cursor_close(cursor);
    rg_tar_index_close(index);
}

static void test_a_sample_may_have_no_member_that_is_wanted(void)
{
    static const char *const members[] = {"txt", "tx", "json5"};
    struct rg_tar_index *index = index_make();
    struct rg_tar_cursor *cursor;
    const struct rg_tar_sample *got;
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, index, members, RG_ARRAY_LEN(members)), 0);
    for (uint64_t number = 0; number < 2; number++) {
        RG_CHECK_EQ(rg_tar_cursor_get(cursor, number, &got), 0);
        RG_CHECK_EQ(got->part_count, 1 - number);
        RG_CHECK_EQ(got->size, 0);
        RG_CHECK_EQ(cursor->piece_count, 0);
    }
    rg_tar_cursor_close(cursor);
    char text[RG_TAR_EXTENSION_SIZE_MAX + 2];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    const char *too_long = text, *too_many[RG_TAR_MEMBERS_MAX + 1] = {0};
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, index, &too_long, 1), -EINVAL);
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, index, too_many, RG_TAR_MEMBERS_MAX + 1), -EINVAL);
    rg_tar_index_close(index);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_samples_are_the_same_in_any_order),
        RG_TEST(test_the_next_sample_is_decoded_alone),
        RG_TEST(test_members_that_are_not_wanted_are_left_out),
        RG_TEST(test_a_sample_may_have_no_member_that_is_wanted),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
