/* Instructions, the tests that hold them, and what they do to calls; see faults.h. */
#include "emulator/faults.h"

#include "emulator/body.h"
#include "emulator/method.h"
#include "emulator/reply.h"
#include "http/url.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <yyjson.h>

#define ID_SIZE 32
#define CONTROL_SIZE_MAX RG_KIB(64)
#define BREAK_SIZE 4 /* As the testbench sends its broken streams. */
/* What x-goog-emulator-instructions mean by their names. */
#define HEADER_SIZE RG_KIB(256)
#define HEADER_BREAK_SIZE RG_MIB(1)
#define HEADER_STALL_S 10

struct instruction {
    struct rg_fault_action action;
    uint8_t method;
    bool done;
    char text[RG_RETRY_INSTRUCTION_SIZE_MAX + 1];
};

struct retry_test {
    struct rg_list node;
    char id[ID_SIZE + 1];
    uint64_t serial; /* From 1. */
    size_t count;
    struct instruction instructions[]; /* Those of one method in their order. */
};

struct rg_faults {
    pthread_mutex_t lock;
    struct rg_list tests; /* The rest is under the lock. */
    uint32_t count;
    uint64_t serial;
};

int rg_faults_create(struct rg_faults **out_faults)
{
    struct rg_faults *faults = calloc(1, sizeof(*faults));
    if (faults == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&faults->lock, NULL);
    rg_list_init(&faults->tests);
    *out_faults = faults;
    return 0;
}

void rg_faults_destroy(struct rg_faults *faults)
{
    if (faults == NULL) {
        return;
    }
    while (!rg_list_empty(&faults->tests)) {
        struct retry_test *test = RG_CONTAINER_OF(faults->tests.next, struct retry_test, node);
        rg_list_remove(&test->node);
        free(test);
    }
    pthread_mutex_destroy(&faults->lock);
    free(faults);
}

static struct rg_faults *faults_of(struct rg_server_call *call)
{
    return rg_service_of(call)->faults;
}

static struct rg_fault *fault_of(struct rg_server_call *call)
{
    return &rg_call_of(call)->fault;
}

/* Digits at the front of *text, at most `max`, as part of a pattern. */
static bool take_number(const char **text, uint64_t max, uint64_t *out_value)
{
    uint64_t value = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > max) {
            return false;
        }
    }
    bool any = at != *text;
    *text = at;
    *out_value = value;
    return any;
}

/* Matches a text with a pattern in which each '#' is a number. */
static bool match(const char *text, const char *pattern, uint64_t out_numbers[2])
{
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '#') {
            if (!take_number(&text, RG_RETRY_AFTER_MAX, out_numbers++)) {
                return false;
            }
        } else if (*text++ != *pattern) {
            return false;
        }
    }
    return *text == '\0';
}

static bool is_status(uint64_t number)
{
    return number >= 300 && number <= 599;
}

static bool parse_instruction(const char *text, struct rg_fault_action *out)
{
    uint64_t number[2] = {0, 0};
    *out = (struct rg_fault_action){.kind = RG_FAULT_NONE};
    if (match(text, "return-#", number)) {
        out->kind = is_status(number[0]) ? RG_FAULT_STATUS : RG_FAULT_NONE;
        out->status = (uint16_t)number[0];
    } else if (match(text, "return-#-after-#K", number)) {
        out->kind = is_status(number[0]) ? RG_FAULT_STATUS_AFTER : RG_FAULT_NONE;
        out->status = (uint16_t)number[0];
        out->after = number[1] * 1024;
    } else if (match(text, "return-reset-connection", number)) {
        out->kind = RG_FAULT_RESET;
    } else if (match(text, "return-broken-stream", number)) {
        out->kind = RG_FAULT_BREAK;
        out->after = BREAK_SIZE;
    } else if (match(text, "return-broken-stream-after-#K", number)) {
        out->kind = RG_FAULT_BREAK_AFTER;
        out->after = number[0] * 1024;
    } else if (match(text, "return-broken-stream-final-chunk-after-#B", number)) {
        out->kind = RG_FAULT_BREAK_FINAL;
        out->after = number[0];
    } else if (match(text, "stall-for-#s-after-#K", number)) {
        out->kind = number[0] <= RG_RETRY_STALL_S_MAX ? RG_FAULT_STALL_AFTER : RG_FAULT_NONE;
        out->stall_s = (uint32_t)number[0];
        out->after = number[1] * 1024;
    }
    return out->kind != RG_FAULT_NONE;
}

