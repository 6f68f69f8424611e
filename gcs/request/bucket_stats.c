/* rg_client_buckets: what each loop of a client knows of its buckets, put together. */
#include "gcs/request/client.h"
#include "gcs/request/traffic.h"

#include <errno.h>
#include <string.h>

/* One loop after the other is asked, on its thread. */
struct asking {
    const struct rg_client_loop *client_loop;
    uint32_t count;
    struct rg_bucket_stats found[RG_TRAFFIC_BUCKETS_MAX];
};

static void loop_ask(void *context)
{
    struct asking *asking = context;
    asking->count = rg_traffic_buckets(asking->client_loop->traffic, asking->found);
}

/* `limit_max`: what a loop without a limit may have out, beside one that has. `loops`: that are in
 * `sum` already. A rate that is the client's is every loop's, and the lowest counts. */
static void side_add(struct rg_bucket_side *sum, const struct rg_bucket_side *one,
                     uint32_t limit_max, uint32_t loops)
{
    if (sum->limit != 0 || one->limit != 0) {
        sum->limit = (sum->limit != 0 ? sum->limit : loops * limit_max) +
                     (one->limit != 0 ? one->limit : limit_max);
    }
    sum->in_flight += one->in_flight;
    sum->waiting += one->waiting;
    sum->backoffs += one->backoffs;
    if (sum->rate_per_s == 0 || (one->rate_per_s != 0 && one->rate_per_s < sum->rate_per_s)) {
        sum->rate_per_s = one->rate_per_s;
    }
}

/* The table of the caller's, whose records may be of another size, and the loops in each. */
struct table {
    char *out;
    size_t struct_size;
    uint32_t count, max, limit_max;
};

static void table_add(struct table *table, const struct rg_bucket_stats *one, uint32_t loops)
{
    struct rg_bucket_stats sum = {0};
    size_t size = RG_MIN(table->struct_size, sizeof(sum));
    char *place = table->out;
    uint32_t i = 0;
    for (; i < table->count; i++, place += table->struct_size) {
        memcpy(&sum, place, size);
        if (strcmp(sum.name, one->name) == 0) {
            break;
        }
    }
    if (i == table->max) {
        return;
    }
    if (i == table->count) {
        memset(place, 0, table->struct_size);
        table->count++;
        sum = *one;
    } else {
        side_add(&sum.reads, &one->reads, table->limit_max, loops);
        side_add(&sum.writes, &one->writes, table->limit_max, loops);
        sum.processes = RG_MAX(sum.processes, one->processes);
    }
    memcpy(place, &sum, size);
}

int rg_client_buckets_sized(struct rg_client *client, struct rg_bucket_stats *out, uint32_t out_max,
                            size_t struct_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    struct table table = {
        .out = (char *)out,
        .struct_size = struct_size,
        .max = out_max,
        .limit_max =
            (client->options.connections_max + client->loop_count - 1) / client->loop_count,
    };
    for (uint32_t i = 0; i < client->loop_count; i++) {
        struct asking asking = {.client_loop = &client->loops[i]};
        rg_loop_call(client->loops[i].loop, loop_ask, &asking);
        for (uint32_t n = 0; n < asking.count; n++) {
            table_add(&table, &asking.found[n], i);
        }
    }
    return (int)table.count;
}
