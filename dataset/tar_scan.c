/* Scans: see <ringest/tar.h>.
 *
 * A shard has one request out at a time, and many shards are on their way at once:
 *
 *   WAITING -> STAT -> (the generation is the known index's) -----------------> DONE
 *      |        v                                                                ^
 *      +-----> READING: a window at the byte that the parser wants, until its end
 *
 * Windows adapt to what lies between the headers. Where members are small the next header is in or
 * near the window, which then grows, so that the shard is read in few requests; where they are
 * large it shrinks to little more than a header, and what members hold is not read. */
#include "dataset/tar_index.h"
#include "dataset/tar_parser.h"
#include "gcs/request/client.h"

#include <errno.h>
#include <ringest/objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW_FIRST RG_KIB(32)
#define WINDOW_MIN RG_KIB(4)
#define WINDOW_MAX RG_MIB(4)
/* Bytes between headers that a request of their own costs more than reading them: of the client's
 * time a request takes about as much as this many bytes. */
#define JUMP_MIN RG_KIB(64)
/* A shard that is replaced while it is read begins anew, so often. */
#define RESTARTS_MAX 3
#define COMPLETIONS_MAX 64
#define CLIENT_FULL_PAUSE_NS RG_NS_PER_MS
#define ERROR_SIZE 1536

#define BIT(state) (1u << (state))

enum shard_state { SHARD_WAITING = 0, SHARD_STAT, SHARD_READING, SHARD_DONE };

struct shard {
    enum shard_state state;
    char *name; /* owned */
    int64_t generation, wanted_generation;
    uint64_t size;
    int64_t known; /* its number in the known index, or -1 */
    bool is_taken_over;
    uint32_t restarts;
    uint64_t window;
    struct rg_tar_parser *parser; /* owned, while READING */
    struct rg_tar_section section;
};

struct rg_tar_scan {
    struct rg_client *client;
    struct rg_cq *cq;
    char *bucket;
    const struct rg_tar_index *known;
    struct shard *shards;
    uint64_t shard_count, next, done, read;
    uint32_t at_once, active; /* shards that were started and are not done */
    uint32_t out;             /* requests; one at most for each active shard */
    uint64_t *ready;          /* shards whose next request could not be submitted yet */
    uint32_t ready_count;
    uint64_t window_max;
    int failed; /* negative errno; 0: not */
    uint64_t failed_shard;
    struct rg_completion failed_completion;
    char error[ERROR_SIZE];
};

void rg_tar_scan_options_init_sized(struct rg_tar_scan_options *options, size_t struct_size)
{
    RG_ASSERT(struct_size >= sizeof(size_t));
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

/* Each shard that was begun is active or done. An active one has one request, which is out or to be
 * submitted again, unless the scan has failed. */
static bool invariants(const struct rg_tar_scan *scan)
{
    uint64_t asking = (uint64_t)scan->out + scan->ready_count;
    return scan->next <= scan->shard_count && scan->active + scan->done == scan->next &&
           scan->active <= scan->at_once && scan->read <= scan->done &&
           (scan->failed != 0 ? asking <= scan->active : asking == scan->active);
}

static void shard_enter(struct shard *shard, enum shard_state state)
{
    static const uint8_t states_after[] = {
        [SHARD_WAITING] = BIT(SHARD_STAT) | BIT(SHARD_READING) | BIT(SHARD_DONE),
        [SHARD_STAT] = BIT(SHARD_READING) | BIT(SHARD_DONE),
        [SHARD_READING] = BIT(SHARD_READING) | BIT(SHARD_DONE), /* or it begins anew */
        [SHARD_DONE] = 0,
    };
    RG_ASSERT(states_after[shard->state] & BIT(state));
    shard->state = state;
}

/* A shard of an index that is known already, to be found by its name. */
struct known_name {
    const char *name;
    uint64_t number;
};

static int known_compare(const void *a, const void *b)
{
    return strcmp(((const struct known_name *)a)->name, ((const struct known_name *)b)->name);
}

static int known_find(struct rg_tar_scan *scan)
{
    uint64_t count = scan->known != NULL ? rg_tar_index_shard_count(scan->known) : 0;
    if (count == 0 || strcmp(rg_tar_index_bucket(scan->known), scan->bucket) != 0) {
        return 0;
    }
    struct known_name *names = calloc(count, sizeof(*names));
    if (names == NULL) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < count; i++) {
        struct rg_tar_shard shard;
        RG_ASSERT(rg_tar_index_shard(scan->known, i, &shard) == 0);
        names[i] = (struct known_name){shard.name, i};
    }
    qsort(names, count, sizeof(*names), known_compare);
    for (uint64_t i = 0; i < scan->shard_count; i++) {
        struct known_name wanted = {.name = scan->shards[i].name};
        const struct known_name *found =
            bsearch(&wanted, names, count, sizeof(*names), known_compare);
        scan->shards[i].known = found != NULL ? (int64_t)found->number : -1;
    }
    free(names);
    return 0;
}

