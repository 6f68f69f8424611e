/* Reading, matching and counting; see rule.h. */
#include "emulator/faults/rule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const effect_names[] = {"once",  "none",    "twice",   "later",
                                           "empty", "corrupt", "partial", "forgotten"};
static const char *const answer_names[] = {"given", "dropped", "held", "lost", "failed"};
_Static_assert(RG_ARRAY_LEN(effect_names) == RG_EFFECT_COUNT, "a name for each effect");
_Static_assert(RG_ARRAY_LEN(answer_names) == RG_ANSWER_COUNT, "a name for each answer");

/* A rule strikes at most `times` requests, all of which it has counted. */
static bool invariants(const struct rg_rule *rule)
{
    return rule->struck <= rule->seen && rule->struck <= rule->times &&
           (rule->struck == 0 || rule->seen >= rule->nth) && rule->one_in > 0 &&
           rule->action.effect < RG_EFFECT_COUNT && rule->action.answer < RG_ANSWER_COUNT;
}

void rg_rule_append(struct rg_text *text, const struct rg_rule *rule)
{
    rg_text_printf(text,
                   "{\"id\":\"%" PRIu64 "\",\"seen\":%" PRIu64 ",\"struck\":%" PRIu64 ",\"last\":",
                   rule->id, rule->seen, rule->struck);
    if (rule->struck > 0) {
        rg_text_append_json(text, rule->last, strlen(rule->last));
        rg_text_append_str(text, ",\"head\":");
        rg_text_append_json(text, rule->head, strlen(rule->head));
        rg_text_append_str(text, "}");
    } else {
        rg_text_append_str(text, "null,\"head\":null}");
    }
}

/* Takes the value of a member. NULL, or what the value has to be. */
static const char *take_text(yyjson_val *value, char out[RG_RULE_TEXT_SIZE_MAX])
{
    if (!yyjson_is_str(value) || yyjson_get_len(value) >= RG_RULE_TEXT_SIZE_MAX) {
        return "a text of less than 512 bytes";
    }
    memcpy(out, yyjson_get_str(value), yyjson_get_len(value) + 1);
    return NULL;
}

static const char *take_field(yyjson_val *value, struct rg_rule *rule)
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

/* Takes a member that is a number. False: the member is none of those. */
static bool take_number_member(struct rg_rule *rule, const char *name, yyjson_val *value,
                               const char **out_error)
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
        {"kept_bytes", 0, RG_STORE_OBJECT_SIZE_MAX, &rule->action.kept_bytes},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *out_error = take_number(value, numbers[i].min, numbers[i].max, numbers[i].out);
            return true;
        }
    }
    return false;
}

static const char *take_flag(yyjson_val *value, bool *out)
{
    *out = yyjson_is_true(value);
    return yyjson_is_bool(value) ? NULL : "true or false";
}

static const char *take_step(yyjson_val *value, enum rg_upload_step *out)
{
    *out = rg_upload_step_find(yyjson_is_str(value) ? yyjson_get_str(value) : "");
    return *out != RG_UPLOAD_STEP_NONE ? NULL : "a step of an upload, as in chunk";
}

/* 200, too, is how the service says that something failed. */
static const char *take_status(yyjson_val *value, uint16_t *out)
{
    uint64_t status = RG_RULE_STATUS_DEFAULT;
    bool succeeds = yyjson_is_uint(value) && yyjson_get_uint(value) == 200;
    const char *error = take_number(value, succeeds ? 200 : 300, 599, &status);
    *out = (uint16_t)status;
    return error;
}

static const char *take_member(struct rg_rule *rule, const char *name, yyjson_val *value)
{
    const char *error;
    if (take_number_member(rule, name, value, &error)) {
        return error;
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
        return take_flag(value, &rule->writes);
    }
    if (strcmp(name, "early") == 0) {
        return take_flag(value, &rule->action.early);
    }
    if (strcmp(name, "upload") == 0) {
        return take_step(value, &rule->step);
    }
    if (strcmp(name, "effect") == 0) {
        return take_name(value, effect_names, RG_EFFECT_COUNT, &rule->action.effect);
    }
    if (strcmp(name, "answer") == 0) {
        return take_name(value, answer_names, RG_ANSWER_COUNT, &rule->action.answer);
    }
    if (strcmp(name, "status") == 0) {
        return take_status(value, &rule->action.status);
    }
    return "left out: rules know no such member";
}