static struct retry_test *find_test_locked(struct rg_faults *faults, struct rg_h1_slice id)
{
    for (struct rg_list *at = faults->tests.next; at != &faults->tests; at = at->next) {
        struct retry_test *test = RG_CONTAINER_OF(at, struct retry_test, node);
        if (rg_text_equals(id, test->id)) {
            return test;
        }
    }
    return NULL;
}

/* The next instruction of a method; NULL when all are done. */
static struct instruction *next_of(struct retry_test *test, enum rg_method method)
{
    for (size_t i = 0; i < test->count; i++) {
        if (test->instructions[i].method == method && !test->instructions[i].done) {
            return &test->instructions[i];
        }
    }
    return NULL;
}

static bool is_complete(const struct retry_test *test)
{
    for (size_t i = 0; i < test->count; i++) {
        if (!test->instructions[i].done) {
            return false;
        }
    }
    return true;
}

/* Uses up the call's instruction; false if another call has. */
static bool use_up(struct rg_server_call *call)
{
    struct rg_faults *faults = faults_of(call);
    struct rg_fault *fault = fault_of(call);
    bool used = fault->test_serial == 0;
    pthread_mutex_lock(&faults->lock);
    for (struct rg_list *at = faults->tests.next; !used && at != &faults->tests; at = at->next) {
        struct retry_test *test = RG_CONTAINER_OF(at, struct retry_test, node);
        if (test->serial == fault->test_serial) {
            used = !test->instructions[fault->index].done;
            test->instructions[fault->index].done = true;
        }
    }
    pthread_mutex_unlock(&faults->lock);
    return used;
}

static void append_test(struct rg_text *text, const struct retry_test *test)
{
    bool any_method = false;
    rg_text_printf(text, "{\"id\":\"%s\",\"instructions\":{", test->id);
    for (unsigned method = 0; method < RG_METHOD_COUNT; method++) {
        bool any = false;
        for (size_t i = 0; i < test->count; i++) {
            if (test->instructions[i].method != method) {
                continue;
            }
            if (!any) {
                rg_text_printf(text, "%s\"%s\":[", any_method ? "," : "",
                               rg_method_name((enum rg_method)method));
            }
            rg_text_printf(text, "%s\"%s\"", any ? "," : "", test->instructions[i].text);
            any = any_method = true;
        }
        rg_text_append_str(text, any ? "]" : "");
    }
    rg_text_printf(text, "},\"completed\":%s,\"transport\":\"HTTP\"}",
                   is_complete(test) ? "true" : "false");
}

static void reply_unknown_test(struct rg_server_call *call, struct rg_h1_slice id)
{
    rg_reply_error(call, RG_API_NO_PATH, "There is no retry test %.*s.", (int)id.size, id.data);
}

