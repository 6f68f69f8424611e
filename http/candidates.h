/* Which address of a name the next connection goes to, and when all of them have failed: a core
 * without sockets and clock, one for each pool.
 *
 * Addresses take turns. One to which a connection has failed is passed over for
 * RG_CANDIDATES_PENALTY_NS, and so is one that is slow to answer, while there are others.
 *
 * All have failed, for whoever waits, when in this *round* each of them has, and no connection is
 * being made that was begun before that was noticed. A round ends when a connection succeeds, when
 * the last one is lost, or when who waited was told. Without rounds, two addresses that fail in
 * turn would each be given another chance when the penalty of the other one begins; and if every
 * connection that is being made were waited for, more would be begun meanwhile.
 *
 * A failure is *final* where every other attempt at that address would give it too, such as a
 * certificate that has expired. */
#ifndef RG_HTTP_CANDIDATES_H
#define RG_HTTP_CANDIDATES_H

#include "http/resolver.h"
#include "runtime/socket.h"

/* How long an address that failed is passed over. */
#define RG_CANDIDATES_PENALTY_NS (5 * RG_NS_PER_S)

struct rg_candidate {
    uint64_t passed_until_ns; /* UINT64_MAX: cannot be reached from the local address */
    uint32_t failed_round;
    bool failed;             /* the last connection to it could not be made */
    bool final, unreachable; /* how: finally; before anything could be said to it */
};

/* The zero state is valid: no address is known. */
struct rg_candidates {
    struct rg_addresses *addresses; /* a reference; NULL: none yet */
    struct rg_candidate *list;
    uint32_t next;
    uint32_t round;         /* from 1 on */
    uint32_t making_count;  /* connections that are being made */
    bool all_failed;        /* it was noticed in this round */
    uint32_t notice;        /* how often it was, in all rounds */
    uint32_t awaited_count; /* of those being made, the ones begun before it was */
};

/* What a connection remembers of the address that it was begun to. Zeroed: none. */
struct rg_candidate_use {
    struct rg_addresses *addresses; /* a reference */
    uint32_t index;
    bool is_made;    /* counted in making_count */
    uint32_t notice; /* as it was at the beginning */
};

struct rg_candidate_failure {
    bool final, unreachable;
};

/* Takes the reference (on success). What is known of an address that stays is kept. 0 or -ENOMEM.
 * From a local address (NULL: any) only those of its family are reached. */
int rg_candidates_set(struct rg_candidates *candidates, struct rg_addresses *addresses,
                      const struct rg_local *local);
void rg_candidates_fini(struct rg_candidates *candidates);

/* The next address that is not passed over; where all are, the one for the shortest time yet. */
uint32_t rg_candidates_choose(struct rg_candidates *candidates, uint64_t now_ns);
/* A connection to it is being made, until one of _succeeded, _failed and _withdraw. */
void rg_candidates_begin(struct rg_candidates *candidates, uint32_t index,
                         struct rg_candidate_use *out_use);
const struct rg_address *rg_candidate_address(const struct rg_candidate_use *use);
void rg_candidates_slow(struct rg_candidates *candidates, const struct rg_candidate_use *use,
                        uint64_t now_ns);
void rg_candidates_succeeded(struct rg_candidates *candidates, struct rg_candidate_use *use);
void rg_candidates_failed(struct rg_candidates *candidates, struct rg_candidate_use *use,
                          const struct rg_candidate_failure *failure, uint64_t now_ns);
/* No connection could be begun after all; nothing is known of the address by that. */
void rg_candidates_withdraw(struct rg_candidates *candidates, struct rg_candidate_use *use);
/* A connection that could be made was of no use: passes the address over where there is another. */
void rg_candidates_useless(struct rg_candidates *candidates, const struct rg_candidate_use *use,
                           uint64_t now_ns);
/* Gives the reference back. */
void rg_candidate_release(struct rg_candidate_use *use);

/* When the first address ceases to be passed over; at most now_ns: there is one that is not. */
uint64_t rg_candidates_free_ns(const struct rg_candidates *candidates);
/* True where an address that is passed over has not failed in this round: it is slow. */
bool rg_candidates_hopeful(const struct rg_candidates *candidates);
/* True when all have failed, in this round or so lately that they are passed over. Asked after a
 * failure that leaves no connection but those being made: then who waits is told. */
bool rg_candidates_lost(struct rg_candidates *candidates, uint64_t now_ns);
/* When all have failed: whether finally. An address that failed otherwise may be well at the next
 * attempt; but one that could not even be reached says nothing where all of the other family failed
 * finally, because machines and servers often have one family only. */
bool rg_candidates_final(const struct rg_candidates *candidates);
/* Who waited was told, or the last connection was lost. */
void rg_candidates_round_end(struct rg_candidates *candidates);
/* True where no address has failed in this round. */
bool rg_candidates_fresh(const struct rg_candidates *candidates);

#endif
