/* Gets against servers that answer in every way there is: right, wrong, cut, late. Whatever
 * happens, bytes are delivered exactly or not at all. */
#include "tests/gcs/object/get_case.h"

static void check_whole_get(bool tls, uint64_t size)
{
    const struct rg_step script[] = {RG_READ, OBJECT(size), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = tls};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 3; i++) {
        struct rg_completion done = get_one(&c, &(struct rg_get){.user_data = i});
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, size);
        RG_CHECK_EQ(done.user_data, i);
        RG_CHECK_EQ(done.attempts, 1);
        RG_CHECK_EQ(done.http_status, 200);
        RG_CHECK_EQ(done.generation, GENERATION);
        RG_CHECK_EQ(done.object_size, size);
        RG_CHECK(!done.is_gzip);
        RG_CHECK(done.started_ns != 0 && done.finished_ns >= done.started_ns);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
    const char *head = rg_scripted_server_head(c.server, 0);
    RG_CHECK_CONTAINS(head, "GET /storage/v1/b/bucket/o/object?alt=media HTTP/1.1\r\n");
    RG_CHECK(strcasestr(head, "\r\nRange:") == NULL);
    rg_test_client_close(&c);
}

static void test_whole_object(void)
{
    static const uint64_t sizes[] = {0, 1, 1000, 16384, 20000, SIZE, 3000000};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        check_whole_get(false, sizes[i]);
    }
}

static void test_whole_object_over_tls(void)
{
    static const uint64_t sizes[] = {0, 1, 1000, 16384, 20000, SIZE, 3000000};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        check_whole_get(true, sizes[i]);
    }
}

static void test_ranges(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    static const struct {
        uint64_t offset, length, size;
    } rows[] = {
        {0, 1, 1},
        {10, 20, 20},
        {SIZE - 1, 1, 1},
        {SIZE - 1, 50, 1},
        {5000, RG_WHOLE, SIZE - 5000},
        {0, SIZE * 2, SIZE},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_completion done =
            get_one(&c, &(struct rg_get){.offset = rows[i].offset, .length = rows[i].length});
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, rows[i].offset, rows[i].size);
        RG_CHECK_EQ(done.object_size, SIZE);
        rg_lease_release(done.lease);
    }
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "\r\nRange: bytes=10-29\r\n");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 4), "\r\nRange: bytes=5000-\r\n");
    struct rg_completion outside = get_one(&c, &(struct rg_get){.offset = SIZE, .length = 1});
    RG_CHECK_STATUS(&outside, RANGE);
    RG_CHECK_EQ(outside.http_status, 416);
    rg_lease_release(outside.lease);
    rg_test_client_close(&c);
}

static void test_range_answered_by_the_whole(void)
{
    const struct rg_step script[] = {
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = 50, .text = "x-goog-generation: 7\r\n"},
        RG_AGAIN,
    };
    (void)try_script(script, &(struct rg_get){.offset = 10, .length = 5}, RG_STATUS_BAD_RESPONSE,
                     8);
    (void)try_script(script, &(struct rg_get){.length = 5}, RG_STATUS_BAD_RESPONSE, 8);
    /* The whole is no more than what was asked for. */
    struct rg_completion done = try_script(script, &(struct rg_get){.length = 60}, RG_STATUS_OK, 8);
    RG_CHECK_EQ(done.size, 50);
}

static void test_answers_that_contradict_themselves(void)
{
    static const char *const answers[] = {
        /* A wrong start. */
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes "
        "11-15/50\r\n\r\nabcde",
        /* No Content-Range. */
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nabcde",
        /* Lengths that disagree. */
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes "
        "10-15/50\r\n\r\nabcde",
        /* More than was asked for. */
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\nContent-Range: bytes "
        "10-15/50\r\n\r\nabcdef",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes "
        "10-14/12\r\n\r\nabcde",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: lines "
        "10-14/50\r\n\r\nabcde",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes "
        "14-10/50\r\n\r\nabcde",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes "
        "*/50\r\n\r\nabcde",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes "
        "10-99999999999999999999/*\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-goog-hash: crc32c=%%%%\r\n\r\nabcde",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes "
        "10-14/50\r\n\r\n"
        "9\r\nabcdefghi\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(answers[i]), RG_AGAIN};
        struct rg_completion done = try_script(script, &(struct rg_get){.offset = 10, .length = 5},
                                               RG_STATUS_BAD_RESPONSE, 8);
        RG_CHECK_EQ(done.attempts, 1);
    }
}