static int shards_copy(struct rg_tar_scan *scan, const struct rg_tar_scan_options *options)
{
    scan->shards = calloc(options->shard_count + 1, sizeof(*scan->shards));
    scan->bucket = strdup(options->bucket);
    if (scan->shards == NULL || scan->bucket == NULL) {
        return -ENOMEM;
    }
    scan->shard_count = options->shard_count;
    for (uint64_t i = 0; i < options->shard_count; i++) {
        struct shard *shard = &scan->shards[i];
        shard->name = strdup(options->shards[i].name);
        if (shard->name == NULL) {
            return -ENOMEM;
        }
        shard->wanted_generation = options->shards[i].generation;
        shard->known = -1;
    }
    return 0;
}

static int scan_setup(struct rg_tar_scan *scan, const struct rg_tar_scan_options *given,
                      char *error, size_t error_size)
{
    struct rg_tar_scan_options options;
    rg_tar_scan_options_init(&options);
    memcpy(&options, given, RG_MIN(given->struct_size, sizeof(options)));
    if (options.bucket == NULL || (options.shards == NULL && options.shard_count > 0)) {
        return rg_explain(error, error_size, -EINVAL, "no bucket or no shards were given");
    }
    if (options.shards_at_once > RG_TAR_SCAN_SHARDS_MAX) {
        return rg_explain(error, error_size, -EINVAL, "shards_at_once is %u, above the limit of %d",
                          options.shards_at_once, RG_TAR_SCAN_SHARDS_MAX);
    }
    scan->at_once =
        options.shards_at_once != 0 ? options.shards_at_once : RG_TAR_SCAN_SHARDS_DEFAULT;
    scan->known = options.known;
    int rc = shards_copy(scan, &options);
    rc = rc == 0 ? known_find(scan) : rc;
    if (rc == 0) {
        /* Windows of all shards take at most a quarter of the memory for bodies. */
        uint64_t fair = scan->client->runtime->memory_max / 4 / scan->at_once;
        scan->window_max = RG_MAX(RG_MIN(fair, (uint64_t)WINDOW_MAX), (uint64_t)WINDOW_MIN);
        scan->ready = calloc(scan->at_once, sizeof(*scan->ready));
        rc = scan->ready == NULL ? -ENOMEM
                                 : rg_cq_open(&scan->cq, scan->client->runtime, scan->at_once);
    }
    return rc < 0 ? rg_explain(error, error_size, rc, "no memory for the scan") : 0;
}

int rg_tar_scan_open(struct rg_tar_scan **out_scan, struct rg_client *client,
                     const struct rg_tar_scan_options *options, char *error, size_t error_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return rg_explain(error, error_size, -EOWNERDEAD,
                          "the client was opened before fork(): open one in this process");
    }
    struct rg_tar_scan *scan = calloc(1, sizeof(*scan));
    if (scan == NULL) {
        return rg_explain(error, error_size, -ENOMEM, "no memory");
    }
    scan->client = client;
    int rc = scan_setup(scan, options, error, error_size);
    if (rc < 0) {
        rg_tar_scan_close(scan);
        return rc;
    }
    *out_scan = scan;
    return 0;
}

/* The first failure counts. `cause` says what is wrong with the shard. */
static void scan_fail(struct rg_tar_scan *scan, uint64_t number, int rc, const char *cause)
{
    if (scan->failed != 0) {
        return;
    }
    scan->failed = rc;
    scan->failed_shard = number;
    snprintf(scan->error, sizeof(scan->error), "gs://%s/%s: %s", scan->bucket,
             scan->shards[number].name, cause);
}