static void list_tests(struct rg_server_call *call)
{
    struct rg_faults *faults = faults_of(call);
    struct rg_text *text = &rg_call_of(call)->text;
    rg_text_append_str(text, "{\"retry_test\":[");
    pthread_mutex_lock(&faults->lock);
    for (struct rg_list *at = faults->tests.next; at != &faults->tests; at = at->next) {
        rg_text_append_str(text, at == faults->tests.next ? "" : ",");
        append_test(text, RG_CONTAINER_OF(at, struct retry_test, node));
    }
    pthread_mutex_unlock(&faults->lock);
    rg_text_append_str(text, "]}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void get_test(struct rg_server_call *call, struct rg_h1_slice id)
{
    struct rg_faults *faults = faults_of(call);
    pthread_mutex_lock(&faults->lock);
    struct retry_test *test = find_test_locked(faults, id);
    if (test != NULL) {
        append_test(&rg_call_of(call)->text, test);
    }
    pthread_mutex_unlock(&faults->lock);
    if (test == NULL) {
        reply_unknown_test(call, id);
    } else {
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
}

static void delete_test(struct rg_server_call *call, struct rg_h1_slice id)
{
    struct rg_faults *faults = faults_of(call);
    pthread_mutex_lock(&faults->lock);
    struct retry_test *test = find_test_locked(faults, id);
    if (test != NULL) {
        rg_list_remove(&test->node);
        faults->count--;
    }
    pthread_mutex_unlock(&faults->lock);
    free(test);
    if (test == NULL) {
        reply_unknown_test(call, id);
        return;
    }
    rg_text_printf(&rg_call_of(call)->text, "Deleted %.*s\n", (int)id.size, id.data);
    rg_reply_text(call, 200, "text/plain; charset=UTF-8");
}

/* False with the call answered. */
static bool add_instruction(struct rg_server_call *call, struct retry_test *test,
                            const char *method_name, yyjson_val *value)
{
    const char *text = yyjson_is_str(value) ? yyjson_get_str(value) : "";
    struct instruction *instruction = &test->instructions[test->count];
    instruction->method = (uint8_t)rg_method_find(method_name);
    instruction->done = false;
    if (instruction->method == RG_METHOD_NONE) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The method '%.64s' is not known.", method_name);
        return false;
    }
    if (strlen(text) > RG_RETRY_INSTRUCTION_SIZE_MAX ||
        !parse_instruction(text, &instruction->action)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The instruction '%.64s' is not known.", text);
        return false;
    }
    strcpy(instruction->text, text);
    test->count++;
    return true;
}

static bool fill_test(struct rg_server_call *call, struct retry_test *test, yyjson_val *root)
{
    yyjson_val *name, *value, *methods = yyjson_obj_get(root, "instructions");
    size_t i, count, at, size;
    if (!yyjson_is_obj(methods)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A retry test is {\"instructions\":{METHOD:[INSTRUCTION,...]}}.");
        return false;
    }
    yyjson_obj_foreach(methods, i, count, name, value)
    {
        yyjson_val *text;
        yyjson_arr_foreach(value, at, size, text)
        {
            if (test->count == RG_RETRY_INSTRUCTIONS_MAX) {
                rg_reply_error(call, RG_API_BAD_REQUEST,
                               "A retry test has at most %d instructions.",
                               RG_RETRY_INSTRUCTIONS_MAX);
                return false;
            }
            if (!add_instruction(call, test, yyjson_get_str(name), text)) {
                return false;
            }
        }
    }
    return true;
}

/* Gives the test an id that nobody else has: its serial number, behind something random. */
static void make_id(struct retry_test *test)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
        random = (uint64_t)(uintptr_t)test;
    }
    snprintf(test->id, sizeof(test->id), "%016" PRIx64 "%016" PRIx64, random, test->serial);
}

/* Takes the test. False: there are too many. */
static bool keep_test(struct rg_server_call *call, struct retry_test *test)
{
    struct rg_faults *faults = faults_of(call);
    pthread_mutex_lock(&faults->lock);
    bool room = faults->count < RG_RETRY_TESTS_MAX;
    if (room) {
        test->serial = ++faults->serial;
        make_id(test);
        append_test(&rg_call_of(call)->text, test);
        rg_list_push_back(&faults->tests, &test->node);
        faults->count++;
    }
    pthread_mutex_unlock(&faults->lock);
    return room;
}

