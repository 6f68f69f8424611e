/* See rates.h. */
#include "gcs/request/rates.h"

#include <ringest/gcs.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct rg_rates_bucket {
    char name[RG_BUCKET_NAME_SIZE_MAX + 1];
    uint32_t user_count; /* loops that have joined it */
    uint64_t used;       /* rg_rates.uses when one joined it last; 0: free */
    bool has_reads, has_writes;
    struct rg_rate reads, writes;
};

struct rg_rates {
    pthread_mutex_t lock; /* of everything but the rates themselves */
    struct rg_rate_options reads, writes;
    uint64_t uses;
    struct rg_rates_bucket buckets[RG_RATES_BUCKETS_MAX];
};

static bool is_rate(const struct rg_rate_options *options)
{
    return options->ceiling > 0 || options->ramp > 0;
}

/* Who has joined a bucket finds it under a name, and no two have the same. */
static bool invariants(const struct rg_rates *rates)
{
    bool ok = true;
    for (unsigned i = 0; i < RG_RATES_BUCKETS_MAX; i++) {
        const struct rg_rates_bucket *one = &rates->buckets[i];
        ok &= one->used <= rates->uses && (one->user_count == 0 || one->used > 0);
        for (unsigned n = 0; n < i && one->used > 0; n++) {
            const struct rg_rates_bucket *other = &rates->buckets[n];
            ok &= other->used == 0 || strcmp(one->name, other->name) != 0;
        }
    }
    return ok;
}

int rg_rates_create(struct rg_rates **out_rates, const struct rg_rate_options *reads,
                    const struct rg_rate_options *writes)
{
    *out_rates = NULL;
    if (!is_rate(reads) && !is_rate(writes)) {
        return 0;
    }
    struct rg_rates *rates = calloc(1, sizeof(*rates));
    if (rates == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&rates->lock, NULL);
    rates->reads = *reads;
    rates->writes = *writes;
    *out_rates = rates;
    return 0;
}

void rg_rates_destroy(struct rg_rates *rates)
{
    if (rates != NULL) {
        pthread_mutex_destroy(&rates->lock);
        free(rates);
    }
}

static void bucket_open(struct rg_rates *rates, struct rg_rates_bucket *bucket, const char *name,
                        uint64_t now_ns)
{
    RG_ASSERT(strlen(name) < sizeof(bucket->name));
    strcpy(bucket->name, name);
    bucket->has_reads = is_rate(&rates->reads);
    bucket->has_writes = is_rate(&rates->writes);
    if (bucket->has_reads) {
        rg_rate_init(&bucket->reads, &rates->reads, now_ns);
    }
    if (bucket->has_writes) {
        rg_rate_init(&bucket->writes, &rates->writes, now_ns);
    }
}

/* The one of that name; else the one that was used the longest time ago, of those nobody is in;
 * else any. */
static struct rg_rates_bucket *bucket_find(struct rg_rates *rates, const char *name,
                                           uint64_t now_ns)
{
    struct rg_rates_bucket *oldest = NULL;
    for (unsigned i = 0; i < RG_RATES_BUCKETS_MAX; i++) {
        struct rg_rates_bucket *bucket = &rates->buckets[i];
        if (bucket->used != 0 && strcmp(bucket->name, name) == 0) {
            return bucket;
        }
        if (bucket->user_count == 0 && (oldest == NULL || bucket->used < oldest->used)) {
            oldest = bucket;
        }
    }
    if (oldest == NULL) {
        return &rates->buckets[0];
    }
    bucket_open(rates, oldest, name, now_ns);
    return oldest;
}

struct rg_rates_bucket *rg_rates_join(struct rg_rates *rates, const char *name, uint64_t now_ns)
{
    pthread_mutex_lock(&rates->lock);
    struct rg_rates_bucket *bucket = bucket_find(rates, name, now_ns);
    bucket->used = ++rates->uses;
    bucket->user_count++;
    RG_VERIFY(invariants(rates));
    pthread_mutex_unlock(&rates->lock);
    return bucket;
}

void rg_rates_leave(struct rg_rates *rates, struct rg_rates_bucket *bucket)
{
    pthread_mutex_lock(&rates->lock);
    RG_ASSERT(bucket->user_count > 0);
    bucket->user_count--;
    pthread_mutex_unlock(&rates->lock);
}

struct rg_rate *rg_rates_reads(struct rg_rates_bucket *bucket)
{
    return bucket->has_reads ? &bucket->reads : NULL;
}

struct rg_rate *rg_rates_writes(struct rg_rates_bucket *bucket)
{
    return bucket->has_writes ? &bucket->writes : NULL;
}
