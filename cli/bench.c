/* `ringest bench`: drives one kind of request as fast as it goes and reports rates, latencies and
 * the CPU time that each request cost this process.
 *
 * The clock starts when the connections are open and a few requests of each have been made, so that
 * handshakes and the first touch of memory are not part of it. Twice as many
 * requests are submitted as may be in flight: the loop then always has one at hand when a
 * connection becomes free. Latencies are from the moment a request gets a connection to its
 * completion. */
#include "cli/bench_objects.h"
#include "cli/bench_python.h"
#include "cli/cli.h"
#include "cli/hash_text.h"
#include "cli/progress.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define CONCURRENCY 64
#define CONCURRENCY_MAX 16384
#define LIST_CONCURRENCY 16
#define LIST_CONCURRENCY_MAX 1024
#define COUNT_MAX UINT64_C(1000000000)
/* Latencies kept for the quantiles, in units of 100 ns; beyond these the run goes on unsampled. */
#define SAMPLES_MAX (4u << 20)
#define SAMPLE_UNIT_NS 100
#define PREWARM_TIME_NS (10 * RG_NS_PER_S)
#define BATCH_MAX 256
/* Completions are taken when this many bytes have come, so that they are still in the cache. */
#define BATCH_BYTES RG_KIB(512)
/* Requests before the clock starts, in units of the concurrency: they touch the memory that the
 * bodies will lie in, whose first touch is expensive on virtual machines. */
#define WARM_UP_ROUNDS 4
#define ERRORS_SHOWN 3
/* After an interruption: how long answers are waited for. */
#define INTERRUPT_PATIENCE_NS (2 * RG_NS_PER_S)

enum bench_op { BENCH_GET, BENCH_PUT, BENCH_LIST };
static const char *const op_names[] = {"get", "put", "list"};

struct manifest_entry {
    char *name;
    uint64_t size;
    int64_t generation;
    uint32_t crc32c;
    bool has_crc32c;
};

struct bench {
    enum bench_op op;
    struct cli_uri uri;
    struct cli_connection connection;
    struct cli_session session;
    uint64_t concurrency, count, object_size;
    double seconds; /* 0: by count */
    bool verify, json, keep, warming_up;
    bool is_cached; /* the client has a cache, which answers what names a generation */
    struct manifest_entry *manifest;
    size_t manifest_count, manifest_capacity;
    uint8_t *payload;
    struct bench_objects objects; /* that put writes */
    struct rg_listing *listing;   /* NULL: none has begun */
    bool listed_all;
    /* Results. */
    uint64_t submitted, finished, errors, retries, hedges, bytes, names;
    uint32_t *samples;
    size_t sample_count;
    uint64_t started_ns, finished_ns, connections;
    struct progress progress;
    uint64_t give_up_ns; /* waiting for answers after an interruption; 0: there was none */
    bool gave_up;        /* what is not answered is cancelled */
    double cpu_seconds;
};

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int manifest_add(struct bench *bench, const struct rg_object *object)
{
    if (bench->manifest_count == bench->manifest_capacity) {
        size_t capacity = RG_MAX(2 * bench->manifest_capacity, (size_t)1024);
        struct manifest_entry *grown =
            realloc(bench->manifest, capacity * sizeof(*bench->manifest));
        if (grown == NULL) {
            return cli_fail("no memory for %zu names", capacity);
        }
        bench->manifest = grown;
        bench->manifest_capacity = capacity;
    }
    bench->manifest[bench->manifest_count++] = (struct manifest_entry){
        .name = strdup(object->name),
        .size = object->size,
        .generation = object->generation,
        .crc32c = object->crc32c,
        .has_crc32c = object->has_crc32c,
    };
    return CLI_DONE;
}

