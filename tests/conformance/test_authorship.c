/* Who wrote what is there: every write that can have a condition, against an emulator that loses
 * its answers or has somebody else write the same before it. What may not be deceived (`exclusive`)
 * is not; what may says so (`found_done`). */
#include "emulator/emulator.h"
#include "tests/support/client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <ringest/objects.h>
#include <ringest/upload.h>

#define NAME_SIZE_MAX 160
#define TESTS_MAX 128
#define SMALL_SIZE 5
#define PART_SIZE RG_MIB(5)
#define LARGE_SIZE (PART_SIZE + 1000)

struct run {
    struct rg_test_client client;
    char bucket[32];
    bool exclusive;
};

/* What happens to the request that does it. */
enum event {
    ANSWER_LOST, /* it is done */
    DONE_BEFORE, /* it is not, and somebody else has the same done before it is tried again */
    DONE_AFTER,  /* it is done, and then replaced by somebody else's same bytes */
    SENT_TWICE,  /* by what lies between us and the service */
    EVENT_COUNT,
};
static const char *const event_names[] = {"the answer is lost", "somebody else is first",
                                          "somebody else replaces it", "it is sent twice"};
_Static_assert(RG_ARRAY_LEN(event_names) == EVENT_COUNT, "a name for each event");

/* What comes of it: OK by us, OK by whoever, or a refusal. */
enum outcome { OURS, ANYBODYS, REFUSED };

struct way {
    const char *name, *request; /* members of the rule that strikes the one that does it */
    void (*submit)(struct run *run);
    void (*other)(const struct run *run); /* has the same done */
    enum outcome plain[EVENT_COUNT], exclusive[EVENT_COUNT];
};

static struct rg_emulator *emulator;
static uint16_t port;
static uint8_t data[LARGE_SIZE];

static struct rg_conditions absent(void)
{
    return (struct rg_conditions){.if_generation_match = RG_GENERATION_ABSENT};
}

static void other_put_size(const struct run *run, size_t size)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/new", run->bucket);
    /* Exclusive, too: another nonce than ours. */
    rg_talk(&talk, port,
            &(struct rg_talk_request){
                "PUT", target, "x-goog-meta-ringest-nonce: 00112233445566778899aabbccddeeff\r\n",
                data, size});
    RG_CHECK_EQ(talk.status, 200);
}

static void other_put(const struct run *run)
{
    other_put_size(run, SMALL_SIZE);
}

static void other_put_large(const struct run *run)
{
    other_put_size(run, LARGE_SIZE);
}

static void put(struct run *run)
{
    RG_CHECK_EQ(rg_submit_put(run->client.client, run->client.cq,
                              &(struct rg_put){.bucket = run->bucket,
                                               .object = "new",
                                               .data = data,
                                               .size = SMALL_SIZE,
                                               .exclusive = run->exclusive,
                                               .if_generation_match = RG_GENERATION_ABSENT}),
                0);
}

static void upload(struct run *run, enum rg_upload_method method, uint64_t size, bool guarded)
{
    RG_CHECK_EQ(rg_submit_upload(run->client.client, run->client.cq,
                                 &(struct rg_upload){
                                     .bucket = run->bucket,
                                     .object = "new",
                                     .method = method,
                                     .data = data,
                                     .size = size,
                                     .part_size = PART_SIZE,
                                     .exclusive = run->exclusive,
                                     .conditions = guarded ? absent() : (struct rg_conditions){0}}),
                0);
}

static void upload_single(struct run *run)
{
    upload(run, RG_UPLOAD_SINGLE, SMALL_SIZE, true);
}

static void upload_composed(struct run *run)
{
    upload(run, RG_UPLOAD_COMPOSE, LARGE_SIZE, true);
}

static void upload_multipart(struct run *run)
{
    upload(run, RG_UPLOAD_MULTIPART, LARGE_SIZE, false);
}

static void upload_resumable(struct run *run)
{
    upload(run, RG_UPLOAD_RESUMABLE, SMALL_SIZE, true);
}

static struct rg_writer *writer;

static void write_stream(struct run *run)
{
    struct rg_writer_options options = {.bucket = run->bucket,
                                        .object = "new",
                                        .exclusive = run->exclusive,
                                        .conditions = absent()};
    RG_CHECK_EQ(rg_writer_open(&writer, run->client.client, &options), 0);
    RG_CHECK_EQ(rg_writer_write(writer, data, SMALL_SIZE), SMALL_SIZE);
    RG_CHECK_EQ(rg_writer_finish(writer, run->client.cq, 0), 0);
}