static void test_another_generation_than_asked_for(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-goog-generation: 8\r\n\r\nabcde"),
        RG_AGAIN,
    };
    (void)try_script(script, &(struct rg_get){.generation = 7}, RG_STATUS_BAD_RESPONSE, 8);
    struct rg_completion done =
        try_script(script, &(struct rg_get){.generation = 8}, RG_STATUS_OK, 8);
    RG_CHECK_EQ(done.generation, 8);
}

/* A server may give less than the range that was asked for; the rest is asked for then. */
static void test_range_given_in_parts(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nContent-Range: bytes 10-11/50\r\n"
            "x-goog-generation: 7\r\n\r\nab"),
        RG_READ,
        RG_SEND(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 12-14/50\r\n"
            "x-goog-generation: 7\r\n\r\ncde"),
        RG_END,
    };
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){.offset = 10, .length = 5});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_MEM(done.data, done.size, "abcde", 5);
    RG_CHECK_EQ(done.attempts, 2);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "\r\nRange: bytes=12-14\r\n");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "generation=7");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* The memory taken for the first part does not fit the rest. */
static void test_range_given_in_parts_of_very_different_size(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 206 Partial Content\r\nContent-Length: 1000\r\n"
                "Content-Range: bytes 10-1009/3000000\r\nx-goog-generation: 7\r\n\r\n"),
        {.kind = RG_STEP_SEND_BYTES, .offset = 10, .size = 1000},
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT, .size = 3000000, .text = "x-goog-generation: 7\r\n"},
        RG_END};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){.offset = 10});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 10, 3000000 - 10);
    RG_CHECK_EQ(done.attempts, 2);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static const char wrong_crc[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-goog-generation: 7\r\n"
                                "x-goog-hash: crc32c=AAAAAA==\r\n\r\nabcde";
static const char wrong_crc_chunked[] =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-goog-generation: 7\r\n"
    "x-goog-hash: crc32c=AAAAAA==\r\n\r\n5\r\nabcde\r\n0\r\n\r\n";

static void test_wrong_checksum(void)
{
    const char *const answers[] = {wrong_crc, wrong_crc_chunked};
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        const struct rg_step script[] = {RG_READ, RG_SEND(answers[i]), RG_AGAIN};
        struct rg_completion done = try_script(script, &(struct rg_get){0}, RG_STATUS_CHECKSUM, 3);
        RG_CHECK_EQ(done.attempts, 3);
        RG_CHECK_EQ(done.size, 0);
    }
}

static void test_wrong_checksum_then_right(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(wrong_crc), RG_READ, OBJECT(50), RG_END};
    struct rg_completion done = try_script(script, &(struct rg_get){0}, RG_STATUS_OK, 3);
    RG_CHECK_EQ(done.attempts, 2);
    RG_CHECK_EQ(done.size, 50);
}

static void test_checksum_may_be_missing_or_spread(void)
{
    /* CRC32C of "abcde" is 0xc450d697. */
    static const char *const fields[] = {
        "",
        "x-goog-hash: md5=q1a1BP1eEZAQeH5l2v3JKw==\r\n",
        "x-goog-hash: md5=q1a1BP1eEZAQeH5l2v3JKw==\r\nx-goog-hash: crc32c=xFDWlw==\r\n",
        "x-goog-hash: crc32c=xFDWlw==,md5=q1a1BP1eEZAQeH5l2v3JKw==\r\n",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(fields); i++) {
        char answer[512];
        snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n%s\r\nabcde",
                 fields[i]);
        const struct rg_step script[] = {RG_READ, RG_SEND(answer), RG_AGAIN};
        struct rg_completion done = try_script(script, &(struct rg_get){0}, RG_STATUS_OK, 1);
        RG_CHECK_EQ(done.size, 5);
        RG_CHECK_EQ(done.crc32c, 0xc450d697);
    }
}

