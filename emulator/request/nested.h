/* A call within a call: a request that did not come by a connection of its own, as those of a
 * batch, or one that is carried out again. Its answer stays in memory.
 *
 * Life: start -> parse, unless the call is answered without -> run -> what is wanted of the answer
 * is taken: `encoder` holds its head, the call's text its body -> rg_call_release. */
#ifndef RG_EMULATOR_REQUEST_NESTED_H
#define RG_EMULATOR_REQUEST_NESTED_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* On the heap, because of its size. */
struct rg_nested {
    struct rg_server_call call;
    struct rg_h1_head head;
    struct rg_api_request request;
    struct rg_h1_encoder encoder;
    char head_bytes[RG_SERVER_HEAD_SIZE_MAX];
};

/* A call on the loop of `outer`. */
void rg_nested_start(struct rg_nested *nested, struct rg_server_call *outer);
/* Reads a whole head, which is borrowed until the release. False: it is malformed. */
bool rg_nested_parse(struct rg_nested *nested, const struct rg_text *head);
/* Carries it out: the call is answered then. */
void rg_nested_run(struct rg_nested *nested, struct rg_h1_slice body);

#endif
