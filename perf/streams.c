/* What a dataset costs when its samples come through a queue of the caller's, beside
 * rg_reader_next: CPU time of the process for each sample. streams.py starts the server that this
 * is run against.
 *
 * One process reads the same objects again and again, both ways in turns, so that what else happens
 * on the machine meets both. rg_reader_next has one thread; of a queue any number take. */
#include <inttypes.h>
#include <pthread.h>
#include <ringest/ringest.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define BATCH_MAX 256
#define THREADS_MAX 16
#define QUEUE_CAPACITY 1024
#define NAME_SIZE 32

struct settings {
    const char *endpoint, *ca, *bucket, *prefix;
    uint64_t count, size;
    uint32_t threads, batch, rounds, connections;
};

struct cost {
    double cpu_us, switches, wall_us; /* of each sample */
};

static struct settings settings;
static struct rg_runtime *runtime;
static struct rg_client *client;
static struct rg_object *objects;
static struct rg_cq *cq;
static _Atomic uint64_t taken;
static _Atomic bool is_over;

static void die(const char *what, int error)
{
    fprintf(stderr, "streams: %s: %s\n", what, strerror(-error));
    exit(1);
}

static void sample_take(const struct rg_completion *done)
{
    if (done->status != RG_STATUS_OK || done->size != settings.size) {
        fprintf(stderr, "streams: %s\n", rg_status_text(done->status));
        exit(1);
    }
    rg_lease_release(done->lease);
    taken++;
}

static struct rg_reader *reader_open(uint64_t epoch)
{
    struct rg_reader_options options;
    struct rg_reader *reader;
    char error[256] = "";
    rg_reader_options_init(&options);
    options.bucket = settings.bucket;
    options.objects = objects;
    options.object_count = settings.count;
    options.shuffle = true;
    options.epoch = epoch;
    if (rg_reader_open(&reader, client, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "streams: %s\n", error);
        exit(1);
    }
    return reader;
}

static void epoch_by_calls(uint64_t epoch)
{
    static struct rg_sample samples[BATCH_MAX];
    struct rg_reader *reader = reader_open(epoch);
    int count;
    while ((count = rg_reader_next(reader, samples, settings.batch, settings.batch, RG_FOREVER)) >
           0) {
        for (int i = 0; i < count; i++) {
            sample_take(&samples[i].completion);
        }
    }
    if (count < 0) {
        die("rg_reader_next", count);
    }
    rg_reader_close(reader);
}

static void *queue_drain(void *nothing)
{
    struct rg_completion done[BATCH_MAX];
    while (!is_over) {
        int count = rg_cq_wait(cq, done, settings.batch, settings.batch, RG_FOREVER);
        for (int i = 0; i < count; i++) {
            if (done[i].status == RG_STATUS_END) {
                is_over = true;
            } else {
                sample_take(&done[i]);
            }
        }
    }
    rg_cq_interrupt(cq); /* the next thread, which tells the next */
    return nothing;
}