struct cut {
    bool tls;
    enum rg_step_kind end;
    uint64_t at; /* bytes of the body before it */
    bool own_buffer;
};

/* The first connection breaks off; the rest comes on a second one. */
static void check_resumed(const struct cut *cut)
{
    const char *fields = rg_test_object_fields(SIZE, GENERATION);
    const struct rg_step broken[] = {
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = fields, .body_max = cut->at + 1},
        RG_SLEEP(cut->end == RG_STEP_RESET ? 20 : 0),
        {.kind = cut->end},
    };
    const struct rg_step good[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = fields}, RG_AGAIN};
    const struct rg_step *const scripts[] = {broken, good};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2, .tls = cut->tls};
    rg_test_client_open(&c);
    uint8_t *buf = cut->own_buffer ? malloc(SIZE) : NULL;
    struct rg_completion done =
        get_one(&c, &(struct rg_get){.buf = buf, .buf_size = buf != NULL ? SIZE : 0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, SIZE);
    RG_CHECK_EQ(done.attempts, 2);
    RG_CHECK_EQ(done.generation, GENERATION);
    RG_CHECK_EQ(rg_scripted_server_requests(c.server), 2);
    if (cut->at > 0) {
        char range[64];
        snprintf(range, sizeof(range), "\r\nRange: bytes=%llu-\r\n", (unsigned long long)cut->at);
        RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), range);
        RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "generation=1700000000000001");
    } else {
        RG_CHECK(strcasestr(rg_scripted_server_head(c.server, 1), "Range:") == NULL);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    free(buf);
}

static const uint64_t cut_places[] = {0, 1, 16383, 16384, 20000, SIZE / 2, SIZE - 1};

static void test_body_cut_by_fin_is_continued(void)
{
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(cut_places); i++) {
        check_resumed(&(struct cut){false, RG_STEP_CUT, cut_places[i / 2], i % 2 == 1});
    }
}

static void test_body_cut_by_rst_is_continued(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(cut_places); i++) {
        check_resumed(&(struct cut){false, RG_STEP_RESET, cut_places[i], i % 2 == 1});
    }
}

static void test_tls_body_cut_without_close_notify_is_continued(void)
{
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(cut_places); i++) {
        check_resumed(&(struct cut){true, RG_STEP_CUT, cut_places[i / 2], i % 2 == 1});
    }
}

static void test_tls_body_ended_by_close_notify_is_continued(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(cut_places); i++) {
        check_resumed(&(struct cut){true, RG_STEP_END, cut_places[i], false});
    }
}

static void test_tls_body_cut_by_rst_is_continued(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(cut_places); i++) {
        check_resumed(&(struct cut){true, RG_STEP_RESET, cut_places[i], false});
    }
}

static void check_second_connection(const struct rg_step *first, const struct rg_step *second,
                                    uint64_t size, int64_t generation)
{
    const struct rg_step *const scripts[] = {first, second};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, size);
    RG_CHECK_EQ(done.generation, generation);
    RG_CHECK_EQ(done.object_size, size);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

#define HALF_OBJECT                                                                                \
    {                                                                                              \
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE,                                                 \
        .text = rg_test_object_fields(SIZE, GENERATION), .body_max = SIZE / 2                      \
    }

static void test_server_that_ignores_the_range_of_the_rest(void)
{
    const struct rg_step broken[] = {RG_READ, HALF_OBJECT, RG_CUT};
    const struct rg_step whole[] = {RG_READ,
                                    {.kind = RG_STEP_SEND_OBJECT_WHOLE,
                                     .size = SIZE,
                                     .text = rg_test_object_fields(SIZE, GENERATION)},
                                    RG_AGAIN};
    check_second_connection(broken, whole, SIZE, GENERATION);
}