static void compose(struct run *run)
{
    const struct rg_compose_source source = {.object = "old"};
    RG_CHECK_EQ(rg_submit_compose(run->client.client, run->client.cq,
                                  &(struct rg_compose){.bucket = run->bucket,
                                                       .object = "new",
                                                       .sources = &source,
                                                       .source_count = 1,
                                                       .crc32c = rg_crc32c(0, data, SMALL_SIZE),
                                                       .has_crc32c = true,
                                                       .exclusive = run->exclusive,
                                                       .conditions = absent()}),
                0);
}

static void copy(struct run *run)
{
    RG_CHECK_EQ(rg_submit_copy(run->client.client, run->client.cq,
                               &(struct rg_copy){.source_bucket = run->bucket,
                                                 .source_object = "old",
                                                 .bucket = run->bucket,
                                                 .object = "new",
                                                 .conditions = absent()}),
                0);
}

static void update(struct run *run)
{
    const struct rg_metadata pair = {"colour", "green"};
    RG_CHECK_EQ(rg_submit_update(run->client.client, run->client.cq,
                                 &(struct rg_update){.bucket = run->bucket,
                                                     .object = "old",
                                                     .metadata = &pair,
                                                     .metadata_count = 1,
                                                     .exclusive = run->exclusive,
                                                     .conditions.if_metageneration_match = 1}),
                0);
}

static void other_update(const struct run *run)
{
    static const char change[] = "{\"metadata\":{\"colour\":\"green\"}}";
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/storage/v1/b/%s/o/old", run->bucket);
    rg_talk(&talk, port,
            &(struct rg_talk_request){"PATCH", target, "Content-Type: application/json\r\n", change,
                                      sizeof(change) - 1});
    RG_CHECK_EQ(talk.status, 200);
}

static int64_t old_generation(const struct run *run)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, port, &(struct rg_talk_request){.method = "HEAD", .target = target});
    const char *generation = strstr(talk.head, "x-goog-generation: ");
    RG_CHECK(generation != NULL);
    return strtoll(strchr(generation, ' '), NULL, 10);
}

static void delete_one(struct run *run)
{
    RG_CHECK_EQ(rg_submit_delete(run->client.client, run->client.cq,
                                 &(struct rg_delete){.bucket = run->bucket,
                                                     .object = "old",
                                                     .generation = old_generation(run),
                                                     .exclusive = run->exclusive}),
                0);
}

static void delete_in_batch(struct run *run)
{
    const struct rg_delete item = {.bucket = run->bucket,
                                   .object = "old",
                                   .generation = old_generation(run),
                                   .exclusive = run->exclusive};
    RG_CHECK_EQ(rg_submit_delete_many(run->client.client, run->client.cq,
                                      &(struct rg_delete_many){.deletes = &item, .count = 1}),
                0);
}

static void other_delete(const struct run *run)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, port, &(struct rg_talk_request){.method = "DELETE", .target = target});
}

#define WRITE                                                                                      \
    .plain = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED}, .exclusive = {OURS, REFUSED, REFUSED, OURS}
#define REMOVE                                                                                     \
    .plain = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED},                                              \
    .exclusive = {REFUSED, REFUSED, REFUSED, REFUSED}

static const struct way ways[] = {
    {"put", "\"writes\":true", put, other_put, WRITE},
    {"upload in one request", "\"writes\":true", upload_single, other_put, WRITE},
    {"upload in composed parts", "\"method\":\"storage.objects.compose\"", upload_composed,
     other_put_large, WRITE},
    /* There is no condition, and so no refusal: what is completed again does not exist any more,
     * and what is there is looked at. Somebody else's who is first is replaced. */
    {"upload in parts of the XML API", "\"writes\":true,\"target\":\"?uploadId=\"",
     upload_multipart, other_put_large, .plain = {ANYBODYS, OURS, ANYBODYS, ANYBODYS},
     .exclusive = {OURS, OURS, REFUSED, OURS}},
    /* The session itself tells. */
    {"upload in a session", "\"method\":\"storage.objects.insert\",\"target\":\"upload_id=\"",
     upload_resumable, other_put, .plain = {OURS, REFUSED, OURS, OURS},
     .exclusive = {OURS, REFUSED, OURS, OURS}},
    {"writer", "\"writes\":true", write_stream, other_put, WRITE},
    {"compose", "\"method\":\"storage.objects.compose\"", compose, other_put, WRITE},
    {"copy", "\"method\":\"storage.objects.rewrite\"", copy, other_put,
     .plain = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED},
     .exclusive = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED}},
    /* Replaced: the same change once more is another metageneration, that of neither. */
    {"update", "\"method\":\"storage.objects.patch\"", update, other_update,
     .plain = {ANYBODYS, ANYBODYS, REFUSED, REFUSED}, .exclusive = {OURS, REFUSED, REFUSED, OURS}},
    {"delete", "\"writes\":true", delete_one, other_delete, REMOVE},
    {"delete in a batch", "\"target\":\"/batch\"", delete_in_batch, other_delete, REMOVE},
};

