/* The table of rules, and what becomes of calls that one strikes; see rules.h. */
#include "emulator/faults/rules.h"

#include "emulator/faults/strike.h"
#include "emulator/request/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define RETRY_TEST_PATH "/retry_test" /* Requests of control interfaces do not count. */

struct rg_rules {
    _Atomic uint32_t count; /* Read without the lock: nearly always there is no rule. */
    pthread_mutex_t lock;
    struct rg_list list; /* The rest is under the lock. */
    uint64_t last_id;
};

/* There are as many rules as are counted, in the order of their ids. */
static bool invariants_locked(struct rg_rules *rules)
{
    uint32_t count = 0;
    uint64_t last = 0;
    for (struct rg_list *at = rules->list.next; at != &rules->list; at = at->next) {
        const struct rg_rule *rule = RG_CONTAINER_OF(at, struct rg_rule, node);
        if (rule->id <= last) {
            return false;
        }
        last = rule->id;
        count++;
    }
    return count == rules->count && count <= RG_RULES_MAX && last <= rules->last_id;
}

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

static struct rg_strike *pop_strike_locked(struct rg_rule *rule)
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
        struct rg_rule *rule = RG_CONTAINER_OF(node, struct rg_rule, node);
        struct rg_strike *strike;
        while ((strike = pop_strike_locked(rule)) != NULL) {
            rg_strike_unref_locked(strike);
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

static struct rg_rule *find_locked(struct rg_rules *rules, uint64_t id)
{
    for (struct rg_list *at = rules->list.next; at != &rules->list; at = at->next) {
        struct rg_rule *rule = RG_CONTAINER_OF(at, struct rg_rule, node);
        if (rule->id == id) {
            return rule;
        }
    }
    return NULL;
}

int rg_rules_add(struct rg_rules *rules, struct rg_rule *rule, struct rg_text *text)
{
    pthread_mutex_lock(&rules->lock);
    bool room = rules->count < RG_RULES_MAX;
    if (room) {
        rule->id = ++rules->last_id;
        rg_rule_append(text, rule);
        rg_list_push_back(&rules->list, &rule->node);
        rules->count++;
    }
    RG_VERIFY(invariants_locked(rules));
    pthread_mutex_unlock(&rules->lock);
    return room ? 0 : -ENOSPC;
}

static void reply_unknown(struct rg_server_call *call, uint64_t id)
{
    rg_reply_error(call, RG_API_NO_PATH, "There is no fault rule %" PRIu64 ".", id);
}

bool rg_rules_tell(struct rg_server_call *call, uint64_t id, bool wait)
{
    struct rg_rules *rules = rules_of(call);
    pthread_mutex_lock(&rules->lock);
    const struct rg_rule *rule = find_locked(rules, id);
    bool found = rule != NULL, told = !found || !wait || rule->struck > 0;
    if (found && told) {
        rg_rule_append(&rg_call_of(call)->text, rule);
    }
    pthread_mutex_unlock(&rules->lock);
    if (!found) {
        reply_unknown(call, id);
    } else if (told) {
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    return told;
}

void rg_rules_end(struct rg_server_call *call, uint64_t id)
{
    struct rg_rules *rules = rules_of(call);
    pthread_mutex_lock(&rules->lock);
    struct rg_rule *rule = find_locked(rules, id);
    if (rule != NULL) {
        rg_list_remove(&rule->node);
        rules->count--;
        RG_VERIFY(invariants_locked(rules));
        rg_rule_append(&rg_call_of(call)->text, rule);
    }
    struct rg_strike *strike;
    while (rule != NULL && (strike = pop_strike_locked(rule)) != NULL) {
        if (strike->action.effect == RG_EFFECT_LATER && strike->state == RG_STRIKE_COMPLETE) {
            /* The strike's call, which may be on another loop, does not touch it before it is
             * released. */
            pthread_mutex_unlock(&rules->lock);
            rg_strike_happen(strike, call);
            pthread_mutex_lock(&rules->lock);
        }
        rg_strike_enter_locked(strike, RG_STRIKE_RELEASED);
        rg_strike_unref_locked(strike);
    }
    pthread_mutex_unlock(&rules->lock);
    if (rule == NULL) {
        reply_unknown(call, id);
    } else {
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    free(rule);
}

/* The first rule that strikes; all that match count. */
static struct rg_rule *find_striking_locked(struct rg_rules *rules,
                                            const struct rg_api_request *request)
{
    struct rg_rule *striking = NULL;
    for (struct rg_list *at = rules->list.next; at != &rules->list; at = at->next) {
        struct rg_rule *rule = RG_CONTAINER_OF(at, struct rg_rule, node);
        if (rg_rule_count(rule, request) && striking == NULL) {
            striking = rule;
        }
    }
    return striking;
}

static void receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_strike *strike = rg_call_of(call)->strike;
    if (strike->action.effect == RG_EFFECT_LATER) {
        rg_strike_keep_body(strike, data, size);
    }
}

/* Starts an answer, which rg_rules_respond then changes as the rule says. */
static void finish(struct rg_server_call *call)
{
    rg_reply_start(call, RG_RULE_STATUS_DEFAULT);
    rg_reply_finish(call, 0);
}

static void destroy(void *received)
{
    (void)received;
}

static const struct rg_receiver strike_receiver = {receive, finish, destroy};

/* Whether the client hears nothing before the rule ends. */
static bool waits_for_the_end(const struct rg_rule_action *action)
{
    return action->answer == RG_ANSWER_HELD || action->answer == RG_ANSWER_LOST;
}

/* Makes the call's strike. The rule shares it if its end matters to the request. NULL: no
 * memory, or the rule has too many. */
static struct rg_strike *strike_locked(struct rg_rule *rule, const struct rg_api_request *request)
{
    const struct rg_rule_action *action = &rule->action;
    struct rg_strike *strike =
        rule->kept < RG_RULE_STRIKES_MAX ? rg_strike_create(action, request) : NULL;
    if (strike != NULL && (action->effect == RG_EFFECT_LATER || waits_for_the_end(action))) {
        rg_list_push_back(&rule->strikes, &strike->node);
        strike->refs++;
        rule->kept++;
    }
    return strike;
}

/* Starts the effect of the call's strike, if there is one. */
static void apply(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_call *state = rg_call_of(call);
    enum rg_rule_effect effect = rg_rules_effect(call);
    if (effect == RG_EFFECT_NONE && state->strike->action.early) {
        finish(call);
    } else if (effect == RG_EFFECT_NONE || effect == RG_EFFECT_LATER) {
        state->receiver = &strike_receiver;
    } else if (effect == RG_EFFECT_CORRUPT) {
        state->fault.action.kind =
            rg_rule_is_write(request) ? RG_FAULT_CORRUPT_UPLOAD : RG_FAULT_CORRUPT_ANSWER;
    }
}

void rg_rules_begin(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_rules *rules = rules_of(call);
    struct rg_call *state = rg_call_of(call);
    if (atomic_load_explicit(&rules->count, memory_order_relaxed) == 0 ||
        rg_text_starts_with(request->head->target, rg_text_slice(RETRY_TEST_PATH))) {
        return;
    }
    pthread_mutex_lock(&rules->lock);
    struct rg_rule *rule = find_striking_locked(rules, request);
    if (rule != NULL && rg_rule_applies(rule, request)) {
        state->strike = strike_locked(rule, request);
    }
    pthread_mutex_unlock(&rules->lock);
    apply(call, request);
}

void rg_rules_take(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_strike *strike = rg_call_of(call)->strike;
    if (strike != NULL && strike->action.effect == RG_EFFECT_TWICE) {
        rg_strike_keep_body(strike, data, size);
    }
}

static void fail(struct rg_server_call *call, unsigned status)
{
    struct rg_call *state = rg_call_of(call);
    rg_store_object_close(&state->object);
    rg_text_fini(&state->text);
    state->replied = false;
    if (status == 200) {
        rg_text_append_str(&state->text,
                           "<?xml version='1.0' encoding='UTF-8'?><Error><Code>InternalError</Code>"
                           "<Message>A fault rule wants an error in a 200.</Message></Error>");
        rg_reply_text(call, status, "application/xml; charset=UTF-8");
        return;
    }
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
    const struct rg_rule_action *action = &strike->action;
    /* A request that was refused the first time is not repeated: half of its body may be unread. */
    if (action->effect == RG_EFFECT_TWICE && rg_reply_status(call) < 400) {
        rg_strike_happen(strike, call);
        rg_strike_take_result(strike, call);
    }
    pthread_mutex_lock(&rules_of(call)->lock);
    rg_strike_enter_locked(strike, RG_STRIKE_COMPLETE);
    pthread_mutex_unlock(&rules_of(call)->lock);
    switch ((enum rg_rule_answer)action->answer) {
    case RG_ANSWER_DROPPED:
        drop(&state->response);
        break;
    case RG_ANSWER_FAILED:
        fail(call, action->status);
        break;
    case RG_ANSWER_HELD:
    case RG_ANSWER_LOST:
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
    if (strike == NULL) { /* The call waits for a rule to strike. */
        state->replied = false;
        bool told = rg_rules_tell(call, state->awaited_rule, true);
        *response = state->response;
        return told;
    }
    pthread_mutex_lock(&rules_of(call)->lock);
    bool released = strike->state == RG_STRIKE_RELEASED;
    pthread_mutex_unlock(&rules_of(call)->lock);
    if (released && strike->action.effect == RG_EFFECT_LATER) {
        rg_strike_take_result(strike, call);
        response->body_size = state->response.body_size;
    }
    if (released &&
        (strike->action.effect == RG_EFFECT_NONE || strike->action.answer == RG_ANSWER_LOST)) {
        drop(response);
    }
    return released;
}

enum rg_rule_effect rg_rules_effect(struct rg_server_call *call)
{
    const struct rg_strike *strike = rg_call_of(call)->strike;
    return strike != NULL ? (enum rg_rule_effect)strike->action.effect : RG_EFFECT_ONCE;
}

uint64_t rg_rules_kept_end(struct rg_server_call *call, uint64_t first)
{
    return rg_rules_effect(call) == RG_EFFECT_PARTIAL
               ? first + rg_call_of(call)->strike->action.kept_bytes
               : UINT64_MAX;
}

void rg_rules_release(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    if (state->strike != NULL) {
        pthread_mutex_lock(&rules_of(call)->lock);
        rg_strike_unref_locked(state->strike);
        pthread_mutex_unlock(&rules_of(call)->lock);
        state->strike = NULL;
    }
}
