/* Steps of loops whose reader is closed: what is kept of them, and told. */
#include "dataset/steps.h"

#include "gcs/request/client_loop.h"
#include "tests/gcs/host/region_case.h"
#include "tests/support/test.h"

#include <string.h>
#include <sys/wait.h>

static struct region_case c;
static struct rg_runtime runtime;
static struct rg_client client = {.runtime = &runtime};
static struct rg_steps steps;
static struct rg_told_step open;

static const struct rg_steps_name name = {
    .dataset = "Dataset", .source = "gs://b/p", .ahead = "requests=", .rank = 1, .world_size = 2};

static void begin(void)
{
    region_case_open(&c);
    client.share_folder = c.folder;
    RG_CHECK_EQ(rg_steps_name(&steps, &client, &name), 0);
}

static void end(void)
{
    rg_steps_fini(&steps);
    region_case_close(&c);
}

static struct rg_told last;

static void note_found(void *context, const struct rg_told *told)
{
    uint32_t *count = context;
    (*count)++;
    last = *told;
}

static uint32_t look(void)
{
    uint32_t count = 0;
    struct rg_host_region region;
    int rc = rg_host_region_find(&region, c.folder, c.why, sizeof(c.why));
    if (rc == 0) {
        rc = rg_told_read(&region, note_found, &count);
        rg_host_region_close(&region);
    }
    RG_CHECK(rc == 0 || rc == -ENOENT);
    return count;
}

static void step(bool has_value)
{
    rg_steps_enter(&steps, NULL);
    rg_steps_leave(&steps, NULL, has_value);
}

/* What was told last is as old as it has to be for the next. */
static void let_time_pass(void)
{
    steps.told->told_ns -= RG_TOLD_INTERVAL_NS;
    for (uint64_t i = 0; i < RG_TOLD_GROUPS; i++) {
        uint64_t *ended_ns = &steps.told->ring[i].ended_ns;
        *ended_ns -= RG_MIN(*ended_ns, RG_TOLD_INTERVAL_NS);
    }
}

static void test_the_last_steps_are_kept(void)
{
    begin();
    for (int i = 0; i < RG_STEPS_MAX + 5; i++) {
        step(true);
    }
    step(false);
    RG_CHECK_EQ(steps.count, RG_STEPS_MAX + 5);
    RG_CHECK_EQ(rg_steps_sum(&steps, 3, &open).count, 3);
    RG_CHECK_EQ(rg_steps_sum(&steps, UINT64_MAX, &open).count, RG_STEPS_MAX);
    end();
}

static void test_they_are_told_in_groups(void)
{
    begin();
    step(true);
    step(true);
    RG_CHECK_EQ(look(), 0); /* not at once */
    let_time_pass();
    step(true);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.groups, 1);
    RG_CHECK_EQ(last.ring[0].count, 3);
    RG_CHECK_EQ(last.state, RG_TOLD_AWAY);
    RG_CHECK_EQ(last.pid, (uint32_t)getpid());
    RG_CHECK_STR(last.dataset, "Dataset");
    RG_CHECK_EQ(last.rank, 1);
    let_time_pass();
    step(true);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.groups, 2);
    RG_CHECK_EQ(last.ring[1].count, 1);
    step(false);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_OVER);
    end();
    RG_CHECK_EQ(look(), 0);
}

static void test_a_step_that_waits_is_told_and_its_end_at_once(void)
{
    begin();
    rg_steps_wait(&steps, NULL); /* there is none */
    rg_steps_enter(&steps, NULL);
    rg_steps_wait(&steps, NULL);
    RG_CHECK_EQ(look(), 0);
    let_time_pass();
    rg_steps_wait(&steps, NULL);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_INSIDE);
    RG_CHECK_EQ(last.groups, 0);
    RG_CHECK(last.open.inside_ns > 0);
    RG_CHECK(rg_steps_sum(&steps, 9, &open).inside_ns > 0);
    RG_CHECK_EQ(open.inside_ns, last.open.inside_ns);
    RG_CHECK_EQ(open.count, 0);
    rg_steps_leave(&steps, NULL, true);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_AWAY);
    RG_CHECK_EQ(last.open.ended_ns, 0);
    RG_CHECK_EQ(last.ring[0].count, 1);
    let_time_pass();
    rg_steps_enter(&steps, NULL);
    rg_steps_sleep(&steps, NULL);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_INSIDE);
    rg_steps_enter(&steps, NULL);
    rg_steps_leave(&steps, NULL, false);
    end();
}

static void test_a_loop_that_is_left_early_is_over(void)
{
    begin();
    rg_steps_close(&steps, NULL);
    RG_CHECK_EQ(look(), 0); /* nobody knows of it */
    let_time_pass();
    step(true);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_AWAY);
    rg_steps_close(&steps, NULL);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_OVER);
    RG_CHECK_EQ(last.ring[0].count, 1);
    let_time_pass();
    rg_steps_enter(&steps, NULL);
    rg_steps_sleep(&steps, NULL);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_INSIDE);
    rg_steps_close(&steps, NULL); /* where nobody goes on to await it */
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.state, RG_TOLD_OVER);
    RG_CHECK_EQ(last.open.ended_ns, 0);
    end();
}

static void test_the_child_of_a_fork_tells_nothing(void)
{
    begin();
    let_time_pass();
    step(true);
    pid_t child = fork();
    if (child == 0) {
        let_time_pass();
        step(true);
        bool has_none = rg_steps_sum(&steps, 9, &open).count == 0;
        rg_steps_fini(&steps);
        _exit(has_none ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    RG_CHECK_EQ(look(), 1);
    RG_CHECK_EQ(last.ring[0].count, 1);
    end();
}

static void test_who_shares_nothing_tells_nothing(void)
{
    begin();
    free(steps.folder);
    steps.folder = NULL;
    let_time_pass();
    step(true);
    RG_CHECK_EQ(look(), 0);
    RG_CHECK_EQ(rg_steps_sum(&steps, 1, &open).count, 1);
    RG_CHECK(rg_steps_busy(&steps, NULL) == 0);
    end();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_last_steps_are_kept),
        RG_TEST(test_they_are_told_in_groups),
        RG_TEST(test_a_step_that_waits_is_told_and_its_end_at_once),
        RG_TEST(test_a_loop_that_is_left_early_is_over),
        RG_TEST(test_the_child_of_a_fork_tells_nothing),
        RG_TEST(test_who_shares_nothing_tells_nothing),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
