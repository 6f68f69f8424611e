/* Reading regular files without holding up a loop: by the threads themselves, and as ops of a loop
 * with the backend that RINGEST_BACKEND names. */
#include "runtime/clock.h"
#include "runtime/file_reader.h"
#include "runtime/loop.h"

#include "tests/support/loop.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_SIZE (3 * RG_OP_SIZE_MAX + 12345)
#define OPS 16
/* Of a direct read of 16 KiB: what is wanted. */
#define LEAD 100
#define NEEDED 9000

static uint8_t content(uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 11));
}

/* A file without a name. */
static int file_make(uint64_t size)
{
    char path[] = "/tmp/ringest-test-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    RG_CHECK(fd >= 0);
    unlink(path);
    uint8_t *data = malloc(size + 1);
    for (uint64_t i = 0; i < size; i++) {
        data[i] = content(i);
    }
    RG_CHECK_EQ(write(fd, data, size), (ssize_t)size);
    free(data);
    return fd;
}

static struct rg_loop *loop_make(void)
{
    struct rg_loop_options options = {
        .backend = rg_test_backend(),
        .placement = {.node = -1, .cpu = -1},
    };
    struct rg_loop *loop = NULL;
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    return loop;
}

struct reading {
    struct rg_op op;
    uint8_t *data;
    unsigned done_count;
};

static void reading_done(struct rg_op *op)
{
    struct reading *reading = RG_CONTAINER_OF(op, struct reading, op);
    reading->done_count++;
}

static int32_t read_once(struct rg_loop *loop, struct reading *reading, int fd, uint64_t offset,
                         size_t size)
{
    reading->done_count = 0;
    rg_op_read_file(loop, &reading->op, fd, offset, reading->data, size);
    /* It cannot be cancelled, which must not do harm. */
    rg_op_cancel(loop, &reading->op);
    uint64_t end_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;
    while (reading->done_count == 0 && rg_now_ns() < end_ns) {
        rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_S);
    }
    RG_CHECK_EQ(reading->done_count, 1);
    RG_CHECK(rg_op_idle(&reading->op));
    return reading->op.result;
}

/* Returns how many of the reads had to wait. */
static unsigned read_whole(struct rg_loop *loop, struct reading *reading, int fd)
{
    uint64_t offset = 0;
    unsigned waited = 0;
    while (offset < FILE_SIZE) {
        /* More than one op takes. */
        memset(reading->data, 0xa5, RG_OP_SIZE_MAX);
        int32_t got = read_once(loop, reading, fd, offset, FILE_SIZE);
        RG_CHECK(got > 0 && (size_t)got <= RG_OP_SIZE_MAX);
        for (int32_t i = 0; i < got; i++) {
            if (reading->data[i] != content(offset + (uint64_t)i)) {
                RG_CHECK_EQ(reading->data[i], content(offset + (uint64_t)i));
            }
        }
        offset += (uint64_t)got;
        waited += reading->op.waited;
    }
    return waited;
}

/* The page cache is asked to forget the file; where it lies on a disk, that makes the reads wait.
 */
static void test_pieces_of_a_file(void)
{
    struct rg_loop *loop = loop_make();
    int fd = file_make(FILE_SIZE);
    struct reading reading = {.data = malloc(FILE_SIZE)};
    rg_op_init(&reading.op, reading_done);
    unsigned cached = read_whole(loop, &reading, fd);
    RG_CHECK_EQ(fsync(fd), 0);
    RG_CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    RG_CHECK(read_whole(loop, &reading, fd) >= cached);
    RG_CHECK_EQ(read_once(loop, &reading, fd, FILE_SIZE, 1), 0);
    RG_CHECK_EQ(read_once(loop, &reading, fd, FILE_SIZE - 2, 100), 2);
    free(reading.data);
    close(fd);
    rg_loop_destroy(loop);
}

static void test_what_cannot_be_read(void)
{
    struct rg_loop *loop = loop_make();
    uint8_t byte;
    struct reading reading = {.data = &byte};
    rg_op_init(&reading.op, reading_done);
    int directory = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    RG_CHECK_EQ(read_once(loop, &reading, directory, 0, 1), -EISDIR);
    close(directory);
    rg_loop_destroy(loop);
}

