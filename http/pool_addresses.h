/* The addresses of the host that a pool connects to: looked up when connections are wanted, again
 * every RG_POOL_RESOLVE_INTERVAL_NS, and what is known of each (http/candidates.h). Also how
 * connections to them failed, as it is told to those who wait when all of them have.
 *
 *             refresh                  answer
 *   UNKNOWN ----------> LOOKING_UP <-----------> KNOWN
 *      ^                  |    refresh, after a while
 *      +------------------+
 *        no answer, and none before
 *
 * Addresses that were known stay so while they are looked up again, and when that fails. A host
 * that is an address itself is looked up once. Life: init
 * -> refresh, as often as connections are wanted -> cancel, when the pool closes -> fini, when no
 * look-up runs. Everything runs on the loop's thread.
 *
 * Invariant: addresses are known in KNOWN, and not in UNKNOWN. */
#ifndef RG_HTTP_POOL_ADDRESSES_H
#define RG_HTTP_POOL_ADDRESSES_H

#include "http/candidates.h"
#include "http/transport.h"

#include <netinet/in.h>

/* How often the addresses are looked up again while the pool is in use. */
#define RG_POOL_RESOLVE_INTERVAL_NS (60 * RG_NS_PER_S)

enum rg_pool_addresses_state {
    RG_POOL_ADDRESSES_UNKNOWN = 0,
    RG_POOL_ADDRESSES_LOOKING_UP,
    RG_POOL_ADDRESSES_KNOWN,
    RG_POOL_ADDRESSES_STATE_COUNT,
};

/* A failure that outlives the connection, with its text. Status OK: none. */
struct rg_pool_failure {
    struct rg_transport_failure failure;
    char text[RG_TUNNEL_TEXT_SIZE + 96];
};

struct rg_pool_addresses {
    struct rg_loop *loop;
    struct rg_resolver *resolver;
    const char *name; /* of the server, for the log */
    const char *host; /* that is looked up: the server, or a proxy */
    uint16_t port;
    const char *via;              /* what failures of the look-up name: the proxy; NULL: nothing */
    const struct rg_local *local; /* NULL: as the system chooses */
    /* A look-up has ended. `failure` is borrowed for the call; NULL: the addresses are known. */
    void (*looked_up)(struct rg_pool_addresses *addresses,
                      const struct rg_transport_failure *failure);
    struct rg_candidates candidates;
    /* How connections could not be made: the last failure that is final, and the last other one. */
    struct rg_pool_failure final_failure, passing_failure;
    struct rg_resolve resolve;
    uint8_t state;   /* changed by one function */
    bool is_address; /* the host is no name */
    uint64_t resolved_ns, started_ns;
};

/* The owner has filled the fields above `candidates` of a zeroed one; all pointers are borrowed. A
 * zeroed one is valid for fini. */
void rg_pool_addresses_init(struct rg_pool_addresses *addresses);
/* No look-up may run. */
void rg_pool_addresses_fini(struct rg_pool_addresses *addresses);
/* Ends the look-up that runs, if any: looked_up still follows. */
void rg_pool_addresses_cancel(struct rg_pool_addresses *addresses);

/* Looks the host up where its addresses are not known, or were looked up a while ago. */
void rg_pool_addresses_refresh(struct rg_pool_addresses *addresses);
/* True where there are addresses to connect to. */
static inline bool rg_pool_addresses_known(const struct rg_pool_addresses *addresses)
{
    return addresses->candidates.addresses != NULL;
}
static inline bool rg_pool_addresses_looking_up(const struct rg_pool_addresses *addresses)
{
    return addresses->state == RG_POOL_ADDRESSES_LOOKING_UP;
}

/* A connection could not be made: notes that of its address, and keeps why. */
void rg_pool_addresses_failed(struct rg_pool_addresses *addresses, struct rg_candidate_use *use,
                              const struct rg_transport_failure *failure);
/* All have failed: what to tell those who wait. It is final only where no address failed otherwise.
 * Lives until the next one fails. A new round begins. */
const struct rg_transport_failure *
rg_pool_addresses_all_failed(struct rg_pool_addresses *addresses);

/* The address, for people, in `out`. */
const char *rg_pool_address_text(const struct rg_candidate_use *use,
                                 char out[static INET6_ADDRSTRLEN]);

#endif
