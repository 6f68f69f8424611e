/* How fast the bodies of some exchanges are sent together: a protocol core without clock or I/O,
 * which belongs to one event loop.
 *
 * They go in pieces, as far apart as the rate says. Sealing and sending take CPU time, so a piece
 * is small: whoever wants that CPU, too, loses a little now and then, and never much at once. A
 * piece ends with a TLS record, and what that is too much is taken off the next piece. */
#ifndef RG_HTTP_SEND_PACE_H
#define RG_HTTP_SEND_PACE_H

#include "runtime/base.h"

#include <stdatomic.h>

/* The whole records that a large send buffer takes. That is 0.2 ms of CPU time, of which waking up
 * beside other work, with nothing in the caches, is a third: with smaller pieces it is half. */
#define RG_SEND_PACE_PIECE (15 * RG_KIB(16))
/* The loop's timers are not exact: what was missed for so long is made up for. */
#define RG_SEND_PACE_BURST_NS (4 * RG_NS_PER_MS)
/* The rate may change at any time, and after so long it is looked at again. */
#define RG_SEND_PACE_LOOK_NS (50 * RG_NS_PER_MS)

/* The zero state is valid: nothing is held back. */
struct rg_send_pace {
    _Atomic uint64_t bytes_per_s; /* 0: no limit. Of any thread; what follows is the loop's */
    uint64_t begun_ns;            /* when the last piece might begin */
    int64_t left;                 /* bytes of it; below 0: of the next one */
};

/* Bytes that may be sent now, unless that ends within a record. 0: none before *out_look_ns, when
 * to ask again. */
uint64_t rg_send_pace_room(struct rg_send_pace *pace, uint64_t now_ns, uint64_t *out_look_ns);
/* So many were. */
void rg_send_pace_sent(struct rg_send_pace *pace, uint64_t size);

#endif
