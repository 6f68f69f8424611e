/* The load of a benchmark: see bench_load.h.
 *
 * In a closed loop twice as many requests are submitted as may be in flight: the loop then always
 * has one at hand when a connection becomes free. Latencies are from the moment a request gets a
 * connection to its completion. At a rate they are from when a request was due, so that those count
 * that had to wait because others were slow. */
#include "cli/bench_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define PREWARM_TIME_NS (10 * RG_NS_PER_S)
#define BATCH_MAX 256
/* Completions are taken when this many bytes have come, so that they are still in the cache. */
#define BATCH_BYTES RG_KIB(512)
/* Requests before the clock starts, in units of the concurrency: they touch the memory that the
 * bodies will lie in, whose first touch is expensive on virtual machines. */
#define WARM_UP_ROUNDS 4
#define ERRORS_SHOWN 3
#define ERROR_TEXT_SIZE 1400
/* After an interruption: how long answers are waited for. */
#define INTERRUPT_PATIENCE_NS (2 * RG_NS_PER_S)
/* How often more requests are sent while their number grows. */
#define RAMP_STEP_NS (10 * RG_NS_PER_MS)
/* How much later than asked for a wait may end; 50 us by default. */
#define TIMER_SLACK_NS 1000UL
#define BUCKETS_MAX 4

struct cpu_time {
    double user_s, system_s;
};

static struct cpu_time cpu_time_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct cpu_time){
        .user_s = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6,
        .system_s = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6,
    };
}

/* The most memory of this program. What getrusage(2) says is also that of whoever started it, since
 * execve(2) hands it on; it stands in where there is no /proc. */
static uint64_t rss_max_now(void)
{
    struct rusage usage;
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "VmHWM: %" SCNu64, &kib);
    }
    if (file != NULL) {
        fclose(file);
    }
    getrusage(RUSAGE_SELF, &usage);
    return (kib != 0 ? kib : (uint64_t)usage.ru_maxrss) * 1024;
}

static int payload_make(struct bench_load *load)
{
    uint64_t size = load->options->object_size;
    load->payload = malloc(RG_MAX(size, (uint64_t)1));
    if (load->payload == NULL) {
        return cli_fail("no memory for an object of %" PRIu64 " bytes", size);
    }
    uint64_t state = 0x9e3779b97f4a7c15;
    for (uint64_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        load->payload[i] = (uint8_t)(state >> 56);
    }
    return CLI_DONE;
}

/* The number of a request that is not out, from the end of those. */
static uint32_t request_prepare(struct bench_load *load, uint32_t place, uint64_t index)
{
    RG_ASSERT(place < load->free_count);
    uint32_t number = load->free[load->free_count - 1 - place];
    load->requests[number] = (struct bench_request){
        .index = index,
        .due_ns = load->schedule != NULL ? schedule_peek(load->schedule, place) : 0,
    };
    return number;
}

static uint64_t entry_index(const struct bench_load *load, uint64_t request)
{
    return (load->first + request % load->share * load->step) % load->manifest.count;
}

static int submit_gets(struct bench_load *load, uint64_t room)
{
    struct rg_get gets[BATCH_MAX];
    uint32_t count = (uint32_t)RG_MIN(room, (uint64_t)BATCH_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t index = entry_index(load, load->submitted + i);
        const struct bench_manifest_entry *entry = &load->manifest.entries[index];
        gets[i] = (struct rg_get){
            .bucket = load->options->uri.bucket,
            .object = entry->name,
            .generation = load->options->is_cached ? entry->generation : 0,
            .user_data = request_prepare(load, i, index),
        };
    }
    return rg_submit_gets(load->session.client, load->session.cq, gets, count);
}

/* Only creates: see bench_objects.h. */
static int submit_put(struct bench_load *load)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    int rc = bench_objects_add(&load->objects, name);
    if (rc < 0) {
        return rc;
    }
    struct rg_put put = {
        .bucket = load->options->uri.bucket,
        .object = name,
        .data = load->payload,
        .size = load->options->object_size,
        .if_generation_match = RG_GENERATION_ABSENT,
        .user_data = request_prepare(load, 0, load->objects.count - 1),
    };
    rc = rg_submit_put(load->session.client, load->session.cq, &put);
    if (rc < 0) {
        bench_objects_drop(&load->objects);
    }
    return rc < 0 ? rc : 1;
}