static void shard_end(struct rg_tar_scan *scan, struct shard *shard)
{
    free(shard->parser);
    shard->parser = NULL;
    shard_enter(shard, SHARD_DONE);
    scan->active--;
    scan->done++;
}

static bool shard_take_over(struct rg_tar_scan *scan, struct shard *shard, int64_t generation)
{
    struct rg_tar_shard known;
    if (shard->known < 0 || generation == 0 ||
        rg_tar_index_shard(scan->known, (uint64_t)shard->known, &known) < 0 ||
        known.generation != generation) {
        return false;
    }
    shard->is_taken_over = true;
    shard->generation = generation;
    shard_end(scan, shard);
    return true;
}

static int shard_read_begin(struct rg_tar_scan *scan, struct shard *shard)
{
    shard_enter(shard, SHARD_READING);
    shard->window = RG_MIN((uint64_t)WINDOW_FIRST, scan->window_max);
    shard->generation = shard->wanted_generation;
    shard->size = 0;
    rg_tar_section_fini(&shard->section);
    if (shard->parser == NULL) {
        shard->parser = malloc(sizeof(*shard->parser));
    }
    if (shard->parser == NULL || rg_tar_section_init(&shard->section) < 0) {
        return -ENOMEM;
    }
    rg_tar_parser_init(shard->parser);
    return 0;
}

static int stat_submit(struct rg_tar_scan *scan, uint64_t number)
{
    struct rg_stat stat = {
        .bucket = scan->bucket,
        .object = scan->shards[number].name,
        .user_data = number,
    };
    return rg_submit_stat(scan->client, scan->cq, &stat);
}

static int window_submit(struct rg_tar_scan *scan, uint64_t number)
{
    struct shard *shard = &scan->shards[number];
    struct rg_get get = {
        .bucket = scan->bucket,
        .object = shard->name,
        .generation = shard->generation,
        .offset = shard->parser->offset,
        .length = shard->window,
        .user_data = number,
    };
    return rg_submit_get(scan->client, scan->cq, &get);
}

static void shard_submit(struct rg_tar_scan *scan, uint64_t number)
{
    bool is_stat = scan->shards[number].state == SHARD_STAT;
    int rc = is_stat ? stat_submit(scan, number) : window_submit(scan, number);
    if (rc == 0) {
        scan->out++;
    } else if (rc == -EAGAIN) {
        RG_ASSERT(scan->ready_count < scan->at_once);
        scan->ready[scan->ready_count++] = number;
    } else if (rc == -EINVAL) {
        scan->failed_completion = (struct rg_completion){.status = RG_STATUS_BAD_REQUEST};
        scan_fail(scan, number, -EREMOTEIO, "the service allows no such name");
    } else {
        scan_fail(scan, number, rc, "the request could not be submitted");
    }
}

static void shard_begin(struct rg_tar_scan *scan, uint64_t number)
{
    struct shard *shard = &scan->shards[number];
    scan->active++;
    if (shard->known >= 0) {
        if (shard->wanted_generation == 0) {
            shard_enter(shard, SHARD_STAT);
            shard_submit(scan, number);
            return;
        }
        if (shard_take_over(scan, shard, shard->wanted_generation)) {
            return;
        }
    }
    if (shard_read_begin(scan, shard) < 0) {
        scan_fail(scan, number, -ENOMEM, "no memory for its index");
        return;
    }
    shard_submit(scan, number);
}

/* Begins what there is room for. */
static void scan_refill(struct rg_tar_scan *scan)
{
    uint32_t ready_count = scan->ready_count;
    scan->ready_count = 0;
    for (uint32_t i = 0; i < ready_count && scan->failed == 0; i++) {
        shard_submit(scan, scan->ready[i]);
    }
    while (scan->failed == 0 && scan->active < scan->at_once && scan->next < scan->shard_count) {
        shard_begin(scan, scan->next++);
    }
    RG_VERIFY(invariants(scan));
}

