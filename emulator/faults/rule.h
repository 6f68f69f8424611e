/* A rule: which requests it counts, which of those it strikes, and what happens to these. Without
 * requests and threads of its own: the table of rules (rules.h) says when.
 *
 * A request is counted if it matches all of these members that are given:
 *
 *   bucket      it is about this bucket; a batch always matches, because its buckets are not known
 *               yet
 *   method      it has this name, as in "storage.objects.insert"
 *   upload      it is this step of an upload, as in "chunk" (request/upload_step.h)
 *   writes      true: it is neither GET nor HEAD
 *   target      this text is in its target, as it was sent
 *   field       it has this header field, "name: value"
 *
 * Of those that are counted, `times` (1) are struck, from the `nth` (1; 0: none) on; with `one_in`
 * (1), each has a chance of one in that many, drawn from `seed` (1). Defaults are in parentheses.
 *
 *   effect      what happens:
 *               "once"       as without a fault
 *               "none"       nothing; the request is read to its end, unless `early` is true
 *               "twice"      as if it had been sent twice, with the second answer
 *               "later"      when the rule ends, even if the client is gone
 *               "empty"      a list gets an empty page with a token, where there is anything to
 * list "corrupt"    the first byte that is stored, or sent, is another one; what is stored is not
 * compared with the checksums that the request says "partial"    of a chunk, the first `kept_bytes`
 * (0) are kept, rounded down to what a session keeps, and the session stays open "forgotten"  the
 * session of a resumable or multipart upload ends, and is not found answer      what the client
 * gets: "given", the answer; "dropped", a reset connection; "held", the answer when the rule ends,
 * or a reset connection if the effect is "none"; "lost", a reset connection when the rule ends;
 * "failed", `status` (503), where 200 has a body that says that it failed delay_ms    how much
 * later an answer that is given comes
 *
 * "twice" and "later" apply only to requests that write. `last` and `head` are of the request that
 * was struck last. */
#ifndef RG_EMULATOR_FAULTS_RULE_H
#define RG_EMULATOR_FAULTS_RULE_H

#include "emulator/request/method.h"
#include "emulator/request/request.h"
#include "emulator/request/upload_step.h"
#include "emulator/wire/text.h"

#include <yyjson.h>

#define RG_RULE_DELAY_MS_MAX 3600000
#define RG_RULE_TEXT_SIZE_MAX 512
#define RG_RULE_LAST_SIZE_MAX 512
#define RG_RULE_HEAD_SIZE_MAX 4096
#define RG_RULE_STATUS_DEFAULT 503

enum rg_rule_effect {
    RG_EFFECT_ONCE,
    RG_EFFECT_NONE,
    RG_EFFECT_TWICE,
    RG_EFFECT_LATER,
    RG_EFFECT_EMPTY,
    RG_EFFECT_CORRUPT,
    RG_EFFECT_PARTIAL,
    RG_EFFECT_FORGOTTEN,
    RG_EFFECT_COUNT
};
enum rg_rule_answer {
    RG_ANSWER_GIVEN,
    RG_ANSWER_DROPPED,
    RG_ANSWER_HELD,
    RG_ANSWER_LOST,
    RG_ANSWER_FAILED,
    RG_ANSWER_COUNT
};

struct rg_rule_action {
    uint8_t effect, answer;
    uint16_t status;
    bool early;
    uint64_t delay_ns, kept_bytes;
};

struct rg_rule {
    struct rg_list node;
    uint64_t id; /* From 1. */
    char bucket[RG_RULE_TEXT_SIZE_MAX], target[RG_RULE_TEXT_SIZE_MAX];
    char field_name[RG_RULE_TEXT_SIZE_MAX], field_value[RG_RULE_TEXT_SIZE_MAX];
    enum rg_method method;    /* RG_METHOD_NONE: any. */
    enum rg_upload_step step; /* RG_UPLOAD_STEP_NONE: any request. */
    bool writes;
    uint64_t nth, times, one_in, random;
    struct rg_rule_action action;
    uint64_t seen, struck;
    char last[RG_RULE_LAST_SIZE_MAX];
    char head[RG_RULE_HEAD_SIZE_MAX]; /* Whole lines, without what authorizes the request. */
    struct rg_list strikes;           /* Strikes that the rule shares with calls. */
    uint32_t kept;                    /* Ever. */
};

/* Reads a rule as a client posts it. False with what is wrong in `error`, as a text for the
 * client. */
bool rg_rule_parse(struct rg_rule *rule, yyjson_val *root, char *error, size_t error_size);
/* {"id":ID,"seen":0,"struck":0,"last":null,"head":null} */
void rg_rule_append(struct rg_text *text, const struct rg_rule *rule);
/* Counts a request if it matches the rule. True: the rule strikes it. */
bool rg_rule_count(struct rg_rule *rule, const struct rg_api_request *request);
/* Whether a request is neither GET nor HEAD. */
bool rg_rule_is_write(const struct rg_api_request *request);
/* Whether the action can be applied to a request: only writes are done twice or later. */
bool rg_rule_applies(const struct rg_rule *rule, const struct rg_api_request *request);

#endif
