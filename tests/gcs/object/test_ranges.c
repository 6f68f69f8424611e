/* Range sets: every range has its bytes whatever lies near it, few requests are sent, and bytes of
 * two generations never meet. */
#include "runtime/runtime.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#define SIZE 1000000
#define GENERATION 1700000000000001

#define OBJECT(size_)                                                                              \
    {                                                                                              \
        .kind = RG_STEP_SEND_OBJECT, .size = (size_),                                              \
        .text = rg_test_object_fields(size_, GENERATION)                                           \
    }

static struct rg_completion ranges_take(struct rg_test_client *c, const struct rg_get_ranges *get)
{
    struct rg_get_ranges own = *get;
    own.bucket = "bucket";
    own.object = "object";
    RG_CHECK_EQ(rg_submit_get_ranges(c->client, c->cq, &own), 0);
    return rg_test_take(c);
}

/* Every range has what the object has there, and its CRC32C. */
static void check_ranges(const struct rg_completion *done, const struct rg_range *ranges,
                         size_t count, uint64_t object_size)
{
    RG_CHECK_STATUS(done, OK);
    const struct rg_range_result *results = done->data;
    RG_CHECK_EQ(done->size, count * sizeof(*results));
    for (size_t i = 0; i < count; i++) {
        uint64_t end = RG_MIN(ranges[i].offset + ranges[i].length, object_size);
        uint64_t size = ranges[i].length > 0 ? end - ranges[i].offset : 0;
        RG_CHECK_EQ(results[i].size, size);
        RG_CHECK(results[i].data != NULL);
        RG_CHECK(ranges[i].buf == NULL || results[i].data == ranges[i].buf);
        struct rg_completion part = {.data = results[i].data, .size = size};
        RG_CHECK_BYTES(&part, ranges[i].offset, size);
        uint8_t *want = malloc(size + 1);
        for (uint64_t n = 0; n < size; n++) {
            want[n] = rg_script_byte(ranges[i].offset + n);
        }
        /* One range that is a whole get has the CRC32C that it computed itself. */
        uint32_t crc = 0;
        for (uint64_t n = 0; n < size; n++) {
            crc ^= want[n] ^ (n == 0 ? 0xffffffff : 0);
            for (unsigned bit = 0; bit < 8; bit++) {
                crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
            }
        }
        RG_CHECK_EQ(results[i].crc32c, size > 0 ? crc ^ 0xffffffff : 0);
        free(want);
    }
}

