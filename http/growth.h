/* How many connections a pool with TLS opens while exchanges wait: rules without sockets and clock.
 *
 * A handshake costs client and server as much CPU time as ten small answers or more. Where the
 * *service* takes its time over each answer, more connections mean more answers, and their number
 * is doubled as quickly as they shake hands. Where answers are quick, what takes time is the CPU of
 * one of both ends. Then a connection is opened when RG_GROWTH_EXCHANGES answers have paid for it.
 *
 * Where many processes of a host begin at the same time, their handshakes keep each other and the
 * server busy, and answers look slow. So each doubles only up to its share, and pays from there on.
 * And where many threads share a CPU, answers lie there until it is the loop's turn. What it waited
 * for a CPU is taken off its answers. If that is much, the CPU is what it is short of, and a
 * connection is worth nothing to it until the service is slow.
 *
 * One round trip is part of an answer, of connecting and of a handshake, and says nothing about
 * either: it is taken from both. */
#ifndef RG_HTTP_GROWTH_H
#define RG_HTTP_GROWTH_H

#include "runtime/base.h"

/* Opened at once, when nothing is known. */
#define RG_GROWTH_FIRST 8
#define RG_GROWTH_EXCHANGES 128
/* The processes of a host open at once as many in all as so many would that are alone there. */
#define RG_GROWTH_PROCESSES 2
/* The service is slow when its answers take longer than so many handshakes, and than this. Quicker
 * answers pay for connections in no time. */
#define RG_GROWTH_HANDSHAKES 2
#define RG_GROWTH_QUICK_NS (3 * RG_NS_PER_MS)
/* While one exchange takes this long, one connection more is opened after the other, whatever other
 * exchanges took, and beyond the share. */
#define RG_GROWTH_PATIENCE_NS (50 * RG_NS_PER_MS)
/* From which part of the time on a loop is short of CPU. */
#define RG_GROWTH_CROWD_PERCENT 20

/* Of connections the shortest times are kept, since those of a busy loop say what it is busy with.
 * 0: none yet. Invariant: there are no answers without a connection. */
struct rg_growth {
    uint64_t connect_ns;   /* until bytes flow between us and the server */
    uint64_t handshake_ns; /* from then on */
    uint64_t answer_ns;    /* from an exchange's start to the end of its body: of the quick ones */
    uint32_t unpaid;       /* answers that have not paid for a connection yet */
};

struct rg_growth_now {
    uint32_t max;        /* connections that may be open */
    uint32_t processes;  /* of this host that use the server; at least 1 */
    uint32_t open;       /* connections, with those that are being made */
    uint32_t connecting; /* of these; those that are slow to connect do not count */
    uint32_t crowd;      /* percent of the time in which the loop waited for a CPU; 100 at most */
    uint64_t oldest_ns;  /* age of the oldest exchange on a connection; 0: there is none */
};

void rg_growth_connected(struct rg_growth *growth, uint64_t connect_ns, uint64_t handshake_ns);
void rg_growth_answered(struct rg_growth *growth, uint64_t took_ns);
/* How many connections may be begun. */
uint32_t rg_growth_allowed(const struct rg_growth *growth, const struct rg_growth_now *now);
/* One is begun, with so many open before. */
void rg_growth_begun(struct rg_growth *growth, uint32_t open);
/* From which age on the oldest exchange is worth connections; UINT64_MAX: none, since no handshake
 * is known to compare it with. */
uint64_t rg_growth_age(const struct rg_growth *growth);

#endif
