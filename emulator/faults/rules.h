/* Rules: faults for the Nth of the requests that something says, whoever sends them and without a
 * field in them. They are ours, beside the interface of Google's storage-testbench (faults.h),
 * whose instructions are met by requests that name them and cannot be counted. What a rule says is
 * in rule.h, how one is made in rule_control.h.
 *
 * All rules that match a request count it, and the first that strikes does so. One rg_rules serves
 * all loops. */
#ifndef RG_EMULATOR_FAULTS_RULES_H
#define RG_EMULATOR_FAULTS_RULES_H

#include "emulator/faults/rule.h"
#include "emulator/request/call.h"

/* Rules that exist at once; requests that one keeps. */
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

/* At the head of every request that is not about rules. It may receive the call's body. */
void rg_rules_begin(struct rg_server_call *call, const struct rg_api_request *request);
/* A piece of a body that somebody else receives. */
void rg_rules_take(struct rg_server_call *call, const uint8_t *data, size_t size);
/* The call is answered: its answer may become another, or be held. */
void rg_rules_respond(struct rg_server_call *call);
/* As rg_server_handler's. */
bool rg_rules_resume(struct rg_server_call *call, struct rg_server_response *response);
/* True: the page that the call asks for has to be empty. */
bool rg_rules_empties_page(struct rg_server_call *call);
/* The call is over. */
void rg_rules_release(struct rg_server_call *call);

#endif
