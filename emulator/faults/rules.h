/* Rules: faults for the Nth of the requests that something says, whoever sends them and without a
 * field in them. They are ours, beside the interface of Google's storage-testbench (faults.h),
 * whose instructions are met by requests that name them and cannot be counted.
 *
 *   POST /fault_rule {MEMBER:VALUE,...}  -> {"id":ID,"seen":0,"struck":0,"last":null}
 *   GET /fault_rule/ID                   -> the same, as it is by now
 *   GET /fault_rule/ID?wait              as soon as the rule has struck
 *   DELETE /fault_rule/ID                ends it: what it holds is let go, what is to happen later
 *                                        happens before the answer
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
 *
 * Life of a strike: rg_rules_begin makes it for the call, and the rule keeps it, too, where it has
 * to know of it when it ends. Whoever lets go last frees it. One rg_rules serves all loops. */
#ifndef RG_EMULATOR_FAULTS_RULES_H
#define RG_EMULATOR_FAULTS_RULES_H

#include "emulator/request/request.h"
#include "http/server.h"

/* Rules that exist at once; requests that one keeps; what is kept of the body of one. */
#define RG_RULES_MAX 256
#define RG_RULE_STRIKES_MAX 1024
#define RG_RULE_BODY_MAX RG_MIB(64)
#define RG_RULE_DELAY_MS_MAX 3600000

struct rg_rules;
struct rg_strike;

int rg_rules_create(struct rg_rules **out_rules);
void rg_rules_destroy(struct rg_rules *rules);

/* At the head of every request. It may answer the call, or receive its body. */
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