/* One set of ranges from a good server; returns the number of requests. */
static uint32_t try_ranges(const struct rg_get_ranges *get, uint64_t object_size)
{
    const struct rg_step script[] = {RG_READ, OBJECT(object_size), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = ranges_take(&c, get);
    check_ranges(&done, get->ranges, get->count, object_size);
    uint32_t requests = rg_scripted_server_requests(c.server);
    RG_CHECK_EQ(done.attempts, requests);
    if (requests > 0) {
        RG_CHECK_EQ(done.generation, GENERATION);
        RG_CHECK_EQ(done.object_size, object_size);
        RG_CHECK(done.has_object_crc32c);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return requests;
}

static void test_neighbours_share_a_request(void)
{
    static const struct rg_range adjacent[] = {{100, 50, NULL}, {0, 100, NULL}, {150, 1, NULL}};
    RG_CHECK_EQ(try_ranges(&(struct rg_get_ranges){.ranges = adjacent, .count = 3}, SIZE), 1);
    static const struct rg_range overlapping[] = {
        {10, 100, NULL}, {50, 100, NULL}, {10, 100, NULL}, {60, 5, NULL}};
    RG_CHECK_EQ(try_ranges(&(struct rg_get_ranges){.ranges = overlapping, .count = 4}, SIZE), 1);
    static const struct rg_range all[] = {{500, SIZE - 500, NULL}, {0, 600, NULL}, {100, 50, NULL}};
    RG_CHECK_EQ(try_ranges(&(struct rg_get_ranges){.ranges = all, .count = 3}, SIZE), 1);
    static const struct rg_range gaps[] = {{0, 10, NULL}, {20, 10, NULL}, {41, 10, NULL}};
    RG_CHECK_EQ(
        try_ranges(&(struct rg_get_ranges){.ranges = gaps, .count = 3, .gap_max = 10}, SIZE), 2);
    RG_CHECK_EQ(
        try_ranges(&(struct rg_get_ranges){.ranges = gaps, .count = 3, .gap_max = 11}, SIZE), 1);
    RG_CHECK_EQ(
        try_ranges(&(struct rg_get_ranges){.ranges = gaps, .count = 3, .request_size_max = 30},
                   SIZE),
        2);
}

/* As programs would that were compiled before a range had a buffer, and after it got more. */
static void test_ranges_of_other_versions(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct rg_range ranges[] = {{100, 50, NULL}, {7, 3, NULL}};
    static const struct {
        uint64_t offset, length;
    } older[] = {{100, 50}, {7, 3}};
    static const struct {
        struct rg_range range;
        uint64_t later;
    } newer[] = {{{100, 50, NULL}, UINT64_MAX}, {{7, 3, NULL}, UINT64_MAX}};
    const struct {
        const void *items;
        size_t size;
    } versions[] = {{older, sizeof(older[0])}, {newer, sizeof(newer[0])}};
    for (size_t i = 0; i < RG_ARRAY_LEN(versions); i++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_get_ranges get = {
            .bucket = "bucket", .object = "object", .ranges = versions[i].items, .count = 2};
        RG_CHECK_EQ(rg_submit_get_ranges_sized(c.client, c.cq, &get, sizeof(get), versions[i].size),
                    0);
        struct rg_completion done = rg_test_take(&c);
        check_ranges(&done, ranges, 2, SIZE);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_large_ranges_are_read_in_pieces(void)
{
    static const struct rg_range one[] = {{5, 100000, NULL}};
    RG_CHECK_EQ(
        try_ranges(&(struct rg_get_ranges){.ranges = one, .count = 1, .request_size_max = 10000},
                   SIZE),
        10);
    uint8_t *buf = malloc(SIZE);
    const struct rg_range mixed[] = {{0, 100, NULL}, {90, SIZE - 95, buf}, {SIZE - 10, 10, NULL}};
    RG_CHECK_EQ(try_ranges(
                    &(struct rg_get_ranges){
                        .ranges = mixed, .count = 3, .request_size_max = 300000, .requests_max = 3},
                    SIZE),
                6);
    free(buf);
}

/* As many pieces of one range are out at once as may be. */
static void test_pieces_are_read_at_once(void)
{
    enum { PIECES = 6 };
    const struct rg_step script[] = {RG_READ, RG_GATE(0), OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct rg_range one[] = {{0, SIZE, NULL}};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.connections_max = PIECES}};
    rg_test_client_open(&c);
    const struct rg_get_ranges get = {.bucket = "bucket",
                                      .object = "object",
                                      .ranges = one,
                                      .count = 1,
                                      .request_size_max = SIZE / 10,
                                      .requests_max = PIECES};
    RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &get), 0);
    RG_AWAIT(rg_scripted_server_requests(c.server) == PIECES);
    rg_scripted_server_open(c.server, 0);
    struct rg_completion done = rg_test_take(&c);
    check_ranges(&done, one, 1, SIZE);
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), 10);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* The end of a range may lie behind the object, however far; of a large one too. */
static void test_ranges_that_end_behind_the_object(void)
{
    uint8_t *buf = malloc(SIZE);
    const struct rg_range ranges[] = {{SIZE - 1, 1000, NULL},
                                      {0, 3, NULL},
                                      {SIZE / 2, UINT64_MAX / 2, buf},
                                      {0, 0, NULL},
                                      {5 * SIZE, 0, NULL}};
    for (uint32_t requests = 1; requests <= 8; requests += 7) {
        try_ranges(
            &(struct rg_get_ranges){
                .ranges = ranges, .count = 5, .request_size_max = 100000, .requests_max = requests},
            SIZE);
    }
    free(buf);
}

static void test_nothing_to_read(void)
{
    uint8_t byte;
    const struct rg_range ranges[] = {{0, 0, NULL}, {5, 0, &byte}};
    RG_CHECK_EQ(try_ranges(&(struct rg_get_ranges){.ranges = ranges, .count = 2}, SIZE), 0);
}

