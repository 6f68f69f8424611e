/* How large parts are and how many: the rules one by one, and streams in virtual time against
 * networks and programs of several speeds. */
#include "gcs/upload/part_plan.h"

#include "gcs/upload/limits.h"
#include "tests/support/test.h"

#define GIB(n) ((uint64_t)(n) << 30)

static struct rg_part_plan plan;

static void begin(struct rg_part_plan_options options)
{
    rg_part_plan_init(&plan, &options);
}

/* Parts of a stream of this size, while each part is within the bounds. */
static uint64_t parts_of(uint64_t size)
{
    uint64_t offset = 0, parts = 0, before = 0;
    while (offset < size) {
        uint64_t part = rg_part_plan_size(&plan, offset);
        RG_CHECK(part >= RG_UPLOAD_PART_SIZE_MIN && part % RG_UPLOAD_CHUNK_UNIT == 0);
        RG_CHECK(part >= before && 2 * part <= RG_WRITER_MEMORY_MAX);
        before = part;
        offset += part;
        parts++;
    }
    return parts;
}

static void test_parts_of_announced_sizes(void)
{
    static const struct {
        uint64_t size, parts;
    } rows[] = {
        {1, 1},           {RG_MIB(8), 1},    {RG_MIB(9), 2},    {RG_MIB(64), 8},  {RG_MIB(100), 8},
        {RG_MIB(128), 8}, {RG_MIB(129), 9},  {GIB(1), 64},      {GIB(100), 6400}, {GIB(125), 8000},
        {GIB(500), 8000}, {GIB(1000), 8000}, {GIB(1024), 8192},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        begin((struct rg_part_plan_options){.size_hint = rows[i].size});
        RG_CHECK_EQ(parts_of(rows[i].size), rows[i].parts);
        RG_CHECK(!rg_part_plan_too_long(&plan));
        /* A tenth more than was said does not exceed what the service takes. */
        RG_CHECK(parts_of(rows[i].size + rows[i].size / 10) <= RG_UPLOAD_PARTS_MAX);
    }
}

static void test_a_stream_that_is_too_long_for_a_multipart_upload(void)
{
    begin((struct rg_part_plan_options){.size_hint = RG_UPLOAD_OBJECT_SIZE_MAX});
    RG_CHECK(rg_part_plan_too_long(&plan));
    RG_CHECK_EQ(parts_of(RG_UPLOAD_OBJECT_SIZE_MAX), 5 * 8192);
    begin((struct rg_part_plan_options){.size_hint = GIB(100), .part_size = RG_MIB(5)});
    RG_CHECK(rg_part_plan_too_long(&plan));
    begin((struct rg_part_plan_options){.size_hint = GIB(100), .part_size = RG_MIB(16)});
    RG_CHECK(!rg_part_plan_too_long(&plan));
}

static void test_a_stream_of_unknown_size_grows(void)
{
    begin((struct rg_part_plan_options){0});
    RG_CHECK_EQ(rg_part_plan_size(&plan, 0), RG_MIB(16));
    RG_CHECK_EQ(parts_of(GIB(16)), 1024);
    RG_CHECK_EQ(rg_part_plan_size(&plan, GIB(32)), RG_MIB(32));
    RG_CHECK_EQ(rg_part_plan_size(&plan, GIB(1000)), RG_MIB(128));
    RG_CHECK(parts_of(GIB(950)) <= RG_UPLOAD_PARTS_MAX);
    /* Behind what was announced, too. */
    begin((struct rg_part_plan_options){.size_hint = GIB(64)});
    RG_CHECK_EQ(rg_part_plan_size(&plan, GIB(64) - 1), RG_MIB(16));
    RG_CHECK_EQ(rg_part_plan_size(&plan, GIB(64)), RG_MIB(64));
}

