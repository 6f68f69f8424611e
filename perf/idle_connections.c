/* What idle connections cost: memory of each, and what a load on others in the same event loop
 * notices of them. idle_connections.py starts the server that this is run against.
 *
 * The load runs three times: alone, beside the idle connections of a second client, and alone
 * again. */
#include <inttypes.h>
#include <ringest/ringest.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LOAD_CONNECTIONS 64
#define OPEN_TIME_NS (300 * UINT64_C(1000000000))
#define HOUR_NS (3600 * UINT64_C(1000000000))

struct settings {
    const char *endpoint, *ca, *bucket, *object;
    uint32_t idle_count;
    double seconds;
};

struct load {
    double requests_per_s, cpu_us;
};

static void die(const char *what, int error)
{
    fprintf(stderr, "idle_connections: %s: %s\n", what, strerror(-error));
    exit(1);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static double rss_kib(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &size, &resident) != 2) {
        die("/proc/self/statm", -1);
    }
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static uint64_t open_connections(const struct rg_runtime *runtime)
{
    struct rg_stats stats;
    int rc = rg_runtime_stats(runtime, &stats);
    if (rc < 0) {
        die("statistics", rc);
    }
    return stats.connections;
}

static struct rg_client *open_client(struct rg_runtime *runtime, const struct settings *settings,
                                     uint32_t connections)
{
    struct rg_client_options options;
    struct rg_client *client;
    char error[512];
    rg_client_options_init(&options);
    options.endpoint = settings->endpoint;
    options.ca_file = settings->ca;
    options.connections_max = connections;
    options.prewarm = connections;
    options.connect_timeout_ns = OPEN_TIME_NS;
    options.idle_timeout_ns = HOUR_NS;
    int rc = rg_client_open_explained(&client, runtime, &options, error, sizeof(error));
    if (rc < 0) {
        die(error, rc);
    }
    return client;
}

/* Returns when `count` connections are open in all, and what came with opening them has settled. */
static void wait_open(const struct rg_runtime *runtime, uint64_t count)
{
    struct timespec pause = {.tv_nsec = 10000000}, settle = {.tv_sec = 1};
    uint64_t deadline_ns = rg_now_ns() + OPEN_TIME_NS;
    while (open_connections(runtime) < count) {
        if (rg_now_ns() > deadline_ns) {
            fprintf(stderr,
                    "idle_connections: only %" PRIu64 " of %" PRIu64 " connections opened\n",
                    open_connections(runtime), count);
            exit(1);
        }
        nanosleep(&pause, NULL);
    }
    nanosleep(&settle, NULL);
}

static struct load run_load(struct rg_client *client, struct rg_cq *cq,
                            const struct settings *settings)
{
    struct rg_get get = {.bucket = settings->bucket, .object = settings->object};
    struct rg_completion done[LOAD_CONNECTIONS];
    uint64_t requests = 0, out = 0, start_ns = rg_now_ns();
    uint64_t end_ns = start_ns + (uint64_t)(settings->seconds * 1e9);
    double cpu = cpu_seconds();
    do {
        while (out < LOAD_CONNECTIONS && rg_now_ns() < end_ns) {
            int rc = rg_submit_get(client, cq, &get);
            if (rc < 0) {
                die("submitting", rc);
            }
            out++;
        }
        int count = rg_cq_wait(cq, done, LOAD_CONNECTIONS, 1, RG_FOREVER);
        for (int i = 0; i < count; i++) {
            if (done[i].status != RG_STATUS_OK) {
                fprintf(stderr, "idle_connections: %s\n", rg_status_text(done[i].status));
                exit(1);
            }
            rg_lease_release(done[i].lease);
            requests++;
            out--;
        }
    } while (out > 0);
    return (struct load){
        .requests_per_s = (double)requests * 1e9 / (double)(rg_now_ns() - start_ns),
        .cpu_us = (cpu_seconds() - cpu) * 1e6 / (double)requests,
    };
}

static void print_load(const char *name, const struct load *load)
{
    printf("\"%s\":{\"cpu_us_per_request\":%.3f,\"requests_per_s\":%.1f},", name, load->cpu_us,
           load->requests_per_s);
}

static void measure(struct rg_runtime *runtime, const struct settings *settings)
{
    struct rg_cq *cq;
    int rc = rg_cq_open(&cq, runtime, LOAD_CONNECTIONS);
    if (rc < 0) {
        die("opening a completion queue", rc);
    }
    struct rg_client *busy = open_client(runtime, settings, LOAD_CONNECTIONS);
    wait_open(runtime, LOAD_CONNECTIONS);
    struct load before = run_load(busy, cq, settings);

    double rss_before = rss_kib();
    uint64_t start_ns = rg_now_ns();
    struct rg_client *idle = open_client(runtime, settings, settings->idle_count);
    wait_open(runtime, LOAD_CONNECTIONS + settings->idle_count);
    double opening_s = (double)(rg_now_ns() - start_ns) / 1e9;
    double rss_after = rss_kib();
    struct load beside = run_load(busy, cq, settings);
    uint64_t left = open_connections(runtime) - LOAD_CONNECTIONS;
    rg_client_close(idle);
    struct load after = run_load(busy, cq, settings);
    rg_client_close(busy);
    rg_cq_close(cq);

    const char *reason;
    bool uring = rg_runtime_backend(runtime, &reason) == RG_BACKEND_URING;
    printf("{\"backend\":\"%s\",\"idle\":%" PRIu32 ",\"open_at_end\":%" PRIu64
           ",\"opening_s\":%.2f,\"kib_per_connection\":%.2f,",
           uring ? "uring" : "epoll", settings->idle_count, left, opening_s,
           (rss_after - rss_before) / settings->idle_count);
    print_load("before", &before);
    print_load("beside", &beside);
    print_load("after", &after);
    printf("\"slowdown\":%.4f}\n", beside.cpu_us / ((before.cpu_us + after.cpu_us) / 2));
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: %s ENDPOINT CA BUCKET OBJECT IDLE SECONDS\n", argv[0]);
        return 2;
    }
    struct settings settings = {.endpoint = argv[1],
                                .ca = argv[2],
                                .bucket = argv[3],
                                .object = argv[4],
                                .idle_count = (uint32_t)strtoul(argv[5], NULL, 10),
                                .seconds = strtod(argv[6], NULL)};
    struct rg_runtime_options options;
    struct rg_runtime *runtime;
    rg_runtime_options_init(&options);
    options.threads = 1;
    int rc = rg_runtime_open(&runtime, &options);
    if (rc < 0) {
        die("opening a runtime", rc);
    }
    measure(runtime, &settings);
    rg_runtime_close(runtime);
    return 0;
}
