/* When a loop lingers: sleeps before it waits, so that one wake-up finds more to do.
 *
 * Where a server sends less at a time than we can take, a loop would be woken for every segment: a
 * context switch and a receive each. So a loop that is woken more often than once in RG_LINGER_NS
 * sleeps for that long first, and where a wake-up still finds little, for twice as long, up to
 * RG_LINGER_MAX_NS; one that is woken less often may, if it has many exchanges under way. Network
 * cards moderate their interrupts in the same way.
 *
 * Where many threads share a CPU, a loop that is woken waits for its turn, and with each turn
 * others are kept from theirs. So it lingers as well if it waits for a CPU for so long each time.
 *
 * A sleep costs whoever waits for an answer before it asks again. So lingering is tried, as is
 * each longer sleep, and goes on only where as many bytes come with it as without. It is not tried
 * where all ops belong to one exchange at a time: a request alone never lingers.
 *
 *     .-------------- crowded ----------------.
 *     |      busy        no loss, or shorter    v
 *   AWAKE ----------> TRYING ----------------> ON
 *    ^ ^                | ^                    |||
 *    | |           loss | '- little is found --'||
 *    | '---- RESTING <--'                       ||
 *    |          ^---------- nothing is gained --'|
 *    '----- now and then, where less comes, or after a pause
 *
 * Waits are judged together, so many in a window; rests get longer with each loss in a row. No I/O
 * and no clock; for the loop's own thread. */
#ifndef RG_RUNTIME_LINGER_H
#define RG_RUNTIME_LINGER_H

#include "runtime/op.h"

/* How long it sleeps at first and at most. It costs as much latency; an object in Cloud Storage
 * takes a hundred times as long. */
#define RG_LINGER_NS (100 * RG_NS_PER_US)
#define RG_LINGER_MAX_NS (4 * RG_LINGER_NS)

enum rg_linger_state {
    RG_LINGER_AWAKE = 0, /* sees what comes without it */
    RG_LINGER_TRYING,    /* sees what comes with it, or with a longer sleep */
    RG_LINGER_ON,
    RG_LINGER_RESTING, /* it was tried, and there was a loss, or nothing was gained */
};

/* How long it rests, in windows. */
struct rg_linger_rest {
    uint32_t windows; /* still to come */
    uint32_t next;    /* that the next one has, less one */
};

/* Zeroed is AWAKE, with a window that begins at time 0. */
struct rg_linger {
    enum rg_linger_state state;
    uint64_t sleep_ns; /* before a wait; 0 in AWAKE and RESTING */
    uint32_t waits;    /* in this window */
    uint32_t ops;      /* that finished in it */
    uint32_t news;     /* of them, those that are not the next turn of the exchange before */
    uint64_t bytes;    /* that they moved, but for an accepted socket's number */
    uint32_t sockets;  /* that any of them was of */
    uint32_t turns;  /* of these: a send behind a receive, so a request, or an answer of a server */
    uint32_t window; /* its number */
    uint64_t since_ns, waited_ns; /* when the window began, and when the last wait ended */
    double rate;      /* bytes in a nanosecond, without what is tried, or when it was found good */
    uint32_t windows; /* of ON that are still to come */
    struct rg_linger_rest resting;   /* from any sleep */
    struct rg_linger_rest longer[2]; /* from twice RG_LINGER_NS, and from RG_LINGER_MAX_NS */
    uint32_t poor;                   /* windows of ON in a row in which clearly less came */
    bool quick; /* TRYING: a busy loop's first sleep, judged sooner and less closely */
    bool last_wrote;
    const void *last; /* the socket or file op that finished last; only compared */
};

/* An op has finished. A send behind a receive of the same socket, or the other way round, belongs
 * to one exchange, and comes no earlier for a sleep. */
static inline void rg_linger_note(struct rg_linger *linger, const struct rg_op *op)
{
    linger->ops++;
    linger->bytes += op->result > 0 ? (uint32_t)op->result : 0;
    bool wrote = op->kind == RG_OP_SEND;
    if (op->socket != NULL) {
        uint32_t before = op->socket->lingered;
        linger->sockets += before >> 1 != linger->window;
        linger->turns += wrote && (before & 1) == 0;
        op->socket->lingered = linger->window << 1 | wrote;
    }
    if (linger->state != RG_LINGER_AWAKE) {
        return;
    }
    const void *now = op->socket != NULL ? (const void *)op->socket : op;
    bool is_turn = now == linger->last && (op->socket == NULL || wrote != linger->last_wrote);
    linger->news += !is_turn;
    linger->last = now;
    linger->last_wrote = wrote;
}

/* A wait that could have been lingered before has ended. True: so has the window, and it is to be
 * judged. */
bool rg_linger_waited(struct rg_linger *linger, uint64_t now_ns);
/* Whether it matters how long the loop waited for a CPU. */
bool rg_linger_asks_for_crowd(const struct rg_linger *linger, uint64_t now_ns);
/* Changes the state, and begins a window. `crowd`: how much of its time the loop has waited for a
 * CPU, in percent. */
void rg_linger_judge(struct rg_linger *linger, uint64_t now_ns, uint32_t crowd);

#endif
