/* Drawing latencies and admitting requests; see latency.h. */
#include "emulator/faults/latency.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The 99th percentile of the standard normal distribution. */
#define NORMAL_P99 2.3263478740408408

/* Reads a number of milliseconds and leaves *text behind it; negative when there is none. */
static double parse_ms(const char **text)
{
    char *end;
    if (**text < '0' || **text > '9') {
        return -1;
    }
    double value = strtod(*text, &end);
    *text = end;
    return value <= RG_LATENCY_MS_MAX ? value : -1;
}

int rg_latency_parse(const char *text, struct rg_latency_model *out_latency)
{
    double p50 = parse_ms(&text);
    double p99 = p50;
    if (p50 >= 0 && *text == ':') {
        text++;
        p99 = parse_ms(&text);
    }
    if (p50 < 0 || p99 < p50 || *text != '\0' || (p50 == 0 && p99 > 0)) {
        return -EINVAL;
    }
    out_latency->median_ns = p50 * (double)RG_NS_PER_MS;
    out_latency->sigma = p50 > 0 ? log(p99 / p50) / NORMAL_P99 : 0;
    return 0;
}

/* Uniform in (0, 1], by SplitMix64. */
static double random_unit(uint64_t *random)
{
    uint64_t x = *random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)((x >> 11) + 1) * 0x1p-53;
}

uint64_t rg_latency_draw(const struct rg_latency_model *latency, uint64_t *random)
{
    if (latency->median_ns <= 0) {
        return 0;
    }
    if (latency->sigma <= 0) {
        return (uint64_t)latency->median_ns;
    }
    /* Box and Muller's method. The second of its two normal numbers is not kept. */
    double radius = sqrt(-2 * log(random_unit(random)));
    double z = radius * cos(2 * M_PI * random_unit(random));
    double ns = latency->median_ns * exp(latency->sigma * z);
    return (uint64_t)fmin(ns, (double)RG_LATENCY_NS_MAX);
}

void rg_rate_limit_init(struct rg_rate_limit *limit, double requests_per_second)
{
    RG_ASSERT(requests_per_second > 0);
    double interval = (double)RG_NS_PER_S / requests_per_second;
    limit->interval_ns = (uint64_t)fmax(interval, 1);
    limit->burst_ns = (uint64_t)fmax((double)RG_NS_PER_S / 10 - interval, 0);
    atomic_store(&limit->due_ns, 0);
}

bool rg_rate_limit_take(struct rg_rate_limit *limit, uint64_t now_ns)
{
    if (limit->interval_ns == 0) {
        return true;
    }
    uint64_t due = atomic_load_explicit(&limit->due_ns, memory_order_relaxed), next;
    do {
        if (due > now_ns + limit->burst_ns) {
            return false;
        }
        next = RG_MAX(due, now_ns) + limit->interval_ns;
    } while (!atomic_compare_exchange_weak(&limit->due_ns, &due, next));
    return true;
}