static void make_test(struct rg_server_call *call, const struct rg_api_request *request,
                      struct rg_h1_slice body)
{
    (void)request;
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    struct retry_test *test =
        calloc(1, sizeof(*test) + RG_RETRY_INSTRUCTIONS_MAX * sizeof(test->instructions[0]));
    if (test == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else if (fill_test(call, test, yyjson_doc_get_root(document))) {
        if (keep_test(call, test)) {
            test = NULL;
            rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
        } else {
            rg_reply_error(call, RG_API_TOO_LARGE,
                           "There are %d retry tests already; delete what is done.",
                           RG_RETRY_TESTS_MAX);
        }
    }
    free(test);
    yyjson_doc_free(document);
}

/* What is not about the service but about its faults. False: it is about the service. */
static bool control(struct rg_server_call *call, const struct rg_api_request *request)
{
    static const char tests_path[] = "/retry_tests", test_path[] = "/retry_test";
    struct rg_h1_slice path, query, prefix = {test_path, sizeof(test_path) - 1};
    rg_url_target_split(request->head->target, &path, &query);
    if (!rg_text_starts_with(path, prefix)) {
        return false;
    }
    struct rg_h1_slice id = {path.data + prefix.size, path.size - prefix.size};
    bool named = id.size > 1 && id.data[0] == '/';
    bool listed = rg_text_equals(path, tests_path);
    if (!named && !listed && id.size > 0) {
        return false;
    }
    id.data += named;
    id.size -= named;
    rg_call_of(call)->json = true;
    if (listed && rg_api_request_is(request, "GET")) {
        list_tests(call);
    } else if (named && rg_api_request_is(request, "GET")) {
        get_test(call, id);
    } else if (named && rg_api_request_is(request, "DELETE")) {
        delete_test(call, id);
    } else if (!named && !listed && rg_api_request_is(request, "POST")) {
        rg_body_collect(call, request, CONTROL_SIZE_MAX, make_test);
    } else {
        rg_reply_error(call, RG_API_METHOD,
                       "Retry tests know POST /retry_test, GET /retry_tests, "
                       "and GET and DELETE of /retry_test/ID.");
    }
    return true;
}

/* Meanings of x-goog-emulator-instructions. */
static void take_header(struct rg_fault *fault, struct rg_h1_slice text,
                        const struct rg_api_request *request)
{
    static const struct {
        const char *text;
        struct rg_fault_action action;
    } rows[] = {
        {"return-broken-stream",
         {.kind = RG_FAULT_BREAK_AFTER, .reset = true, .after = HEADER_BREAK_SIZE}},
        {"break-after-256K", {.kind = RG_FAULT_BREAK_AFTER, .reset = true, .after = HEADER_SIZE}},
        {"return-503-after-256K",
         {.kind = RG_FAULT_BREAK_AFTER, .reset = true, .after = HEADER_SIZE}},
        {"return-503-after-256K/retry-1", {.kind = RG_FAULT_STATUS, .status = 503}},
        {"return-corrupted-data", {.kind = RG_FAULT_CORRUPT_ANSWER}},
        {"stall-always", {.kind = RG_FAULT_STALL_AFTER, .stall_s = HEADER_STALL_S}},
        {"stall-at-256KiB",
         {.kind = RG_FAULT_STALL_AFTER, .stall_s = HEADER_STALL_S, .after = HEADER_SIZE}},
        {"inject-upload-data-error", {.kind = RG_FAULT_CORRUPT_UPLOAD}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (rg_text_equals(text, rows[i].text)) {
            fault->action = rows[i].action;
        }
    }
    bool is_upload = rg_method_of(request) == RG_METHOD_OBJECTS_INSERT;
    if (is_upload && rg_text_equals(text, "return-503-after-256K")) {
        fault->action = (struct rg_fault_action){
            .kind = RG_FAULT_STATUS_AFTER, .status = 503, .after = HEADER_SIZE};
    }
}

/* Finds the instruction that the request meets. False: there is no such test. */
static bool take_instruction(struct rg_server_call *call, struct rg_h1_slice id,
                             enum rg_method method)
{
    struct rg_faults *faults = faults_of(call);
    struct rg_fault *fault = fault_of(call);
    pthread_mutex_lock(&faults->lock);
    struct retry_test *test = find_test_locked(faults, id);
    struct instruction *next = test != NULL ? next_of(test, method) : NULL;
    if (next != NULL) {
        fault->action = next->action;
        fault->test_serial = test->serial;
        fault->index = (uint16_t)(next - test->instructions);
    }
    pthread_mutex_unlock(&faults->lock);
    return test != NULL;
}

static void reply_status(struct rg_server_call *call)
{
    unsigned status = fault_of(call)->action.status;
    struct rg_text *text = &rg_call_of(call)->text;
    rg_text_fini(text);
    rg_text_printf(text,
                   "{\"error\":{\"code\":%u,\"message\":\"Retry test: caused a %u.\",\"errors\":"
                   "[{\"message\":\"Retry test: caused a %u.\",\"domain\":\"global\",\"reason\":"
                   "\"retryTest\"}]}}",
                   status, status, status);
    rg_reply_text(call, status, RG_REPLY_JSON_TYPE);
}

/* Carries out what concerns the request as such. */
static void strike(struct rg_server_call *call)
{
    struct rg_fault *fault = fault_of(call);
    bool now = fault->action.kind == RG_FAULT_STATUS || fault->action.kind == RG_FAULT_RESET;
    if (!now || !use_up(call)) {
        return;
    }
    if (fault->action.kind == RG_FAULT_STATUS) {
        reply_status(call);
    } else {
        rg_reply_start(call, 500);
        rg_reply_finish(call, 0);
        rg_call_of(call)->response.cut_head = true;
        rg_call_of(call)->response.reset = true;
    }
    fault->action.kind = RG_FAULT_NONE;
}

void rg_faults_begin(struct rg_server_call *call, const struct rg_api_request *request)
{
    static const char test_field[] = "x-retry-test-id";
    static const char own_field[] = "x-goog-emulator-instructions";
    const struct rg_h1_head *head = request->head;
    bool has_field = false;
    /* Nearly all requests have neither: their names need not even be read. */
    for (uint32_t i = 0; i < head->header_count; i++) {
        uint32_t size = head->headers[i].name.size;
        has_field |= size == sizeof(test_field) - 1 || size == sizeof(own_field) - 1;
    }
    if (control(call, request) || !has_field) {
        return;
    }
    const struct rg_h1_slice *id = rg_h1_find(head, test_field);
    const struct rg_h1_slice *own = rg_h1_find(head, own_field);
    enum rg_method method = rg_method_of(request);
    fault_of(call)->is_upload = method == RG_METHOD_OBJECTS_INSERT;
    if (own != NULL) {
        take_header(fault_of(call), *own, request);
    }
    if (id != NULL && !take_instruction(call, *id, method)) {
        reply_unknown_test(call, *id);
        return;
    }
    strike(call);
}

/* An upload whose bytes from `from` on cross the limit by this request. */
static bool crosses(const struct rg_fault *fault)
{
    uint64_t after = fault->action.after;
    return fault->is_upload && (fault->from < after || after == 0) &&
           fault->from + fault->received >= after;
}

size_t rg_faults_take(struct rg_server_call *call, size_t size)
{
    struct rg_fault *fault = fault_of(call);
    uint64_t before = fault->from + fault->received;
    fault->received += size;
    if (fault->action.kind != RG_FAULT_STATUS_AFTER) {
        return size;
    }
    if (!fault->has_struck && crosses(fault)) {
        /* Now, because another call that also could must go on with all of its bytes. */
        fault->has_struck = use_up(call);
        fault->action.kind = fault->has_struck ? RG_FAULT_STATUS_AFTER : RG_FAULT_NONE;
    }
    if (!fault->has_struck) {
        return size;
    }
    uint64_t after = fault->action.after;
    return after > before ? (size_t)RG_MIN((uint64_t)size, after - before) : 0;
}

void rg_faults_end(struct rg_server_call *call)
{
    const struct rg_fault *fault = fault_of(call);
    if (fault->action.kind == RG_FAULT_STATUS_AFTER &&
        (fault->has_struck || (crosses(fault) && use_up(call)))) {
        reply_status(call);
    }
}

static void cut(struct rg_server_call *call)
{
    struct rg_server_response *response = &rg_call_of(call)->response;
    response->cut_after = fault_of(call)->action.after;
    response->cut_head = response->cut_after >= response->body_size;
    response->reset = fault_of(call)->action.reset;
}

static void stall(struct rg_server_call *call)
{
    const struct rg_fault *fault = fault_of(call);
    struct rg_server_response *response = &rg_call_of(call)->response;
    uint64_t stall_ns = fault->action.stall_s * RG_NS_PER_S;
    if (fault->is_upload && crosses(fault) && use_up(call)) {
        response->delay_ns += stall_ns;
    } else if (!fault->is_upload && response->body_size > fault->action.after && use_up(call)) {
        response->stall_after = fault->action.after;
        response->stall_ns = stall_ns;
    }
}

void rg_faults_respond(struct rg_server_call *call)
{
    struct rg_fault *fault = fault_of(call);
    uint64_t body_size = rg_call_of(call)->response.body_size;
    switch ((enum rg_fault_kind)fault->action.kind) {
    case RG_FAULT_BREAK:
        if (use_up(call)) {
            cut(call);
        }
        break;
    case RG_FAULT_BREAK_AFTER:
        if (!fault->is_upload && body_size > fault->action.after && use_up(call)) {
            cut(call);
        }
        break;
    case RG_FAULT_BREAK_FINAL:
        if (fault->is_upload && rg_reply_status(call) == 200 && body_size > fault->action.after &&
            use_up(call)) {
            cut(call);
        }
        break;
    case RG_FAULT_STALL_AFTER:
        stall(call);
        break;
    default:
        break;
    }
}

bool rg_faults_corrupt(struct rg_server_call *call, enum rg_fault_kind kind, const uint8_t *data)
{
    struct rg_fault *fault = fault_of(call);
    if (fault->action.kind != kind) {
        return false;
    }
    fault->action.kind = RG_FAULT_NONE;
    fault->corrupted = (uint8_t)~data[0];
    return true;
}