static int manifest_page(struct bench *bench, char **token)
{
    struct rg_list_request request = {
        .bucket = bench->uri.bucket,
        .prefix = bench->uri.name,
        .page_token = *token,
    };
    int rc = rg_submit_list(bench->session.client, bench->session.cq, &request);
    free(*token);
    *token = NULL;
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", bench->uri.bucket, bench->uri.name, strerror(-rc));
    }
    struct rg_completion completion;
    if (!cli_wait_one(&bench->session, &completion)) {
        return cli_fail("interrupted");
    }
    int status = CLI_DONE;
    if (completion.status != RG_STATUS_OK) {
        status = cli_fail("%s", cli_completion_text(&completion));
    } else {
        const struct rg_list_page *page = completion.data;
        for (size_t i = 0; i < page->object_count && status == CLI_DONE; i++) {
            status = manifest_add(bench, &page->objects[i]);
        }
        *token = page->next_page_token != NULL ? strdup(page->next_page_token) : NULL;
    }
    rg_lease_release(completion.lease);
    return status;
}

/* What there is to get. */
static int manifest_load(struct bench *bench)
{
    char *token = NULL;
    int status;
    struct progress progress;
    progress_open(&progress, "objects listed", bench->json);
    do {
        status = manifest_page(bench, &token);
        progress_draw(&progress, &(struct progress_state){.done = bench->manifest_count});
    } while (status == CLI_DONE && token != NULL &&
             (bench->count == 0 || bench->manifest_count < bench->count));
    free(token);
    progress_close(&progress);
    if (status == CLI_DONE && bench->manifest_count == 0) {
        status = cli_fail("nothing in gs://%s begins with \"%s\"; put objects there, or start "
                          "`ringest emulate --synthetic %s/%s:COUNT:SIZE`",
                          bench->uri.bucket, bench->uri.name, bench->uri.bucket, bench->uri.name);
    }
    return status;
}

static int payload_make(struct bench *bench)
{
    bench->payload = malloc(RG_MAX(bench->object_size, (uint64_t)1));
    if (bench->payload == NULL) {
        return cli_fail("no memory for an object of %" PRIu64 " bytes", bench->object_size);
    }
    uint64_t state = 0x9e3779b97f4a7c15;
    for (uint64_t i = 0; i < bench->object_size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bench->payload[i] = (uint8_t)(state >> 56);
    }
    return CLI_DONE;
}

static int submit_gets(struct bench *bench, uint64_t room)
{
    struct rg_get gets[BATCH_MAX];
    size_t count = (size_t)RG_MIN(room, (uint64_t)BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        uint64_t index = (bench->submitted + i) % bench->manifest_count;
        gets[i] = (struct rg_get){
            .bucket = bench->uri.bucket,
            .object = bench->manifest[index].name,
            .generation = bench->is_cached ? bench->manifest[index].generation : 0,
            .user_data = index,
        };
    }
    return rg_submit_gets(bench->session.client, bench->session.cq, gets, count);
}

/* Only creates: see bench_objects.h. */
static int submit_put(struct bench *bench)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    int rc = bench_objects_add(&bench->objects, name);
    if (rc < 0) {
        return rc;
    }
    struct rg_put put = {
        .bucket = bench->uri.bucket,
        .object = name,
        .data = bench->payload,
        .size = bench->object_size,
        .if_generation_match = RG_GENERATION_ABSENT,
        .user_data = bench->objects.count - 1,
    };
    rc = rg_submit_put(bench->session.client, bench->session.cq, &put);
    if (rc < 0) {
        bench_objects_drop(&bench->objects);
    }
    return rc < 0 ? rc : 1;
}

/* One page; the first of a listing begins it. */
static int submit_list(struct bench *bench)
{
    int rc = 0;
    if (bench->listing == NULL) {
        struct rg_listing_options options = {
            .bucket = bench->uri.bucket,
            .prefix = bench->uri.name,
            .requests_max = (uint32_t)bench->concurrency,
        };
        rc = rg_listing_open(&bench->listing, bench->session.client, &options);
    }
    rc = rc == 0 ? rg_listing_next(bench->listing, bench->session.cq, 0) : rc;
    return rc < 0 ? rc : 1;
}

