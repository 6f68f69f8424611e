/* What one event loop of a client knows of the buckets that it talks to, and does about it: how
 * many requests may be out (gcs/request/limiter.h), how long an answer may take
 * (gcs/request/stall.h), and when a second request is sent beside a slow one (gcs/request/hedge.h).
 * While requests are out, it tells the other loops of the host, and learns from them
 * (gcs/request/portion.h): when a bucket is new, and every RG_PEERS_INTERVAL_NS.
 *
 * A request's way: rg_traffic_enter admits it, or lets it wait until its bucket's limits do ->
 * _sent -> _answered -> _arrived, for each piece of the body -> _leave, at the end of the attempt
 * -> perhaps _enter again -> _forget, at the end of the request.
 *
 * A *hedge* is a second request that asks the same by an exchange of its own. Until a head comes
 * both are out. When the hedge's comes first, the two exchanges trade their connections, so that it
 * is always the hedge that loses: it is ended there and then, and the request goes on as if its own
 * exchange had been answered. Bytes of a body are thus only ever received for the winner.
 *
 * The table of buckets is bounded: the one that was not used for the longest time makes room, and
 * where all are in use buckets share. What waits to be admitted is bounded by the requests there
 * are. */
#ifndef RG_GCS_REQUEST_TRAFFIC_H
#define RG_GCS_REQUEST_TRAFFIC_H

#include "gcs/request/admission.h"

#include <ringest/gcs.h>

#define RG_TRAFFIC_BUCKETS_MAX 16
/* Second requests that may be out at once on a loop. */
#define RG_TRAFFIC_HEDGES_MAX 32

struct rg_client_loop;
struct rg_request;
struct rg_traffic;

/* `admitted` is told of each request that had to wait and is let in now. */
int rg_traffic_create(struct rg_traffic **out_traffic, struct rg_client_loop *client_loop,
                      void (*admitted)(struct rg_request *request));
/* On the loop: no alarm fires any more. */
void rg_traffic_close(struct rg_traffic *traffic);
void rg_traffic_destroy(struct rg_traffic *traffic);

/* Before an attempt. True: its bucket lets it in, and the exchange may go to the pool. False: it
 * waits, and `admitted` follows. */
bool rg_traffic_enter(struct rg_request *request);
void rg_traffic_sent(struct rg_request *request);
void rg_traffic_answered(struct rg_request *request);
void rg_traffic_arrived(struct rg_request *request);
/* The request's exchange is done. True: it failed, and its hedge goes on in its place. */
bool rg_traffic_goes_on(struct rg_request *request);
void rg_traffic_leave(struct rg_request *request);
void rg_traffic_forget(struct rg_request *request);

struct rg_traffic_bucket_stats {
    struct rg_bucket_stats stats;
    double reads_ceiling, writes_ceiling; /* of all loops of the client together; 0: none */
};

/* What is known of the buckets on this loop, up to RG_TRAFFIC_BUCKETS_MAX. Returns how many. */
uint32_t rg_traffic_buckets(const struct rg_traffic *traffic, struct rg_traffic_bucket_stats *out);

/* The request waits to be admitted no more. */
void rg_traffic_withdraw(struct rg_request *request);
/* Ends the hedge, where there is one. */
void rg_traffic_unhedge(struct rg_request *request);

#endif
