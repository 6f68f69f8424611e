/* Every way to write or remove, with a fault at each of its requests in turn: done exactly once or
 * not at all, said to be done only if it is, and nothing left but what is documented. */
#include "emulator/emulator.h"
#include "tests/support/test.h"
#include "tests/support/write_ways.h"

#define NAME_SIZE_MAX 128
#define TESTS_MAX 256
/* No way sends as many. */
#define REQUESTS_MAX 32

struct fault {
    const char *name, *members; /* of a rule */
    bool repeats;               /* the request may be carried out twice */
    bool is_late;               /* behind all that its client does then */
};
static const struct fault faults[] = {
    {"its answer is lost", "\"answer\":\"dropped\"", .repeats = true},
    {"it is done and said to have failed", "\"answer\":\"failed\"", .repeats = true},
    {"it fails", "\"effect\":\"none\",\"answer\":\"failed\"", .repeats = true},
    {"it is sent twice", "\"effect\":\"twice\"", .repeats = false},
    {"it is sent twice and the answers are lost", "\"effect\":\"twice\",\"answer\":\"dropped\"",
     .repeats = true},
    {"its answer is late", "\"delay_ms\":20", .repeats = false},
    {"it comes when all is over", "\"effect\":\"later\",\"answer\":\"dropped\"", .repeats = true,
     .is_late = true},
};

struct job {
    char name[NAME_SIZE_MAX];
    const struct rg_write_way *way;
    const struct fault *fault;
    bool exclusive;
};

static struct rg_emulator *emulator;
static uint16_t port;
static struct job jobs[TESTS_MAX];
static struct rg_test tests[TESTS_MAX];
static size_t job_count;

static bool is_sure(const struct job *job)
{
    bool is_twice = strstr(job->fault->name, "sent twice") != NULL && !job->fault->repeats;
    /* A removal that finds nothing is none for whoever wants to know who did it. */
    bool is_claim = job->exclusive && job->way->effect == RG_WRITE_REMOVES;
    /* Whoever has no nonce is not believed at its first try. */
    bool is_unproven = is_twice && !job->exclusive && job->way->other != NULL;
    return !(job->way->unguarded && job->fault->repeats) && !(job->way->unproven && is_twice) &&
           !is_unproven && !(is_claim && (job->fault->repeats || is_twice));
}

/* After a success. */
static void check_leftovers(const struct job *job, const struct rg_write_run *run, bool struck)
{
    size_t uploads, objects = rg_write_run_leftovers(run, &uploads);
    bool may_be_late = struck && job->fault->is_late;
    /* A temporary object, or the removal of one, that came when the rest was removed. */
    RG_CHECK(objects <= (may_be_late ? 1 : 0));
    /* Those whose ids nobody was told. */
    RG_CHECK(uploads <= (struck ? 2 : 0));
}

/* True: the nth request was struck. */
static bool run_nth(const struct job *job, unsigned nth)
{
    struct rg_write_run run = {.port = port, .exclusive = job->exclusive};
    struct rg_talk_rule rule;
    char json[256];
    run.client.options.endpoint = rg_emulator_endpoint(emulator);
    rg_write_run_open(&run, job->way, (size_t)(job - jobs) * REQUESTS_MAX + nth);
    snprintf(json, sizeof(json), "\"writes\":true,\"bucket\":\"%s\",\"nth\":%u,%s", run.bucket, nth,
             job->fault->members);
    rg_talk_rule_begin(port, json, &rule);
    job->way->submit(&run);
    struct rg_completion done = rg_write_run_take(&run);
    rg_talk_rule_end(port, &rule);
    bool struck = rule.struck > 0;
    bool is_done = rg_write_run_is_done(&run, job->way);
    if (done.status == RG_STATUS_OK) {
        RG_CHECK(is_done);
        check_leftovers(job, &run, struck);
    } else if (!struck || is_sure(job)) {
        RG_CHECK_STATUS(&done, OK);
    }
    rg_lease_release(done.lease);
    rg_write_run_close(&run);
    return struck;
}

static void run_current(void)
{
    const struct job *job = &jobs[rg_test_index()];
    unsigned nth = 1;
    while (run_nth(job, nth)) {
        RG_CHECK(++nth < REQUESTS_MAX);
    }
    RG_CHECK(nth > 1);
}

static void add_jobs(const struct rg_write_way *way)
{
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(faults); i++) {
        struct job *job = &jobs[job_count];
        bool exclusive = i % 2 > 0;
        if (exclusive && (way->other == NULL || way->size == RG_WRITE_LARGE_SIZE)) {
            continue; /* only the last step differs: test_authorship.c */
        }
        RG_ASSERT(job_count < TESTS_MAX);
        *job = (struct job){.way = way, .fault = &faults[i / 2], .exclusive = exclusive};
        snprintf(job->name, sizeof(job->name), "%s%s: %s", exclusive ? "exclusive " : "", way->name,
                 job->fault->name);
        tests[job_count++] = (struct rg_test){job->name, run_current};
    }
}

int main(int argc, char **argv)
{
    char error[256] = "";
    struct rg_emulator_options options = {
        .threads = 1, .plain = true, .strict_buckets = true, .memory_max = UINT64_C(2) << 30};
    for (size_t i = 0; i < rg_write_way_count; i++) {
        add_jobs(&rg_write_ways[i]);
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
