/* The parts of an upload: which are begun, what is known of them, and beginning anew. The loop is
 * one that is never run: the test runs its tasks. */
#include "gcs/upload/parts.h"

#include "gcs/wire/checksum.h"
#include "tests/support/test.h"

static uint8_t bytes[1000];
static struct rg_loop loop;
static struct rg_client_loop client_loop;
static struct rg_request request;
static struct rg_operation operation;
static uint32_t advanced;

static void advance(struct rg_task *task)
{
    (void)task;
    advanced++;
}

static void open_parts(struct rg_upload_parts *parts, uint64_t part_size, uint32_t slots)
{
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 13);
    }
    rg_list_init(&loop.tasks);
    client_loop = (struct rg_client_loop){.loop = &loop};
    request = (struct rg_request){.client_loop = &client_loop};
    operation = (struct rg_operation){
        .request = &request, .state = RG_OPERATION_RUNNING, .task.run = advance};
    *parts = (struct rg_upload_parts){.part_size = part_size};
    RG_CHECK_EQ(rg_upload_parts_init(parts, &operation, slots), 0);
    parts->source.data = bytes;
    parts->source.size = sizeof(bytes);
    advanced = 0;
}

static void close_parts(struct rg_upload_parts *parts)
{
    rg_upload_parts_free_all(parts);
    rg_upload_parts_fini(parts);
}

/* What the loop would do at the end of a pass, until nothing is left to do. */
static void run(void)
{
    struct rg_list *node;
    while ((node = rg_list_pop_front(&loop.tasks)) != NULL) {
        struct rg_task *task = RG_CONTAINER_OF(node, struct rg_task, node);
        task->run(task);
    }
}

static void test_slots_bound_what_is_begun(void)
{
    struct rg_upload_parts parts;
    open_parts(&parts, 300, 2);
    rg_upload_parts_fill(&parts);
    RG_CHECK_EQ(parts.next, 2);
    RG_CHECK_EQ(parts.offset, 600);
    RG_CHECK(rg_upload_parts_filled(&parts) == NULL);
    run();
    RG_CHECK(advanced > 0);
    RG_CHECK(!rg_upload_parts_all_filled(&parts));
    struct rg_upload_part *first = rg_upload_parts_filled(&parts);
    RG_CHECK(first != NULL && first == rg_upload_parts_at(&parts, 299));
    RG_CHECK_EQ(first->number, 0);
    RG_CHECK(rg_upload_parts_at(&parts, 600) == NULL);
    RG_CHECK_EQ(first->crc, rg_crc32c(0, bytes, 300));
    rg_upload_part_free(first);
    rg_upload_parts_fill(&parts);
    run();
    RG_CHECK_EQ(parts.next, 3);
    RG_CHECK_EQ(rg_upload_parts_at(&parts, 600)->number, 2);
    close_parts(&parts);
}

/* The CRC32C of all is made of those of the parts, also when their slots are free again. */
static void test_the_whole(void)
{
    struct rg_upload_parts parts;
    open_parts(&parts, 300, 1);
    while (!rg_upload_parts_all_filled(&parts)) {
        struct rg_upload_part *part = rg_upload_parts_filled(&parts);
        if (part != NULL) {
            rg_upload_part_free(part);
        }
        rg_upload_parts_fill(&parts);
        run();
    }
    RG_CHECK_EQ(parts.next, 4);
    RG_CHECK_EQ(parts.records[3].size, 100);
    RG_CHECK(!rg_upload_parts_done(&parts));
    rg_upload_part_free(rg_upload_parts_filled(&parts));
    RG_CHECK(rg_upload_parts_done(&parts));
    RG_CHECK_EQ(rg_upload_parts_total(&parts), 1000);
    RG_CHECK_EQ(rg_upload_parts_crc(&parts), rg_crc32c(0, bytes, 1000));
    close_parts(&parts);
}

static void test_begun_anew(void)
{
    struct rg_upload_parts parts;
    open_parts(&parts, 500, 2);
    rg_upload_parts_fill(&parts);
    rg_upload_parts_call_off(&parts);
    run();
    RG_CHECK_EQ(advanced, 0);
    rg_upload_parts_restart(&parts);
    RG_CHECK_EQ(parts.next, 0);
    rg_upload_parts_fill(&parts);
    run();
    RG_CHECK(rg_upload_parts_all_filled(&parts));
    RG_CHECK_EQ(rg_upload_parts_crc(&parts), rg_crc32c(0, bytes, 1000));
    close_parts(&parts);
}

/* An object without bytes is one part without bytes. */
static void test_nothing_at_all(void)
{
    struct rg_upload_parts parts;
    open_parts(&parts, 500, 2);
    parts.source.size = 0;
    RG_CHECK(!rg_upload_parts_all_filled(&parts));
    rg_upload_parts_fill(&parts);
    RG_CHECK(rg_upload_parts_all_filled(&parts));
    RG_CHECK_EQ(parts.next, 1);
    RG_CHECK_EQ(rg_upload_parts_crc(&parts), 0);
    run();
    close_parts(&parts);
}

/* How long a stream is shows at its end. */
static void test_parts_of_a_stream(void)
{
    static const struct rg_part_plan_options options = {.part_size = RG_MIB(5), .window = 2};
    struct rg_upload_parts parts;
    struct rg_stream stream;
    open_parts(&parts, 0, 2);
    RG_CHECK_EQ(rg_stream_init(&stream, &options), 0);
    parts.source.kind = RG_UPLOAD_SOURCE_STREAM;
    parts.source.stream = &stream;
    parts.source.data = NULL;
    parts.source.size = UINT64_MAX;
    rg_upload_parts_fill(&parts);
    RG_CHECK_EQ(parts.next, 0);
    RG_CHECK_EQ(rg_stream_begin(&stream), 0);
    RG_CHECK_EQ(rg_stream_add(&stream, bytes, 70, true, NULL), 70);
    rg_stream_hand_over(&stream);
    rg_upload_parts_fill(&parts);
    RG_CHECK_EQ(rg_upload_parts_total(&parts), 70);
    RG_CHECK(!rg_upload_parts_all_filled(&parts));
    RG_CHECK_EQ(rg_stream_begin(&stream), 0);
    rg_stream_end(&stream);
    rg_stream_hand_over(&stream);
    /* The second buffer is empty, and no part. */
    rg_upload_parts_fill(&parts);
    RG_CHECK(rg_upload_parts_all_filled(&parts));
    RG_CHECK_EQ(parts.next, 1);
    RG_CHECK_EQ(rg_upload_parts_crc(&parts), rg_crc32c(0, bytes, 70));
    close_parts(&parts);
    RG_CHECK_EQ(stream.used_count, 0);
    rg_stream_fini(&stream);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_slots_bound_what_is_begun),
        RG_TEST(test_the_whole),
        RG_TEST(test_begun_anew),
        RG_TEST(test_nothing_at_all),
        RG_TEST(test_parts_of_a_stream),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