/* The newer object is larger, so that the memory taken for the first one does not fit it. */
static void test_object_replaced_while_it_is_read(void)
{
    const struct rg_step broken[] = {RG_READ, HALF_OBJECT, RG_CUT};
    const uint64_t size = 5 * SIZE;
    const char *fields = rg_test_object_fields(size, GENERATION + 1);
    const struct rg_step gone[] = {RG_READ,
                                   RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
                                   RG_READ,
                                   {.kind = RG_STEP_SEND_OBJECT, .size = size, .text = fields},
                                   RG_END};
    check_second_connection(broken, gone, size, GENERATION + 1);
    /* A server that does not know of generations in requests. */
    const struct rg_step newer[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = size, .text = fields}, RG_AGAIN};
    check_second_connection(broken, newer, size, GENERATION + 1);
    const struct rg_step whole[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = size, .text = fields}, RG_AGAIN};
    check_second_connection(broken, whole, size, GENERATION + 1);
}

static void test_object_replaced_before_a_byte_of_it_came(void)
{
    const struct rg_step broken[] = {RG_READ,
                                     {.kind = RG_STEP_SEND_OBJECT,
                                      .size = 100,
                                      .text = rg_test_object_fields(100, 5),
                                      .body_max = 1},
                                     RG_CUT};
    const struct rg_step larger[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    check_second_connection(broken, larger, SIZE, GENERATION);
}

/* A generation that the caller asked for is not replaced by another. */
static void test_wanted_generation_gone_while_it_is_read(void)
{
    const struct rg_step broken[] = {RG_READ, HALF_OBJECT, RG_CUT};
    const struct rg_step gone[] = {
        RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), RG_AGAIN};
    const struct rg_step *const scripts[] = {broken, gone};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){.generation = GENERATION});
    RG_CHECK_STATUS(&done, NOT_FOUND);
    RG_CHECK_EQ(done.attempts, 3); /* the last asks what is there now */
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

#define NOT_FOUND_ANSWER "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

/* Reads generation 7, to which a script answers twice; the detail is copied. */
static const char *read_gone(const struct rg_step *script, uint32_t attempts)
{
    static char detail[4096];
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.attempts_max = 2}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){.generation = 7});
    RG_CHECK_STATUS(&done, NOT_FOUND);
    RG_CHECK_EQ(done.http_status, 404);
    RG_CHECK_EQ(done.attempts, attempts);
    snprintf(detail, sizeof(detail), "%s", done.detail);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return detail;
}

static void test_a_generation_that_was_replaced_tells_by_which(void)
{
    static const char there[] = "{\"name\":\"object\",\"size\":\"3\",\"generation\":\"8\","
                                "\"timeCreated\":\"2026-01-02T03:04:05.678Z\"}";
    const struct rg_step replaced[] = {RG_READ, RG_SEND(NOT_FOUND_ANSWER), RG_READ,
                                       RG_SEND(rg_test_answer("200 OK", there)), RG_AGAIN};
    const char *detail = read_gone(replaced, 2);
    RG_CHECK_CONTAINS(detail, "it was replaced by generation 8, written 2026-01-02T03:04:05.678Z");
    RG_CHECK_CONTAINS(detail, "changed=");
    /* It cannot have replaced itself. */
    static const char same[] = "{\"name\":\"object\",\"size\":\"3\",\"generation\":\"7\"}";
    const struct rg_step there_now[] = {RG_READ, RG_SEND(NOT_FOUND_ANSWER), RG_READ,
                                        RG_SEND(rg_test_answer("200 OK", same)), RG_AGAIN};
    detail = read_gone(there_now, 2);
    RG_CHECK_CONTAINS(detail, "generation 7 was answered by 404, and is there; read it again");
    RG_CHECK(strstr(detail, "replaced") == NULL);
    const struct rg_step removed[] = {RG_READ, RG_SEND(NOT_FOUND_ANSWER), RG_AGAIN};
    RG_CHECK(strstr(read_gone(removed, 2), "replaced") == NULL);
    const struct rg_step unreadable[] = {
        RG_READ, RG_SEND(NOT_FOUND_ANSWER), RG_READ,
        RG_SEND(rg_test_answer("403 Forbidden", "{\"message\":\"not you\"}")), RG_AGAIN};
    detail = read_gone(unreadable, 2);
    RG_CHECK_CONTAINS(detail, "no such generation, and what is there cannot be read");
    RG_CHECK_CONTAINS(detail, "not you");
}