static uint64_t room_left(const struct bench *bench)
{
    uint64_t depth = bench->op == BENCH_LIST ? 1 : 2 * bench->concurrency;
    uint64_t out = bench->submitted - bench->finished;
    uint64_t room = bench->listed_all || cli_interrupted() ? 0 : depth - out;
    if (bench->seconds > 0) {
        return rg_now_ns() < bench->started_ns + (uint64_t)(bench->seconds * 1e9) ? room : 0;
    }
    return RG_MIN(room, bench->count - bench->submitted);
}

/* Submits as much as fits. */
static int submit_more(struct bench *bench)
{
    uint64_t room;
    while ((room = room_left(bench)) > 0) {
        int rc;
        switch (bench->op) {
        case BENCH_GET:
            rc = submit_gets(bench, room);
            break;
        case BENCH_PUT:
            rc = submit_put(bench);
            break;
        default:
            rc = submit_list(bench);
            break;
        }
        if (rc == -EAGAIN) {
            return CLI_DONE;
        }
        if (rc < 0) {
            return cli_fail("gs://%s/%s: the request was refused: %s", bench->uri.bucket,
                            bench->uri.name, strerror(-rc));
        }
        bench->submitted += (uint64_t)rc;
    }
    return CLI_DONE;
}

/* Where what was read is not what was listed, says what differs. False: nothing does. */
static bool get_differs(const struct bench *bench, const struct rg_completion *completion,
                        char *text, size_t text_size)
{
    const struct manifest_entry *entry = &bench->manifest[completion->user_data];
    int at = snprintf(text, text_size, "gs://%s/%s: ", bench->uri.bucket, entry->name);
    RG_ASSERT(at > 0 && (size_t)at < text_size);
    text += at;
    text_size -= (size_t)at;
    if (completion->generation != entry->generation) {
        snprintf(text, text_size,
                 "replaced since it was listed: generation %" PRId64 ", now %" PRId64,
                 entry->generation, completion->generation);
    } else if (completion->size != entry->size) {
        snprintf(text, text_size, "%" PRIu64 " bytes, listed with %" PRIu64, completion->size,
                 entry->size);
    } else if (!entry->has_crc32c) {
        snprintf(text, text_size, "the listing has no CRC32C to compare with");
    } else if (completion->crc32c != entry->crc32c) {
        snprintf(text, text_size, "CRC32C %s, listed with %s", CRC32C_TEXT(completion->crc32c),
                 CRC32C_TEXT(entry->crc32c));
    } else {
        return false;
    }
    return true;
}

static void error_show(struct bench *bench, const char *text)
{
    if (bench->errors++ < ERRORS_SHOWN && !bench->warming_up) {
        cli_fail("%s", text);
    }
}

static void list_take(struct bench *bench, const struct rg_list_page *page)
{
    bench->names += page->object_count;
    if (page->object_count > 0) {
        return;
    }
    /* The end is not a page. With --seconds it begins anew. */
    bench->finished--;
    bench->submitted--;
    bench->listed_all = bench->seconds == 0;
    rg_listing_close(bench->listing);
    bench->listing = NULL;
}

static void take(struct bench *bench, const struct rg_completion *completion)
{
    bench->finished++;
    if (bench->op == BENCH_PUT) {
        bench_objects_take(&bench->objects, completion->user_data, completion);
    }
    if (completion->status == RG_STATUS_CANCELLED && bench->gave_up) {
        /* Neither a result nor an error. */
        bench->finished--;
        bench->submitted--;
    } else if (completion->status != RG_STATUS_OK) {
        error_show(bench, cli_completion_text(completion));
        bench->listed_all = bench->op == BENCH_LIST;
    } else if (bench->op == BENCH_LIST) {
        list_take(bench, completion->data);
    } else {
        bench->bytes += completion->size;
        char text[1400];
        if (bench->verify && bench->op == BENCH_GET &&
            get_differs(bench, completion, text, sizeof(text))) {
            error_show(bench, text);
        }
    }
    if (bench->sample_count < SAMPLES_MAX && completion->started_ns != 0 && !bench->gave_up) {
        uint64_t spent = completion->finished_ns - completion->started_ns;
        bench->samples[bench->sample_count++] =
            (uint32_t)RG_MIN(spent / SAMPLE_UNIT_NS, (uint64_t)UINT32_MAX);
    }
    rg_lease_release(completion->lease);
}

