/* Names to addresses, off the event loops: getaddrinfo blocks, so it has a thread of its own.
 *
 * A resolver serves all loops of a runtime. Its thread starts with the first name that has to be
 * looked up; literal addresses never need it. Answers are kept for RG_RESOLVER_FRESH_NS, failures
 * for RG_RESOLVER_FAILED_NS. When an answer has become old, it is given out once more while a new
 * one is looked up, and when that fails it goes on being given out for RG_RESOLVER_STALE_NS: a name
 * server that has a bad minute shall not stop a program that knows all addresses it needs.
 *
 * The life of a request: zeroed -> rg_resolver_resolve -> done, on the request's loop, exactly
 * once, and never from within rg_resolver_resolve -> idle, and may be used again. */
#ifndef RG_HTTP_RESOLVER_H
#define RG_HTTP_RESOLVER_H

#include "runtime/loop.h"

#include <netdb.h>
#include <ringest/error.h>
#include <stdatomic.h>

#define RG_RESOLVER_FRESH_NS (60 * RG_NS_PER_S)
#define RG_RESOLVER_FAILED_NS (1 * RG_NS_PER_S)
/* After RG_RESOLVER_FRESH_NS. */
#define RG_RESOLVER_STALE_NS (600 * RG_NS_PER_S)
/* How long closing waits for getaddrinfo, which cannot be interrupted. */
#define RG_RESOLVER_CLOSE_NS (200 * RG_NS_PER_MS)

#define RG_RESOLVER_HOSTS_MAX 64      /* host and port pairs in the cache or being looked up */
#define RG_RESOLVER_ADDRESSES_MAX 32  /* of one host; more are left out */
#define RG_RESOLVER_HOST_SIZE_MAX 253 /* RFC 1035, 3.1, in text */

struct rg_address {
    struct sockaddr_storage storage; /* with the port */
    socklen_t size;
};

/* The addresses of a host: at least one, families alternating, the family that the system prefers
 * first (RFC 8305, 4). Never changes once it is given out; shared by reference. */
struct rg_addresses {
    _Atomic uint32_t ref_count;
    uint32_t count;
    struct rg_address list[];
};

/* Any thread; both accept NULL. */
struct rg_addresses *rg_addresses_ref(struct rg_addresses *addresses);
void rg_addresses_unref(struct rg_addresses *addresses);

struct rg_resolve {
    struct rg_loop *loop; /* set by the owner */
    /* Set by the owner. gai_error is 0 or one of EAI_*: of getaddrinfo, or of ours EAI_AGAIN (too
     * many hosts at once), EAI_MEMORY, EAI_CANCELED. With EAI_SYSTEM, os_error tells more. Without
     * an error, `addresses` comes with a reference that is the owner's; otherwise it is NULL. */
    void (*done)(struct rg_resolve *request, int gai_error, struct rg_addresses *addresses);
    int os_error; /* positive, or 0; valid in done */
    /* The resolver's. */
    struct rg_mail mail;
    struct rg_list waiter;
    struct rg_addresses *addresses;
    int gai_error;
    bool pending;
};

struct rg_resolver;

/* Stand-ins for tests; zero means the real ones. */
struct rg_resolver_options {
    int (*getaddrinfo)(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out_list);
    void (*freeaddrinfo)(struct addrinfo *list);
    uint64_t (*now_ns)(void);
};

/* `options` may be NULL. 0 or -ENOMEM. */
int rg_resolver_create(struct rg_resolver **out_resolver,
                       const struct rg_resolver_options *options);
/* All requests must be done. NULL is fine. Where the thread is busy for longer than
 * RG_RESOLVER_CLOSE_NS it is left to itself: it frees what it uses when its look-up returns. */
void rg_resolver_destroy(struct rg_resolver *resolver);

/* True where the host is an address in digits, without brackets, and no name: then resolving it
 * again finds the same. */
bool rg_resolver_is_address(const char *host);
/* Any thread. `host` is a name or such an address, borrowed for the call. */
void rg_resolver_resolve(struct rg_resolver *resolver, struct rg_resolve *request, const char *host,
                         uint16_t port);
/* Makes a pending request finish soon, with EAI_CANCELED or what had been found already; harmless
 * otherwise. The memory of the request must stay until done. Only on the request's loop. */
void rg_resolver_cancel(struct rg_resolver *resolver, struct rg_resolve *request);

/* What an error means for those who wait for the host: one table, in which a number that it does
 * not list is RG_STATUS_UNEXPECTED. */
struct rg_resolver_failure {
    enum rg_status status;
    bool final;       /* every further attempt would fail alike */
    const char *text; /* static */
};
struct rg_resolver_failure rg_resolver_failure(int gai_error, int os_error);

#endif