/* One page; the first of a listing begins it. */
static int submit_list(struct bench_load *load)
{
    int rc = 0;
    if (load->listing == NULL) {
        struct rg_listing_options options = {
            .bucket = load->options->uri.bucket,
            .prefix = load->options->uri.name,
            .requests_max = (uint32_t)load->options->concurrency,
        };
        rc = rg_listing_open(&load->listing, load->session.client, &options);
        load->listings++;
    }
    if (rc == 0) {
        rc = rg_listing_next(load->listing, load->session.cq, request_prepare(load, 0, 0));
    }
    return rc < 0 ? rc : 1;
}

static uint64_t requests_out(const struct bench_load *load)
{
    return load->requests_max - load->free_count;
}

/* How many may be out in a closed loop. */
static uint64_t depth_at(const struct bench_load *load, uint64_t now_ns)
{
    uint64_t whole = load->requests_max;
    double grown = (double)(now_ns - load->result->started_ns) / 1e9;
    if (grown >= load->ramp_s) {
        return whole;
    }
    uint64_t depth = (uint64_t)((double)load->options->concurrency * grown / load->ramp_s);
    return RG_MAX(depth, (uint64_t)1);
}

static uint64_t room_left(const struct bench_load *load, uint64_t now_ns)
{
    if (load->listed_all || cli_interrupted()) {
        return 0;
    }
    if (load->schedule != NULL) {
        return RG_MIN(schedule_waiting(load->schedule), (uint64_t)load->free_count);
    }
    uint64_t out = requests_out(load), depth = depth_at(load, now_ns);
    uint64_t room = depth > out && now_ns < load->end_ns ? depth - out : 0;
    return RG_MIN(room, load->count - load->submitted);
}

/* So many of the requests that were prepared are out. */
static void submitted(struct bench_load *load, uint32_t count, uint64_t now_ns)
{
    load->submitted += count;
    load->free_count -= count;
    if (load->schedule != NULL && count > 0) {
        uint64_t due_ns = schedule_peek(load->schedule, 0);
        load->result->late_ns = RG_MAX(load->result->late_ns, now_ns - due_ns);
        schedule_drop(load->schedule, count);
    }
}

static int submit_what_fits(struct bench_load *load)
{
    for (;;) {
        uint64_t now_ns = rg_now_ns();
        if (load->schedule != NULL) {
            schedule_advance(load->schedule, now_ns);
        }
        uint64_t room = room_left(load, now_ns);
        if (room == 0) {
            return CLI_DONE;
        }
        enum bench_op op = load->options->op;
        int rc = op == BENCH_GET   ? submit_gets(load, room)
                 : op == BENCH_PUT ? submit_put(load)
                                   : submit_list(load);
        if (rc == -EAGAIN) {
            return CLI_DONE;
        }
        if (rc < 0) {
            return cli_fail("gs://%s/%s: the request was refused: %s", load->options->uri.bucket,
                            load->options->uri.name, strerror(-rc));
        }
        submitted(load, (uint32_t)rc, now_ns);
    }
}

/* What is due and was not sent when the time is over is not sent any more. */
static int submit_more(struct bench_load *load)
{
    int status = submit_what_fits(load);
    struct schedule *schedule = load->schedule;
    if (schedule != NULL && (rg_now_ns() >= load->end_ns || cli_interrupted())) {
        uint64_t waiting = schedule_waiting(schedule);
        load->result->unsent += waiting;
        schedule_drop(schedule, waiting);
        schedule->next_ns = RG_FOREVER;
    }
    return status;
}

static void error_show(struct bench_load *load, const char *text)
{
    if (load->result->errors++ < ERRORS_SHOWN && !load->is_warm_up) {
        cli_fail("%s", text);
    }
}

/* What an answer was. */
enum outcome {
    OUTCOME_DONE,
    OUTCOME_FAILED,
    OUTCOME_NONE, /* none that counts: the end of a listing, or what was cancelled at the end */
};

/* The end is not a page. With --seconds it begins anew. */
static enum outcome list_take(struct bench_load *load, const struct rg_list_page *page)
{
    const char *bucket = load->options->uri.bucket;
    bool verify = load->options->verify;
    char text[ERROR_TEXT_SIZE];
    load->result->names += page->object_count;
    if (page->object_count > 0) {
        bool is_wrong =
            verify && bench_manifest_page_differs(&load->manifest, bucket, load->listings, page,
                                                  text, sizeof(text));
        if (is_wrong) {
            error_show(load, text);
        }
        return is_wrong ? OUTCOME_FAILED : OUTCOME_DONE;
    }
    if (verify &&
        bench_manifest_lacks(&load->manifest, bucket, load->listings, text, sizeof(text))) {
        error_show(load, text);
    }
    load->listed_all = load->end_ns == RG_FOREVER;
    rg_listing_close(load->listing);
    load->listing = NULL;
    return OUTCOME_NONE;
}

