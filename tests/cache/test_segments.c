/* Segments that are open for reading. */
#include "cache/segments.h"

#include "cache/writer.h"
#include "runtime/descriptor.h"
#include "tests/cache/cache_case.h"

static int folder_get(struct cache_case *c)
{
    int folder = rg_cache_folder_open(c->folder, true, c->why, sizeof(c->why));
    RG_CHECK(folder >= 0);
    return folder;
}

static void segment_make(int folder, struct rg_cache_nonce *out_nonce)
{
    struct rg_cache_writer writer;
    rg_cache_writer_init(&writer, folder);
    RG_CHECK_EQ(rg_cache_writer_begin(&writer, RG_MIB(2)), 0);
    *out_nonce = writer.nonce;
    RG_CHECK_EQ(rg_cache_writer_seal(&writer), 0);
    rg_cache_writer_fini(&writer);
}

static void test_pins_keep_it_open(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce, other = {{7}};
    struct rg_cache_segments segments;
    cache_case_open(&c);
    int folder = folder_get(&c);
    segment_make(folder, &nonce);
    RG_CHECK_EQ(rg_cache_segments_init(&segments, folder, true, false), 0);
    struct rg_cache_segment *one = rg_cache_segments_pin(&segments, 5, &nonce, false);
    RG_CHECK(one != NULL && one == rg_cache_segments_pin(&segments, 5, &nonce, false));
    one->last_use = 9;
    RG_CHECK_EQ(rg_cache_segments_use(&segments, 5, &nonce), 9);
    RG_CHECK_EQ(rg_cache_segments_use(&segments, 5, &other), 0);
    /* The number is another's: it is let go, but lives until it is unpinned. */
    RG_CHECK(rg_cache_segments_pin(&segments, 5, &other, false) == NULL);
    char byte;
    RG_CHECK_EQ(pread(one->fd, &byte, 1, 0), 1);
    rg_cache_segments_unpin(&segments, one);
    rg_cache_segments_unpin(&segments, one);
    /* What could not be opened is not tried again until it is asked for. */
    RG_CHECK(rg_cache_segments_pin(&segments, 5, &other, false) == NULL);
    rg_cache_segments_retry(&segments);
    rg_cache_segments_fini(&segments);
    rg_fd_drop(folder);
    cache_case_close(&c);
}

static void test_descriptors_are_bounded(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonces[20];
    struct rg_cache_segments segments;
    cache_case_open(&c);
    int folder = folder_get(&c);
    RG_CHECK_EQ(rg_cache_segments_init(&segments, folder, false, false), 0);
    segments.open_max = 8;
    for (uint32_t i = 0; i < RG_ARRAY_LEN(nonces); i++) {
        segment_make(folder, &nonces[i]);
    }
    struct rg_cache_segment *kept = rg_cache_segments_pin(&segments, 1, &nonces[0], false);
    for (unsigned round = 0; round < 100; round++) {
        uint32_t i = (uint32_t)rg_test_random_below(RG_ARRAY_LEN(nonces));
        struct rg_cache_segment *one = rg_cache_segments_pin(&segments, i + 1, &nonces[i], false);
        RG_CHECK(one != NULL && one->fd >= 0 && one->fd_direct < 0);
        RG_CHECK(segments.open_count <= 8);
        rg_cache_segments_unpin(&segments, one);
    }
    RG_CHECK(kept == rg_cache_segments_pin(&segments, 1, &nonces[0], false));
    rg_cache_segments_unpin(&segments, kept);
    rg_cache_segments_unpin(&segments, kept);
    rg_cache_segments_let_go(&segments, 1);
    rg_cache_segments_fini(&segments);
    rg_fd_drop(folder);
    cache_case_close(&c);
}

/* Opening a file there may take long, and is not for those who wait for bytes. */
static void test_on_a_remote_file_system_only_the_thread_opens(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce;
    struct rg_cache_segments segments;
    cache_case_open(&c);
    int folder = folder_get(&c);
    segment_make(folder, &nonce);
    RG_CHECK_EQ(rg_cache_segments_init(&segments, folder, false, true), 0);
    RG_CHECK(rg_cache_segments_pin(&segments, 2, &nonce, false) == NULL);
    struct rg_cache_segment *one = rg_cache_segments_pin(&segments, 2, &nonce, true);
    RG_CHECK(one != NULL && one == rg_cache_segments_pin(&segments, 2, &nonce, false));
    rg_cache_segments_fail(&segments, one);
    RG_CHECK(rg_cache_segments_pin(&segments, 2, &nonce, true) == NULL);
    rg_cache_segments_unpin(&segments, one);
    rg_cache_segments_unpin(&segments, one);
    rg_cache_segments_retry(&segments);
    rg_cache_segments_open_ahead(&segments, 2, &nonce);
    one = rg_cache_segments_pin(&segments, 2, &nonce, false);
    RG_CHECK(one != NULL);
    rg_cache_segments_unpin(&segments, one);
    rg_cache_segments_fini(&segments);
    rg_fd_drop(folder);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pins_keep_it_open),
        RG_TEST(test_descriptors_are_bounded),
        RG_TEST(test_on_a_remote_file_system_only_the_thread_opens),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