/* How many completions to wait for: few enough to be in the cache, and no more than half of what
 * may be in flight, so that the other half keeps the loop busy meanwhile. */
static uint32_t batch_size(const struct bench *bench, uint64_t out)
{
    uint64_t size = bench->op == BENCH_PUT ? bench->object_size : 0;
    if (bench->op == BENCH_GET) {
        size = bench->manifest[bench->submitted % bench->manifest_count].size;
    }
    uint64_t batch = BATCH_BYTES / RG_MAX(size, (uint64_t)1);
    batch = RG_MIN(batch, RG_MIN(bench->concurrency / 2, (uint64_t)BATCH_MAX));
    return (uint32_t)RG_MIN(out, RG_MAX(batch, (uint64_t)1));
}

/* Nobody waits for these answers any longer. Each still gives a completion, so that none comes
 * later among those of the removal. */
static void unanswered_cancel(struct bench *bench)
{
    for (size_t i = 0; i < bench->objects.count; i++) {
        if (bench->objects.generations[i] == 0) {
            rg_cancel(bench->session.client, bench->session.cq, i);
        }
    }
    bench->gave_up = true;
}

/* Takes answers. After an interruption those of puts are waited for, but not for ever; what leaves
 * nothing behind is not waited for at all. False: that is it. */
static bool answers_wait(struct bench *bench, struct rg_completion *done)
{
    uint64_t out = bench->submitted - bench->finished, until_ns = RG_FOREVER;
    if (cli_interrupted() && bench->op != BENCH_PUT) {
        return false;
    }
    if (cli_interrupted() && !bench->gave_up) {
        bench->give_up_ns =
            bench->give_up_ns != 0 ? bench->give_up_ns : rg_now_ns() + INTERRUPT_PATIENCE_NS;
        until_ns = bench->give_up_ns;
    }
    int count = rg_cq_wait(bench->session.cq, done, BATCH_MAX, batch_size(bench, out), until_ns);
    for (int i = 0; i < count; i++) {
        take(bench, &done[i]);
    }
    if (until_ns != RG_FOREVER && rg_now_ns() >= until_ns) {
        unanswered_cancel(bench);
    }
    return true;
}

static void show_progress(struct bench *bench)
{
    struct progress_state state = {
        .done = bench->op == BENCH_LIST ? bench->names : bench->finished,
        .time_ns = (uint64_t)(bench->seconds * 1e9),
    };
    if (bench->seconds == 0 && bench->op != BENCH_LIST) {
        state.total = bench->count;
    }
    progress_draw(&bench->progress, &state);
}

static int measure(struct bench *bench, bool quiet)
{
    struct rg_completion done[BATCH_MAX];
    double cpu_before = cpu_seconds();
    int status = CLI_DONE;
    /* A completion counts a second request beside a slow first one as an attempt too. */
    struct rg_stats before = {0}, after = {0};
    rg_runtime_stats(bench->session.runtime, &before);
    progress_open(&bench->progress, bench->op == BENCH_LIST ? "names" : "requests", quiet);
    bench->started_ns = rg_now_ns();
    for (bool more = true; more;) {
        status = status == CLI_DONE ? submit_more(bench) : status;
        more = bench->submitted > bench->finished && answers_wait(bench, done);
        show_progress(bench);
    }
    progress_close(&bench->progress);
    bench->finished_ns = rg_now_ns();
    bench->cpu_seconds = cpu_seconds() - cpu_before;
    rg_runtime_stats(bench->session.runtime, &after);
    bench->retries = after.retries - before.retries;
    bench->hedges = after.hedges - before.hedges;
    return status;
}

