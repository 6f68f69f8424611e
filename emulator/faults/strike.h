/* One request that a rule strikes: the call has it, and so has the rule where something comes of
 * the request when the rule ends. Whoever lets go last frees it.
 *
 *     RECEIVING ──► COMPLETE ──► RELEASED
 *         └──────────────────────────▲
 *
 * It is complete when the request is there as a whole. The rule releases it when it ends, and with
 * it what is to happen later; a request that is not complete by then does not happen. */
#ifndef RG_EMULATOR_FAULTS_STRIKE_H
#define RG_EMULATOR_FAULTS_STRIKE_H

#include "emulator/faults/rule.h"
#include "emulator/request/call.h"

/* Limit of what is kept of one request's body. */
#define RG_STRIKE_BODY_MAX RG_MIB(64)

enum rg_strike_state { RG_STRIKE_RECEIVING, RG_STRIKE_COMPLETE, RG_STRIKE_RELEASED };

struct rg_strike {
    struct rg_list node;          /* In its rule's list of what it keeps. */
    struct rg_rule_action action; /* The rule's. */
    struct rg_text head, body;    /* The request, if it is to happen again or later. */
    bool too_large;               /* Not all of the body was kept. */
    struct rg_text result;        /* The answer's head and body, once it has happened. */
    size_t result_head_size;
    /* Under the lock of the rules. */
    uint32_t refs;
    uint8_t state;
};

/* With one reference. It keeps the head where it needs to. NULL: no memory. */
struct rg_strike *rg_strike_create(const struct rg_rule_action *action,
                                   const struct rg_api_request *request);
void rg_strike_unref_locked(struct rg_strike *strike);
/* The only function that changes the state. A strike that is released stays so. */
void rg_strike_enter_locked(struct rg_strike *strike, enum rg_strike_state state);
/* Keeps a piece of the request's body. */
void rg_strike_keep_body(struct rg_strike *strike, const uint8_t *data, size_t size);
/* Carries the request out as it was kept, on the loop of `call`, and keeps the answer. */
void rg_strike_happen(struct rg_strike *strike, struct rg_server_call *call);
/* The call's answer becomes the one that was kept, if there is one. */
void rg_strike_take_result(struct rg_strike *strike, struct rg_server_call *call);

#endif
