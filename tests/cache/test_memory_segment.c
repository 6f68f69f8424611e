/* One segment in memory: what is put in is read by all, nobody changes it any more, and nothing is
 * mapped that could be changed. */
#include "cache/memory_segment.h"

#include "cache/files.h"
#include "cache/memory_table.h"
#include "tests/cache/cache_case.h"

#include <sys/mman.h>

#define SIZE RG_MIB(2)

static struct rg_memory_segment filled(unsigned records, size_t body_size)
{
    static uint8_t body[RG_CACHE_BLOCK_SIZE], header[RG_CACHE_HEADER_SIZE_MAX];
    struct rg_memory_segment segment;
    struct rg_cache_nonce nonce;
    rg_cache_nonce_draw(&nonce);
    RG_CHECK_EQ(rg_memory_segment_make(&segment, &nonce, SIZE), 0);
    for (unsigned i = 0; i < records; i++) {
        struct case_key k;
        struct rg_cache_key_sizes sizes;
        struct rg_cache_record record = {.object_size = body_size};
        case_key_make(&k, i);
        body_fill(body, body_size, i);
        RG_CHECK(rg_cache_key_measure(&k.key, &sizes));
        struct rg_cache_content content = {.hash = rg_cache_key_hash(&k.key, &sizes)};
        size_t header_size = rg_cache_header_size(&sizes, body_size);
        content.size = (uint32_t)(header_size + body_size);
        content.place = rg_memory_segment_reserve(&segment, content.size);
        RG_CHECK(content.place != 0);
        rg_cache_header_write(&k.key, &sizes, content.hash, &record, body, body_size, header);
        RG_CHECK_EQ(
            rg_memory_segment_put(&segment, content.place, header, header_size, body, body_size),
            0);
        RG_CHECK_EQ(rg_memory_segment_list(&segment, &content), 0);
    }
    return segment;
}

static struct rg_memory_line line_of(const struct rg_memory_segment *segment)
{
    struct rg_memory_line line = {
        .nonce = segment->nonce,
        .size = segment->size,
        .state = RG_MEMORY_SEALED,
        .pid = getpid(),
        .fd = segment->fd,
    };
    return line;
}

static int adopt(const struct rg_memory_line *line)
{
    struct rg_memory_segment other;
    const struct rg_cache_content *contents;
    uint32_t count;
    int rc = rg_memory_segment_adopt(&other, line, &contents, &count);
    if (rc == 0) {
        rg_memory_segment_close(&other);
    }
    return rc;
}

static void test_others_read_what_is_sealed(void)
{
    struct rg_memory_segment segment = filled(9, 5000), other;
    const struct rg_cache_content *contents;
    uint32_t count = 0;
    RG_CHECK_EQ(rg_memory_segment_seal(&segment), 0);
    RG_CHECK(segment.is_sealed && segment.size < RG_KIB(60));
    struct rg_memory_line line = line_of(&segment);
    RG_CHECK_EQ(rg_memory_segment_adopt(&other, &line, &contents, &count), 0);
    RG_CHECK_EQ(count, 9);
    RG_CHECK_MEM(other.data, other.mapped, segment.data, segment.size);
    for (uint32_t i = 0; i < count; i++) {
        struct rg_cache_key key;
        struct rg_cache_record record;
        uint64_t hash;
        const uint8_t *bytes = other.data + (uint64_t)contents[i].place * RG_CACHE_UNIT;
        RG_CHECK_EQ(rg_cache_header_read(bytes, contents[i].size, &key, &record, &hash), 0);
        RG_CHECK_EQ(hash, contents[i].hash);
        RG_CHECK_EQ(rg_cache_body_check(&record, 0, bytes + record.header_size, 5000), 0);
    }
    /* It stays when the one who made it has ended. */
    rg_memory_segment_close(&segment);
    RG_CHECK_EQ(other.data[RG_CACHE_HEAD_SIZE], 'R');
    rg_memory_segment_close(&other);
}