/* Shows an error. */
static enum outcome outcome_take(struct bench_load *load, const struct bench_request *request,
                                 const struct rg_completion *completion)
{
    const struct bench_options *options = load->options;
    if (options->op == BENCH_PUT) {
        bench_objects_take(&load->objects, request->index, completion);
    }
    if (completion->status == RG_STATUS_CANCELLED && load->gave_up) {
        return OUTCOME_NONE;
    }
    if (completion->status != RG_STATUS_OK) {
        error_show(load, cli_completion_text(completion));
        load->listed_all = options->op == BENCH_LIST;
        return OUTCOME_FAILED;
    }
    if (options->op == BENCH_LIST) {
        return list_take(load, completion->data);
    }
    if (options->op == BENCH_GET && options->verify) {
        char text[ERROR_TEXT_SIZE];
        const struct bench_manifest_entry *entry = &load->manifest.entries[request->index];
        if (bench_manifest_differs(entry, options->uri.bucket, completion, text, sizeof(text))) {
            error_show(load, text);
            return OUTCOME_FAILED;
        }
    }
    return OUTCOME_DONE;
}

static void take(struct bench_load *load, const struct rg_completion *completion)
{
    const struct bench_request *request = &load->requests[completion->user_data];
    load->free[load->free_count++] = (uint32_t)completion->user_data;
    switch (outcome_take(load, request, completion)) {
    case OUTCOME_NONE:
        load->submitted--;
        break;
    case OUTCOME_FAILED:
        bench_result_add_failed(load->result);
        break;
    case OUTCOME_DONE: {
        bool is_object = load->options->op != BENCH_LIST;
        uint64_t from_ns = request->due_ns != 0 ? request->due_ns : completion->started_ns;
        bench_result_add(load->result, from_ns, completion->finished_ns,
                         is_object ? completion->size : 0);
    }
    }
    rg_lease_release(completion->lease);
}

/* How many completions to wait for: few enough to be in the cache, and no more than half of what
 * may be in flight, so that the other half keeps the loop busy meanwhile. */
static uint32_t batch_size(const struct bench_load *load)
{
    uint64_t size = load->options->op == BENCH_PUT ? load->options->object_size : 0;
    if (load->options->op == BENCH_GET) {
        size = load->manifest.entries[entry_index(load, load->submitted)].size;
    }
    uint64_t batch = BATCH_BYTES / RG_MAX(size, (uint64_t)1);
    batch = RG_MIN(batch, RG_MIN(load->options->concurrency / 2, (uint64_t)BATCH_MAX));
    return (uint32_t)RG_MAX(RG_MIN(requests_out(load), batch), (uint64_t)1);
}

/* Nobody waits for these answers any longer. Each still gives a completion, so that none comes
 * later among those of the removal. Cancelling one that is not out does nothing. */
static void unanswered_cancel(struct bench_load *load)
{
    for (uint32_t i = 0; i < load->requests_max; i++) {
        rg_cancel(load->session.client, load->session.cq, i);
    }
    load->gave_up = true;
}

/* Until when answers are waited for: then there is something else to do. */
static uint64_t wait_until_ns(struct bench_load *load, uint64_t now_ns)
{
    uint64_t until_ns = load->cpu_due_ns;
    if (load->schedule != NULL && load->free_count > 0) {
        until_ns = RG_MIN(until_ns, load->schedule->next_ns);
    } else if (load->schedule == NULL && depth_at(load, now_ns) < load->requests_max) {
        until_ns = RG_MIN(until_ns, now_ns + RAMP_STEP_NS);
    }
    if (cli_interrupted() && !load->gave_up) {
        load->give_up_ns =
            load->give_up_ns != 0 ? load->give_up_ns : now_ns + INTERRUPT_PATIENCE_NS;
        until_ns = RG_MIN(until_ns, load->give_up_ns);
    }
    return until_ns;
}

/* Takes answers. After an interruption those of puts are waited for, but not for ever; what leaves
 * nothing behind is not waited for at all. False: that is it. */
