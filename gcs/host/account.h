/* What each event loop tells people of each of its buckets: a table in the region
 * (gcs/host/region.h) beside that of gcs/host/peers.h, which has one place for each place there.
 * `ringest top` reads it. Loops do not, so that it costs them one write in each interval.
 *
 *   told with the record of the same place -> read by others -> emptied when that is released
 *
 * Whoever has the lock of a place (gcs/host/peers.h) writes its account. The account of a process
 * that has ended in whatever way is nobody's from that moment on, because the kernel gives the lock
 * up. A checksum tells half an account from a whole one. */
#ifndef RG_GCS_HOST_ACCOUNT_H
#define RG_GCS_HOST_ACCOUNT_H

#include "gcs/host/region.h"

#include <ringest/gcs.h>

/* Sums are since the loop has had the place. Times are of CLOCK_MONOTONIC. */
struct rg_account {
    uint64_t told_ns, since_ns;
    uint64_t process;  /* a random number that all loops of a process have */
    uint64_t requests; /* attempts that have ended */
    uint64_t bytes;    /* of bodies, in both directions */
    uint64_t retries;
    uint64_t rate_mhz; /* requests in 1,000 s that the service lets it begin; 0: no limit */
    uint32_t pid;      /* as the process knows itself; in a container it has another */
    uint32_t loop;
    uint32_t in_flight, waiting; /* waiting: for that rate, or until others have ended */
    uint32_t p50_us, p99_us;     /* until the head of an answer came, of reads; 0: not known */
    char command[16];
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 2];
};

/* As struct rg_peer: another layout, or another meaning, is another version. */
static_assert(RG_HOST_VERSION == 5 && sizeof(struct rg_account) == 320, "a layout has a version");

/* Tells the account of a place that the caller has the lock of; NULL: there is none any more. A
 * negative errno if it cannot be written. */
int rg_account_tell(const struct rg_host_region *region, uint32_t place,
                    const struct rg_account *account);
/* Calls `found` for each account whose teller lives. 0, or a negative errno. */
int rg_accounts_read(const struct rg_host_region *region,
                     void (*found)(void *context, const struct rg_account *account), void *context);

#endif
