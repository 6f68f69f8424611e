/* rg_client_buckets: what each loop of a client knows of its buckets, put together. */
#include "gcs/request/client.h"
#include "gcs/request/traffic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One loop after the other is asked, on its thread. */
struct asking {
    const struct rg_client_loop *client_loop;
    uint32_t count;
    struct rg_traffic_bucket_stats found[RG_TRAFFIC_BUCKETS_MAX];
};

static void loop_ask(void *context)
{
    struct asking *asking = context;
    asking->count = rg_traffic_buckets(asking->client_loop->traffic, asking->found);
}

/* A loop that is held back has a rate of its own. One that is not has none, and adds nothing. */
static void side_add(struct rg_bucket_side *sum, const struct rg_bucket_side *one)
{
    sum->limit += one->limit;
    sum->in_flight += one->in_flight;
    sum->waiting += one->waiting;
    sum->backoffs += one->backoffs;
    sum->rate_per_s += one->rate_per_s;
}

/* What the client was told to keep to is all loops' together. */
static void side_bound(struct rg_bucket_side *sum, double ceiling)
{
    if (ceiling > 0 && (sum->rate_per_s == 0 || sum->rate_per_s > ceiling)) {
        sum->rate_per_s = ceiling;
    }
}

/* Sums over loops. They are given to the caller, whose records may be of another size, at the end.
 */
struct table {
    struct rg_traffic_bucket_stats *sums;
    uint32_t count, max;
};

static void table_add(struct table *table, const struct rg_traffic_bucket_stats *one)
{
    uint32_t i = 0;
    while (i < table->count && strcmp(table->sums[i].stats.name, one->stats.name) != 0) {
        i++;
    }
    if (i == table->count) {
        if (i < table->max) {
            table->sums[table->count++] = *one;
        }
        return;
    }
    struct rg_bucket_stats *sum = &table->sums[i].stats;
    side_add(&sum->reads, &one->stats.reads);
    side_add(&sum->writes, &one->stats.writes);
    sum->processes = RG_MAX(sum->processes, one->stats.processes);
}

static void table_give(struct table *table, void *out, size_t struct_size)
{
    char *place = out;
    for (uint32_t i = 0; i < table->count; i++, place += struct_size) {
        struct rg_traffic_bucket_stats *sum = &table->sums[i];
        side_bound(&sum->stats.reads, sum->reads_ceiling);
        side_bound(&sum->stats.writes, sum->writes_ceiling);
        memset(place, 0, struct_size);
        memcpy(place, &sum->stats, RG_MIN(struct_size, sizeof(sum->stats)));
    }
}

int rg_client_buckets_sized(struct rg_client *client, struct rg_bucket_stats *out, uint32_t out_max,
                            size_t struct_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    struct table table = {
        .max = RG_MIN(out_max, client->loop_count * RG_TRAFFIC_BUCKETS_MAX),
    };
    table.sums = calloc(RG_MAX(table.max, 1u), sizeof(*table.sums));
    if (table.sums == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < client->loop_count; i++) {
        struct asking asking = {.client_loop = &client->loops[i]};
        rg_loop_call(client->loops[i].loop, loop_ask, &asking);
        for (uint32_t n = 0; n < asking.count; n++) {
            table_add(&table, &asking.found[n]);
        }
    }
    table_give(&table, out, struct_size);
    free(table.sums);
    return (int)table.count;
}
