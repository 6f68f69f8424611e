/* The writer of segments: space, places, and what is left after a failure. */
#include "cache/writer.h"

#include "runtime/descriptor.h"
#include "tests/cache/cache_case.h"

static void test_a_life(void)
{
    struct cache_case c;
    struct stat status;
    struct rg_cache_files files = {.count = 0};
    struct rg_cache_writer writer;
    const struct rg_cache_content *placed;
    struct rg_cache_content contents[2] = {{1, 0, 100}, {2, 2, 200}};
    cache_case_open(&c);
    int folder = rg_cache_folder_open(c.folder, true, c.why, sizeof(c.why));
    rg_cache_writer_init(&writer, folder);
    RG_CHECK(!rg_cache_writer_is_open(&writer));
    RG_CHECK_EQ(rg_cache_writer_begin(&writer, RG_MIB(3)), 0);
    RG_CHECK_EQ(fstat(writer.fd, &status), 0);
    RG_CHECK_EQ(status.st_size, RG_MIB(3));
    for (unsigned i = 0; i < 3; i++) {
        memset(c.record, 0, 8192);
        RG_CHECK_EQ(rg_cache_writer_append(&writer, c.record, 8192, contents, 2, &placed), 0);
        RG_CHECK_EQ(placed[1].place, (4096 + i * 8192) / 64 + 2);
    }
    RG_CHECK_EQ(rg_cache_writer_seal(&writer), 0);
    RG_CHECK_EQ(rg_cache_files_list(folder, &files), 0);
    RG_CHECK_EQ(files.count, 1);
    RG_CHECK_EQ(files.size, 4096 + 3 * 8192 + 4096);
    /* An abandoned one leaves nothing. */
    RG_CHECK_EQ(rg_cache_writer_begin(&writer, RG_MIB(3)), 0);
    rg_cache_writer_abandon(&writer);
    rg_cache_writer_abandon(&writer);
    RG_CHECK_EQ(rg_cache_files_list(folder, &files), 0);
    RG_CHECK_EQ(files.count, 1);
    rg_cache_files_fini(&files);
    rg_cache_writer_fini(&writer);
    rg_fd_drop(folder);
    RG_CHECK(rg_cache_writer_begin(&writer, RG_MIB(3)) < 0);
    RG_CHECK(!rg_cache_writer_is_open(&writer));
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_a_life)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