/* A lease may be twice as large as its body. The first touch of memory is not what is measured. */
static void fault_in(struct bench *bench)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < bench->manifest_count; i++) {
        largest = RG_MAX(largest, bench->manifest[i].size);
    }
    largest = RG_MIN(largest, UINT64_MAX / (2 * CONCURRENCY_MAX));
    (void)rg_runtime_fault_in(bench->session.runtime, 2 * bench->concurrency * largest);
}

/* The same for a moment, without results. */
static int warm_up(struct bench *bench)
{
    uint64_t count = bench->count;
    double seconds = bench->seconds;
    bench->count = WARM_UP_ROUNDS * bench->concurrency;
    bench->seconds = 0;
    if (count > 0) {
        bench->count = RG_MIN(bench->count, count);
    }
    bench->warming_up = true;
    int status = measure(bench, true);
    bench->warming_up = false;
    bench->count = count;
    bench->seconds = seconds;
    bench->submitted = bench->finished = bench->errors = bench->bytes = 0;
    bench->sample_count = 0;
    return status;
}

/* Waits until the connections are open, so that handshakes are not measured. */
static void prewarm_wait(struct bench *bench)
{
    uint64_t deadline_ns = rg_now_ns() + PREWARM_TIME_NS;
    struct timespec pause = {.tv_nsec = 2 * (long)RG_NS_PER_MS};
    struct rg_stats stats = {0};
    while (rg_runtime_stats(bench->session.runtime, &stats) == 0 &&
           stats.connections < bench->concurrency && stats.connections_failed == 0 &&
           rg_now_ns() < deadline_ns && !cli_interrupted()) {
        nanosleep(&pause, NULL);
    }
}

static int compare_samples(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static double quantile_ms(const struct bench *bench, double quantile)
{
    if (bench->sample_count == 0) {
        return 0;
    }
    size_t index = (size_t)(quantile * (double)(bench->sample_count - 1) + 0.5);
    return (double)bench->samples[index] * SAMPLE_UNIT_NS / 1e6;
}

static double rss_max_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024 / 1e6;
}

/* What the bucket allows, where it asked for less. */
static void limit_line(struct bench *bench)
{
    struct rg_bucket_stats buckets[4];
    int count = rg_client_buckets(bench->session.client, buckets, RG_ARRAY_LEN(buckets));
    for (int i = 0; i < count; i++) {
        bool is_put = bench->op == BENCH_PUT;
        const struct rg_bucket_side *side = is_put ? &buckets[i].writes : &buckets[i].reads;
        if (side->backoffs > 0 && strcmp(buckets[i].name, bench->uri.bucket) == 0) {
            printf("  slowed down   %" PRIu64 " times by the bucket (429, 503 or latency)",
                   side->backoffs);
            if (side->limit > 0) {
                printf(", to %.1f %s/s at last", side->rate_per_s, is_put ? "writes" : "reads");
            }
            putchar('\n');
        }
    }
}

