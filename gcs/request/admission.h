/* What a request keeps for gcs/request/traffic.h: how it was let in, and of the attempt that it was
 * let in for. */
#ifndef RG_GCS_REQUEST_ADMISSION_H
#define RG_GCS_REQUEST_ADMISSION_H

#include "runtime/base.h"

/* What is alike in its latency. Zero is what most requests are. */
enum rg_traffic_kind {
    RG_TRAFFIC_META,  /* metadata and listings */
    RG_TRAFFIC_MEDIA, /* bytes of an object */
    RG_TRAFFIC_WRITE, /* uploads, and whatever changes an object */
    RG_TRAFFIC_KIND_COUNT,
};

struct rg_traffic_bucket;
struct rg_traffic_hedge;

/* What a request keeps of its admission and of the attempt that it was for; zeroed at first. */
struct rg_admission {
    struct rg_traffic_bucket *bucket; /* counted as a user of it; NULL: none */
    struct rg_list node;              /* waits to be admitted, or is sent and not answered */
    struct rg_traffic_hedge *hedge;
    uint64_t sent_ns;    /* 0: not yet */
    uint64_t arrived_ns; /* of the last piece */
    uint64_t in_time;    /* rg_hedge.in_time when it was sent */
};

#endif