static void request_fail(struct rg_tar_scan *scan, struct rg_completion *completion)
{
    if (scan->failed == 0) {
        const char *detail = completion->detail != NULL && *completion->detail != '\0'
                                 ? completion->detail
                                 : rg_status_text(completion->status);
        scan_fail(scan, completion->user_data, -EREMOTEIO, detail);
        scan->failed_completion = *completion;
        completion->lease = NULL;
    }
}

/* Looks at a window. enum rg_tar_result, or a negative errno that has been explained. */
static int window_parse(struct rg_tar_scan *scan, uint64_t number, const uint8_t *data,
                        uint64_t size)
{
    struct shard *shard = &scan->shards[number];
    struct rg_tar_parser *parser = shard->parser;
    uint64_t begin = parser->offset;
    int rc = RG_TAR_RESULT_MEMBER;
    while (rc == RG_TAR_RESULT_MEMBER) {
        struct rg_tar_member member;
        uint64_t skipped = RG_MIN(parser->offset - begin, size);
        rc = rg_tar_parser_feed(parser, data + skipped, (size_t)(size - skipped), &member);
        if (rc < 0) {
            scan_fail(scan, number, rc, parser->error);
        } else if (rc == RG_TAR_RESULT_MEMBER) {
            int added = rg_tar_section_add(&shard->section, &member);
            if (added < 0) {
                scan_fail(scan, number, added,
                          added == -EBADMSG ? shard->section.error : rg_error_text(-added));
                rc = added;
            }
        }
    }
    return rc;
}

static void window_adapt(const struct rg_tar_scan *scan, struct shard *shard, uint64_t end)
{
    uint64_t jump = shard->parser->offset > end ? shard->parser->offset - end : 0;
    if (jump >= JUMP_MIN) {
        shard->window = RG_MAX(shard->window / 2, (uint64_t)WINDOW_MIN);
    } else {
        shard->window = RG_MIN(shard->window * 2, scan->window_max);
    }
}

static void shard_finish(struct rg_tar_scan *scan, uint64_t number)
{
    struct shard *shard = &scan->shards[number];
    int rc = rg_tar_parser_finish(shard->parser, shard->size);
    if (rc < 0) {
        scan_fail(scan, number, rc, shard->parser->error);
        return;
    }
    rc = rg_tar_section_end(&shard->section);
    if (rc < 0) {
        scan_fail(scan, number, rc, rc == -EBADMSG ? shard->section.error : rg_error_text(-rc));
        return;
    }
    scan->read++;
    shard_end(scan, shard);
}

static void window_notice(struct rg_tar_scan *scan, struct rg_completion *completion)
{
    uint64_t number = completion->user_data;
    struct shard *shard = &scan->shards[number];
    /* An empty object has no byte to ask for. */
    bool is_empty = completion->status == RG_STATUS_RANGE && shard->parser->offset == 0;
    bool is_gone =
        completion->status == RG_STATUS_NOT_FOUND && shard->generation != shard->wanted_generation;
    if (is_gone && shard->restarts < RESTARTS_MAX) {
        shard->restarts++;
        if (shard_read_begin(scan, shard) < 0) {
            scan_fail(scan, number, -ENOMEM, "no memory for its index");
            return;
        }
        shard_submit(scan, number);
        return;
    }
    if (completion->status != RG_STATUS_OK && !is_empty) {
        request_fail(scan, completion);
        return;
    }
    uint64_t size = is_empty ? 0 : completion->size;
    uint64_t end = shard->parser->offset + size;
    if (!is_empty) {
        shard->generation = completion->generation;
        shard->size = completion->object_size;
    }
    int rc = window_parse(scan, number, completion->data, size);
    if (rc < 0) {
        return;
    }
    window_adapt(scan, shard, end);
    bool is_end = rc == RG_TAR_RESULT_END || shard->parser->offset >= shard->size || size == 0;
    if (is_end) {
        shard_finish(scan, number);
    } else {
        shard_submit(scan, number);
    }
}

static void stat_notice(struct rg_tar_scan *scan, struct rg_completion *completion)
{
    uint64_t number = completion->user_data;
    struct shard *shard = &scan->shards[number];
    if (completion->status != RG_STATUS_OK) {
        request_fail(scan, completion);
        return;
    }
    const struct rg_object_info *info = completion->data;
    if (shard_take_over(scan, shard, info->object.generation)) {
        return;
    }
    if (shard_read_begin(scan, shard) < 0) {
        scan_fail(scan, number, -ENOMEM, "no memory for its index");
        return;
    }
    shard_submit(scan, number);
}

