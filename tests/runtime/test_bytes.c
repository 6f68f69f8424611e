/* Bytes that are written once: who can map them, who cannot change them. */
#include "runtime/bytes.h"

#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static void fill(uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(i * 7 + (i >> 9));
    }
}

static void test_small_copies_have_no_descriptor(void)
{
    uint8_t data[100];
    fill(data, sizeof(data));
    for (size_t size = 0; size <= sizeof(data); size += 50) {
        struct rg_bytes bytes;
        RG_CHECK_EQ(rg_bytes_copy(&bytes, data, size), 0);
        RG_CHECK(bytes.fd == -1 && !bytes.is_mapped);
        RG_CHECK_MEM(bytes.data, bytes.size, data, size);
        rg_bytes_close(&bytes);
        RG_CHECK(bytes.data == NULL);
        rg_bytes_close(&bytes);
    }
}

static void test_large_copies_are_sealed_memory_that_others_map(void)
{
    size_t size = RG_BYTES_SHARED_SIZE_MIN + 5;
    uint8_t *data = malloc(size);
    fill(data, size);
    struct rg_bytes bytes, other;
    RG_CHECK_EQ(rg_bytes_copy(&bytes, data, size), 0);
    RG_CHECK(bytes.fd >= 0 && bytes.is_mapped);
    RG_CHECK_EQ(write(bytes.fd, data, 1), -1);
    RG_CHECK_EQ(errno, EPERM);
    RG_CHECK_EQ(ftruncate(bytes.fd, 1), -1);
    RG_CHECK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bytes.fd, 0) == MAP_FAILED);
    RG_CHECK((fcntl(bytes.fd, F_GETFD) & FD_CLOEXEC) != 0);
    RG_CHECK_EQ(rg_bytes_map(&other, fcntl(bytes.fd, F_DUPFD_CLOEXEC, 0)), 0);
    rg_bytes_close(&bytes);
    RG_CHECK_MEM(other.data, other.size, data, size);
    rg_bytes_close(&other);
    free(data);
}

static void test_where_there_is_no_memory_file_copies_are_our_own(void)
{
    size_t size = RG_BYTES_SHARED_SIZE_MIN;
    uint8_t *data = malloc(size);
    fill(data, size);
    struct rlimit limit, none;
    RG_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    struct rg_bytes bytes;
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = rg_bytes_copy(&bytes, data, size);
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    RG_CHECK_EQ(rc, 0);
    RG_CHECK_EQ(bytes.fd, -1);
    RG_CHECK_MEM(bytes.data, bytes.size, data, size);
    rg_bytes_close(&bytes);
    free(data);
}

static void test_what_is_no_file_is_not_mapped(void)
{
    struct rg_bytes bytes;
    int ends[2];
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    RG_CHECK_EQ(rg_bytes_map(&bytes, ends[0]), -EBADMSG);
    RG_CHECK_EQ(rg_bytes_map(&bytes, -1), -EBADF);
    close(ends[0]);
    close(ends[1]);
    int empty = rg_memory_file_open("empty");
    RG_CHECK(empty >= 0);
    RG_CHECK_EQ(rg_bytes_map(&bytes, empty), -EBADMSG);
    close(empty);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_small_copies_have_no_descriptor),
        RG_TEST(test_large_copies_are_sealed_memory_that_others_map),
        RG_TEST(test_where_there_is_no_memory_file_copies_are_our_own),
        RG_TEST(test_what_is_no_file_is_not_mapped),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