static void report(struct bench *bench)
{
    struct rg_stats stats = {0};
    rg_runtime_stats(bench->session.runtime, &stats);
    const char *reason;
    const char *backend =
        rg_runtime_backend(bench->session.runtime, &reason) == RG_BACKEND_URING ? "uring" : "epoll";
    double seconds = (double)(bench->finished_ns - bench->started_ns) / 1e9;
    double requests = (double)bench->finished;
    double gb_per_s = (double)bench->bytes / 1e9 / seconds;
    double cpu_us = requests > 0 ? bench->cpu_seconds * 1e6 / requests : 0;
    qsort(bench->samples, bench->sample_count, sizeof(*bench->samples), compare_samples);
    double p50 = quantile_ms(bench, 0.5), p99 = quantile_ms(bench, 0.99),
           p999 = quantile_ms(bench, 0.999);
    if (bench->json) {
        printf("{\"op\":\"%s\",\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"retries\":%" PRIu64
               ",\"hedges\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"seconds\":%.6f,\"requests_per_s\":%.1f,"
               "\"gb_per_s\":%.4f,\"cpu_us_per_request\":%.3f,\"p50_ms\":%.4f,\"p99_ms\":%.4f,"
               "\"p999_ms\":%.4f,\"connections\":%" PRIu64 ",\"rss_max_mb\":%.1f,"
               "\"backend\":\"%s\",\"cache_hits\":%" PRIu64 ",\"cache_misses\":%" PRIu64
               ",\"names\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"left\":%" PRIu64 ",\"folder\":",
               op_names[bench->op], bench->finished, bench->errors, bench->retries, bench->hedges,
               bench->bytes, seconds, requests / seconds, gb_per_s, cpu_us, p50, p99, p999,
               stats.connections, rss_max_mb(), backend, stats.cache_hits, stats.cache_misses,
               bench->names, bench->objects.removed, bench->objects.left);
        cli_json_string_or_null(bench->op == BENCH_PUT ? bench->objects.folder : NULL);
        printf("}\n");
        return;
    }
    char size[32];
    printf("%s gs://%s/%s\n", op_names[bench->op], bench->uri.bucket, bench->uri.name);
    printf("  requests      %" PRIu64 " in %.2f s, %" PRIu64 " errors, %" PRIu64
           " retries, %" PRIu64 " hedges\n",
           bench->finished, seconds, bench->errors, bench->retries, bench->hedges);
    printf("  rate          %.0f requests/s, %.2f GB/s (%s)\n", requests / seconds, gb_per_s,
           cli_format_size(bench->bytes, size));
    if (bench->op == BENCH_LIST) {
        printf("  names         %" PRIu64 ", %.0f per CPU second\n", bench->names,
               (double)bench->names / bench->cpu_seconds);
    }
    limit_line(bench);
    printf("  CPU           %.1f us per request\n", cpu_us);
    printf("  latency       p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms\n", p50, p99, p999);
    printf("  connections   %" PRIu64 "\n", stats.connections);
    printf("  memory        %.0f MB at most\n", rss_max_mb());
    printf("  backend       %s%s%s%s\n", backend, *reason != '\0' ? " (" : "", reason,
           *reason != '\0' ? ")" : "");
    if (bench->is_cached) {
        printf("  cache         %" PRIu64 " hits, %" PRIu64
               " misses, with those before the clock\n",
               stats.cache_hits, stats.cache_misses);
    }
    if (bench->op == BENCH_GET) {
        printf("  checked       %s\n", bench->verify
                                           ? "CRC32C, size and generation, against the listing"
                                           : "CRC32C, against each answer");
    }
}

/* What became of the objects that were written. */
static void objects_line(const struct bench *bench)
{
    const struct bench_objects *objects = &bench->objects;
    if (bench->keep) {
        printf("  objects       kept in gs://%s/%s\n", objects->bucket, objects->folder);
    } else {
        printf("  objects       %" PRIu64 " removed again from gs://%s/%s%s\n", objects->removed,
               objects->bucket, objects->folder, objects->left > 0 ? ", the rest is left" : "");
    }
}

/* What was measured is shown before anything that may take long or fail. */
static int finish(struct bench *bench, bool measured)
{
    int status = CLI_DONE;
    if (measured && !bench->json) {
        report(bench);
        status = cli_output_end(CLI_DONE);
    }
    bool removes = bench->op == BENCH_PUT && !bench->keep;
    if (removes && cli_interrupted()) {
        cli_note("removing what was written to gs://%s/%s; Ctrl-C leaves it there",
                 bench->objects.bucket, bench->objects.folder);
    }
    if (removes && bench_objects_remove(&bench->objects, &bench->session) != CLI_DONE) {
        status = CLI_FAILED;
    }
    if (measured && bench->json) {
        report(bench);
    } else if (measured && bench->op == BENCH_PUT) {
        objects_line(bench);
    }
    return cli_output_end(status);
}