static void test_what_is_there_is_not_asked_without_a_generation(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(NOT_FOUND_ANSWER), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, NOT_FOUND);
    RG_CHECK_EQ(done.attempts, 1);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_body_cut_without_a_generation_is_read_anew(void)
{
    const struct rg_step broken[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .body_max = SIZE / 2}, RG_CUT};
    const struct rg_step good[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {broken, good};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, SIZE);
    RG_CHECK(strcasestr(rg_scripted_server_head(c.server, 1), "Range:") == NULL);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_body_that_is_always_cut(void)
{
    const struct rg_step broken[] = {RG_READ, HALF_OBJECT, RG_CUT};
    const struct rg_step again[] = {RG_READ,
                                    {.kind = RG_STEP_SEND_OBJECT,
                                     .size = SIZE,
                                     .text = rg_test_object_fields(SIZE, GENERATION),
                                     .body_max = 101},
                                    RG_CUT};
    const struct rg_step *const scripts[] = {broken, again};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 2, .options = {.attempts_max = 4}};
    rg_test_client_open(&c);
    uint8_t *buf = malloc(SIZE);
    struct rg_completion done = get_one(&c, &(struct rg_get){.buf = buf, .buf_size = SIZE});
    RG_CHECK_STATUS(&done, TRUNCATED);
    RG_CHECK_EQ(done.attempts, 4);
    /* What is there is good, and the completion says how much. */
    RG_CHECK_BYTES(&done, 0, SIZE / 2 - 1 + 300);
    RG_CHECK_CONTAINS(done.detail, "get gs://bucket/object at http://127.0.0.1:");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    free(buf);
}

static void test_chunked_bodies(void)
{
    static const char answer[] =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-goog-hash: crc32c=xFDWlw==\r\n\r\n"
        "1;x=y\r\na\r\n3\r\nbcd\r\n1\r\ne\r\n0\r\nTrailer: 1\r\n\r\n";
    for (uint32_t piece = 0; piece < 4; piece++) {
        const struct rg_step script[] = {
            RG_READ,
            {.kind = RG_STEP_SEND, .text = answer, .piece = piece, .ms = piece == 1},
            RG_AGAIN};
        const struct rg_step *const scripts[] = {script};
        struct rg_test_client c = {.scripts = scripts, .script_count = 1};
        rg_test_client_open(&c);
        for (unsigned i = 0; i < 2; i++) {
            struct rg_completion done = get_one(&c, &(struct rg_get){0});
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_MEM(done.data, done.size, "abcde", 5);
            RG_CHECK_EQ(done.object_size, 5);
            rg_lease_release(done.lease);
        }
        RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
        rg_test_client_close(&c);
    }
}

/* Larger than the slab that a body of unknown length starts with, so that it has to move. */
static void test_long_bodies_of_unknown_length(void)
{
    const uint64_t size = 300000;
    char head[512];
    snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nConnection: close\r\n%s\r\n",
             rg_test_object_fields(size, GENERATION));
    const struct rg_step until_close[] = {
        RG_READ, RG_SEND(head), {.kind = RG_STEP_SEND_BYTES, .size = size}, RG_END};
    char chunked_head[512];
    snprintf(chunked_head, sizeof(chunked_head),
             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%s\r\n493e0\r\n",
             rg_test_object_fields(size, GENERATION));
    const struct rg_step chunked[] = {RG_READ,
                                      RG_SEND(chunked_head),
                                      {.kind = RG_STEP_SEND_BYTES, .size = size},
                                      RG_SEND("\r\n0\r\n\r\n"),
                                      RG_AGAIN};
    const struct rg_step *const scripts[][1] = {{until_close}, {chunked}};
    for (size_t i = 0; i < 4; i++) {
        struct rg_test_client c = {.scripts = scripts[i / 2], .script_count = 1, .tls = i % 2 == 1};
        rg_test_client_open(&c);
        struct rg_completion done = get_one(&c, &(struct rg_get){0});
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, size);
        RG_CHECK_EQ(done.attempts, 1);
        rg_lease_release(done.lease);
        rg_test_client_close(&c);
    }
}

