/* Entries of manifests, to bytes and back. */
#include "gcs/listing/manifest_code.h"
#include "tests/support/names.h"
#include "tests/support/test.h"

static char name[RG_OBJECT_NAME_SIZE_MAX + 1];

static void check_object(const struct rg_manifest_decoder *decoder, const struct rg_object *want)
{
    RG_CHECK_STR(decoder->name, want->name);
    RG_CHECK(decoder->object.size == want->size);
    RG_CHECK(decoder->object.generation == want->generation);
    RG_CHECK_EQ(decoder->object.has_crc32c, want->has_crc32c);
    RG_CHECK_EQ(decoder->object.crc32c, want->has_crc32c ? want->crc32c : 0);
}

/* The bytes that the format's description promises. */
static void test_the_bytes_of_an_entry(void)
{
    struct rg_manifest_encoder encoder = {.name = ""};
    uint8_t out[2 * RG_MANIFEST_ENTRY_SIZE_MAX];
    size_t size = rg_manifest_encode(
        &encoder,
        &(struct rg_object){
            .name = "ab", .size = 300, .generation = 1, .crc32c = 0x04030201, .has_crc32c = true},
        out);
    size += rg_manifest_encode(&encoder, &(struct rg_object){.name = "abc"}, out + size);
    static const uint8_t want[] = {0, 2, 'a', 'b', 0xac, 0x02, 2, 1, 1,
                                   2, 3, 4,   2,   1,    'c',  0, 1, 0};
    RG_CHECK_MEM(out, size, want, sizeof(want));
}

static void test_any_entries_come_back(void)
{
    static const uint64_t numbers[] = {0, 1, 127, 128, INT64_MAX - 1, INT64_MAX};
    for (unsigned kind = 0; kind < RG_TEST_NAMES_KIND_COUNT; kind++) {
        struct rg_test_names set = rg_test_names_make((enum rg_test_name_kind)kind, 64);
        struct rg_object objects[64];
        uint8_t *out = malloc(64 * RG_MANIFEST_ENTRY_SIZE_MAX);
        struct rg_manifest_encoder encoder = {.name = ""};
        size_t size = 0;
        for (size_t i = 0; i < set.count; i++) {
            objects[i] = (struct rg_object){
                .name = set.names[i],
                .size = rg_test_random_below(3) == 0 ? UINT64_MAX : rg_test_random() >> i,
                .generation = (int64_t)numbers[rg_test_random_below(RG_ARRAY_LEN(numbers))],
                .crc32c = (uint32_t)rg_test_random(),
                .has_crc32c = rg_test_random_below(2) == 0,
            };
            size += rg_manifest_encode(&encoder, &objects[i], out + size);
        }
        struct rg_manifest_decoder decoder = {.at = out, .end = out + size, .name = name};
        for (size_t i = 0; i < set.count; i++) {
            RG_CHECK(rg_manifest_decode(&decoder));
            check_object(&decoder, &objects[i]);
        }
        RG_CHECK(decoder.at == decoder.end && !rg_manifest_decode(&decoder));
        free(out);
        rg_test_names_free(&set);
    }
}

/* What ends early is refused at every length. */
static void test_an_entry_that_is_cut(void)
{
    struct rg_manifest_encoder encoder = {.name = ""};
    uint8_t out[RG_MANIFEST_ENTRY_SIZE_MAX];
    size_t size = rg_manifest_encode(
        &encoder,
        &(struct rg_object){
            .name = "some/name", .size = UINT64_MAX, .generation = INT64_MAX, .has_crc32c = true},
        out);
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, out, cut);
        struct rg_manifest_decoder decoder = {.at = copy, .end = copy + cut, .name = name};
        RG_CHECK_EQ(rg_manifest_decode(&decoder), cut == size);
        free(copy);
    }
}

static void test_entries_that_are_wrong(void)
{
    static const struct {
        uint8_t bytes[16];
        size_t size;
    } bad[] = {
        {{0, 0, 0, 0, 0}, 5},               /* no name */
        {{1, 1, 'a', 0, 0, 0}, 6},          /* shares more than there is */
        {{0, 1, 0, 0, 0, 0}, 6},            /* NUL in a name */
        {{0, 1, 'a', 0, 0, 2}, 6},          /* a flag that is not known */
        {{0, 1, 'a', 0, 1, 0}, 6},          /* a generation below 0 */
        {{0, 0x81, 0x08, 'a', 0, 0, 0}, 7}, /* a name that is not there */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 1, 'a', 0, 0, 0}, 15},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        struct rg_manifest_decoder decoder = {
            .at = bad[i].bytes, .end = bad[i].bytes + bad[i].size, .name = name};
        RG_CHECK(!rg_manifest_decode(&decoder));
    }
}

static void test_numbers_are_little_endian(void)
{
    uint8_t out[8];
    rg_manifest_write_u32(out, 0x04030201);
    RG_CHECK_MEM(out, 4, "\1\2\3\4", 4);
    RG_CHECK_EQ(rg_manifest_read_u32(out), 0x04030201);
    rg_manifest_write_u64(out, UINT64_C(0x0807060504030201));
    RG_CHECK_MEM(out, 8, "\1\2\3\4\5\6\7\10", 8);
    RG_CHECK(rg_manifest_read_u64(out) == UINT64_C(0x0807060504030201));
    RG_CHECK_EQ(rg_manifest_header_size(3), 72);
    RG_CHECK_EQ(rg_manifest_header_size(8), 72);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_bytes_of_an_entry),     RG_TEST(test_any_entries_come_back),
        RG_TEST(test_an_entry_that_is_cut),      RG_TEST(test_entries_that_are_wrong),
        RG_TEST(test_numbers_are_little_endian),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
