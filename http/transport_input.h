/* What a transport has received and its owner has not read yet.
 *
 *               bytes come                  pause              resume
 *   FLOWING <--------------> DELIVERING ------------> PAUSED ----------> RESUMING
 *    ^  |    owner returns       ^                                          | next pass
 *    |  v                        +------------------------------------------+
 *   BLOCKED
 *
 * A receive is in flight whenever it is FLOWING, so that the end of an idle connection is noticed.
 * The owner reads while it is DELIVERING. PAUSED is the back-pressure: what was not read is kept,
 * and nothing more is received. BLOCKED: a handshake has more to answer than the send buffer takes;
 * it goes on when that was sent.
 *
 * Bytes come in the loop's receive buffer, which the next socket uses. What has to outlast the call
 * is kept in memory of its own: `stash`.
 *
 * Invariant: `in` lies in the stash where there is one, and FLOWING between two calls means that
 * nothing is left. */
#ifndef RG_HTTP_TRANSPORT_INPUT_H
#define RG_HTTP_TRANSPORT_INPUT_H

#include "http/tls_record.h"

#include <string.h>

enum rg_transport_input_state {
    RG_TRANSPORT_FLOWING = 0,
    RG_TRANSPORT_DELIVERING,
    RG_TRANSPORT_PAUSED,
    RG_TRANSPORT_RESUMING,
    RG_TRANSPORT_BLOCKED,
    RG_TRANSPORT_INPUT_STATE_COUNT,
};

/* The zero state is valid. */
struct rg_transport_input {
    struct rg_tls_in in; /* borrowed from the loop, or in the stash */
    uint8_t *stash;      /* owned; NULL: none */
    uint8_t state;       /* changed by rg_transport_input_enter only */
};

/* Asserts that the change is allowed. */
void rg_transport_input_enter(struct rg_transport_input *input,
                              enum rg_transport_input_state state);
/* The call in which the bytes came is over: moves what is left to the stash where it is still to be
 * read, and drops it where it is not. 0 or -ENOMEM. */
int rg_transport_input_end(struct rg_transport_input *input);
void rg_transport_input_drop(struct rg_transport_input *input);

/* Copies up to `room` bytes to dest; how many. */
static inline size_t rg_transport_input_take(struct rg_transport_input *input, uint8_t *dest,
                                             size_t room)
{
    size_t size = room < input->in.size ? room : input->in.size;
    if (size > 0) {
        memcpy(dest, input->in.data, size);
        input->in.data += size;
        input->in.size -= size;
    }
    return size;
}

#endif