/* The rest of a body of unknown length is not asked for: it is read again from the beginning. */
static void test_bodies_of_unknown_length_that_are_cut(void)
{
    static const char chunked[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                                  "x-goog-generation: 7\r\n\r\n5\r\nabcde\r\n";
    const struct rg_step broken[] = {RG_READ, RG_SEND(chunked), RG_CUT};
    const struct rg_step good[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    check_second_connection(broken, good, SIZE, GENERATION);
    /* An end without close_notify may have been made by anybody. */
    const struct rg_step until_close[] = {RG_READ, RG_SEND("HTTP/1.1 200 OK\r\n\r\nabc"), RG_CUT};
    const struct rg_step *const scripts[] = {until_close};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .tls = true, .options = {.attempts_max = 2}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, TRUNCATED);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_names_that_the_service_would_refuse(void)
{
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    const struct rg_get bad[] = {
        {.bucket = "bucket"},
        {.object = "object"},
        {.bucket = "", .object = "o"},
        {.bucket = "Bucket!", .object = "o"},
        {.bucket = "bucket", .object = ""},
        {.bucket = "bucket", .object = "a\nb"},
        {.bucket = "bucket", .object = ".."},
        {.bucket = "bucket", .object = "\xff"},
        {.bucket = "bucket", .object = "o", .generation = -1},
        {.bucket = "bucket", .object = "o", .offset = UINT64_MAX, .length = 2},
        {.bucket = "bucket", .object = "o", .buf_size = 5},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_submit_get(c.client, c.cq, &bad[i]), -EINVAL);
    }
    RG_CHECK_EQ(rg_submit_gets(c.client, c.cq, bad, 0), -EINVAL);
    RG_CHECK(rg_test_is_quiet(&c, 20));
    RG_CHECK_EQ(rg_scripted_server_connections(c.server), 0);
    rg_test_client_close(&c);
}

static void test_names_arrive_encoded(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(1), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done =
        get_one(&c, &(struct rg_get){.object = "a/b c?d#e\xc3\xa4", .generation = 5});
    RG_CHECK_EQ(done.status, RG_STATUS_BAD_RESPONSE); /* of another generation */
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0),
                      "GET /storage/v1/b/bucket/o/a%2Fb%20c%3Fd%23e%C3%A4?alt=media&generation=5 ");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

/* Conditions are of the object as it is at the first answer; what is continued is pinned by its
 * generation. */
static void test_conditions(void)
{
    struct rg_step cut[] = {RG_READ, OBJECT(SIZE), RG_CUT};
    cut[1].body_max = 1001;
    const struct rg_step rest[] = {RG_READ, OBJECT(SIZE),
                                   RG_READ, RG_SEND(rg_test_answer("412 Precondition Failed", "")),
                                   RG_READ, RG_SEND("HTTP/1.1 304 Not Modified\r\n\r\n"),
                                   RG_END};
    const struct rg_step *const scripts[] = {cut, rest};
    struct rg_test_client c = {.scripts = scripts, .script_count = 2};
    rg_test_client_open(&c);
    struct rg_get get = {.conditions = {.if_generation_match = GENERATION,
                                        .if_generation_not_match = 5,
                                        .if_metageneration_match = 2,
                                        .if_metageneration_not_match = 3}};
    struct rg_completion done = get_one(&c, &get);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, SIZE);
    rg_lease_release(done.lease);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0),
                      "?alt=media&ifGenerationMatch=1700000000000001&ifGenerationNotMatch=5"
                      "&ifMetagenerationMatch=2&ifMetagenerationNotMatch=3 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1),
                      "?alt=media&generation=1700000000000001 HTTP/1.1\r\n");
    for (unsigned i = 0; i < 2; i++) {
        done = get_one(&c, &get);
        RG_CHECK_STATUS(&done, PRECONDITION);
        RG_CHECK_EQ(done.http_status, i == 0 ? 412 : 304);
        rg_lease_release(done.lease);
    }
    get.conditions.if_metageneration_match = -1;
    get.bucket = "bucket";
    get.object = "object";
    RG_CHECK_EQ(rg_submit_get(c.client, c.cq, &get), -EINVAL);
    rg_test_client_close(&c);
}

