/* What the event loops of a host tell each other of the buckets that they talk to: a table of
 * records in the region (gcs/host/region.h), one for each loop and bucket.
 *
 *   opened at the first look -> others are read, and a record is told for each bucket, every
 *   RG_PEERS_INTERVAL_NS while it is used -> records are released -> closed
 *
 * Who tells a record has the kernel's lock of its place, so that the place of a process that has
 * ended in whatever way is free. A record that was not told again for RG_PEER_LIFE_NS, by a process
 * that is stopped or gone, counts no more. A checksum tells half a record from a whole one, and
 * names are hashes.
 *
 * Records are hints. Who reads them bounds what it believes (gcs/request/portion.h), and goes on
 * alone where the region cannot be had. It is looked at by system calls, a few in each interval,
 * and asked by loads from own memory.
 *
 * One loop's, without locks. A forked child closes the file and uses nothing of it. */
#ifndef RG_GCS_HOST_PEERS_H
#define RG_GCS_HOST_PEERS_H

#include "gcs/host/account.h"
#include "gcs/host/region.h"

/* How often a record is told, and others are read. */
#define RG_PEERS_INTERVAL_NS (100 * RG_NS_PER_MS)
/* A record that is older is nobody's. */
#define RG_PEER_LIFE_NS RG_NS_PER_S
#define RG_PEERS_COUNT RG_HOST_PLACES
#define RG_PEER_NONE UINT32_MAX

enum { RG_PEER_READS, RG_PEER_WRITES, RG_PEER_SIDE_COUNT };
#define RG_PEER_KIND_COUNT 3

/* Why a loop holds requests back. */
enum rg_peer_restraint {
    RG_PEER_FREE = 0, /* it does not */
    RG_PEER_FOLLOWS,  /* others do */
    RG_PEER_REFUSED,  /* the service asked it to, by 429, 503 or latency */
};

/* The reads, or the writes, of a bucket on one loop. */
struct rg_peer_side {
    uint64_t gap_ns;             /* from one request to the next; 0: not known */
    uint64_t refused_ns;         /* when the service asked for less last; 0: never */
    uint32_t in_flight, waiting; /* both 0: it is not used now */
    uint32_t restraint;          /* enum rg_peer_restraint */
    uint32_t loops;              /* of that process, which use it now; 0: one */
    uint32_t answers, sudden;    /* see struct rg_limiter_count */
};

/* Latencies of one kind of request. */
struct rg_peer_kind {
    uint32_t count; /* of heads that came; what follows is known where it is not 0 */
    uint32_t median_us, late_us;
    uint32_t silence_us; /* 0: not known */
};

/* Times are of CLOCK_MONOTONIC, which is the same for all processes since the machine started. */
struct rg_peer {
    uint64_t told_ns;
    uint64_t process;  /* a random number that all loops of a process have */
    uint64_t endpoint; /* hashes, see rg_peers_hash */
    uint64_t bucket;
    uint32_t siblings; /* records of that process for the endpoint; at least 1 */
    uint32_t zero;
    struct rg_peer_side sides[RG_PEER_SIDE_COUNT];
    struct rg_peer_kind kinds[RG_PEER_KIND_COUNT];
};

/* A file of this version has records that mean this. Another layout, or another meaning, is another
 * version, since processes of several builds meet. */
static_assert(RG_HOST_VERSION == 5 && sizeof(struct rg_peer) == 168, "a layout has a version");

struct rg_peers {
    struct rg_host_region region; /* closed: alone */
    const char *folder;           /* borrowed; NULL: nothing is shared */
    uint64_t process, endpoint;
    uint64_t opened_ns;                   /* when it was tried last; 0: never */
    uint64_t looked_ns, looked_at_all_ns; /* 0: never */
    uint32_t openings;                    /* of regions so far: part of a record's number */
    uint32_t end;                         /* behind the last place that was live */
    uint32_t siblings;                    /* records of this process for the endpoint; at least 1 */
    uint32_t processes;                   /* see rg_peers_processes */
    uint64_t claimed[RG_PEERS_COUNT / 64]; /* places */
};

/* Opens nothing yet. `folder` as rg_host_folder chooses. The endpoint's name is hashed. */
void rg_peers_init(struct rg_peers *peers, const char *folder, const char *endpoint);
/* Releases all records. */
void rg_peers_close(struct rg_peers *peers);

/* A bucket of the endpoint; never 0. */
uint64_t rg_peers_hash(const struct rg_peers *peers, const char *bucket);

/* Tells what is known of a bucket, under the record that was returned for it before; RG_PEER_NONE
 * at first. `peer` gets its time, process, endpoint and siblings. Returns the record, or
 * RG_PEER_NONE: all are taken, or this process is alone. */
uint32_t rg_peers_tell(struct rg_peers *peers, uint32_t record, struct rg_peer *peer,
                       uint64_t now_ns);
/* Tells people of the same bucket, after that; `account` gets its process. Harmless for
 * RG_PEER_NONE. */
void rg_peers_account(struct rg_peers *peers, uint32_t record, struct rg_account *account);
/* The bucket is not used any more. Harmless for RG_PEER_NONE. */
void rg_peers_release(struct rg_peers *peers, uint32_t record);
/* Reads what others tell now: `found` is called for each live record of the endpoint that is not
 * this loop's. To be called before rg_peers_tell. */
void rg_peers_look(struct rg_peers *peers, uint64_t now_ns,
                   void (*found)(void *context, const struct rg_peer *peer), void *context);

/* How many processes of this user on this host use the endpoint, this one included: what a budget
 * of the host, of connections for example, is divided by. As it was when the loop looked last,
 * RG_PEERS_INTERVAL_NS ago while it has requests; a process counts for RG_PEER_LIFE_NS after its
 * last. 1 where nothing is shared. */
static inline uint32_t rg_peers_processes(const struct rg_peers *peers)
{
    return peers->processes;
}

#endif