static int prepare(struct bench *bench)
{
    int status = CLI_DONE;
    if (bench->op == BENCH_GET) {
        status = manifest_load(bench);
        if (status == CLI_DONE && bench->count == 0) {
            bench->count = bench->manifest_count;
        }
    } else if (bench->op == BENCH_PUT) {
        status = bench_objects_open(&bench->objects, &bench->uri);
        if (status == CLI_DONE) {
            status = bench_objects_tell_left(&bench->uri, &bench->session);
        }
        status = status == CLI_DONE ? payload_make(bench) : status;
    }
    if (status == CLI_DONE) {
        fault_in(bench);
        prewarm_wait(bench);
        status = bench->op == BENCH_GET ? warm_up(bench) : CLI_DONE;
    }
    return status;
}

static int bench_go(struct bench *bench)
{
    int status = prepare(bench);
    if (status != CLI_DONE) {
        return status;
    }
    status = measure(bench, bench->json);
    rg_listing_close(bench->listing);
    bench->listing = NULL;
    int finished = finish(bench, bench->finished > 0);
    if (cli_interrupted()) {
        return cli_fail("interrupted%s",
                        bench->finished > 0 ? "" : " before the first request was answered");
    }
    status = status == CLI_DONE ? finished : status;
    return status == CLI_DONE && bench->errors > 0 ? CLI_FAILED : status;
}

static void bench_free(struct bench *bench)
{
    for (size_t i = 0; i < bench->manifest_count; i++) {
        free(bench->manifest[i].name);
    }
    free(bench->manifest);
    free(bench->samples);
    free(bench->payload);
    bench_objects_free(&bench->objects);
}

enum {
    OPTION_CONCURRENCY = CLI_OPTION_FIRST,
    OPTION_COUNT,
    OPTION_SECONDS,
    OPTION_OBJECT_SIZE,
    OPTION_VERIFY,
    OPTION_KEEP,
};

static bool bench_option(struct bench *bench, int option, const char *argument)
{
    switch (option) {
    case OPTION_CONCURRENCY:
        return cli_parse_u64("--concurrency", argument, 1, CONCURRENCY_MAX, &bench->concurrency);
    case OPTION_COUNT:
        return cli_parse_u64("--count", argument, 1, COUNT_MAX, &bench->count);
    case OPTION_SECONDS:
        return cli_parse_double("--seconds", argument, 0.001, &bench->seconds);
    case OPTION_OBJECT_SIZE:
        return cli_parse_size("--object-size", argument, 0, UINT64_C(1) << 32, &bench->object_size);
    case OPTION_VERIFY:
        bench->verify = true;
        return true;
    case OPTION_KEEP:
        bench->keep = true;
        return true;
    case CLI_OPTION_JSON:
        bench->json = true;
        return true;
    default:
        return false;
    }
}

static int bench_parse_op(struct bench *bench, const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(op_names); i++) {
        if (strcmp(name, op_names[i]) == 0) {
            bench->op = (enum bench_op)i;
            return CLI_DONE;
        }
    }
    return cli_usage("the operation must be get, put or list, got \"%s\"", name);
}

static int bench_arguments(struct bench *bench, int argc, char **argv)
{
    if (argc - optind != 2) {
        return cli_usage("needs get, put or list, and gs://BUCKET/PREFIX");
    }
    int status = bench_parse_op(bench, argv[optind]);
    if (status != CLI_DONE || !cli_parse_uri(argv[optind + 1], &bench->uri)) {
        return CLI_USAGE;
    }
    if (bench->seconds > 0 && bench->count > 0) {
        return cli_usage("--count and --seconds exclude each other");
    }
    if (bench->keep && bench->op != BENCH_PUT) {
        return cli_usage("--keep is for put: %s writes nothing", op_names[bench->op]);
    }
    if (bench->count == 0 && bench->seconds == 0 && bench->op != BENCH_GET) {
        bench->count = bench->op == BENCH_PUT ? 1000 : COUNT_MAX;
    }
    if (bench->op == BENCH_LIST) {
        uint64_t usual = LIST_CONCURRENCY;
        bench->concurrency = bench->concurrency != 0 ? bench->concurrency : usual;
        bench->concurrency = RG_MIN(bench->concurrency, (uint64_t)LIST_CONCURRENCY_MAX);
    }
    bench->concurrency = bench->concurrency != 0 ? bench->concurrency : CONCURRENCY;
    bench->connection.connections = (uint32_t)bench->concurrency;
    bench->connection.prewarm = (uint32_t)bench->concurrency;
    struct rg_runtime_options runtime;
    struct rg_client_options client;
    if (!cli_options_make(&bench->connection, &runtime, &client)) {
        return CLI_USAGE;
    }
    bench->is_cached = client.cache != NULL && *client.cache != '\0';
    return CLI_DONE;
}

