/* A rule: which requests it counts, which of those it strikes, and what happens to these. Without
 * requests and threads of its own: the table of rules (rules.h) says when.
 *
 * Requests that are counted, all of these if given:
 *
 *   bucket      in this bucket; of a batch nobody knows, so it always counts
 *   method      called so, as in "storage.objects.insert"
 *   writes      true: neither GET nor HEAD
 *   target      with this text in their target, as it was sent
 *   field       with this header field, "name: value"
 *
 * Those that are struck: from the `nth` (1; 0: none) on `times` (1), or each of those with a chance
 * of one in `one_in` (1), drawn from `seed` (1).
 *
 *   effect      "once", as without a fault; "none"; "twice", as if it had been sent twice, answered
 *               as the second time; "later", when the rule ends, even if the client is gone;
 *               "empty", of a list: an empty page with a token, where there is anything to list
 *   answer      "given"; "dropped", with the connection; "held" until the rule ends; or "failed"
 *               with `status` (503). The answer to "none" that was held is dropped in the end.
 *   delay_ms    an answer that is given comes so much later
 *
 * A request without effect, or with a later one, is read to its end. "twice" and "later" concern
 * requests that write; "last" is the request that was struck last.
 */
#ifndef RG_EMULATOR_FAULTS_RULE_H
#define RG_EMULATOR_FAULTS_RULE_H

#include "emulator/request/method.h"
#include "emulator/request/request.h"
#include "emulator/wire/text.h"

#include <yyjson.h>

#define RG_RULE_DELAY_MS_MAX 3600000
#define RG_RULE_TEXT_SIZE_MAX 512
#define RG_RULE_LAST_SIZE_MAX 512
#define RG_RULE_STATUS_DEFAULT 503

enum rg_rule_effect {
    RG_EFFECT_ONCE,
    RG_EFFECT_NONE,
    RG_EFFECT_TWICE,
    RG_EFFECT_LATER,
    RG_EFFECT_EMPTY,
    RG_EFFECT_COUNT
};
enum rg_rule_answer {
    RG_ANSWER_GIVEN,
    RG_ANSWER_DROPPED,
    RG_ANSWER_HELD,
    RG_ANSWER_FAILED,
    RG_ANSWER_COUNT
};

struct rg_rule_action {
    uint8_t effect, answer;
    uint16_t status;
    uint64_t delay_ns;
};

struct rg_rule {
    struct rg_list node;
    uint64_t id; /* From 1. */
    char bucket[RG_RULE_TEXT_SIZE_MAX], target[RG_RULE_TEXT_SIZE_MAX];
    char field_name[RG_RULE_TEXT_SIZE_MAX], field_value[RG_RULE_TEXT_SIZE_MAX];
    enum rg_method method; /* RG_METHOD_NONE: any. */
    bool writes;
    uint64_t nth, times, one_in, random;
    struct rg_rule_action action;
    uint64_t seen, struck;
    char last[RG_RULE_LAST_SIZE_MAX];
    struct rg_list strikes; /* Those that the rule keeps. */
    uint32_t kept;          /* Ever. */
};

/* Reads a rule as it is posted; no request has been counted yet. False with what is wrong in
 * `error`, as a text for the client. */
bool rg_rule_parse(struct rg_rule *rule, yyjson_val *root, char *error, size_t error_size);
/* {"id":ID,"seen":0,"struck":0,"last":null} */
void rg_rule_append(struct rg_text *text, const struct rg_rule *rule);
/* Counts a request if it is one of those that the rule is about. True: it is struck. */
bool rg_rule_count(struct rg_rule *rule, const struct rg_api_request *request);
/* Whether the action can be carried out of a request: only a write is done again or later. */
bool rg_rule_applies(const struct rg_rule *rule, const struct rg_api_request *request);

#endif