static void test_what_the_program_fixes_stays(void)
{
    begin((struct rg_part_plan_options){.part_size = RG_MIB(5), .size_hint = GIB(900)});
    RG_CHECK_EQ(rg_part_plan_size(&plan, 0), RG_MIB(5));
    RG_CHECK_EQ(rg_part_plan_size(&plan, GIB(900)), RG_MIB(5));
    begin((struct rg_part_plan_options){.window = 3});
    for (unsigned i = 0; i < 100; i++) {
        rg_part_plan_wait(&plan);
        rg_part_plan_throttle(&plan);
        rg_part_plan_sent(&plan, RG_MIB(16), RG_NS_PER_S);
        RG_CHECK_EQ(plan.window, 3);
    }
    /* Both are the bound. */
    begin((struct rg_part_plan_options){.part_size = RG_MIB(100), .window = 8});
    RG_CHECK(rg_part_plan_has_room(&plan, 7, RG_MIB(700), RG_MIB(100)));
    RG_CHECK(!rg_part_plan_has_room(&plan, 8, RG_MIB(800), RG_MIB(100)));
    begin((struct rg_part_plan_options){.part_size = GIB(5)});
    RG_CHECK(rg_part_plan_has_room(&plan, 0, 0, GIB(5)));
    RG_CHECK(!rg_part_plan_has_room(&plan, 1, GIB(5), GIB(5)));
    begin((struct rg_part_plan_options){.window = 128});
    RG_CHECK(rg_part_plan_has_room(&plan, 127, 127 * RG_MIB(5), rg_part_plan_size(&plan, 0)));
}

/* A stream: a program that writes so many bytes in a second, and a network that takes so many of
 * one part and so many of all, each part after a time for its answer. Rates in bytes a second; a
 * program of rate 0 has all of its bytes at once. */
struct stream {
    double part_rate, rate, program_rate;
    uint64_t answer_ns;
    uint64_t size;
    uint32_t throttled_above; /* parts: beyond it they are answered 503, and tried again */
    /* What it shows. */
    uint32_t throttled_count;
    uint64_t now_ns;
    uint64_t bytes_max;
    uint32_t window_max, window_min;
    uint64_t window_bytes[RG_PARTS_WINDOW_MAX + 1]; /* sent under each window */
};

struct sending {
    double left, answer_ns; /* bytes, and time before they begin to go out */
    uint64_t size;
};

struct line {
    struct sending parts[RG_PARTS_WINDOW_MAX];
    uint32_t count;
    uint64_t bytes;
};

static void line_take(struct stream *stream, struct line *line, uint64_t size)
{
    RG_CHECK(line->count < RG_ARRAY_LEN(line->parts));
    line->parts[line->count++] = (struct sending){
        .left = (double)size, .size = size, .answer_ns = (double)stream->answer_ns};
    line->bytes += size;
    stream->window_max = RG_MAX(stream->window_max, plan.window);
    stream->bytes_max = RG_MAX(stream->bytes_max, line->bytes);
    if (stream->throttled_above != 0 && line->count > stream->throttled_above) {
        stream->throttled_count++;
        rg_part_plan_throttle(&plan);
    }
}

/* Lets time pass until a part is with the service. */
static void line_run(struct stream *stream, struct line *line)
{
    uint32_t first = 0;
    double soonest_ns = 0, share = RG_MIN(stream->part_rate, stream->rate / line->count);
    RG_CHECK(line->count > 0);
    for (uint32_t i = 0; i < line->count; i++) {
        double ns = line->parts[i].left / share * 1e9 + line->parts[i].answer_ns;
        if (i == 0 || ns < soonest_ns) {
            soonest_ns = ns;
            first = i;
        }
    }
    for (uint32_t i = 0; i < line->count; i++) {
        struct sending *part = &line->parts[i];
        double waited_ns = RG_MIN(part->answer_ns, soonest_ns);
        part->answer_ns -= waited_ns;
        part->left -= RG_MIN(part->left, (soonest_ns - waited_ns) * share / 1e9);
    }
    stream->now_ns += (uint64_t)soonest_ns;
    uint64_t size = line->parts[first].size;
    line->parts[first] = line->parts[--line->count];
    line->bytes -= size;
    stream->window_bytes[plan.window] += size;
    stream->window_min = RG_MIN(stream->window_min, plan.window);
    rg_part_plan_sent(&plan, size, stream->now_ns);
}

static void stream_run(struct stream *stream)
{
    struct line line = {.count = 0};
    uint64_t written = 0;
    stream->now_ns = RG_NS_PER_S;
    stream->window_min = plan.window;
    while (written < stream->size || line.count > 0) {
        uint64_t size = rg_part_plan_size(&plan, written);
        double ready_ns = stream->program_rate > 0
                              ? 1e9 + (double)(written + size) / stream->program_rate * 1e9
                              : 0;
        bool is_ready = written < stream->size && ready_ns <= (double)stream->now_ns;
        if (is_ready && rg_part_plan_has_room(&plan, line.count, line.bytes, size)) {
            line_take(stream, &line, size);
            written += size;
        } else if (line.count > 0) {
            if (is_ready) {
                rg_part_plan_wait(&plan);
            }
            line_run(stream, &line);
        } else {
            stream->now_ns = (uint64_t)ready_ns + 1;
        }
    }
}