static bool answers_wait(struct bench_load *load, struct rg_completion *done)
{
    if (cli_interrupted() && load->options->op != BENCH_PUT) {
        return false;
    }
    uint64_t until_ns = wait_until_ns(load, rg_now_ns());
    int count = rg_cq_wait(load->session.cq, done, BATCH_MAX, batch_size(load), until_ns);
    for (int i = 0; i < count; i++) {
        take(load, &done[i]);
    }
    if (load->give_up_ns != 0 && !load->gave_up && rg_now_ns() >= load->give_up_ns) {
        unanswered_cancel(load);
    }
    return true;
}

static void progress_show(struct bench_load *load)
{
    const struct bench_options *options = load->options;
    struct progress_state state = {
        .done = options->op == BENCH_LIST ? load->result->names : load->result->requests,
        .time_ns = (uint64_t)(options->seconds * 1e9),
    };
    if (options->seconds == 0 && options->op != BENCH_LIST) {
        state.total = load->count;
    }
    progress_draw(&load->progress, &state);
}

/* CPU time since the last division belongs to the part that is over. */
static void cpu_divide(struct bench_load *load, uint64_t now_ns)
{
    if (now_ns < load->cpu_due_ns) {
        return;
    }
    struct cpu_time cpu = cpu_time_now();
    double spent_s = cpu.user_s + cpu.system_s - load->cpu_before_s;
    load->cpu_before_s += spent_s;
    bench_result_add_cpu(load->result, load->cpu_due_ns, spent_s);
    while (load->cpu_due_ns <= now_ns) {
        load->cpu_due_ns += load->result->interval_ns;
    }
}

static void schedule_start(struct bench_load *load)
{
    const struct bench_options *options = load->options;
    if (load->schedule == NULL) {
        return;
    }
    struct schedule_options schedule = {
        .rate_per_s = options->rate_per_s / (double)options->processes,
        .ramp_s = load->ramp_s,
        .first = (double)load->process / (double)options->processes,
        .is_poisson = options->is_poisson,
        .seed = load->process + 1,
        .start_ns = load->result->started_ns,
        .count = load->count,
        .end_ns = load->end_ns,
    };
    schedule_begin(load->schedule, &schedule);
}

/* Sends what is to be sent and takes what is answered, until all is. */
static int drive(struct bench_load *load)
{
    struct rg_completion done[BATCH_MAX];
    int status = CLI_DONE;
    bool more = true;
    while (more) {
        status = status == CLI_DONE ? submit_more(load) : status;
        bool is_due = load->schedule != NULL && load->schedule->next_ns != RG_FOREVER;
        more =
            (requests_out(load) > 0 || (is_due && status == CLI_DONE)) && answers_wait(load, done);
        if (load->cpu_due_ns != RG_FOREVER) {
            cpu_divide(load, rg_now_ns());
        }
        progress_show(load);
    }
    return status;
}

/* For `seconds`, or by `count` where that is 0. */
static int run(struct bench_load *load, struct bench_result *result, double seconds, uint64_t count)
{
    load->result = result;
    load->submitted = 0;
    load->listed_all = false;
    load->count = count;
    struct cpu_time before = cpu_time_now();
    load->cpu_before_s = before.user_s + before.system_s;
    result->started_ns = rg_now_ns();
    load->end_ns = seconds > 0 ? result->started_ns + (uint64_t)(seconds * 1e9) : RG_FOREVER;
    bool has_parts = result->interval_ns > 0;
    load->cpu_due_ns = has_parts ? result->started_ns + result->interval_ns : RG_FOREVER;
    schedule_start(load);
    int status = drive(load);
    result->finished_ns = rg_now_ns();
    struct cpu_time after = cpu_time_now();
    result->cpu_user_s = after.user_s - before.user_s;
    result->cpu_system_s = after.system_s - before.system_s;
    result->rss_max_bytes = rss_max_now();
    if (has_parts) {
        bench_result_add_cpu(result, result->finished_ns,
                             after.user_s + after.system_s - load->cpu_before_s);
    }
    if (load->schedule != NULL) {
        result->due = load->schedule->due;
        result->unsent += load->schedule->refused + schedule_waiting(load->schedule);
    }
    return status;
}

static struct rg_bucket_side bucket_side(const struct bench_load *load)
{
    struct rg_bucket_stats buckets[BUCKETS_MAX];
    int count = rg_client_buckets(load->session.client, buckets, BUCKETS_MAX);
    for (int i = 0; i < count; i++) {
        if (strcmp(buckets[i].name, load->options->uri.bucket) == 0) {
            return load->options->op == BENCH_PUT ? buckets[i].writes : buckets[i].reads;
        }
    }
    return (struct rg_bucket_side){0};
}

