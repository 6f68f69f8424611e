/* Who wrote what is there: every write that can have a condition, against an emulator that loses
 * its answers or has somebody else write the same before it. What may not be deceived (`exclusive`)
 * is not; what may says so (`found_done`). */
#include "emulator/emulator.h"
#include "tests/support/test.h"
#include "tests/support/write_ways.h"

#define NAME_SIZE_MAX 160
#define TESTS_MAX 256

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

struct row {
    const char *way;
    enum outcome plain[EVENT_COUNT], exclusive[EVENT_COUNT];
};

static struct rg_emulator *emulator;
static uint16_t port;
#define WRITE                                                                                      \
    .plain = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED}, .exclusive = {OURS, REFUSED, REFUSED, OURS}
#define REMOVE                                                                                     \
    .plain = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED},                                              \
    .exclusive = {REFUSED, REFUSED, REFUSED, REFUSED}

static const struct row rows[] = {
    {"put", WRITE},
    {"upload as it comes", WRITE},
    {"upload in one request", WRITE},
    {"upload in composed parts", WRITE},
    /* There is no condition, and so no refusal: what is completed again does not exist any more,
     * and what is there is looked at. Somebody else's who is first is replaced. */
    {"upload in parts of the XML API", .plain = {ANYBODYS, OURS, ANYBODYS, ANYBODYS},
     .exclusive = {OURS, OURS, REFUSED, OURS}},
    /* The session itself tells. */
    {"upload in a session", .plain = {OURS, REFUSED, OURS, OURS},
     .exclusive = {OURS, REFUSED, OURS, OURS}},
    {"large upload in a session", .plain = {OURS, REFUSED, OURS, OURS},
     .exclusive = {OURS, REFUSED, OURS, OURS}},
    {"writer", WRITE},
    {"writer of lent memory", WRITE},
    {"writer of lent memory, summed up", WRITE},
    {"compose", WRITE},
    {"copy", .plain = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED},
     .exclusive = {ANYBODYS, ANYBODYS, ANYBODYS, REFUSED}},
    /* Replaced: the same change once more is another metageneration, that of neither. */
    {"update", .plain = {ANYBODYS, ANYBODYS, REFUSED, REFUSED},
     .exclusive = {OURS, REFUSED, REFUSED, OURS}},
    {"delete", REMOVE},
    {"delete in a batch", REMOVE},
};

struct job {
    char name[NAME_SIZE_MAX];
    const struct rg_write_way *way;
    const struct row *row;
    enum event event;
    bool exclusive;
};
static struct job jobs[TESTS_MAX];
static struct rg_test tests[TESTS_MAX];
static size_t job_count;

static void rule_begin(const struct job *job, struct rg_talk_rule *rule)
{
    static const char *const what[EVENT_COUNT] = {
        [ANSWER_LOST] = "\"answer\":\"failed\"",
        [DONE_BEFORE] = "\"effect\":\"none\",\"answer\":\"held\"",
        [DONE_AFTER] = "\"answer\":\"lost\"",
        [SENT_TWICE] = "\"effect\":\"twice\"",
    };
    char json[512];
    snprintf(json, sizeof(json), "%s,%s", job->way->request, what[job->event]);
    rg_talk_rule_begin(port, json, rule);
}

static void check_outcome(const struct job *job, const struct rg_completion *done)
{
    enum outcome want = (job->exclusive ? job->row->exclusive : job->row->plain)[job->event];
    bool is_gone = job->way->effect == RG_WRITE_REMOVES && done->status == RG_STATUS_NOT_FOUND;
    bool refused = done->status == RG_STATUS_PRECONDITION || is_gone;
    enum outcome got = refused ? REFUSED : done->found_done ? ANYBODYS : OURS;
    if (!refused) {
        RG_CHECK_STATUS(done, OK);
    }
    RG_CHECK_EQ(got, want);
}

/* Where somebody else comes between, the answer is lost only when that is over. */
static void run_job(const struct job *job)
{
    struct rg_write_run run = {.port = port, .exclusive = job->exclusive};
    struct rg_talk_rule rule;
    run.client.options.endpoint = rg_emulator_endpoint(emulator);
    run.client.options.backoff_max_ns = 20 * RG_NS_PER_MS;
    rg_write_run_open(&run, job->way, (size_t)(job - jobs));
    rule_begin(job, &rule);
    job->way->submit(&run);
    bool has_other = job->event == DONE_BEFORE || job->event == DONE_AFTER;
    if (has_other) {
        rg_talk_rule_wait(port, &rule);
        /* A rule strikes when the head has come. */
        RG_AWAIT(job->event == DONE_BEFORE || rg_write_run_is_done(&run, job->way));
        job->way->other(&run);
        rg_talk_rule_end(port, &rule);
    }
    struct rg_completion done = rg_write_run_take(&run);
    check_outcome(job, &done);
    rg_lease_release(done.lease);
    if (!has_other) {
        rg_talk_rule_end(port, &rule);
    }
    RG_CHECK_EQ(rule.struck, 1);
    rg_write_run_close(&run);
}

static void run_current(void)
{
    run_job(&jobs[rg_test_index()]);
}

static void add_jobs(const struct rg_write_way *way, const struct row *row)
{
    for (int i = 0; i < 2 * EVENT_COUNT; i++) {
        struct job *job = &jobs[job_count];
        RG_ASSERT(job_count + 1 < TESTS_MAX);
        *job = (struct job){
            .way = way, .row = row, .event = (enum event)(i / 2), .exclusive = i % 2 > 0};
        snprintf(job->name, sizeof(job->name), "%s%s: %s", job->exclusive ? "exclusive " : "",
                 way->name, event_names[job->event]);
        tests[job_count++] = (struct rg_test){job->name, run_current};
    }
}

/* Every way that somebody else can go has its row, too. */
static void test_every_way_has_its_row(void)
{
    size_t ways = 0;
    for (size_t i = 0; i < rg_write_way_count; i++) {
        ways += rg_write_ways[i].other != NULL;
    }
    RG_CHECK_EQ(ways, RG_ARRAY_LEN(rows));
    RG_CHECK_EQ(job_count, 2 * EVENT_COUNT * RG_ARRAY_LEN(rows));
}

int main(int argc, char **argv)
{
    char error[256] = "";
    struct rg_emulator_options options = {.threads = 1, .plain = true, .strict_buckets = true};
    for (size_t i = 0; i < rg_write_way_count; i++) {
        for (size_t j = 0; j < RG_ARRAY_LEN(rows); j++) {
            if (strcmp(rg_write_ways[i].name, rows[j].way) == 0) {
                add_jobs(&rg_write_ways[i], &rows[j]);
            }
        }
    }
    tests[job_count] = (struct rg_test)RG_TEST(test_every_way_has_its_row);
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    port = rg_talk_port(rg_emulator_endpoint(emulator));
    int rc = rg_test_main(argc, argv, tests, job_count + 1);
    rg_emulator_close(emulator);
    return rc;
}