static void epoch_by_queue(uint64_t epoch)
{
    pthread_t threads[THREADS_MAX];
    int rc = rg_cq_open(&cq, runtime, QUEUE_CAPACITY);
    if (rc < 0) {
        die("rg_cq_open", rc);
    }
    struct rg_reader *reader = reader_open(epoch);
    is_over = false;
    rc = rg_reader_start(reader, cq, 0);
    if (rc < 0) {
        die("rg_reader_start", rc);
    }
    for (uint32_t i = 1; i < settings.threads; i++) {
        rc = pthread_create(&threads[i], NULL, queue_drain, NULL);
        if (rc != 0) {
            die("pthread_create", -rc);
        }
    }
    (void)queue_drain(NULL);
    for (uint32_t i = 1; i < settings.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    rg_reader_close(reader);
    rg_cq_close(cq);
}

static double microseconds(struct timeval time)
{
    return (double)time.tv_sec * 1e6 + (double)time.tv_usec;
}

static struct cost measure(void (*run)(uint64_t epoch), uint64_t epoch)
{
    struct rusage before, after;
    double count = (double)settings.count;
    uint64_t began_ns = rg_now_ns();
    taken = 0;
    getrusage(RUSAGE_SELF, &before);
    run(epoch);
    getrusage(RUSAGE_SELF, &after);
    if (taken != settings.count) {
        fprintf(stderr, "streams: %" PRIu64 " samples of %" PRIu64 "\n", taken, settings.count);
        exit(1);
    }
    return (struct cost){
        .cpu_us = (microseconds(after.ru_utime) - microseconds(before.ru_utime) +
                   microseconds(after.ru_stime) - microseconds(before.ru_stime)) /
                  count,
        .switches = (double)(after.ru_nvcsw - before.ru_nvcsw) / count,
        .wall_us = (double)(rg_now_ns() - began_ns) / 1e3 / count,
    };
}

static void names_make(void)
{
    objects = calloc(settings.count, sizeof(*objects));
    char *names = calloc(settings.count, NAME_SIZE);
    if (objects == NULL || names == NULL) {
        die("names", -1);
    }
    for (uint64_t i = 0; i < settings.count; i++) {
        char *name = &names[i * NAME_SIZE];
        snprintf(name, NAME_SIZE, "%s%08" PRIu64, settings.prefix, i);
        objects[i].name = name;
        objects[i].size = settings.size;
    }
}

static void client_open(void)
{
    struct rg_runtime_options of_runtime;
    struct rg_client_options of_client;
    char error[512];
    rg_runtime_options_init(&of_runtime);
    of_runtime.threads = 1;
    int rc = rg_runtime_open(&runtime, &of_runtime);
    if (rc < 0) {
        die("opening a runtime", rc);
    }
    rg_client_options_init(&of_client);
    of_client.endpoint = settings.endpoint;
    of_client.ca_file = settings.ca;
    of_client.connections_max = settings.connections;
    rc = rg_client_open_explained(&client, runtime, &of_client, error, sizeof(error));
    if (rc < 0) {
        die(error, rc);
    }
}

static void cost_print(const char *name, const struct cost *cost, const char *end)
{
    printf("\"%s\":{\"cpu_us\":%.4f,\"switches\":%.4f,\"wall_us\":%.4f}%s", name, cost->cpu_us,
           cost->switches, cost->wall_us, end);
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        fprintf(stderr,
                "usage: %s ENDPOINT CA BUCKET PREFIX COUNT SIZE THREADS BATCH ROUNDS CONNECTIONS\n",
                argv[0]);
        return 2;
    }
    settings = (struct settings){argv[1],
                                 argv[2],
                                 argv[3],
                                 argv[4],
                                 strtoull(argv[5], NULL, 10),
                                 strtoull(argv[6], NULL, 10),
                                 (uint32_t)strtoul(argv[7], NULL, 10),
                                 (uint32_t)strtoul(argv[8], NULL, 10),
                                 (uint32_t)strtoul(argv[9], NULL, 10),
                                 (uint32_t)strtoul(argv[10], NULL, 10)};
    if (settings.threads > THREADS_MAX || settings.batch > BATCH_MAX) {
        fprintf(stderr, "streams: at most %d threads, %d samples\n", THREADS_MAX, BATCH_MAX);
        return 2;
    }
    names_make();
    client_open();
    /* Connections are opened and memory is touched for the first time. */
    epoch_by_calls(0);
    epoch_by_queue(0);
    for (uint64_t round = 1; round <= settings.rounds; round++) {
        struct cost by_calls, by_queue;
        if (round % 2 == 0) {
            by_calls = measure(epoch_by_calls, round);
            by_queue = measure(epoch_by_queue, round);
        } else {
            by_queue = measure(epoch_by_queue, round);
            by_calls = measure(epoch_by_calls, round);
        }
        printf("{");
        cost_print("calls", &by_calls, ",");
        cost_print("queue", &by_queue, "}\n");
        fflush(stdout);
    }
    rg_client_close(client);
    rg_runtime_close(runtime);
    return 0;
}