static void test_nobody_changes_what_is_sealed(void)
{
    struct rg_memory_segment segment = filled(2, 100);
    RG_CHECK_EQ(rg_memory_segment_seal(&segment), 0);
    RG_CHECK(pwrite(segment.fd, "x", 1, 0) < 0);
    RG_CHECK(ftruncate(segment.fd, 0) < 0);
    RG_CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0) == MAP_FAILED);
    RG_CHECK(fallocate(segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
    RG_CHECK(mprotect((void *)(uintptr_t)segment.data, 4096, PROT_READ | PROT_WRITE) < 0);
    RG_CHECK_EQ(rg_memory_segment_reserve(&segment, 100), 0);
    rg_memory_segment_close(&segment);
}

static void test_what_could_be_changed_is_refused(void)
{
    struct rg_memory_segment segment = filled(2, 100);
    struct rg_memory_line line = line_of(&segment);
    RG_CHECK_EQ(adopt(&line), -EPERM);
    RG_CHECK_EQ(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    RG_CHECK_EQ(adopt(&line), -EPERM);
    rg_memory_segment_close(&segment);
}

static void test_what_is_something_else_is_refused(void)
{
    struct rg_memory_segment segment = filled(2, 100);
    int ends[2];
    RG_CHECK_EQ(rg_memory_segment_seal(&segment), 0);
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    const struct rg_memory_line right = line_of(&segment);
    RG_CHECK_EQ(adopt(&right), 0);
    struct rg_memory_line line = right;
    line.nonce.bytes[3] ^= 1;
    RG_CHECK_EQ(adopt(&line), -ENOENT);
    line = right;
    line.size -= 64;
    RG_CHECK_EQ(adopt(&line), -ENOENT);
    line = right;
    line.fd = ends[0];
    RG_CHECK_EQ(adopt(&line), -ENOENT);
    line.fd = 1000000;
    RG_CHECK_EQ(adopt(&line), -ENOENT);
    line.fd = -1;
    RG_CHECK_EQ(adopt(&line), -EBADMSG);
    line = right;
    line.pid = 0;
    RG_CHECK_EQ(adopt(&line), -EBADMSG);
    line.pid = 0x7ffffff0;
    RG_CHECK_EQ(adopt(&line), -ENOENT);
    line = right;
    line.size = UINT64_MAX;
    RG_CHECK_EQ(adopt(&line), -EBADMSG);
    close(ends[0]);
    close(ends[1]);
    rg_memory_segment_close(&segment);
}

/* Sealed by somebody who wrote something else into it. */
static void test_damaged_tables_are_refused(void)
{
    for (unsigned i = 0; i < 4; i++) {
        struct rg_memory_segment segment = filled(4, 100);
        segment.contents[1].size += i == 0 ? RG_MIB(9) : 0;
        segment.contents[2].place = i == 1 ? 1 : segment.contents[2].place;
        segment.contents[3].hash = i == 2 ? 0 : segment.contents[3].hash;
        if (i == 3) { /* a note of a folder's index, whose place is none in the segment */
            segment.contents[1].size = RG_CACHE_CONTENT_NOTE | RG_CACHE_UNIT;
            segment.contents[1].place = RG_CACHE_BLOCK_SIZE - 1;
        }
        RG_CHECK_EQ(rg_memory_segment_seal(&segment), 0);
        struct rg_memory_line line = line_of(&segment);
        RG_CHECK_EQ(adopt(&line), -EBADMSG);
        rg_memory_segment_close(&segment);
    }
}

static void test_it_is_full_when_no_more_fits_beside_its_table(void)
{
    struct rg_memory_segment segment = filled(0, 0);
    unsigned records = 0;
    while (rg_memory_segment_reserve(&segment, 65) != 0) {
        struct rg_cache_content content = {.hash = 1, .place = 64, .size = 65};
        RG_CHECK_EQ(rg_memory_segment_list(&segment, &content), 0);
        records++;
    }
    RG_CHECK(records > SIZE / 150 && records < SIZE / 128);
    RG_CHECK_EQ(rg_memory_segment_seal(&segment), 0);
    RG_CHECK(segment.size <= SIZE && segment.size > SIZE - 512);
    rg_memory_segment_close(&segment);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_others_read_what_is_sealed),
        RG_TEST(test_nobody_changes_what_is_sealed),
        RG_TEST(test_what_could_be_changed_is_refused),
        RG_TEST(test_what_is_something_else_is_refused),
        RG_TEST(test_damaged_tables_are_refused),
        RG_TEST(test_it_is_full_when_no_more_fits_beside_its_table),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