/* What was counted before a round. */
struct counted {
    struct rg_stats stats;
    uint64_t backoffs;
};

static struct counted counted_now(const struct bench_load *load)
{
    struct counted now = {.backoffs = bucket_side(load).backoffs};
    rg_runtime_stats(load->session.runtime, &now.stats);
    return now;
}

/* What the bucket allows, where it asked for less. */
static void bucket_take(struct bench_load *load, const struct counted *before)
{
    struct rg_bucket_side side = bucket_side(load);
    load->result->backoffs = side.backoffs - before->backoffs;
    load->result->bucket_rate_per_s = side.backoffs > 0 && side.limit > 0 ? side.rate_per_s : 0;
}

static void stats_take(struct bench_load *load, const struct rg_stats *before)
{
    struct bench_result *result = load->result;
    struct rg_stats after = {0};
    rg_runtime_stats(load->session.runtime, &after);
    /* A completion counts a second request beside a slow first one as an attempt too. */
    result->attempts = after.requests - before->requests;
    result->retries = after.retries - before->retries;
    result->hedges = after.hedges - before->hedges;
    result->recv_bytes = after.recv_bytes - before->recv_bytes;
    result->sent_bytes = after.sent_bytes - before->sent_bytes;
    result->connections = after.connections;
    result->opened = after.connections_opened - before->connections_opened;
    result->cache_hits = after.cache_hits - before->cache_hits;
    result->cache_misses = after.cache_misses - before->cache_misses;
    const char *reason;
    bool is_uring = rg_runtime_backend(load->session.runtime, &reason) == RG_BACKEND_URING;
    snprintf(result->backend, sizeof(result->backend), "%s", is_uring ? "uring" : "epoll");
    snprintf(result->backend_reason, sizeof(result->backend_reason), "%s", reason);
}

/* This process's part of a number. */
static uint64_t part_of(const struct bench_load *load, uint64_t number)
{
    uint64_t processes = load->options->processes;
    return number / processes + (load->process < number % processes);
}

int bench_load_measure(struct bench_load *load, struct bench_result *result)
{
    const struct bench_options *options = load->options;
    uint64_t count = UINT64_MAX;
    if (options->seconds == 0) {
        count = options->count != 0 ? options->count : load->manifest.count;
        count =
            options->op == BENCH_LIST && options->count == 0 ? UINT64_MAX : part_of(load, count);
    }
    rg_listing_close(load->listing);
    load->listing = NULL;
    struct counted before = counted_now(load);
    const char *what = options->op == BENCH_LIST ? "names" : "requests";
    progress_open(&load->progress, what, !options->shows_progress);
    load->ramp_s = options->ramp_s;
    result->ramp.seconds = options->ramp_s;
    int status = run(load, result, options->seconds, count);
    progress_close(&load->progress);
    stats_take(load, &before.stats);
    bucket_take(load, &before);
    return status;
}

/* The same without results: for as long as was asked for, or else, of gets, for a moment. */
static int warm_up(struct bench_load *load, struct bench_result *result)
{
    const struct bench_options *options = load->options;
    uint64_t count = WARM_UP_ROUNDS * options->concurrency;
    if (options->warm_up_s == 0 && options->op != BENCH_GET) {
        return CLI_DONE;
    }
    if (options->seconds == 0) {
        count = RG_MIN(count, options->count > 0 ? options->count : load->manifest.count);
    }
    struct bench_result *scratch = calloc(1, bench_result_size(0));
    if (scratch == NULL) {
        return cli_fail("no memory for latencies");
    }
    struct schedule *schedule = load->schedule;
    if (options->warm_up_s == 0) {
        load->schedule = NULL;
    }
    load->is_warm_up = true;
    progress_open(&load->progress, "requests", true);
    int status =
        run(load, scratch, options->warm_up_s, options->warm_up_s > 0 ? UINT64_MAX : count);
    load->is_warm_up = false;
    load->schedule = schedule;
    if (options->warm_up_s > 0) {
        result->warm_up = (struct bench_phase){.seconds = bench_result_seconds(scratch),
                                               .requests = scratch->requests,
                                               .bytes = scratch->bytes};
    }
    load->result = NULL;
    free(scratch);
    return status;
}

