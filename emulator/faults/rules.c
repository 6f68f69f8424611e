/* Rules, what they strike, and what becomes of it; see rules.h. */
#include "emulator/faults/rules.h"

#include "emulator/request/body.h"
#include "emulator/request/method.h"
#include "emulator/request/nested.h"
#include "emulator/request/reply.h"
#include "http/url.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <yyjson.h>

#define CONTROL_PATH "/fault_rule"
#define RETRY_TEST_PATH "/retry_test" /* The other control interface does not count either. */
#define CONTROL_SIZE_MAX RG_KIB(8)
#define TEXT_SIZE_MAX 512
#define LAST_SIZE_MAX 512
#define STATUS_DEFAULT 503

enum effect { EFFECT_ONCE, EFFECT_NONE, EFFECT_TWICE, EFFECT_LATER, EFFECT_EMPTY, EFFECT_COUNT };
enum answer { ANSWER_GIVEN, ANSWER_DROPPED, ANSWER_HELD, ANSWER_FAILED, ANSWER_COUNT };

static const char *const effect_names[] = {"once", "none", "twice", "later", "empty"};
static const char *const answer_names[] = {"given", "dropped", "held", "failed"};
_Static_assert(RG_ARRAY_LEN(effect_names) == EFFECT_COUNT, "a name for each effect");
_Static_assert(RG_ARRAY_LEN(answer_names) == ANSWER_COUNT, "a name for each answer");

struct action {
    uint8_t effect, answer;
    uint16_t status;
    uint64_t delay_ns;
};

struct rg_strike {
    struct rg_list node;  /* In its rule's list of what it keeps. */
    struct action action; /* Of the rule. */
    struct rg_text head;  /* Of the request, if it is to happen again or later. */
    struct rg_text body;
    bool too_large;        /* Not all of the body was kept. */
    struct rg_text result; /* The answer's head and body, when it has happened later. */
    size_t result_head_size;
    /* Under the lock. */
    uint32_t refs;
    bool complete; /* The request is there as a whole. */
    bool released; /* The rule has ended, and with it what happens later. */
};

struct rule {
    struct rg_list node;
    uint64_t id; /* From 1. */
    char bucket[TEXT_SIZE_MAX], target[TEXT_SIZE_MAX];
    char field_name[TEXT_SIZE_MAX], field_value[TEXT_SIZE_MAX];
    enum rg_method method; /* RG_METHOD_NONE: any. */
    bool writes;
    uint64_t nth, times, one_in, random;
    struct action action;
    uint64_t seen, struck;
    char last[LAST_SIZE_MAX];
    struct rg_list strikes;
    uint32_t kept;
};

struct rg_rules {
    _Atomic uint32_t count; /* Read without the lock: nearly always there is no rule. */
    pthread_mutex_t lock;
    struct rg_list list; /* The rest is under the lock. */
    uint64_t last_id;
};

int rg_rules_create(struct rg_rules **out_rules)
{
    struct rg_rules *rules = calloc(1, sizeof(*rules));
    if (rules == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&rules->lock, NULL);
    rg_list_init(&rules->list);
    *out_rules = rules;
    return 0;
}

static void strike_unref_locked(struct rg_strike *strike)
{
    RG_ASSERT(strike->refs > 0);
    if (--strike->refs == 0) {
        rg_text_fini(&strike->head);
        rg_text_fini(&strike->body);
        rg_text_fini(&strike->result);
        free(strike);
    }
}

static struct rg_strike *pop_strike_locked(struct rule *rule)
{
    struct rg_list *node = rg_list_pop_front(&rule->strikes);
    return node != NULL ? RG_CONTAINER_OF(node, struct rg_strike, node) : NULL;
}

void rg_rules_destroy(struct rg_rules *rules)
{
    if (rules == NULL) {
        return;
    }
    struct rg_list *node;
    while ((node = rg_list_pop_front(&rules->list)) != NULL) {
        struct rule *rule = RG_CONTAINER_OF(node, struct rule, node);
        struct rg_strike *strike;
        while ((strike = pop_strike_locked(rule)) != NULL) {
            strike_unref_locked(strike);
        }
        free(rule);
    }
    pthread_mutex_destroy(&rules->lock);
    free(rules);
}

