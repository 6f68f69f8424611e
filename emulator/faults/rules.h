/* The table of rules. A rule strikes the Nth of the requests that it matches, whoever sends
 * them; they need no field for it. Rules are ours. The interface of Google's storage-testbench
 * (faults.h) differs: its instructions are met by requests that name them, and cannot be
 * counted. rule.h says what a rule is, rule_control.h how one is made.
 *
 * All rules that match a request count it. Of those that would strike it, only the first does.
 * One rg_rules serves all loops. */
#ifndef RG_EMULATOR_FAULTS_RULES_H
#define RG_EMULATOR_FAULTS_RULES_H

#include "emulator/faults/rule.h"
#include "emulator/request/call.h"

/* Limits of the rules at one time, and of the strikes that one shares. */
#define RG_RULES_MAX 256
#define RG_RULE_STRIKES_MAX 1024

struct rg_rules;

int rg_rules_create(struct rg_rules **out_rules);
void rg_rules_destroy(struct rg_rules *rules);

/* Takes the rule, which is on the heap, on success: gives it an id and appends what it has come to.
 * -ENOSPC: there are too many. */
int rg_rules_add(struct rg_rules *rules, struct rg_rule *rule, struct rg_text *text);
/* Answers with what a rule has come to, or that there is none. With `wait`, false when it has not
 * struck yet: the call is not answered then. */
bool rg_rules_tell(struct rg_server_call *call, uint64_t id, bool wait);
/* Ends a rule, and answers. What it holds is let go; what is to happen later happens before. */
void rg_rules_end(struct rg_server_call *call, uint64_t id);

/* Called at the head of every request that is not about rules. It may make itself the receiver
 * of the body. */
void rg_rules_begin(struct rg_server_call *call, const struct rg_api_request *request);
/* Called with each piece of a body that somebody else receives. */
void rg_rules_take(struct rg_server_call *call, const uint8_t *data, size_t size);
/* Called when the call is answered. It may replace the answer, or hold it. */
void rg_rules_respond(struct rg_server_call *call);
/* As rg_server_handler's. */
bool rg_rules_resume(struct rg_server_call *call, struct rg_server_response *response);
/* The effect of the rule that strikes the call; RG_EFFECT_ONCE: none does. */
enum rg_rule_effect rg_rules_effect(struct rg_server_call *call);
/* Where in its upload the bytes of a chunk end that are kept, if it begins at `first`: UINT64_MAX
 * unless a rule with the effect "partial" strikes the call. */
uint64_t rg_rules_kept_end(struct rg_server_call *call, uint64_t first);
/* The call is over. */
void rg_rules_release(struct rg_server_call *call);

#endif
