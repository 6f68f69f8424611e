/* Samples come back from their bytes as they were, and what is cut off is noticed. */
#include "dataset/tar_code.h"
#include "dataset/tar_parser.h"
#include "tests/support/test.h"

#define COUNT 200

static struct rg_tar_sample samples[COUNT];
static uint8_t bytes[COUNT * 512];
static size_t bytes_size;

static uint64_t random_size(void)
{
    return rg_test_random_below(UINT64_C(1) << rg_test_random_below(40));
}

/* Returns where the next one may begin. */
static uint64_t sample_make(struct rg_tar_sample *sample, uint64_t at)
{
    static const char *const extensions[] = {"jpg", "cls", "", "seg.png", "a", "json"};
    sample->key_size =
        (uint32_t)snprintf(sample->key, sizeof(sample->key), "train/%d/%d",
                           (int)rg_test_random_below(3), (int)rg_test_random_below(100000));
    sample->offset = at;
    /* Most have the same ones, as in real archives. */
    sample->part_count = rg_test_random_below(4) > 0 ? 2 : 1 + (uint32_t)rg_test_random_below(6);
    uint32_t first = rg_test_random_below(4) > 0 ? 0 : 1; /* as many bytes in another order */
    for (uint32_t i = 0; i < sample->part_count; i++) {
        const char *extension = extensions[i < 2 ? i ^ first : i];
        sample->parts[i] = (struct rg_tar_part){
            .extension = extension,
            .extension_size = (uint32_t)strlen(extension),
            .offset = at - sample->offset,
            .size = random_size(),
        };
        sample->size = at - sample->offset + sample->parts[i].size;
        at = rg_tar_blocks_end(at, sample->parts[i].size) +
             RG_TAR_BLOCK_SIZE * (1 + rg_test_random_below(5));
    }
    return at;
}

static void samples_encode(void)
{
    static struct rg_tar_encoder encoder;
    uint64_t at = RG_TAR_BLOCK_SIZE;
    memset(&encoder, 0, sizeof(encoder));
    bytes_size = 0;
    for (size_t i = 0; i < COUNT; i++) {
        at = sample_make(&samples[i], at);
        bytes_size += rg_tar_encode(&encoder, &samples[i], bytes + bytes_size);
        RG_CHECK(bytes_size < sizeof(bytes) - RG_TAR_CODE_SIZE_MAX);
    }
}

static void check_same(const struct rg_tar_sample *got, const struct rg_tar_sample *want)
{
    RG_CHECK_STR(got->key, want->key);
    RG_CHECK_EQ(got->offset, want->offset);
    RG_CHECK_EQ(got->size, want->size);
    RG_CHECK_EQ(got->part_count, want->part_count);
    for (uint32_t i = 0; i < want->part_count; i++) {
        const struct rg_tar_part *a = &got->parts[i], *b = &want->parts[i];
        RG_CHECK_MEM(a->extension, a->extension_size, b->extension, b->extension_size);
        RG_CHECK_EQ(a->offset, b->offset);
        RG_CHECK_EQ(a->size, b->size);
    }
}

static void test_samples_come_back(void)
{
    for (int round = 0; round < 20; round++) {
        samples_encode();
        struct rg_tar_decoder decoder = {.at = bytes, .limit = bytes + bytes_size};
        struct rg_tar_sample sample = {0};
        for (size_t i = 0; i < COUNT; i++) {
            RG_CHECK(rg_tar_decode(&decoder, &sample));
            check_same(&sample, &samples[i]);
        }
        RG_CHECK(!rg_tar_decode(&decoder, &sample));
    }
}

static void test_a_cut_gives_only_whole_samples(void)
{
    samples_encode();
    size_t most = RG_MIN(bytes_size, (size_t)1000);
    for (size_t size = 0; size < most; size++) {
        uint8_t *cut = malloc(size + 1);
        RG_CHECK(cut != NULL);
        memcpy(cut, bytes, size);
        struct rg_tar_decoder decoder = {.at = cut, .limit = cut + size};
        struct rg_tar_sample sample = {0};
        size_t count = 0;
        while (rg_tar_decode(&decoder, &sample)) {
            check_same(&sample, &samples[count++]);
        }
        RG_CHECK(count < COUNT);
        free(cut);
    }
}

static void test_the_first_sample_must_name_its_extensions(void)
{
    static const uint8_t nothing[] = {0, 1, 'a', 0, 1, 1};
    struct rg_tar_decoder decoder = {.at = nothing, .limit = nothing + sizeof(nothing)};
    struct rg_tar_sample sample = {0};
    RG_CHECK(!rg_tar_decode(&decoder, &sample));
}

static void test_numbers_beyond_every_archive_are_refused(void)
{
    static const uint8_t large[][17] = {
        {0, 1, 'a', 1, 1, 'x', 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
        {0, 1, 'a', 1, 1, 'x', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(large); i++) {
        struct rg_tar_decoder decoder = {.at = large[i], .limit = large[i] + sizeof(large[i])};
        struct rg_tar_sample sample = {0};
        RG_CHECK(!rg_tar_decode(&decoder, &sample));
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_samples_come_back),
        RG_TEST(test_a_cut_gives_only_whole_samples),
        RG_TEST(test_the_first_sample_must_name_its_extensions),
        RG_TEST(test_numbers_beyond_every_archive_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
