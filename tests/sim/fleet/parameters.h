/* All that the simulated service and the simulated job are assumed to be, each with where it is
 * from. Sources:
 *
 *   [rate]   Google's guide to request rates, cloud.google.com/storage/docs/request-rate
 *   [sla]    Cloud Storage's service level agreement, cloud.google.com/storage/sla
 *   [disks]  what Google says of machines' networks,
 *            cloud.google.com/compute/docs/network-bandwidth
 *   assumed  nobody publishes it; the reason is given
 */
#ifndef RG_TESTS_SIM_FLEET_PARAMETERS_H
#define RG_TESTS_SIM_FLEET_PARAMETERS_H

#include "runtime/base.h"

/* [rate] "approximately 5000 object read requests per second" before a bucket has grown. */
#define FLEET_COLD_PER_S 5000.0
/* [rate] An example with a prefix of one hexadecimal digit reaches 80,000 reads a second: 16 ranges
 * of names with 5,000 each. Names are drawn evenly. */
#define FLEET_PREFIX_COUNT 16
#define FLEET_FULL_PER_S 80000.0
/* [rate] Load is redistributed "on the order of minutes". Assumed: a range of names doubles after
 * two minutes in which each second asked for more than half of what it can do. The advice to double
 * in 20 minutes is what is safe, not what was seen. */
#define FLEET_GROWTH_NS (120 * RG_NS_PER_S)
#define FLEET_GROWTH_SHARE 0.5
/* Assumed: requests above the rate are first delayed, and refused when they would wait for longer.
 * [rate] says that both happen: "higher latency and error rates". */
#define FLEET_QUEUE_NS (50 * RG_NS_PER_MS)
/* Assumed: a refusal costs the service nothing and takes half of what an answer does. */
#define FLEET_REFUSAL_NS (15 * RG_NS_PER_MS)

/* Assumed: time to the first byte inside a region is log-normal, with a median of 30 ms and a p99
 * of 300 ms ("tens" and "hundreds" of ms are what practitioners report). */
#define FLEET_LATENCY_P50_NS (30 * RG_NS_PER_MS)
#define FLEET_LATENCY_P99_NS (300 * RG_NS_PER_MS)
/* Assumed: of a million requests 20 are never answered. */
#define FLEET_LOST_PER_MILLION 20
/* Assumed: 100 MB/s for a connection; reports range from 50 to 200. */
#define FLEET_CONNECTION_BYTES_PER_S 100e6
/* [disks] 200 Gbit/s of a host for everything but GPU traffic (A3 High and Mega). */
#define FLEET_HOST_BYTES_PER_S 25e9

/* The name of the service has up to 16 addresses. Assumed: one of them fails each 150 s on average,
 * for 5 s, so that about 1 in 500 requests meets it; [sla] allows 1 in 1,000 errors in a region.
 * Half of the failures are 503, half are silence. */
#define FLEET_FRONT_END_COUNT 16
#define FLEET_FRONT_END_FAILS_NS (150 * RG_NS_PER_S)
#define FLEET_FRONT_END_DOWN_NS (5 * RG_NS_PER_S)

/* Assumed of the job: samples of 128 KiB, batches of 64 of them, and a reader that wants 32 at
 * once. A rank is a process with one event loop, whose connections are a quarter of the client's
 * 256. All processes begin within two seconds. */
#define FLEET_RANKS_PER_HOST 8
#define FLEET_SAMPLE_BYTES (128 * 1024)
#define FLEET_BATCH 64
#define FLEET_WINDOW 32
#define FLEET_CONNECTIONS 64
#define FLEET_START_NS (2 * RG_NS_PER_S)

/* What the oracle asks for of its part. From 0.92 to 0.98 it wastes about as much. */
#define FLEET_ORACLE_SHARE 0.95
/* Ranges are busy a little later than the first process begins. */
#define FLEET_ORACLE_PROBE_NS (FLEET_GROWTH_NS + 4 * RG_NS_PER_S)
/* A probe that is refused is made again after that. */
#define FLEET_ORACLE_AGAIN_NS (4 * RG_NS_PER_S)
/* A probe is over after so many requests. */
#define FLEET_ORACLE_PROBE_GAPS 4

#endif