static void completions_notice(struct rg_tar_scan *scan, struct rg_completion *done, int count)
{
    for (int i = 0; i < count; i++) {
        scan->out--;
        if (scan->failed == 0) {
            bool is_stat = scan->shards[done[i].user_data].state == SHARD_STAT;
            (is_stat ? stat_notice : window_notice)(scan, &done[i]);
        }
        rg_lease_release(done[i].lease);
    }
    RG_VERIFY(invariants(scan));
}

/* Others have filled the client, and nothing of ours is out whose end could be waited for. */
static int client_full_pause(uint64_t deadline_ns)
{
    if (rg_now_ns() >= deadline_ns) {
        return -ETIME;
    }
    struct timespec pause = {.tv_nsec = CLIENT_FULL_PAUSE_NS};
    return nanosleep(&pause, NULL) < 0 ? -EINTR : 0;
}

int rg_tar_scan_run(struct rg_tar_scan *scan, uint64_t deadline_ns)
{
    if (rg_runtime_check(scan->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    int rc = 0;
    while (rc == 0 && scan->failed == 0) {
        scan_refill(scan);
        if (scan->done == scan->shard_count || scan->failed != 0) {
            break;
        }
        if (scan->out == 0) {
            rc = client_full_pause(deadline_ns);
            continue;
        }
        struct rg_completion done[COMPLETIONS_MAX];
        uint32_t max = RG_MIN(scan->at_once, (uint32_t)COMPLETIONS_MAX);
        int count = rg_cq_wait(scan->cq, done, max, 1, deadline_ns);
        completions_notice(scan, done, count);
        rc = count < 0 ? count : 0;
    }
    return scan->failed != 0 ? scan->failed : rc;
}

const char *rg_tar_scan_failure(const struct rg_tar_scan *scan, const char **out_shard,
                                struct rg_completion *out_completion)
{
    *out_shard = scan->failed != 0 ? scan->shards[scan->failed_shard].name : "";
    *out_completion = scan->failed_completion;
    return scan->error;
}

uint64_t rg_tar_scan_done(const struct rg_tar_scan *scan, uint64_t *out_read)
{
    *out_read = scan->read;
    return scan->done;
}

int rg_tar_scan_finish(struct rg_tar_scan *scan, struct rg_tar_index **out_index)
{
    RG_ASSERT(scan->failed == 0 && scan->done == scan->shard_count);
    struct rg_tar_builder builder;
    int rc = rg_tar_builder_init(&builder, scan->bucket);
    for (uint64_t i = 0; rc == 0 && i < scan->shard_count; i++) {
        struct shard *shard = &scan->shards[i];
        rc = shard->is_taken_over
                 ? rg_tar_builder_take(&builder, scan->known, (uint64_t)shard->known)
                 : rg_tar_builder_add(&builder, shard->name, shard->size, shard->generation,
                                      &shard->section);
        rg_tar_section_fini(&shard->section);
    }
    rc = rc == 0 ? rg_tar_builder_finish(&builder, out_index) : rc;
    rg_tar_builder_fini(&builder);
    return rc;
}

void rg_tar_scan_close(struct rg_tar_scan *scan)
{
    if (scan == NULL) {
        return;
    }
    bool is_owner = rg_runtime_check(scan->client->runtime) == 0;
    if (scan->cq != NULL && is_owner) {
        rg_client_cancel_all(scan->client, scan->cq);
        while (scan->out > 0) {
            struct rg_completion done;
            if (rg_cq_wait(scan->cq, &done, 1, 1, RG_FOREVER) == 1) {
                rg_lease_release(done.lease);
                scan->out--;
            }
        }
    }
    if (is_owner) {
        rg_lease_release(scan->failed_completion.lease);
    }
    rg_cq_close(scan->cq);
    for (uint64_t i = 0; i < scan->shard_count; i++) {
        free(scan->shards[i].name);
        free(scan->shards[i].parser);
        rg_tar_section_fini(&scan->shards[i].section);
    }
    free(scan->shards);
    free(scan->ready);
    free(scan->bucket);
    free(scan);
}