#define GZIP_STORED "x-goog-stored-content-encoding: gzip\r\n"

/* What is stored compressed comes as it is stored: the bytes, their number, ranges and CRC32C. */
static void test_compressed_objects_come_as_stored(void)
{
    char fields[512];
    snprintf(fields, sizeof(fields), "%s" GZIP_STORED "Content-Encoding: gzip\r\n",
             rg_test_object_fields(SIZE, GENERATION));
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = fields}, RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, SIZE);
    RG_CHECK(done.is_gzip);
    RG_CHECK(done.has_object_crc32c);
    RG_CHECK_EQ(done.crc32c, done.object_crc32c);
    rg_lease_release(done.lease);
    done = get_one(&c, &(struct rg_get){.offset = 100, .length = 50});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 100, 50);
    RG_CHECK(done.is_gzip);
    RG_CHECK_EQ(done.object_size, SIZE);
    rg_lease_release(done.lease);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), "\r\nAccept-Encoding: gzip\r\n");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "\r\nAccept-Encoding: gzip\r\n");
    rg_test_client_close(&c);
}

/* A server that decompresses all the same is found out: whole or by range, by what it says or by
 * what it does not say. */
static void test_decompressed_answers_are_refused(void)
{
    static const char said[] =
        "x-guploader-response-body-transformations: gunzipped\r\n" GZIP_STORED,
                      unsaid[] = GZIP_STORED "x-goog-stored-content-length: 70\r\n";
    for (unsigned i = 0; i < 4; i++) {
        const struct rg_step script[] = {
            RG_READ,
            {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = 100, .text = i % 2 == 0 ? said : unsaid},
            RG_AGAIN};
        struct rg_completion done = try_script(script, &(struct rg_get){.length = i < 2 ? 0 : 1000},
                                               RG_STATUS_BAD_RESPONSE, 3);
        RG_CHECK_EQ(done.attempts, 1);
    }
    /* As long as what is stored: it cannot have been decompressed. */
    static const char raw[] = GZIP_STORED "x-goog-stored-content-length: 100\r\n";
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = 100, .text = raw}, RG_AGAIN};
    try_script(script, &(struct rg_get){0}, RG_STATUS_OK, 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_whole_object),
        RG_TEST(test_whole_object_over_tls),
        RG_TEST(test_ranges),
        RG_TEST(test_range_answered_by_the_whole),
        RG_TEST(test_answers_that_contradict_themselves),
        RG_TEST(test_another_generation_than_asked_for),
        RG_TEST(test_range_given_in_parts),
        RG_TEST(test_range_given_in_parts_of_very_different_size),
        RG_TEST(test_wrong_checksum),
        RG_TEST(test_wrong_checksum_then_right),
        RG_TEST(test_checksum_may_be_missing_or_spread),
        RG_TEST(test_body_cut_by_fin_is_continued),
        RG_TEST(test_body_cut_by_rst_is_continued),
        RG_TEST(test_tls_body_cut_without_close_notify_is_continued),
        RG_TEST(test_tls_body_ended_by_close_notify_is_continued),
        RG_TEST(test_tls_body_cut_by_rst_is_continued),
        RG_TEST(test_server_that_ignores_the_range_of_the_rest),
        RG_TEST(test_object_replaced_while_it_is_read),
        RG_TEST(test_object_replaced_before_a_byte_of_it_came),
        RG_TEST(test_wanted_generation_gone_while_it_is_read),
        RG_TEST(test_a_generation_that_was_replaced_tells_by_which),
        RG_TEST(test_what_is_there_is_not_asked_without_a_generation),
        RG_TEST(test_body_cut_without_a_generation_is_read_anew),
        RG_TEST(test_body_that_is_always_cut),
        RG_TEST(test_chunked_bodies),
        RG_TEST(test_long_bodies_of_unknown_length),
        RG_TEST(test_bodies_of_unknown_length_that_are_cut),
        RG_TEST(test_names_that_the_service_would_refuse),
        RG_TEST(test_names_arrive_encoded),
        RG_TEST(test_conditions),
        RG_TEST(test_compressed_objects_come_as_stored),
        RG_TEST(test_decompressed_answers_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