struct job {
    char name[NAME_SIZE_MAX];
    const struct way *way;
    enum event event;
    bool exclusive;
};
static struct job jobs[TESTS_MAX];
static struct rg_test tests[TESTS_MAX];
static size_t job_count;

static void make_resources(struct run *run, const struct job *job)
{
    char target[64];
    struct rg_talk talk;
    snprintf(run->bucket, sizeof(run->bucket), "bucket-%zu", (size_t)(job - jobs));
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, port, &(struct rg_talk_request){"PUT", target, NULL, data, SMALL_SIZE});
    RG_CHECK_EQ(talk.status, 200);
}

static void rule_begin(const struct job *job, struct rg_talk_rule *rule)
{
    static const char *const what[EVENT_COUNT] = {
        [ANSWER_LOST] = "\"answer\":\"failed\"",
        [DONE_BEFORE] = "\"effect\":\"none\",\"answer\":\"held\"",
        [DONE_AFTER] = "\"answer\":\"held\"",
        [SENT_TWICE] = "\"effect\":\"twice\"",
    };
    char json[512];
    snprintf(json, sizeof(json), "%s,%s", job->way->request, what[job->event]);
    rg_talk_rule_begin(port, json, rule);
}

/* Of a batch's answer, its one result. */
static struct rg_completion outcome_of(struct run *run)
{
    struct rg_completion done = rg_test_take(&run->client);
    if (done.status == RG_STATUS_OK && done.data != NULL &&
        done.size == sizeof(struct rg_delete_result)) {
        const struct rg_delete_result *result = done.data;
        done.status = result->status;
        done.found_done = result->found_done;
    }
    return done;
}

static void check_outcome(const struct rg_completion *done, enum outcome want)
{
    bool refused = done->status == RG_STATUS_PRECONDITION || done->status == RG_STATUS_NOT_FOUND;
    enum outcome got = refused ? REFUSED : done->found_done ? ANYBODYS : OURS;
    if (!refused) {
        RG_CHECK_STATUS(done, OK);
    }
    RG_CHECK_EQ(got, want);
}

/* An answer that is held and lost in the end: the connection is of a client that gives up on it. */
static void run_job(const struct job *job)
{
    struct run run = {.exclusive = job->exclusive};
    struct rg_talk_rule rule;
    make_resources(&run, job);
    rule_begin(job, &rule);
    run.client.no_server = true;
    run.client.options.endpoint = rg_emulator_endpoint(emulator);
    run.client.options.backoff_max_ns = 20 * RG_NS_PER_MS;
    if (job->event == DONE_AFTER) {
        run.client.options.first_byte_timeout_ns = 300 * RG_NS_PER_MS;
        run.client.options.no_adapting = true;
    }
    rg_test_client_open(&run.client);
    job->way->submit(&run);
    if (job->event == DONE_BEFORE || job->event == DONE_AFTER) {
        rg_talk_rule_wait(port, &rule);
        job->way->other(&run);
    }
    if (job->event == DONE_BEFORE) {
        rg_talk_rule_end(port, &rule);
    }
    struct rg_completion done = outcome_of(&run);
    check_outcome(&done, (job->exclusive ? job->way->exclusive : job->way->plain)[job->event]);
    rg_lease_release(done.lease);
    if (job->event != DONE_BEFORE) {
        rg_talk_rule_end(port, &rule);
    }
    RG_CHECK_EQ(rule.struck, 1);
    rg_writer_close(writer);
    writer = NULL;
    rg_test_client_close(&run.client);
}

static void run_current(void)
{
    run_job(&jobs[rg_test_index()]);
}

static void add_jobs(const struct way *way)
{
    for (int i = 0; i < 2 * EVENT_COUNT; i++) {
        struct job *job = &jobs[job_count];
        RG_ASSERT(job_count < TESTS_MAX);
        *job = (struct job){.way = way, .event = (enum event)(i / 2), .exclusive = i % 2 > 0};
        snprintf(job->name, sizeof(job->name), "%s%s: %s", job->exclusive ? "exclusive " : "",
                 way->name, event_names[job->event]);
        tests[job_count++] = (struct rg_test){job->name, run_current};
    }
}

int main(int argc, char **argv)
{
    char error[256] = "";
    struct rg_emulator_options options = {.threads = 1, .plain = true};
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(ways); i++) {
        add_jobs(&ways[i]);
    }
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    port = rg_talk_port(rg_emulator_endpoint(emulator));
    int rc = rg_test_main(argc, argv, tests, job_count);
    rg_emulator_close(emulator);
    return rc;
}
