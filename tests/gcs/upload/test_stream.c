/* Streams between the program's thread and the loop: order, what is lent, room, and their ends. */
#include "gcs/upload/stream.h"

#include "gcs/wire/checksum.h"
#include "runtime/clock.h"
#include "tests/support/test.h"

#include <errno.h>

#define PART RG_MIB(5)

static struct rg_stream stream;
static uint8_t bytes[3 * PART];

/* Two parts of PART bytes may be there at once. */
static void open_small(void)
{
    static const struct rg_part_plan_options options = {.part_size = PART, .window = 2};
    RG_CHECK_EQ(rg_stream_init(&stream, &options), 0);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
}

/* Puts so many bytes from `at` on into the stream; all must fit. */
static void put(size_t at, size_t size, bool lent)
{
    for (size_t done = 0; done < size;) {
        RG_CHECK_EQ(rg_stream_begin(&stream), 0);
        int64_t taken = rg_stream_add(&stream, bytes + at + done, size - done, lent, NULL);
        RG_CHECK(taken > 0);
        done += (size_t)taken;
        if (rg_stream_is_full(&stream)) {
            rg_stream_hand_over(&stream);
        }
    }
}

/* The next buffer has the bytes from `at` on. */
static struct rg_stream_buffer *take(size_t at, size_t size, uint64_t *total)
{
    struct rg_stream_buffer *buffer = rg_stream_take(&stream, at == 0, total);
    RG_CHECK(buffer != NULL);
    RG_CHECK_EQ(buffer->size, size);
    RG_CHECK_EQ(buffer->offset, at);
    RG_CHECK_EQ(buffer->crc, rg_crc32c(0, bytes + at, size));
    uint64_t begin = 0;
    for (uint32_t i = 0; i < buffer->piece_count; i++) {
        const struct rg_body_piece *piece = &buffer->pieces[i];
        RG_CHECK_MEM(piece->data, piece->end - begin, bytes + at + begin, piece->end - begin);
        begin = piece->end;
    }
    RG_CHECK_EQ(begin, size);
    return buffer;
}

static void test_bytes_come_out_in_order(void)
{
    uint64_t total = UINT64_MAX;
    open_small();
    RG_CHECK(rg_stream_take(&stream, true, &total) == NULL);
    put(0, 100, false);
    put(100, PART - 100, true);
    put(PART, 1000, true);
    put(PART + 1000, 1000, false);
    struct rg_stream_buffer *first = take(0, PART, &total);
    RG_CHECK(rg_stream_take(&stream, false, &total) == NULL);
    RG_CHECK_EQ(total, UINT64_MAX);
    rg_stream_end(&stream);
    rg_stream_hand_over(&stream);
    struct rg_stream_buffer *last = take(PART, 2000, &total);
    RG_CHECK_EQ(total, PART + 2000);
    RG_CHECK_EQ(rg_stream_sent_bytes(&stream), 0);
    rg_stream_give(&stream, first, 1);
    RG_CHECK_EQ(rg_stream_sent_bytes(&stream), PART);
    rg_stream_give(&stream, last, 2);
    RG_CHECK_EQ(rg_stream_sent_bytes(&stream), PART + 2000);
    rg_stream_fini(&stream);
}

/* What is lent is sent from where it is; what is copied may change. */
static void test_lent_and_copied(void)
{
    uint64_t total = UINT64_MAX;
    open_small();
    uint32_t sum = 0;
    RG_CHECK_EQ(rg_stream_begin(&stream), 0);
    RG_CHECK_EQ(rg_stream_add(&stream, bytes, 5000, true, &sum), 5000);
    RG_CHECK_EQ(rg_stream_add(&stream, bytes + 5000, 10, false, &sum), 10);
    RG_CHECK_EQ(sum, rg_crc32c(0, bytes, 5010));
    rg_stream_end(&stream);
    rg_stream_hand_over(&stream);
    struct rg_stream_buffer *buffer = take(0, 5010, &total);
    RG_CHECK_EQ(buffer->piece_count, 2);
    RG_CHECK(buffer->pieces[0].data == bytes && buffer->pieces[1].data == buffer->memory);
    rg_stream_give(&stream, buffer, 1);
    rg_stream_fini(&stream);
}

static void test_room_is_bounded(void)
{
    uint64_t total = UINT64_MAX;
    open_small();
    put(0, 2 * PART, false);
    RG_CHECK_EQ(rg_stream_begin(&stream), -EAGAIN);
    RG_CHECK_EQ(rg_stream_wait(&stream, rg_now_ns()), -ETIME);
    struct rg_stream_buffer *first = take(0, PART, &total);
    RG_CHECK_EQ(rg_stream_begin(&stream), -EAGAIN);
    rg_stream_give(&stream, first, 1);
    RG_CHECK_EQ(rg_stream_wait(&stream, UINT64_MAX), 0);
    put(2 * PART, PART, false);
    rg_stream_give(&stream, take(PART, PART, &total), 2);
    rg_stream_give(&stream, take(2 * PART, PART, &total), 3);
    rg_stream_fini(&stream);
}

/* The last buffer may have nothing to send, unless it is the only one. */
static void test_empty_last_buffer(void)
{
    for (unsigned is_first = 0; is_first < 2; is_first++) {
        uint64_t total = UINT64_MAX;
        open_small();
        RG_CHECK_EQ(rg_stream_begin(&stream), 0);
        rg_stream_end(&stream);
        rg_stream_hand_over(&stream);
        struct rg_stream_buffer *buffer = rg_stream_take(&stream, is_first == 1, &total);
        RG_CHECK_EQ(buffer != NULL, is_first);
        RG_CHECK_EQ(total, 0);
        if (buffer != NULL) {
            rg_stream_give(&stream, buffer, 1);
        }
        RG_CHECK_EQ(stream.used_count, 0);
        rg_stream_fini(&stream);
    }
}

static void *stop_main(void *context)
{
    (void)context;
    pthread_mutex_lock(&stream.lock);
    rg_stream_stop_locked(&stream, RG_STATUS_CANCELLED);
    pthread_mutex_unlock(&stream.lock);
    return NULL;
}

/* Who waits for room is told that none will come. */
static void test_a_stream_that_is_over(void)
{
    pthread_t thread;
    open_small();
    put(0, 2 * PART, false);
    RG_CHECK_EQ(pthread_create(&thread, NULL, stop_main, NULL), 0);
    RG_CHECK_EQ(rg_stream_wait(&stream, UINT64_MAX), -EIO);
    pthread_join(thread, NULL);
    RG_CHECK_EQ(rg_stream_begin(&stream), -EIO);
    rg_stream_end(&stream);
    RG_CHECK_EQ(stream.state, RG_STREAM_OVER);
    /* What is lent is not used any more. */
    RG_CHECK_EQ(rg_stream_sent_bytes(&stream), 2 * PART);
    rg_stream_fini(&stream);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bytes_come_out_in_order), RG_TEST(test_lent_and_copied),
        RG_TEST(test_room_is_bounded),         RG_TEST(test_empty_last_buffer),
        RG_TEST(test_a_stream_that_is_over),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