static struct rg_rules *rules_of(struct rg_server_call *call)
{
    return rg_service_of(call)->rules;
}

static struct rule *find_locked(struct rg_rules *rules, uint64_t id)
{
    for (struct rg_list *at = rules->list.next; at != &rules->list; at = at->next) {
        struct rule *rule = RG_CONTAINER_OF(at, struct rule, node);
        if (rule->id == id) {
            return rule;
        }
    }
    return NULL;
}

static void append_rule(struct rg_text *text, const struct rule *rule)
{
    rg_text_printf(text,
                   "{\"id\":\"%" PRIu64 "\",\"seen\":%" PRIu64 ",\"struck\":%" PRIu64 ",\"last\":",
                   rule->id, rule->seen, rule->struck);
    if (rule->struck > 0) {
        rg_text_append_json(text, rule->last, strlen(rule->last));
    } else {
        rg_text_append_str(text, "null");
    }
    rg_text_append_str(text, "}");
}

/* Takes a member of a rule's JSON. NULL, or what it has to be. */
static const char *take_text(yyjson_val *value, char out[TEXT_SIZE_MAX])
{
    if (!yyjson_is_str(value) || yyjson_get_len(value) >= TEXT_SIZE_MAX) {
        return "a text of less than 512 bytes";
    }
    memcpy(out, yyjson_get_str(value), yyjson_get_len(value) + 1);
    return NULL;
}

static const char *take_field(yyjson_val *value, struct rule *rule)
{
    const char *error = take_text(value, rule->field_name);
    char *colon = error == NULL ? strstr(rule->field_name, ": ") : NULL;
    if (colon == NULL) {
        return "\"name: value\"";
    }
    strcpy(rule->field_value, colon + 2);
    *colon = '\0';
    for (char *at = rule->field_name; *at != '\0'; at++) {
        *at = (char)(*at >= 'A' && *at <= 'Z' ? *at | 0x20 : *at);
    }
    return NULL;
}

static const char *take_name(yyjson_val *value, const char *const *names, size_t count,
                             uint8_t *out_index)
{
    for (size_t i = 0; i < count; i++) {
        if (yyjson_equals_str(value, names[i])) {
            *out_index = (uint8_t)i;
            return NULL;
        }
    }
    return "one of those that are documented";
}

static const char *take_number(yyjson_val *value, uint64_t min, uint64_t max, uint64_t *out)
{
    if (!yyjson_is_uint(value) || yyjson_get_uint(value) < min || yyjson_get_uint(value) > max) {
        return "a number in its bounds";
    }
    *out = yyjson_get_uint(value);
    return NULL;
}

static const char *take_member(struct rule *rule, const char *name, yyjson_val *value)
{
    struct {
        const char *name;
        uint64_t min, max, *out;
    } numbers[] = {
        {"nth", 0, UINT32_MAX, &rule->nth},
        {"times", 1, UINT32_MAX, &rule->times},
        {"one_in", 1, UINT32_MAX, &rule->one_in},
        {"seed", 0, UINT64_MAX, &rule->random},
        {"delay_ms", 0, RG_RULE_DELAY_MS_MAX, &rule->action.delay_ns},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return take_number(value, numbers[i].min, numbers[i].max, numbers[i].out);
        }
    }
    if (strcmp(name, "bucket") == 0) {
        return take_text(value, rule->bucket);
    }
    if (strcmp(name, "target") == 0) {
        return take_text(value, rule->target);
    }
    if (strcmp(name, "field") == 0) {
        return take_field(value, rule);
    }
    if (strcmp(name, "method") == 0) {
        rule->method = rg_method_find(yyjson_is_str(value) ? yyjson_get_str(value) : "");
        return rule->method != RG_METHOD_NONE ? NULL : "a method, as in storage.objects.insert";
    }
    if (strcmp(name, "writes") == 0) {
        rule->writes = yyjson_is_true(value);
        return yyjson_is_bool(value) ? NULL : "true or false";
    }
    if (strcmp(name, "effect") == 0) {
        return take_name(value, effect_names, EFFECT_COUNT, &rule->action.effect);
    }
    if (strcmp(name, "answer") == 0) {
        return take_name(value, answer_names, ANSWER_COUNT, &rule->action.answer);
    }
    uint64_t status = STATUS_DEFAULT;
    if (strcmp(name, "status") == 0) {
        const char *error = take_number(value, 300, 599, &status);
        rule->action.status = (uint16_t)status;
        return error;
    }
    return "left out: rules know no such member";
}