/* A lease may be twice as large as its body. The first touch of memory is not what is measured. */
static void fault_in(struct bench_load *load)
{
    uint64_t concurrency = load->options->concurrency;
    /* Of a list, names come and no bodies. */
    bool is_get = load->options->op == BENCH_GET;
    uint64_t largest = is_get ? bench_manifest_largest(&load->manifest) : 0;
    largest = RG_MIN(largest, UINT64_MAX / (2 * concurrency));
    (void)rg_runtime_fault_in(load->session.runtime, 2 * concurrency * largest);
}

/* Waits until the connections are open, so that handshakes are not measured. */
static void prewarm_wait(struct bench_load *load)
{
    uint64_t deadline_ns = rg_now_ns() + PREWARM_TIME_NS;
    struct timespec pause = {.tv_nsec = 2 * (long)RG_NS_PER_MS};
    struct rg_stats stats = {0};
    while (rg_runtime_stats(load->session.runtime, &stats) == 0 &&
           stats.connections < load->options->concurrency && stats.connections_failed == 0 &&
           rg_now_ns() < deadline_ns && !cli_interrupted()) {
        nanosleep(&pause, NULL);
    }
}

/* By count every process has names of its own; by time all of them, each from another one on. */
static void names_divide(struct bench_load *load)
{
    uint64_t processes = load->options->processes, count = load->manifest.count;
    bool is_divided = load->options->seconds == 0;
    load->first = is_divided ? load->process : load->process * count / processes;
    load->step = is_divided ? processes : 1;
    load->share = is_divided ? RG_MAX(part_of(load, count), (uint64_t)1) : count;
}

int bench_load_prepare(struct bench_load *load, struct bench_result *result)
{
    const struct bench_options *options = load->options;
    int status = CLI_DONE;
    if (options->op == BENCH_GET) {
        status = bench_manifest_load(&load->manifest, options, &load->session);
        names_divide(load);
    } else if (options->op == BENCH_PUT) {
        if (load->process == 0) {
            status = bench_objects_tell_left(&options->uri, &load->session);
        }
        status = status == CLI_DONE ? payload_make(load) : status;
    } else if (options->verify) {
        status = bench_manifest_load(&load->manifest, options, &load->session);
    }
    if (status == CLI_DONE) {
        fault_in(load);
        prewarm_wait(load);
        status = warm_up(load, result);
    }
    return status;
}

int bench_load_open(struct bench_load *load, const struct bench_options *options, uint32_t process)
{
    *load = (struct bench_load){.options = options, .process = process};
    load->requests_max = options->op == BENCH_LIST ? 1 : (uint32_t)(2 * options->concurrency);
    load->free_count = load->requests_max;
    load->requests = calloc(load->requests_max, sizeof(*load->requests));
    load->free = calloc(load->requests_max, sizeof(*load->free));
    load->schedule = options->rate_per_s > 0 ? calloc(1, sizeof(*load->schedule)) : NULL;
    if (load->requests == NULL || load->free == NULL ||
        (load->schedule == NULL && options->rate_per_s > 0)) {
        return cli_fail("no memory for %u requests", load->requests_max);
    }
    for (uint32_t i = 0; i < load->requests_max; i++) {
        load->free[i] = load->requests_max - 1 - i;
    }
    if (options->op == BENCH_PUT) {
        bench_objects_open(&load->objects, &options->uri, options->folder,
                           options->processes > 1 ? (int)process : BENCH_OBJECTS_WHOLE);
    }
    if (load->schedule != NULL) {
        prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    }
    return cli_session_open(&load->session, &options->connection,
                            (uint32_t)(4 * options->concurrency));
}

int bench_load_finish(struct bench_load *load, struct bench_result *result)
{
    struct bench_objects *objects = &load->objects;
    if (load->options->op != BENCH_PUT || load->options->keep) {
        return CLI_DONE;
    }
    if (cli_interrupted() && load->process == 0) {
        cli_note("removing what was written to gs://%s/%s; Ctrl-C leaves it there", objects->bucket,
                 objects->folder);
    }
    int status = bench_objects_remove(objects, &load->session);
    result->removed = objects->removed;
    result->left = objects->left;
    return status;
}

void bench_load_close(struct bench_load *load)
{
    rg_listing_close(load->listing);
    if (load->session.runtime != NULL) {
        cli_session_close(&load->session);
    }
    bench_manifest_free(&load->manifest);
    bench_objects_free(&load->objects);
    free(load->schedule);
    free(load->payload);
    free(load->requests);
    free(load->free);
}