static void test_random_ranges(void)
{
    for (unsigned round = 0; round < 25; round++) {
        struct rg_range ranges[60];
        size_t count = 1 + rg_test_random_below(RG_ARRAY_LEN(ranges));
        uint64_t object_size = 1 + rg_test_random_below(20000);
        for (size_t i = 0; i < count; i++) {
            ranges[i].offset = rg_test_random_below(object_size);
            ranges[i].length = rg_test_random_below(1 << rg_test_random_below(14));
            ranges[i].buf = rg_test_random_below(3) == 0 ? malloc(ranges[i].length + 1) : NULL;
        }
        try_ranges(&(struct rg_get_ranges){.ranges = ranges,
                                           .count = count,
                                           .gap_max = 1 + rg_test_random_below(300),
                                           .request_size_max = 200 + rg_test_random_below(3000),
                                           .requests_max = (uint32_t)rg_test_random_below(12)},
                   object_size);
        for (size_t i = 0; i < count; i++) {
            free(ranges[i].buf);
        }
    }
}

static void test_ranges_that_begin_behind_the_object(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(1000), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct rg_range alone[] = {{1000, 1, NULL}},
                                 gathered[] = {{0, 10, NULL}, {1000, 1, NULL}},
                                 apart[] = {{0, 10, NULL}, {900000, 1, NULL}};
    static const struct rg_get_ranges rows[] = {{.ranges = alone, .count = 1},
                                                {.ranges = gathered, .count = 2},
                                                {.ranges = apart, .count = 2},
                                                {.ranges = apart, .count = 2, .requests_max = 1}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_completion done = ranges_take(&c, &rows[i]);
        RG_CHECK_STATUS(&done, RANGE);
        RG_CHECK_CONTAINS(done.detail, "get ranges of gs://bucket/object at ");
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

/* The object's own CRC32C is not that of its bytes. Only ranges that are all of it can tell. */
static void test_wrong_crc(void)
{
    const struct rg_step script[] = {
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT,
         .size = 1000,
         .text = "x-goog-generation: 7\r\nx-goog-hash: crc32c=AAAAAA==\r\n"},
        RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct rg_range whole[] = {{500, 600, NULL}, {0, 500, NULL}},
                                 less[] = {{1, 600, NULL}, {601, 500, NULL}},
                                 twice[] = {{500, 500, NULL}, {0, 501, NULL}},
                                 within[] = {{0, 1000, NULL}, {200, 500, NULL}};
    static const struct {
        const struct rg_range *ranges;
        bool no_checksum;
        enum rg_status want;
        uint32_t attempts; /* read again, but not for ever */
    } rows[] = {{whole, false, RG_STATUS_CHECKSUM, 8},
                {whole, true, RG_STATUS_OK, 2},
                {less, false, RG_STATUS_OK, 2},
                {twice, false, RG_STATUS_CHECKSUM, 8},
                {within, false, RG_STATUS_CHECKSUM, 12}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_test_client c = {
            .scripts = scripts,
            .script_count = 1,
            .options = {.checksum = rows[i].no_checksum ? RG_SWITCH_OFF : RG_SWITCH_ON}};
        rg_test_client_open(&c);
        struct rg_completion done = ranges_take(
            &c,
            &(struct rg_get_ranges){.ranges = rows[i].ranges, .count = 2, .request_size_max = 700});
        rg_test_check_status(__FILE__, __LINE__, &done, rows[i].want);
        RG_CHECK_EQ(done.attempts, rows[i].attempts);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

#define PART(range, total, generation, bytes)                                                      \
    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " range "/" total                        \
    "\r\nContent-Length: 5\r\n" generation "\r\n" bytes
#define OLD "x-goog-generation: 7\r\n"
#define NEW "x-goog-generation: 8\r\n"
#define MISSING "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

static const struct rg_range two[] = {{0, 5, NULL}, {100000, 5, NULL}};

static void check_two(const struct rg_step *const *scripts, uint32_t script_count,
                      const struct rg_get_ranges *get, enum rg_status want)
{
    struct rg_test_client c = {.scripts = scripts, .script_count = script_count};
    rg_test_client_open(&c);
    struct rg_get_ranges own = *get;
    own.ranges = two;
    own.count = 2;
    struct rg_completion done = ranges_take(&c, &own);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    if (want == RG_STATUS_OK) {
        const struct rg_range_result *results = done.data;
        RG_CHECK_MEM(results[0].data, results[0].size, "BBBBB", 5);
        RG_CHECK_MEM(results[1].data, results[1].size, "bbbbb", 5);
        RG_CHECK_EQ(done.generation, 8);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* The object is replaced between the first part and the second: both are read again. */
static void test_replaced_between_parts(void)
{
    const struct rg_step pinned[] = {
        RG_READ, RG_SEND(PART("0-4", "200000", OLD, "AAAAA")),
        RG_READ, RG_SEND(MISSING),
        RG_READ, RG_SEND(PART("0-4", "200000", NEW, "BBBBB")),
        RG_READ, RG_SEND(PART("100000-100004", "200000", NEW, "bbbbb")),
        RG_END};
    const struct rg_step *const scripts[] = {pinned};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done =
        ranges_take(&c, &(struct rg_get_ranges){.ranges = two, .count = 2, .requests_max = 1});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.generation, 8);
    RG_CHECK_MEM(((const struct rg_range_result *)done.data)[1].data, 5, "bbbbb", 5);
    rg_lease_release(done.lease);
    RG_CHECK(strstr(rg_scripted_server_head(c.server, 0), "generation=") == NULL);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "&generation=7 ");
    RG_CHECK(strstr(rg_scripted_server_head(c.server, 2), "generation=") == NULL);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 3), "&generation=8 ");
    rg_test_client_close(&c);
    /* Who asked for one generation gets that or nothing. */
    check_two(scripts, 1, &(struct rg_get_ranges){.generation = 7, .requests_max = 1},
              RG_STATUS_NOT_FOUND);
}

/* Both parts were asked for at once, before any answer, and come from two generations: in either
 * order both are read again. */
static void test_replaced_between_parts_in_flight(void)
{
    static const char old_fields[] = OLD, new_fields[] = NEW;
    for (unsigned late = 0; late < 2; late++) {
        const struct rg_step new_object = {
            .kind = RG_STEP_SEND_OBJECT, .size = 200000, .text = new_fields};
        const struct rg_step old_object = {
            .kind = RG_STEP_SEND_OBJECT, .size = 200000, .text = old_fields};
        const struct rg_step first[] = {RG_READ,    RG_SLEEP(late == 0 ? 30 : 0),
                                        old_object, RG_READ,
                                        new_object, RG_READ,
                                        new_object, RG_END};
        const struct rg_step second[] = {RG_READ, RG_SLEEP(late == 1 ? 30 : 0), new_object,
                                         RG_AGAIN};
        const struct rg_step *const scripts[] = {first, second};
        struct rg_test_client c = {
            .scripts = scripts, .script_count = 2, .options = {.connections_max = 2}};
        rg_test_client_open(&c);
        struct rg_completion done =
            ranges_take(&c, &(struct rg_get_ranges){.ranges = two, .count = 2});
        check_ranges(&done, two, 2, 200000);
        RG_CHECK_EQ(done.generation, 8);
        RG_CHECK_EQ(done.attempts, 4);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

/* A server whose object is another one for every request, of the same size or not. */
static void test_replaced_over_and_over(void)
{
    for (unsigned shrinks = 0; shrinks < 2; shrinks++) {
        struct rg_step script[41];
        for (unsigned i = 0; i < 20; i++) {
            script[2 * i] = (struct rg_step)RG_READ;
            static char fields[20][64];
            snprintf(fields[i], sizeof(fields[i]), "x-goog-generation: %u\r\n", i + 1);
            script[2 * i + 1] = (struct rg_step){
                .kind = RG_STEP_SEND_OBJECT, .size = 200000 - i * shrinks, .text = fields[i]};
        }
        script[40] = (struct rg_step)RG_END;
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {
            .scripts = scripts, .script_count = 1, .options = {.connections_max = 1}};
        rg_test_client_open(&c);
        struct rg_completion done =
            ranges_take(&c, &(struct rg_get_ranges){.ranges = two, .count = 2});
        RG_CHECK_STATUS(&done, TRUNCATED);
        RG_CHECK_CONTAINS(done.detail, "the object was replaced while it was read");
        RG_CHECK_EQ(done.attempts, 8);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

static void test_answers_without_generation_or_size(void)
{
    const struct rg_step bare[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = 200000, .text = ""}, RG_AGAIN};
    const struct rg_step *const bares[] = {bare};
    check_two(bares, 1, &(struct rg_get_ranges){0}, RG_STATUS_BAD_RESPONSE);
    static const struct rg_range one[] = {{0, 5, NULL}};
    struct rg_test_client c = {.scripts = bares, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = ranges_take(&c, &(struct rg_get_ranges){.ranges = one, .count = 1});
    check_ranges(&done, one, 1, 200000);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    const struct rg_step sizeless[] = {RG_READ, RG_SEND(PART("0-4", "*", OLD, "AAAAA")), RG_END};
    const struct rg_step *const sizelesses[] = {sizeless};
    check_two(sizelesses, 1, &(struct rg_get_ranges){.requests_max = 1}, RG_STATUS_BAD_RESPONSE);
}

/* What fails for one request fails for all, and the others are ended. */
static void test_one_failure_ends_all(void)
{
    const struct rg_step denied[] = {RG_READ, RG_SEND(rg_test_answer("403 Forbidden", "no")),
                                     RG_END};
    const struct rg_step held[] = {RG_READ, RG_HOLD};
    const struct rg_step *const scripts[] = {denied, held};
    struct rg_range ranges[20];
    for (unsigned i = 0; i < 20; i++) {
        ranges[i] = (struct rg_range){i * 100000, 5, NULL};
    }
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    rg_test_client_open(&c);
    struct rg_completion done =
        ranges_take(&c, &(struct rg_get_ranges){.ranges = ranges, .count = 20, .requests_max = 4});
    RG_CHECK_STATUS(&done, PERMISSION);
    RG_CHECK_EQ(done.http_status, 403);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* Parts that break off are continued, like any get. */
static void test_parts_that_break_off(void)
{
    struct rg_step cut[] = {RG_READ, OBJECT(SIZE), RG_CUT};
    cut[1].body_max = 1001;
    const struct rg_step good[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {cut, cut, cut, good};
    static const struct rg_range whole[] = {{0, SIZE / 2, NULL}, {SIZE / 2, SIZE, NULL}};
    struct rg_test_client c = {.scripts = scripts, .script_count = 4};
    rg_test_client_open(&c);
    struct rg_completion done = ranges_take(
        &c, &(struct rg_get_ranges){.ranges = whole, .count = 2, .request_size_max = SIZE / 4});
    check_ranges(&done, whole, 2, SIZE);
    RG_CHECK(done.attempts >= 5);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_requests_are_bounded(void)
{
    const struct rg_step held[] = {RG_READ, RG_HOLD};
    const struct rg_step *const scripts[] = {held};
    static const enum rg_status want[] = {RG_STATUS_CANCELLED, RG_STATUS_DEADLINE,
                                          RG_STATUS_CLOSED};
    struct rg_range ranges[100];
    for (unsigned i = 0; i < 100; i++) {
        ranges[i] = (struct rg_range){i * 100000, 5, NULL};
    }
    for (unsigned how = 0; how < 3; how++) {
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        struct rg_get_ranges get = {.bucket = "bucket",
                                    .object = "object",
                                    .ranges = ranges,
                                    .count = 100,
                                    .requests_max = 3,
                                    .user_data = 4};
        get.deadline_ns = how == 1 ? rg_now_ns() + 200 * RG_NS_PER_MS : 0;
        RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &get), 0);
        /* On a busy machine the deadline may come before they are sent. */
        RG_AWAIT(how == 1 || rg_scripted_server_requests(c.server) >= 3);
        RG_CHECK(how == 1 || rg_test_is_quiet(&c, 20));
        RG_CHECK(rg_scripted_server_requests(c.server) <= 3);
        if (how == 0) {
            RG_CHECK_EQ(rg_cancel(c.client, c.cq, 4), 0);
        } else if (how == 2) {
            rg_client_close(c.client);
            c.client = NULL;
        }
        struct rg_completion done = rg_test_take(&c);
        rg_test_check_status(__FILE__, __LINE__, &done, want[how]);
        RG_CHECK(done.data == NULL);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

/* The lease is waited for, and the wait can be ended; what never fits is said so. */
static void test_memory_that_is_short(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(RG_LOOP_MEMORY_MIN), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct rg_range large[] = {{0, RG_LOOP_MEMORY_MIN - RG_MIB(2), NULL}},
                                 huge[] = {{0, RG_LOOP_MEMORY_MIN + 1, NULL}},
                                 endless[] = {{0, UINT64_MAX, NULL}, {1, UINT64_MAX - 1, NULL}};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .memory_max = RG_LOOP_MEMORY_MIN};
    rg_test_client_open(&c);
    struct rg_completion first =
        ranges_take(&c, &(struct rg_get_ranges){.ranges = large, .count = 1});
    RG_CHECK_STATUS(&first, OK);
    struct rg_get_ranges get = {
        .bucket = "bucket", .object = "object", .ranges = large, .count = 1, .user_data = 2};
    RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &get), 0);
    RG_CHECK(rg_test_is_quiet(&c, 20));
    RG_CHECK_EQ(rg_cancel(c.client, c.cq, 2), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &get), 0);
    RG_CHECK(rg_test_is_quiet(&c, 20));
    rg_lease_release(first.lease);
    done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
    done = ranges_take(&c, &(struct rg_get_ranges){.ranges = huge, .count = 1});
    RG_CHECK_STATUS(&done, TOO_LARGE);
    rg_lease_release(done.lease);
    done = ranges_take(
        &c, &(struct rg_get_ranges){.ranges = endless, .count = 2, .request_size_max = UINT64_MAX});
    RG_CHECK_STATUS(&done, TOO_LARGE);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* Sets that hold memory and gets that wait for it share few connections: all of them get through.
 */
static void test_memory_is_shared_with_gets(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct rg_range ranges[] = {
        {0, 400000, NULL}, {400000, 10, NULL}, {500000, SIZE, NULL}};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .memory_max = RG_LOOP_MEMORY_MIN,
                               .options = {.connections_max = 4}};
    rg_test_client_open(&c);
    struct rg_get_ranges get = {.bucket = "bucket",
                                .object = "object",
                                .ranges = ranges,
                                .count = 3,
                                .request_size_max = 100000};
    for (unsigned i = 0; i < 60; i++) {
        RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &get), 0);
        rg_test_get(&c, &(struct rg_get){.user_data = 1});
    }
    for (unsigned i = 0; i < 120; i++) {
        struct rg_completion done = rg_test_take(&c);
        if (done.user_data == 1) {
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_EQ(done.size, SIZE);
        } else {
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_EQ(((const struct rg_range_result *)done.data)[2].size, SIZE - 500000);
        }
        rg_lease_release(done.lease);
    }
    rg_test_client_close(&c);
}

static void test_what_cannot_be_asked(void)
{
    static const struct rg_range good[] = {{0, 1, NULL}}, overflow[] = {{2, UINT64_MAX - 1, NULL}};
    static const struct rg_get_ranges rows[] = {
        {.bucket = "bucket", .object = "o", .count = 1},
        {.bucket = "bucket", .object = "o", .ranges = good},
        {.bucket = "bucket", .object = "o", .ranges = good, .count = RG_RANGES_MAX + 1},
        {.bucket = "bucket", .object = "o", .ranges = overflow, .count = 1},
        {.bucket = "bucket", .object = "o", .ranges = good, .count = 1, .requests_max = 65},
        {.bucket = "bucket", .object = "o", .ranges = good, .count = 1, .generation = -1},
        {.bucket = "bucket", .ranges = good, .count = 1},
    };
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &rows[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_neighbours_share_a_request),
        RG_TEST(test_ranges_of_other_versions),
        RG_TEST(test_large_ranges_are_read_in_pieces),
        RG_TEST(test_pieces_are_read_at_once),
        RG_TEST(test_ranges_that_end_behind_the_object),
        RG_TEST(test_nothing_to_read),
        RG_TEST(test_random_ranges),
        RG_TEST(test_ranges_that_begin_behind_the_object),
        RG_TEST(test_wrong_crc),
        RG_TEST(test_replaced_between_parts),
        RG_TEST(test_replaced_between_parts_in_flight),
        RG_TEST(test_replaced_over_and_over),
        RG_TEST(test_answers_without_generation_or_size),
        RG_TEST(test_one_failure_ends_all),
        RG_TEST(test_parts_that_break_off),
        RG_TEST(test_requests_are_bounded),
        RG_TEST(test_memory_that_is_short),
        RG_TEST(test_memory_is_shared_with_gets),
        RG_TEST(test_what_cannot_be_asked),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