/* Members that are well formed, and do not go together. NULL: they do. */
static const char *find_contradiction(const struct rg_rule_action *action)
{
    bool never = action->effect == RG_EFFECT_NONE || action->effect == RG_EFFECT_LATER;
    if (never && action->answer == RG_ANSWER_GIVEN) {
        return "What has no effect, or a later one, has no answer that could be given; say "
               "\"dropped\", \"held\", \"lost\" or \"failed\".";
    }
    if (action->early && action->effect != RG_EFFECT_NONE) {
        return "Only what has the effect \"none\" can be answered early.";
    }
    if (action->kept_bytes > 0 && action->effect != RG_EFFECT_PARTIAL) {
        return "\"kept_bytes\" needs the effect \"partial\".";
    }
    return NULL;
}

bool rg_rule_parse(struct rg_rule *rule, yyjson_val *root, char *error, size_t error_size)
{
    size_t i, count;
    yyjson_val *name, *value;
    *rule = (struct rg_rule){.nth = 1, .times = 1, .one_in = 1, .random = 1};
    rg_list_init(&rule->strikes);
    rule->action.status = RG_RULE_STATUS_DEFAULT;
    if (!yyjson_is_obj(root)) {
        snprintf(error, error_size, "A fault rule is a JSON object.");
        return false;
    }
    yyjson_obj_foreach(root, i, count, name, value)
    {
        const char *wanted = take_member(rule, yyjson_get_str(name), value);
        if (wanted != NULL) {
            snprintf(error, error_size, "The member \"%.64s\" has to be %s.", yyjson_get_str(name),
                     wanted);
            return false;
        }
    }
    rule->action.delay_ns *= RG_NS_PER_MS;
    const char *contradiction = find_contradiction(&rule->action);
    if (contradiction != NULL) {
        snprintf(error, error_size, "%s", contradiction);
        return false;
    }
    RG_VERIFY(invariants(rule));
    return true;
}

bool rg_rule_is_write(const struct rg_api_request *request)
{
    return !rg_api_request_is(request, "GET") && !rg_api_request_is(request, "HEAD");
}

static bool matches(const struct rg_rule *rule, const struct rg_api_request *request)
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
    return (!rule->writes || rg_rule_is_write(request)) &&
           (rule->method == RG_METHOD_NONE || rule->method == rg_method_of(request)) &&
           (rule->step == RG_UPLOAD_STEP_NONE || rule->step == rg_upload_step_of(request)) &&
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

/* Notes the head of a request that is struck: what fits, and no tokens. */
static void keep_head(struct rg_rule *rule, const struct rg_h1_head *head)
{
    snprintf(rule->last, sizeof(rule->last), "%.*s %.*s", (int)head->method.size, head->method.data,
             (int)head->target.size, head->target.data);
    int size =
        snprintf(rule->head, sizeof(rule->head), "%.*s %.*s HTTP/1.1\r\n", (int)head->method.size,
                 head->method.data, (int)head->target.size, head->target.data);
    for (uint32_t i = 0; i < head->header_count && (size_t)size < sizeof(rule->head); i++) {
        const struct rg_h1_slice *name = &head->headers[i].name, *value = &head->headers[i].value;
        char *at = rule->head + size;
        size_t room = sizeof(rule->head) - (size_t)size;
        if (name->size == 13 && strncasecmp(name->data, "authorization", 13) == 0) {
            continue;
        }
        int added = snprintf(at, room, "%.*s: %.*s\r\n", (int)name->size, name->data,
                             (int)value->size, value->data);
        if ((size_t)added >= room) {
            *at = '\0';
            return;
        }
        size += added;
    }
}

static bool count(struct rg_rule *rule, const struct rg_api_request *request)
{
    rule->seen++;
    if (rule->nth == 0 || rule->seen < rule->nth || rule->struck == rule->times ||
        draw(&rule->random) % rule->one_in != 0) {
        return false;
    }
    rule->struck++;
    keep_head(rule, request->head);
    return true;
}

bool rg_rule_count(struct rg_rule *rule, const struct rg_api_request *request)
{
    bool strikes = matches(rule, request) && count(rule, request);
    RG_VERIFY(invariants(rule));
    return strikes;
}

bool rg_rule_applies(const struct rg_rule *rule, const struct rg_api_request *request)
{
    bool repeats = rule->action.effect == RG_EFFECT_TWICE || rule->action.effect == RG_EFFECT_LATER;
    return !repeats || rg_rule_is_write(request);
}