/* False with the call answered. */
static bool fill(struct rg_server_call *call, struct rule *rule, yyjson_val *root)
{
    size_t i, count;
    yyjson_val *name, *value;
    *rule = (struct rule){.nth = 1, .times = 1, .one_in = 1, .random = 1};
    rg_list_init(&rule->strikes);
    rule->action.status = STATUS_DEFAULT;
    if (!yyjson_is_obj(root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "A fault rule is a JSON object.");
        return false;
    }
    yyjson_obj_foreach(root, i, count, name, value)
    {
        const char *error = take_member(rule, yyjson_get_str(name), value);
        if (error != NULL) {
            rg_reply_error(call, RG_API_BAD_REQUEST, "The member \"%.64s\" has to be %s.",
                           yyjson_get_str(name), error);
            return false;
        }
    }
    rule->action.delay_ns *= RG_NS_PER_MS;
    bool never = rule->action.effect == EFFECT_NONE || rule->action.effect == EFFECT_LATER;
    if (never && rule->action.answer == ANSWER_GIVEN) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "What has no effect, or a later one, has no answer that could be given; say "
                       "\"dropped\", \"held\" or \"failed\".");
        return false;
    }
    return true;
}

static void make(struct rg_server_call *call, const struct rg_api_request *request,
                 struct rg_h1_slice body)
{
    (void)request;
    struct rg_rules *rules = rules_of(call);
    struct rule *rule = malloc(sizeof(*rule));
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    if (rule == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else if (fill(call, rule, yyjson_doc_get_root(document))) {
        pthread_mutex_lock(&rules->lock);
        bool room = rules->count < RG_RULES_MAX;
        if (room) {
            rule->id = ++rules->last_id;
            append_rule(&rg_call_of(call)->text, rule);
            rg_list_push_back(&rules->list, &rule->node);
            rules->count++;
            rule = NULL;
        }
        pthread_mutex_unlock(&rules->lock);
        if (room) {
            rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
        } else {
            rg_reply_error(call, RG_API_TOO_LARGE,
                           "There are %d fault rules already; delete what is done.", RG_RULES_MAX);
        }
    }
    free(rule);
    yyjson_doc_free(document);
}

static void reply_unknown(struct rg_server_call *call, uint64_t id)
{
    rg_reply_error(call, RG_API_NO_PATH, "There is no fault rule %" PRIu64 ".", id);
}

/* Answers with what the rule has come to. False: it has not struck, and is waited for. */
static bool tell(struct rg_server_call *call, uint64_t id, bool wait)
{
    struct rg_rules *rules = rules_of(call);
    pthread_mutex_lock(&rules->lock);
    const struct rule *rule = find_locked(rules, id);
    bool found = rule != NULL, told = !found || !wait || rule->struck > 0;
    if (found && told) {
        append_rule(&rg_call_of(call)->text, rule);
    }
    pthread_mutex_unlock(&rules->lock);
    if (!found) {
        reply_unknown(call, id);
    } else if (told) {
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    return told;
}

/* An answer that will be made when it is resumed. */
static void hold(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    rg_text_fini(&state->text);
    rg_reply_start(call, 200);
    rg_reply_finish(call, 0);
    state->response.held = true;
}

/* What was kept of a request happens, on the loop of `call`. */
static void happen(struct rg_server_call *call, struct rg_strike *strike)
{
    struct rg_nested *nested = malloc(sizeof(*nested));
    if (nested == NULL || strike->head.failed || strike->body.failed || strike->too_large) {
        free(nested);
        return;
    }
    rg_text_printf(&strike->head, "Content-Length: %zu\r\n\r\n", strike->body.size);
    rg_nested_start(nested, call);
    bool parsed = rg_nested_parse(nested, &strike->head);
    RG_ASSERT(parsed); /* It was before. */
    rg_nested_run(nested, (struct rg_h1_slice){strike->body.data != NULL ? strike->body.data : "",
                                               (uint32_t)strike->body.size});
    struct rg_call *state = rg_call_of(&nested->call);
    RG_ASSERT(state->object.type == NULL); /* It writes. */
    rg_text_fini(&strike->result);
    rg_text_append(&strike->result, nested->encoder.data, nested->encoder.size);
    strike->result_head_size = nested->encoder.size;
    rg_text_append(&strike->result, state->text.data, (size_t)state->response.body_size);
    rg_call_release(&nested->call);
    free(nested);
}

static void end_rule(struct rg_server_call *call, uint64_t id)
{
    struct rg_rules *rules = rules_of(call);
    pthread_mutex_lock(&rules->lock);
    struct rule *rule = find_locked(rules, id);
    if (rule != NULL) {
        rg_list_remove(&rule->node);
        rules->count--;
        append_rule(&rg_call_of(call)->text, rule);
    }
    struct rg_strike *strike;
    while (rule != NULL && (strike = pop_strike_locked(rule)) != NULL) {
        if (strike->action.effect == EFFECT_LATER && strike->complete) {
            /* Its call, which may be on another loop, leaves it alone until it is released. */
            pthread_mutex_unlock(&rules->lock);
            happen(call, strike);
            pthread_mutex_lock(&rules->lock);
        }
        strike->released = true;
        strike_unref_locked(strike);
    }
    pthread_mutex_unlock(&rules->lock);
    if (rule == NULL) {
        reply_unknown(call, id);
    } else {
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    free(rule);
}

/* The control interface. False: it is about the service. */
static bool control(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice path, query, prefix = rg_text_slice(CONTROL_PATH);
    rg_url_target_split(request->head->target, &path, &query);
    if (!rg_text_starts_with(path, prefix) ||
        (path.size > prefix.size && path.data[prefix.size] != '/')) {
        return false;
    }
    int64_t id = 0;
    rg_call_of(call)->json = true;
    bool named = path.size > prefix.size + 1 &&
                 rg_text_parse_int64(
                     (struct rg_h1_slice){path.data + prefix.size + 1, path.size - prefix.size - 1},
                     &id) == 0;
    if (named && rg_api_request_is(request, "GET")) {
        if (!tell(call, (uint64_t)id, rg_text_equals(query, "wait"))) {
            hold(call);
            rg_call_of(call)->awaited_rule = (uint64_t)id;
        }
    } else if (named && rg_api_request_is(request, "DELETE")) {
        end_rule(call, (uint64_t)id);
    } else if (path.size == prefix.size && rg_api_request_is(request, "POST")) {
        rg_body_collect(call, request, CONTROL_SIZE_MAX, make);
    } else {
        rg_reply_error(call, RG_API_METHOD,
                       "Fault rules know POST " CONTROL_PATH ", and GET and DELETE of " CONTROL_PATH
                       "/ID.");
    }
    return true;
}

static bool is_write(const struct rg_api_request *request)
{
    return !rg_api_request_is(request, "GET") && !rg_api_request_is(request, "HEAD");
}

static bool matches(const struct rule *rule, const struct rg_api_request *request)
{
    struct rg_h1_slice target = request->head->target;
    const struct rg_h1_slice *field = NULL;
    if (rule->field_name[0] != '\0') {
        field = rg_h1_find(request->head, rule->field_name);
        if (field == NULL || !rg_text_equals(*field, rule->field_value)) {
            return false;
        }
    }
    if (rule->bucket[0] != '\0' && request->route != RG_ROUTE_JSON_BATCH &&
        !rg_text_equals(request->bucket, rule->bucket)) {
        return false;
    }
    return (!rule->writes || is_write(request)) &&
           (rule->method == RG_METHOD_NONE || rule->method == rg_method_of(request)) &&
           memmem(target.data, target.size, rule->target, strlen(rule->target)) != NULL;
}

/* SplitMix64. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Counts the request. True: it is struck. */
static bool count_locked(struct rule *rule, const struct rg_api_request *request)
{
    const struct rg_h1_head *head = request->head;
    rule->seen++;
    if (rule->nth == 0 || rule->seen < rule->nth || rule->struck == rule->times ||
        draw(&rule->random) % rule->one_in != 0) {
        return false;
    }
    rule->struck++;
    snprintf(rule->last, sizeof(rule->last), "%.*s %.*s", (int)head->method.size, head->method.data,
             (int)head->target.size, head->target.data);
    return true;
}

/* The first rule that strikes; all that match count. */
static struct rule *find_striking_locked(struct rg_rules *rules,
                                         const struct rg_api_request *request)
{
    struct rule *striking = NULL;
    for (struct rg_list *at = rules->list.next; at != &rules->list; at = at->next) {
        struct rule *rule = RG_CONTAINER_OF(at, struct rule, node);
        if (matches(rule, request) && count_locked(rule, request) && striking == NULL) {
            striking = rule;
        }
    }
    return striking;
}

/* The head as it will be read again, but for its end: what frames the body is said when all of that
 * is there. */
static void keep_head(struct rg_strike *strike, const struct rg_h1_head *head)
{
    struct rg_text *text = &strike->head;
    rg_text_printf(text, "%.*s %.*s HTTP/1.1\r\n", (int)head->method.size, head->method.data,
                   (int)head->target.size, head->target.data);
    for (uint32_t i = 0; i < head->header_count; i++) {
        const struct rg_h1_slice *name = &head->headers[i].name, *value = &head->headers[i].value;
        static const char *const framing[] = {"transfer-encoding", "content-length", "expect",
                                              "connection"};
        bool keep = true;
        for (size_t j = 0; j < RG_ARRAY_LEN(framing); j++) {
            keep = keep && (name->size != strlen(framing[j]) ||
                            strncasecmp(name->data, framing[j], name->size) != 0);
        }
        if (keep) {
            rg_text_printf(text, "%.*s: %.*s\r\n", (int)name->size, name->data, (int)value->size,
                           value->data);
        }
    }
}

static void keep_body(struct rg_strike *strike, const uint8_t *data, size_t size)
{
    strike->too_large = strike->too_large || size > RG_RULE_BODY_MAX - strike->body.size;
    if (!strike->too_large) {
        rg_text_append(&strike->body, data, size);
    }
}

static void receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_strike *strike = rg_call_of(call)->strike;
    if (strike->action.effect == EFFECT_LATER) {
        keep_body(strike, data, size);
    }
}

/* In the place of an answer; rg_rules_respond makes of it what the rule says. */
static void finish(struct rg_server_call *call)
{
    rg_reply_start(call, STATUS_DEFAULT);
    rg_reply_finish(call, 0);
}

static void destroy(void *received)
{
    (void)received;
}

static const struct rg_receiver strike_receiver = {receive, finish, destroy};

/* Makes the call's strike, which its rule keeps, too, if something comes of it when it ends. NULL:
 * no memory, or the rule has too many. */
static struct rg_strike *strike_locked(struct rule *rule, const struct rg_api_request *request)
{
    struct rg_strike *strike = calloc(1, sizeof(*strike));
    if (strike == NULL || rule->kept == RG_RULE_STRIKES_MAX) {
        free(strike);
        return NULL;
    }
    strike->action = rule->action;
    strike->refs = 1;
    rg_list_init(&strike->node);
    if (strike->action.effect == EFFECT_TWICE || strike->action.effect == EFFECT_LATER) {
        keep_head(strike, request->head);
    }
    if (strike->action.effect == EFFECT_LATER || strike->action.answer == ANSWER_HELD) {
        rg_list_push_back(&rule->strikes, &strike->node);
        strike->refs++;
        rule->kept++;
    }
    return strike;
}

static bool applies(const struct action *action, const struct rg_api_request *request)
{
    bool repeats = action->effect == EFFECT_TWICE || action->effect == EFFECT_LATER;
    return !repeats || is_write(request);
}

void rg_rules_begin(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_rules *rules = rules_of(call);
    struct rg_call *state = rg_call_of(call);
    if (control(call, request) || atomic_load_explicit(&rules->count, memory_order_relaxed) == 0 ||
        rg_text_starts_with(request->head->target, rg_text_slice(RETRY_TEST_PATH))) {
        return;
    }
    pthread_mutex_lock(&rules->lock);
    struct rule *rule = find_striking_locked(rules, request);
    if (rule != NULL && applies(&rule->action, request)) {
        state->strike = strike_locked(rule, request);
    }
    pthread_mutex_unlock(&rules->lock);
    if (state->strike != NULL && (state->strike->action.effect == EFFECT_NONE ||
                                  state->strike->action.effect == EFFECT_LATER)) {
        state->receiver = &strike_receiver;
    }
}

void rg_rules_take(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_strike *strike = rg_call_of(call)->strike;
    if (strike != NULL && strike->action.effect == EFFECT_TWICE) {
        keep_body(strike, data, size);
    }
}

/* The call's answer becomes the one that the strike has brought. */
static void take_result(struct rg_server_call *call, struct rg_strike *strike)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_h1_encoder *head = rg_server_head(call);
    size_t size = strike->result.size - strike->result_head_size;
    if (strike->result_head_size == 0 || strike->result.failed) {
        return;
    }
    rg_text_fini(&state->text);
    rg_h1_encoder_init(head, head->data, head->capacity);
    memcpy(head->data, strike->result.data, strike->result_head_size);
    head->size = strike->result_head_size;
    rg_text_append(&state->text, strike->result.data + strike->result_head_size, size);
    state->response.body_size = state->text.size;
}

static void fail(struct rg_server_call *call, unsigned status)
{
    struct rg_call *state = rg_call_of(call);
    rg_store_object_close(&state->object);
    rg_text_fini(&state->text);
    state->replied = false;
    rg_text_printf(&state->text, "A fault rule wants a %u.\n", status);
    rg_reply_text(call, status, "text/plain; charset=UTF-8");
}

static void drop(struct rg_server_response *response)
{
    response->cut_head = true;
    response->reset = true;
}

void rg_rules_respond(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_strike *strike = state->strike;
    if (strike == NULL) {
        return;
    }
    const struct action *action = &strike->action;
    /* What was refused the first time, perhaps with half its body unread, is not sent again. */
    if (action->effect == EFFECT_TWICE && rg_reply_status(call) < 400) {
        happen(call, strike);
        take_result(call, strike);
    }
    pthread_mutex_lock(&rules_of(call)->lock);
    strike->complete = true;
    pthread_mutex_unlock(&rules_of(call)->lock);
    switch ((enum answer)action->answer) {
    case ANSWER_DROPPED:
        drop(&state->response);
        break;
    case ANSWER_FAILED:
        fail(call, action->status);
        break;
    case ANSWER_HELD:
        state->response.held = true;
        break;
    default:
        break;
    }
    state->response.delay_ns += action->delay_ns;
}

bool rg_rules_resume(struct rg_server_call *call, struct rg_server_response *response)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_strike *strike = state->strike;
    if (strike == NULL) { /* It waits for a rule to strike. */
        state->replied = false;
        bool told = tell(call, state->awaited_rule, true);
        *response = state->response;
        return told;
    }
    pthread_mutex_lock(&rules_of(call)->lock);
    bool released = strike->released;
    pthread_mutex_unlock(&rules_of(call)->lock);
    if (released && strike->action.effect == EFFECT_LATER) {
        take_result(call, strike);
        response->body_size = state->response.body_size;
    } else if (released && strike->action.effect == EFFECT_NONE) {
        drop(response);
    }
    return released;
}

bool rg_rules_empties_page(struct rg_server_call *call)
{
    const struct rg_strike *strike = rg_call_of(call)->strike;
    return strike != NULL && strike->action.effect == EFFECT_EMPTY;
}

void rg_rules_release(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    if (state->strike != NULL) {
        pthread_mutex_lock(&rules_of(call)->lock);
        strike_unref_locked(state->strike);
        pthread_mutex_unlock(&rules_of(call)->lock);
        state->strike = NULL;
    }
}
