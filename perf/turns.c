/* A load that runs when it is told to, so that several can take turns: turns.py starts one for each
 * variant. Each line of the standard input is a time in ms. For that long so many requests are kept
 * in flight, and those that are out are waited for. The answer is a line of numbers: requests, ns
 * of time and of CPU time, passes of the loop, switches to another thread. */
#include <errno.h>
#include <inttypes.h>
#include <ringest/ringest.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NAME_SIZE 32

struct load {
    struct rg_client *client;
    struct rg_cq *cq;
    struct rg_runtime *runtime;
    const char *bucket, *object;
    bool writes;
    uint32_t depth;
    uint64_t size;
    char *data;
    char (*names)[NAME_SIZE];    /* of what is written, one for each in flight */
    struct rg_completion *taken; /* room for all in flight */
};

struct used {
    uint64_t wall_ns, cpu_ns, passes, switches;
};

static void die(const char *what, int error)
{
    fprintf(stderr, "turns: %s: %s\n", what, strerror(-error));
    exit(1);
}

static void *need(void *memory)
{
    if (memory == NULL) {
        die("memory", -ENOMEM);
    }
    return memory;
}

static struct used used_so_far(const struct load *load)
{
    struct timespec cpu;
    struct rusage usage;
    struct rg_stats stats;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    getrusage(RUSAGE_SELF, &usage);
    int rc = rg_runtime_stats(load->runtime, &stats);
    if (rc < 0) {
        die("statistics", rc);
    }
    return (struct used){
        .wall_ns = rg_now_ns(),
        .cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec,
        .passes = stats.wakeups,
        .switches = (uint64_t)(usage.ru_nvcsw + usage.ru_nivcsw),
    };
}

static void submit(const struct load *load, uint64_t slot)
{
    int rc;
    if (load->writes) {
        struct rg_put put = {.bucket = load->bucket,
                             .object = load->names[slot],
                             .data = load->data,
                             .size = load->size,
                             .user_data = slot};
        rc = rg_submit_put(load->client, load->cq, &put);
    } else {
        struct rg_get get = {.bucket = load->bucket, .object = load->object, .user_data = slot};
        rc = rg_submit_get(load->client, load->cq, &get);
    }
    if (rc < 0) {
        die("submitting", rc);
    }
}

/* How many requests were made. */
static uint64_t run(const struct load *load, uint64_t ms)
{
    uint64_t requests = 0, end_ns = rg_now_ns() + ms * 1000000;
    uint32_t out = load->depth;
    for (uint32_t slot = 0; slot < out; slot++) {
        submit(load, slot);
    }
    while (out > 0) {
        int count = rg_cq_wait(load->cq, load->taken, load->depth, 1, RG_FOREVER);
        bool ends = rg_now_ns() >= end_ns;
        for (int i = 0; i < count; i++) {
            if (load->taken[i].status != RG_STATUS_OK) {
                fprintf(stderr, "turns: %s\n", rg_status_text(load->taken[i].status));
                exit(1);
            }
            rg_lease_release(load->taken[i].lease);
            requests++;
            out--;
            if (!ends) {
                submit(load, load->taken[i].user_data);
                out++;
            }
        }
    }
    return requests;
}

static void load_open(struct load *load, const char *endpoint, const char *ca)
{
    struct rg_runtime_options of_runtime;
    rg_runtime_options_init(&of_runtime);
    of_runtime.threads = 1;
    int rc = rg_runtime_open(&load->runtime, &of_runtime);
    if (rc < 0) {
        die("opening a runtime", rc);
    }
    struct rg_client_options options;
    char error[512];
    rg_client_options_init(&options);
    options.endpoint = endpoint;
    options.ca_file = *ca != '\0' ? ca : NULL;
    options.connections_max = load->depth;
    options.requests_max = load->depth;
    options.prewarm = load->depth;
    options.hedging = RG_SWITCH_OFF;
    rc = rg_client_open_explained(&load->client, load->runtime, &options, error, sizeof(error));
    if (rc < 0) {
        die(error, rc);
    }
    rc = rg_cq_open(&load->cq, load->runtime, load->depth);
    if (rc < 0) {
        die("opening a completion queue", rc);
    }
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: %s ENDPOINT CA get|put BUCKET OBJECT SIZE DEPTH\n", argv[0]);
        return 2;
    }
    struct load load = {.bucket = argv[4],
                        .object = argv[5],
                        .writes = strcmp(argv[3], "put") == 0,
                        .size = strtoull(argv[6], NULL, 10),
                        .depth = (uint32_t)strtoul(argv[7], NULL, 10)};
    load.data = need(calloc(1, load.size + 1));
    load.names = need(calloc(load.depth, sizeof(*load.names)));
    load.taken = need(calloc(load.depth, sizeof(*load.taken)));
    for (uint32_t slot = 0; slot < load.depth; slot++) {
        snprintf(load.names[slot], NAME_SIZE, "%d-%" PRIu32, (int)getpid(), slot);
    }
    load_open(&load, argv[1], argv[2]);
    char line[32];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct used before = used_so_far(&load);
        uint64_t requests = run(&load, strtoull(line, NULL, 10));
        struct used after = used_so_far(&load);
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", requests,
               after.wall_ns - before.wall_ns, after.cpu_ns - before.cpu_ns,
               after.passes - before.passes, after.switches - before.switches);
        fflush(stdout);
    }
    rg_client_close(load.client);
    rg_cq_close(load.cq);
    rg_runtime_close(load.runtime);
    free(load.data);
    free(load.names);
    free(load.taken);
    return 0;
}
