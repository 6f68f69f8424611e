/* Manifests as they are read: what was written comes back, from any process, and damage is seen. */
#include "gcs/listing/manifest.h"
#include "gcs/listing/manifest_code.h"
#include "gcs/wire/checksum.h"
#include "tests/support/manifest_file.h"
#include "tests/support/test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 1000000
#define READERS 4

static char name[RG_OBJECT_NAME_SIZE_MAX + 1], want_name[RG_OBJECT_NAME_SIZE_MAX + 1];

static struct rg_manifest *manifest_open(const char *path)
{
    struct rg_manifest *manifest;
    char error[512] = "";
    int rc = rg_manifest_open(&manifest, path, error, sizeof(error));
    if (rc < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return manifest;
}

static void check_entry(const struct rg_manifest *manifest, uint64_t index)
{
    struct rg_object object, want = rg_test_manifest_object(index, want_name);
    RG_CHECK_EQ(rg_manifest_get(manifest, index, &object, name), 0);
    RG_CHECK(object.name == name);
    RG_CHECK_STR(name, want.name);
    RG_CHECK(object.size == want.size && object.generation == want.generation);
    RG_CHECK_EQ(object.has_crc32c, want.has_crc32c);
    RG_CHECK(!want.has_crc32c || object.crc32c == want.crc32c);
    RG_CHECK(object.updated == NULL);
}

static void test_a_million_objects_come_back(void)
{
    struct rg_test_manifest file;
    rg_test_manifest_init(&file);
    rg_test_manifest_write(&file, MANY);
    struct rg_manifest *manifest = manifest_open(file.path);
    RG_CHECK_EQ(rg_manifest_count(manifest), MANY);
    RG_CHECK_STR(rg_manifest_bucket(manifest), "some-bucket");
    for (uint64_t i = 0; i < MANY; i += 37) {
        check_entry(manifest, i);
    }
    for (unsigned i = 0; i < 10000; i++) {
        check_entry(manifest, rg_test_random_below(MANY));
    }
    check_entry(manifest, MANY - 1);
    struct rg_object object;
    RG_CHECK_EQ(rg_manifest_get(manifest, MANY, &object, name), -ERANGE);
    RG_CHECK_EQ(rg_manifest_get(manifest, UINT64_MAX, &object, name), -ERANGE);
    rg_manifest_close(manifest);
    struct stat status;
    RG_CHECK_EQ(stat(file.path, &status), 0);
    RG_CHECK(status.st_size < 25 * (off_t)MANY);
    rg_test_manifest_fini(&file);
}

static void test_manifests_of_any_size(void)
{
    static const uint64_t counts[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 1000};
    struct rg_test_manifest file;
    rg_test_manifest_init(&file);
    for (size_t i = 0; i < RG_ARRAY_LEN(counts); i++) {
        rg_test_manifest_write(&file, counts[i]);
        struct rg_manifest *manifest = manifest_open(file.path);
        RG_CHECK_EQ(rg_manifest_count(manifest), counts[i]);
        for (uint64_t index = 0; index < counts[i]; index++) {
            check_entry(manifest, index);
        }
        rg_manifest_close(manifest);
    }
    rg_manifest_close(NULL);
    rg_test_manifest_fini(&file);
}

/* A manifest that was opened before a fork is good in every child, as is one opened there. */
static void test_processes_share_it(void)
{
    struct rg_test_manifest file;
    rg_test_manifest_init(&file);
    rg_test_manifest_write(&file, 5000);
    struct rg_manifest *manifest = manifest_open(file.path);
    pid_t children[READERS];
    for (unsigned i = 0; i < READERS; i++) {
        children[i] = fork();
        RG_CHECK(children[i] >= 0);
        if (children[i] == 0) {
            struct rg_manifest *own = manifest_open(file.path);
            for (uint64_t index = i; index < 5000; index += READERS) {
                check_entry(manifest, index);
                check_entry(own, index);
            }
            rg_manifest_close(own);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < READERS; i++) {
        int status;
        RG_CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
        RG_CHECK_EQ(status, 0);
    }
    rg_manifest_close(manifest);
    rg_test_manifest_fini(&file);
}

/* The bytes of a manifest of 200 objects. */
static uint8_t *bytes_make(size_t *out_size)
{
    struct rg_test_manifest file;
    rg_test_manifest_init(&file);
    rg_test_manifest_write(&file, 200);
    struct stat status;
    RG_CHECK_EQ(stat(file.path, &status), 0);
    uint8_t *bytes = malloc((size_t)status.st_size);
    FILE *in = fopen(file.path, "re");
    RG_CHECK(bytes != NULL && in != NULL);
    RG_CHECK_EQ(fread(bytes, 1, (size_t)status.st_size, in), status.st_size);
    fclose(in);
    rg_test_manifest_fini(&file);
    *out_size = (size_t)status.st_size;
    return bytes;
}

static void check_damaged(const uint8_t *bytes, size_t size)
{
    struct rg_manifest *manifest = NULL;
    char error[256] = "";
    uint8_t *copy = malloc(size + 1);
    memcpy(copy, bytes, size);
    RG_CHECK_EQ(rg_manifest_open_memory(&manifest, copy, size, error, sizeof(error)), -EBADMSG);
    RG_CHECK(manifest == NULL && strstr(error, "at byte ") != NULL);
    RG_CHECK_EQ(rg_manifest_open_memory(&manifest, copy, size, NULL, 0), -EBADMSG);
    free(copy);
}

static void test_a_file_cut_anywhere_is_damaged(void)
{
    size_t size;
    uint8_t *bytes = bytes_make(&size);
    for (size_t cut = 0; cut < size; cut++) {
        check_damaged(bytes, cut);
    }
    free(bytes);
}

static void test_any_flipped_bit_is_damage(void)
{
    size_t size;
    uint8_t *bytes = bytes_make(&size);
    for (size_t at = 0; at < size; at++) {
        uint8_t bit = (uint8_t)(1u << at % 8);
        bytes[at] ^= bit;
        check_damaged(bytes, size);
        bytes[at] ^= bit;
    }
    free(bytes);
}

/* Checksums that are right do not make the rest right. */
static void test_numbers_that_do_not_fit(void)
{
    static const struct {
        enum rg_manifest_field at;
        uint32_t number;
    } bad[] = {
        {RG_MANIFEST_AT_VERSION, 2},       {RG_MANIFEST_AT_HEADER_SIZE, 0},
        {RG_MANIFEST_AT_HEADER_SIZE, 72},  {RG_MANIFEST_AT_HEADER_SIZE, UINT32_MAX},
        {RG_MANIFEST_AT_COUNT, 0},         {RG_MANIFEST_AT_COUNT, 199 + 64},
        {RG_MANIFEST_AT_COUNT + 4, 1},     {RG_MANIFEST_AT_FILE_SIZE, 0},
        {RG_MANIFEST_AT_INDEX, 0},         {RG_MANIFEST_AT_INDEX, UINT32_MAX},
        {RG_MANIFEST_AT_INDEX + 4, 1},     {RG_MANIFEST_AT_BLOCK_COUNT, 3},
        {RG_MANIFEST_AT_BLOCK_ENTRIES, 0}, {RG_MANIFEST_AT_BLOCK_ENTRIES, 32},
        {RG_MANIFEST_AT_BUCKET_SIZE, 0},   {RG_MANIFEST_AT_BUCKET_SIZE, UINT32_MAX},
    };
    size_t size;
    uint8_t *bytes = bytes_make(&size);
    uint32_t header_size = rg_manifest_read_u32(bytes + RG_MANIFEST_AT_HEADER_SIZE);
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        uint32_t right = rg_manifest_read_u32(bytes + bad[i].at);
        rg_manifest_write_u32(bytes + bad[i].at, bad[i].number);
        rg_manifest_write_u32(bytes + RG_MANIFEST_AT_HEADER_CRC,
                              rg_manifest_header_crc(bytes, header_size));
        check_damaged(bytes, size);
        rg_manifest_write_u32(bytes + bad[i].at, right);
    }
    free(bytes);
}

#define OTHERS 200

/* A manifest of OTHERS objects with so many in a block, as another writer may make it. */
static size_t other_make(uint8_t *bytes, uint32_t entries)
{
    uint32_t header_size = rg_manifest_header_size(0);
    uint8_t *at = bytes + header_size, index[OTHERS * RG_MANIFEST_INDEX_ENTRY_SIZE];
    uint32_t blocks = 0;
    for (uint32_t first = 0; first < OTHERS; first += entries, blocks++) {
        struct rg_manifest_encoder encoder = {.name = ""};
        uint8_t *begin = at, *entry = index + blocks * RG_MANIFEST_INDEX_ENTRY_SIZE;
        for (uint32_t i = first; i < RG_MIN(first + entries, OTHERS); i++) {
            struct rg_object object = rg_test_manifest_object(i, want_name);
            at += rg_manifest_encode(&encoder, &object, at);
        }
        rg_manifest_write_u64(entry, (uint64_t)(begin - bytes));
        rg_manifest_write_u32(entry + 8, (uint32_t)(at - begin));
        rg_manifest_write_u32(entry + 12, rg_crc32c(0, begin, (size_t)(at - begin)));
    }
    while ((at - bytes) % RG_MANIFEST_ALIGNMENT != 0) {
        *at++ = 0;
    }
    size_t index_at = (size_t)(at - bytes), size = index_at + blocks * RG_MANIFEST_INDEX_ENTRY_SIZE;
    memcpy(at, index, blocks * RG_MANIFEST_INDEX_ENTRY_SIZE);
    memset(bytes, 0, header_size);
    memcpy(bytes, RG_MANIFEST_MAGIC, RG_MANIFEST_MAGIC_SIZE);
    rg_manifest_write_u32(bytes + RG_MANIFEST_AT_VERSION, RG_MANIFEST_VERSION);
    rg_manifest_write_u32(bytes + RG_MANIFEST_AT_HEADER_SIZE, header_size);
    rg_manifest_write_u64(bytes + RG_MANIFEST_AT_COUNT, OTHERS);
    rg_manifest_write_u64(bytes + RG_MANIFEST_AT_FILE_SIZE, size);
    rg_manifest_write_u64(bytes + RG_MANIFEST_AT_INDEX, index_at);
    rg_manifest_write_u32(bytes + RG_MANIFEST_AT_BLOCK_COUNT, blocks);
    rg_manifest_write_u32(bytes + RG_MANIFEST_AT_BLOCK_ENTRIES, entries);
    rg_manifest_write_u32(bytes + RG_MANIFEST_AT_CRC,
                          rg_crc32c(0, bytes + header_size, size - header_size));
    rg_manifest_write_u32(bytes + RG_MANIFEST_AT_HEADER_CRC,
                          rg_manifest_header_crc(bytes, header_size));
    return size;
}

static void test_blocks_of_other_sizes(void)
{
    uint8_t *bytes = malloc(OTHERS * RG_MANIFEST_ENTRY_SIZE_MAX + RG_KIB(8));
    RG_CHECK(bytes != NULL);
    for (uint32_t entries = 1; entries <= RG_MANIFEST_BLOCK_ENTRIES_MAX; entries++) {
        struct rg_manifest *manifest;
        struct rg_manifest_cursor *cursor;
        struct rg_object object;
        size_t size = other_make(bytes, entries);
        RG_CHECK_EQ(rg_manifest_open_memory(&manifest, bytes, size, NULL, 0), 0);
        RG_CHECK_EQ(rg_manifest_cursor_open(&cursor, manifest), 0);
        for (uint64_t i = 0; i < OTHERS; i++) {
            check_entry(manifest, i);
            uint64_t any = rg_test_random_below(OTHERS);
            RG_CHECK_EQ(rg_manifest_cursor_get(cursor, any, &object), 0);
            (void)rg_test_manifest_object(any, want_name);
            RG_CHECK_STR(object.name, want_name);
        }
        rg_manifest_cursor_close(cursor);
        rg_manifest_close(manifest);
    }
    size_t size = other_make(bytes, RG_MANIFEST_BLOCK_ENTRIES_MAX + 1);
    check_damaged(bytes, size);
    free(bytes);
}

static void test_files_that_are_none(void)
{
    struct rg_test_manifest file;
    struct rg_manifest *manifest;
    char error[512];
    rg_test_manifest_init(&file);
    RG_CHECK_EQ(rg_manifest_open(&manifest, file.path, error, sizeof(error)), -ENOENT);
    RG_CHECK(strstr(error, file.path) != NULL && strstr(error, "No such file") != NULL);
    RG_CHECK_EQ(rg_manifest_open(&manifest, file.folder, error, sizeof(error)), -EBADMSG);
    FILE *out = fopen(file.path, "we");
    fputs("a,b,c\n", out);
    fclose(out);
    RG_CHECK_EQ(rg_manifest_open(&manifest, file.path, error, sizeof(error)), -EBADMSG);
    RG_CHECK(strstr(error, "not a manifest") != NULL);
    RG_CHECK_EQ(rg_manifest_open(&manifest, file.path, NULL, 0), -EBADMSG);
    rg_test_manifest_fini(&file);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_million_objects_come_back), RG_TEST(test_manifests_of_any_size),
        RG_TEST(test_processes_share_it),          RG_TEST(test_a_file_cut_anywhere_is_damaged),
        RG_TEST(test_any_flipped_bit_is_damage),   RG_TEST(test_numbers_that_do_not_fit),
        RG_TEST(test_files_that_are_none),         RG_TEST(test_blocks_of_other_sizes),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