struct bell {
    _Atomic unsigned rung;
};

static void bell_ring(void *context)
{
    struct bell *bell = context;
    bell->rung++;
}

/* More at once than there are threads; each comes back once. */
static void test_many_at_once(void)
{
    struct bell bell = {0};
    struct rg_file_reader *reader;
    RG_CHECK_EQ(rg_file_reader_create(&reader, bell_ring, &bell), 0);
    RG_CHECK(rg_file_reader_take(reader) == NULL);
    int fd = file_make(OPS * 1000);
    static struct rg_op ops[OPS];
    static uint8_t data[OPS][1000];
    for (unsigned i = 0; i < OPS; i++) {
        ops[i] = (struct rg_op){.file = fd, .offset = i * 1000, .data = data[i], .size = 1000};
        rg_file_reader_start(reader, &ops[i]);
    }
    unsigned taken = 0;
    uint64_t end_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;
    while (taken < OPS && rg_now_ns() < end_ns) {
        for (struct rg_op *op = rg_file_reader_take(reader); op != NULL; op = op->ready_next) {
            size_t i = (size_t)(op - ops);
            RG_CHECK_EQ(op->result, 1000);
            RG_CHECK_EQ(data[i][999], content(i * 1000 + 999));
            taken++;
        }
    }
    RG_CHECK_EQ(taken, OPS);
    RG_CHECK_EQ(bell.rung, OPS);
    close(fd);
    rg_file_reader_destroy(reader);
}

/* What waits is dropped, and no thread is left behind. */
static void test_the_end_with_reads_out(void)
{
    struct bell bell = {0};
    int fd = file_make(OPS * 1000);
    static struct rg_op ops[OPS];
    static uint8_t data[OPS][1000];
    for (unsigned round = 0; round < 20; round++) {
        struct rg_file_reader *reader;
        RG_CHECK_EQ(rg_file_reader_create(&reader, bell_ring, &bell), 0);
        for (unsigned i = 0; i < OPS; i++) {
            ops[i] = (struct rg_op){.file = fd, .offset = i, .data = data[i], .size = 1000};
            rg_file_reader_start(reader, &ops[i]);
        }
        rg_file_reader_destroy(reader);
    }
    RG_CHECK(bell.rung <= 20 * OPS);
    close(fd);
}

/* What the page cache has is read from there, and the rest by the direct descriptor. */
static void test_a_direct_read_asks_the_page_cache_first(void)
{
    char path[] = "/var/tmp/ringest-test-XXXXXX";
    uint8_t *data = aligned_alloc(4096, 65536);
    int fd = mkostemp(path, O_CLOEXEC);
    RG_CHECK(fd >= 0 && data != NULL);
    for (size_t i = 0; i < 65536; i++) {
        data[i] = content(i);
    }
    RG_CHECK_EQ(write(fd, data, 65536), 65536);
    RG_CHECK_EQ(fsync(fd), 0);
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unlink(path);
    if (direct < 0) {
        rg_test_skip("there are no direct reads in /var/tmp");
    }
    struct rg_loop *loop = loop_make();
    struct reading reading = {.data = data};
    rg_op_init(&reading.op, reading_done);
    for (int round = 0; round < 4; round++) {
        memset(data, 0, 65536);
        if (round == 2) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        reading.done_count = 0;
        rg_op_read_file_direct(loop, &reading.op, round == 1 ? -1 : fd, direct, 8192, data, 16384,
                               LEAD, NEEDED);
        while (reading.done_count == 0) {
            rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_S);
        }
        bool waited = reading.op.waited;
        RG_CHECK_EQ(reading.op.result, waited ? 16384 : NEEDED);
        for (size_t i = 0; i < 16384; i++) {
            bool read = waited || (i >= LEAD && i < NEEDED);
            RG_CHECK_EQ(data[i], read ? content(8192 + i) : 0);
        }
        RG_CHECK(round != 1 || waited);
    }
    rg_loop_destroy(loop);
    close(direct);
    close(fd);
    free(data);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pieces_of_a_file),
        RG_TEST(test_what_cannot_be_read),
        RG_TEST(test_many_at_once),
        RG_TEST(test_the_end_with_reads_out),
        RG_TEST(test_a_direct_read_asks_the_page_cache_first),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
