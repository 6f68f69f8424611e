/* One HTTP request to any URL at a time, for credentials: token servers, metadata servers.
 *
 * A fetcher has an event loop of its own, which is driven by whoever calls rg_fetch and has no
 * thread: the call returns when the answer is there. It belongs to one thread, which may not be a
 * loop's; rg_fetcher_cancel alone may come from another. Each request has a connection of its own,
 * closed behind it: a handful of requests an hour need none that waits.
 *
 * An https URL is reached through the fetcher's proxy, where there is none through the one that
 * HTTPS_PROXY and NO_PROXY say, as an endpoint is (gcs/network/network.h); an http one never is,
 * which keeps the metadata services of Google and AWS, that have no other, where they are: at the
 * machine itself.
 *
 * Requests are retried here: on 408, 429, 5xx, OAuth errors that say the server is unwell, and
 * failures that another attempt may mend. Redirections are not followed: no token server sends one,
 * and a secret should go where the file says. */
#ifndef RG_GCS_CREDENTIALS_FETCH_H
#define RG_GCS_CREDENTIALS_FETCH_H

#include "gcs/credentials/secret.h"
#include "http/exchange.h"
#include "http/resolver.h"

/* An answer's body. Tokens have a few KiB. */
#define RG_FETCH_BODY_SIZE_MAX RG_KIB(64)
#define RG_FETCH_URL_SIZE_MAX RG_KIB(8)
/* Between tries: this, then twice as much each time, give or take a tenth. */
#define RG_FETCH_BACKOFF_NS RG_NS_PER_S
#define RG_FETCH_BACKOFF_NS_MAX (8 * RG_NS_PER_S)
/* What a try may take, where the request does not say, and how many there are. */
#define RG_FETCH_TIMEOUT_NS (15 * RG_NS_PER_S)
#define RG_FETCH_TRIES 3

struct rg_fetcher {
    struct rg_loop *loop;
    struct rg_transport_loop *transports;
    struct rg_resolver *resolver;
    uint64_t deadline_ns; /* of everything that is fetched with it */
    uint64_t backoff_ns;
    const char *proxy; /* borrowed, set after init; NULL: by the environment, "": none */
    const char *cert_file, *key_file; /* borrowed, for mutual TLS; NULL: none */
    struct rg_mail wake;
    _Atomic bool cancelled;
};

/* The thread that calls is the one that will fetch. `deadline_ns` is of CLOCK_MONOTONIC. 0 or a
 * negative errno; the zero state is valid for fini. */
int rg_fetcher_init(struct rg_fetcher *fetcher, uint64_t deadline_ns);
void rg_fetcher_fini(struct rg_fetcher *fetcher);
/* What is being fetched, and everything after it, ends with -ECANCELED. Any thread. */
void rg_fetcher_cancel(struct rg_fetcher *fetcher);
/* Does nothing until that time. False: there is no time for it before the deadline, or the fetcher
 * was cancelled. */
bool rg_fetcher_wait(struct rg_fetcher *fetcher, uint64_t until_ns);

struct rg_fetch_field {
    const char *name, *value;
};

/* Everything is borrowed for the call. */
struct rg_fetch_request {
    const char *method;
    const char *url; /* http or https, with a query where there is one */
    const struct rg_fetch_field *fields;
    size_t field_count;
    const char *body; /* NULL: none */
    size_t body_size;
    uint64_t timeout_ns; /* of one try; 0: RG_FETCH_TIMEOUT_NS */
    uint32_t tries;      /* 0: RG_FETCH_TRIES */
};

struct rg_fetch_response {
    uint16_t status;
    bool is_metadata; /* it has "Metadata-Flavor: Google" */
    char *body;       /* in the arena; a NUL follows */
    size_t body_size;
    uint64_t started_ns; /* CLOCK_MONOTONIC, when the try that was answered began */
    int64_t date_s;      /* the server's clock, since 1970; 0: it did not say */
};

/* 0 when there is an answer, whatever its status. Otherwise a negative errno, and `error` is one
 * line that names the server and the cause: -EINVAL (the URL), -ECANCELED, -ETIMEDOUT, -ENOMEM,
 * -EIO (everything that can happen on the way). */
int rg_fetch(struct rg_fetcher *fetcher, struct rg_secret_arena *arena,
             const struct rg_fetch_request *request, struct rg_fetch_response *out_response,
             char *error, size_t error_size);

#endif