static int bench_run(int argc, char **argv)
{
    static const struct option options[] = {
        CLI_CONNECTION_OPTIONS,
        {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
        {"count", required_argument, NULL, OPTION_COUNT},
        {"seconds", required_argument, NULL, OPTION_SECONDS},
        {"object-size", required_argument, NULL, OPTION_OBJECT_SIZE},
        {"verify", no_argument, NULL, OPTION_VERIFY},
        {"keep", no_argument, NULL, OPTION_KEEP},
        {0}};
    struct bench bench = {.object_size = 102400};
    int option;
    bool ok;
    if (bench_python_is_asked(argc, argv)) {
        return bench_python_run(argc, argv);
    }
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (option == CLI_OPTION_HELP) {
            return cli_help();
        }
        if (!cli_connection_option(&bench.connection, option, optarg, &ok)) {
            ok = bench_option(&bench, option, optarg);
        }
        if (!ok) {
            return CLI_USAGE;
        }
    }
    int status = bench_arguments(&bench, argc, argv);
    if (status != CLI_DONE) {
        return status;
    }
    bench.samples = malloc(SAMPLES_MAX * sizeof(*bench.samples));
    if (bench.samples == NULL) {
        return cli_fail("no memory for latencies");
    }
    /* Touched now, so that memory does not seem to grow with the run. */
    memset(bench.samples, 0xff, SAMPLES_MAX * sizeof(*bench.samples));
    status = cli_session_open(&bench.session, &bench.connection, (uint32_t)(4 * bench.concurrency));
    if (status == CLI_DONE) {
        cli_interrupt_catch();
        status = bench_go(&bench);
        cli_session_close(&bench.session);
    }
    bench_free(&bench);
    return status;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .arguments = "get|put|list gs://BUCKET/PREFIX [OPTIONS]",
    .summary = "measure requests, and the CPU time of each",
    .help =
        "Or one of these, which need Python with the package ringest (`ringest bench run "
        "--help`):\n" BENCH_PYTHON_HELP "\nOptions:\n"
        "  --concurrency N    requests in flight, each on its own connection; default: 64, and\n"
        "                     16 with list\n"
        "  --count N          requests in all; default: every object once (get), 1000 (put),\n"
        "                     all pages (list)\n"
        "  --seconds S        send requests for S seconds, instead of a number of them\n"
        "  --object-size SIZE size of the objects that put writes; default: 100K\n"
        "  --keep             put: leave the objects there, and say where\n"
        "  --verify           get: compare size, generation and CRC32C with the listing too\n"
        "  --json             one JSON object on standard output\n" CLI_CONNECTION_HELP
        "\nget reads every object completely into memory, and compares its CRC32C with the "
        "server's.\n"
        "put writes new objects into a folder of its own, PREFIXringest-bench-RANDOM/, and "
        "removes\n"
        "them at the end, also after an error or Ctrl-C. It never replaces an object. get and "
        "list\n"
        "write nothing. After Ctrl-C the results so far are printed.\n"
        "A prefix is literal: gs://b/a reads everything that begins with \"a\". If put is killed,\n"
        "the next one names its folder, and `ringest rm -r` removes it.\n"
        "\nExamples:\n"
        "  ringest bench get gs://bucket/train/ --concurrency 256 --seconds 10\n"
        "  ringest bench put gs://bucket/ --object-size 1M --count 500\n"
        "  ringest bench presets\n"
        "  ringest bench --preset unet3d\n",
    .run = bench_run,
};
