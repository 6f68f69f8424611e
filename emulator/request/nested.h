/* A call within a call: a request of a batch, or one that a fault rule carries out again. It has
 * no connection, and its answer stays in memory.
 *
 * Life: start -> parse -> run -> the caller takes the answer, whose head is in `encoder` and
 * whose body is the call's text -> rg_call_release. A caller that answers the call itself leaves
 * out parse and run. */
#ifndef RG_EMULATOR_REQUEST_NESTED_H
#define RG_EMULATOR_REQUEST_NESTED_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* Large; it is kept on the heap. */
struct rg_nested {
    struct rg_server_call call;
    struct rg_h1_head head;
    struct rg_api_request request;
    struct rg_h1_encoder encoder;
    char head_bytes[RG_SERVER_HEAD_SIZE_MAX];
};

/* Starts a call that runs on the loop of `outer`. */
void rg_nested_start(struct rg_nested *nested, struct rg_server_call *outer);
/* Reads a whole head, which is borrowed until the release. False: it is malformed. */
bool rg_nested_parse(struct rg_nested *nested, const struct rg_text *head);
/* Carries the request out. The call is answered when it returns. */
void rg_nested_run(struct rg_nested *nested, struct rg_h1_slice body);

#endif