static void test_more_parts_where_each_has_a_rate_of_its_own(void)
{
    begin((struct rg_part_plan_options){0});
    struct stream stream = {
        .part_rate = 50e6, .rate = 5e9, .answer_ns = 50 * RG_NS_PER_MS, .size = GIB(16)};
    stream_run(&stream);
    /* All that the memory has room for. */
    RG_CHECK(plan.window >= 16);
    RG_CHECK_EQ(stream.bytes_max, RG_WRITER_MEMORY_MAX);
    RG_CHECK(stream.window_bytes[4] < GIB(1));
}

static void test_no_more_parts_where_one_fills_the_network(void)
{
    begin((struct rg_part_plan_options){0});
    struct stream stream = {
        .part_rate = 100e6, .rate = 100e6, .answer_ns = RG_NS_PER_MS, .size = GIB(16)};
    stream_run(&stream);
    /* It is tried now and then. */
    RG_CHECK_EQ(stream.window_max, 8);
    RG_CHECK_EQ(stream.window_min, 4);
    RG_CHECK(stream.window_bytes[4] > 2 * stream.window_bytes[8]);
}

static void test_no_more_parts_where_the_program_is_slower(void)
{
    begin((struct rg_part_plan_options){0});
    struct stream stream = {.part_rate = 100e6, .rate = 1e9, .program_rate = 90e6, .size = GIB(8)};
    stream_run(&stream);
    RG_CHECK_EQ(stream.window_max, 4);
    RG_CHECK(stream.bytes_max <= 4 * RG_MIB(16));
}

static void test_fewer_parts_where_the_service_says_so(void)
{
    begin((struct rg_part_plan_options){0});
    struct stream stream = {.part_rate = 50e6,
                            .rate = 5e9,
                            .answer_ns = 50 * RG_NS_PER_MS,
                            .throttled_above = 2,
                            .size = GIB(16)};
    stream_run(&stream);
    RG_CHECK_EQ(stream.window_min, 2);
    /* It is tried now and then. */
    RG_CHECK_EQ(stream.window_max, 4);
    RG_CHECK(stream.throttled_count > 1 && stream.throttled_count < 1024 / 10);
}

static void test_a_round_is_cut_once(void)
{
    begin((struct rg_part_plan_options){0});
    plan.window = 20;
    rg_part_plan_throttle(&plan);
    RG_CHECK_EQ(plan.window, 14);
    rg_part_plan_throttle(&plan);
    RG_CHECK_EQ(plan.window, 14);
    for (unsigned i = 0; i < 20; i++) {
        RG_CHECK_EQ(plan.window, 14);
        rg_part_plan_sent(&plan, RG_MIB(16), (i + 1) * RG_NS_PER_S);
    }
    rg_part_plan_throttle(&plan);
    RG_CHECK_EQ(plan.window, 9);
}

/* However slow the network: all rules together never have more there than they may. */
static void test_memory_is_bounded(void)
{
    static const uint64_t hints[] = {0, 1, RG_MIB(20), RG_MIB(100), GIB(10), GIB(1000)};
    for (size_t i = 0; i < RG_ARRAY_LEN(hints); i++) {
        begin((struct rg_part_plan_options){.size_hint = hints[i]});
        struct stream stream = {.part_rate = 1e3 + (double)rg_test_random_below(100000000),
                                .rate = 1e4 + (double)rg_test_random_below(1000000000),
                                .answer_ns = rg_test_random_below(10) * RG_NS_PER_S,
                                .size = GIB(200)};
        stream_run(&stream);
        RG_CHECK(stream.bytes_max <= RG_WRITER_MEMORY_MAX);
        RG_CHECK(stream.bytes_max >= 4 * RG_PARTS_SIZE_SMALL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_parts_of_announced_sizes),
        RG_TEST(test_a_stream_that_is_too_long_for_a_multipart_upload),
        RG_TEST(test_a_stream_of_unknown_size_grows),
        RG_TEST(test_what_the_program_fixes_stays),
        RG_TEST(test_more_parts_where_each_has_a_rate_of_its_own),
        RG_TEST(test_no_more_parts_where_one_fills_the_network),
        RG_TEST(test_no_more_parts_where_the_program_is_slower),
        RG_TEST(test_fewer_parts_where_the_service_says_so),
        RG_TEST(test_a_round_is_cut_once),
        RG_TEST(test_memory_is_bounded),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
