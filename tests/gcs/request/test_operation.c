/* The life of an operation: which of its functions are called, in which order, and by whom. Its
 * children are played by alarms, so that their ends come when the test wants. */
#include "gcs/request/operation.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#define CHILD_NS RG_NS_PER_MS

/* What the operation does; each function adds a letter to the trace when it is called. */
struct plan {
    uint32_t steps;      /* children, one after the other, before it finishes */
    uint32_t fails_at;   /* the step that fails; 0: none */
    uint32_t removals;   /* children of CLEANING */
    bool lasts;          /* its children end when they are cancelled, and not before */
    bool asks, was_done; /* VERIFYING has a child, which finds that it has been done */
    bool verify_at_once; /* it is known without a child */
    bool cancels_itself; /* twice, in the first step */
    bool hurries;        /* while it removes something */
    bool ignores_cancel; /* it has a `cancel`, which does nothing */
    bool waits;          /* for memory, all of which it has taken before */
};

struct played {
    struct rg_operation operation;
    struct plan plan;
    struct rg_alarm child;
    uint32_t steps_done, removals_done;
    struct rg_lease *all; /* the memory that it waits for comes back when its alarm fires */
};

/* Outlives the operation. */
static char trace[128];
static uint32_t freed;

static struct played *played_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct played, operation);
}

static void trace_add(char letter)
{
    size_t size = strlen(trace);
    RG_CHECK(size + 1 < sizeof(trace));
    trace[size] = letter;
    trace[size + 1] = '\0';
}

static struct rg_loop *loop_of(const struct played *played)
{
    return played->operation.request->client_loop->loop;
}

static void child_start(struct played *played, uint64_t after_ns)
{
    rg_operation_child_started(&played->operation);
    rg_loop_set_alarm(loop_of(played), &played->child, loop_of(played)->now_ns + after_ns);
}

static void child_end(struct rg_alarm *alarm)
{
    struct played *played = RG_CONTAINER_OF(alarm, struct played, child);
    struct rg_operation *operation = &played->operation;
    trace_add('.');
    if (operation->state == RG_OPERATION_RUNNING && ++played->steps_done == played->plan.fails_at) {
        rg_operation_fail(operation, RG_STATUS_SERVER, "step %u", played->steps_done);
    } else if (operation->state == RG_OPERATION_VERIFYING && played->plan.was_done) {
        rg_operation_resume(operation);
    } else if (operation->state == RG_OPERATION_CLEANING) {
        played->removals_done++;
    }
    rg_operation_child_ended(operation, NULL);
    rg_operation_wake(operation);
}

static void memory_end(struct rg_alarm *alarm)
{
    struct played *played = RG_CONTAINER_OF(alarm, struct played, child);
    rg_lease_release(played->all);
    played->all = NULL;
}

/* Waits for memory with what it has of it. */
static void wait_begin(struct played *played)
{
    struct rg_slab_arena *slabs = loop_of(played)->slabs;
    bool lasts = played->plan.cancels_itself;
    played->all = rg_slab_take(slabs, rg_slab_size_max(slabs));
    RG_CHECK(played->all != NULL);
    RG_CHECK(rg_operation_take_slab(&played->operation, 1) == NULL);
    RG_CHECK(rg_operation_waits_for_memory(&played->operation));
    rg_alarm_init(&played->child, memory_end);
    rg_loop_set_alarm(loop_of(played), &played->child,
                      loop_of(played)->now_ns + (lasts ? 3600 * RG_NS_PER_S : CHILD_NS));
    if (lasts) {
        rg_request_cancel(played->operation.request, RG_STATUS_CANCELLED);
        RG_CHECK(!rg_operation_waits_for_memory(&played->operation));
    }
}

static void memory_take(struct played *played)
{
    struct rg_lease *lease = rg_operation_take_slab(&played->operation, 1);
    RG_CHECK(lease != NULL);
    trace_add('m');
    rg_lease_release(lease);
    played->plan.waits = false;
}

static void advance(struct rg_operation *operation)
{
    struct played *played = played_of(operation);
    struct rg_completion completion = {.http_status = 200};
    trace_add('a');
    if (played->plan.waits) {
        if (played->child.fire == memory_end) {
            memory_take(played);
        } else {
            wait_begin(played);
            return;
        }
    }
    if (operation->out > 0) {
        return;
    }
    if (played->steps_done >= played->plan.steps || operation->request->user_data == 1) {
        rg_operation_finish(operation, &completion);
        return;
    }
    child_start(played, played->plan.lasts ? 3600 * RG_NS_PER_S : CHILD_NS);
    if (played->plan.cancels_itself) {
        rg_request_cancel(operation->request, RG_STATUS_CANCELLED);
        rg_request_cancel(operation->request, RG_STATUS_DEADLINE);
        /* Nothing was called from within. */
        RG_CHECK(strchr(trace, 's') == NULL && operation->out == 1);
    }
}

static void stop(struct rg_operation *operation, bool hurry)
{
    struct played *played = played_of(operation);
    trace_add(hurry ? 'S' : 's');
    if (played->all != NULL) {
        rg_loop_cancel_alarm(loop_of(played), &played->child);
        memory_end(&played->child);
    }
    if (operation->out > 0) {
        rg_loop_cancel_alarm(loop_of(played), &played->child);
        child_end(&played->child);
    }
}

static void verify(struct rg_operation *operation)
{
    struct played *played = played_of(operation);
    trace_add('v');
    if (played->plan.asks) {
        operation->request->user_data = played->plan.was_done;
        child_start(played, CHILD_NS);
    } else if (played->plan.verify_at_once) {
        operation->request->user_data = 1;
        rg_operation_resume(operation);
    }
}

static bool clean(struct rg_operation *operation)
{
    struct played *played = played_of(operation);
    trace_add('c');
    if (played->removals_done >= played->plan.removals) {
        return false;
    }
    child_start(played, played->plan.hurries ? 3600 * RG_NS_PER_S : CHILD_NS);
    if (played->plan.hurries) {
        rg_request_cancel(operation->request, RG_STATUS_CANCELLED); /* which changes nothing */
        rg_request_cancel(operation->request, RG_STATUS_CLOSED);
    }
    return true;
}

static void changed(struct rg_operation *operation)
{
    trace_add((char)('0' + operation->state));
}

static void ignore(struct rg_operation *operation, enum rg_status status)
{
    (void)operation;
    RG_CHECK_EQ(status, RG_STATUS_CANCELLED);
    trace_add('i');
}

static void play_free(struct rg_operation *operation)
{
    freed++;
    free(played_of(operation));
}

static const struct rg_operation_ops all_ops = {
    .advance = advance,
    .stop = stop,
    .verify = verify,
    .clean = clean,
    .changed = changed,
    .free = play_free,
};
static const struct rg_operation_ops few_ops = {
    .advance = advance,
    .cancel = ignore,
    .free = play_free,
};
static const struct rg_request_ops request_ops = {
    .verb = "play",
    .start = rg_operation_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

/* Plays it to its end, and compares what was called with what should have been. */
static struct rg_completion play(const struct plan *plan, const char *want)
{
    struct rg_test_client c = {.no_server = true, .options = {.endpoint = "http://127.0.0.1:1"}};
    struct rg_request *request;
    rg_test_client_open(&c);
    struct played *played = calloc(1, sizeof(*played));
    RG_CHECK(played != NULL);
    RG_CHECK_EQ(rg_client_reserve(c.client, c.cq, &request), 0);
    RG_CHECK_EQ(rg_request_set_names(request, "bucket", "o"), 0);
    rg_request_prepare(request, &request_ops, 0, 0);
    played->plan = *plan;
    rg_alarm_init(&played->child, child_end);
    rg_operation_init(&played->operation, plan->ignores_cancel ? &few_ops : &all_ops, request);
    trace[0] = '\0';
    freed = 0;
    rg_client_post(request);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STR(trace, want);
    RG_CHECK_EQ(freed, 1);
    if (done.status != RG_STATUS_OK) {
        RG_CHECK(done.detail != NULL);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

static void test_it_runs_to_its_end(void)
{
    struct rg_completion done = play(&(struct plan){.steps = 2}, "1a.a.a5");
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    done = play(&(struct plan){0}, "1a5");
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
}

static void test_a_failure_passes_every_state(void)
{
    struct rg_completion done = play(&(struct plan){.steps = 2, .fails_at = 2}, "1a.a.2s3v4c5");
    RG_CHECK_EQ(done.status, RG_STATUS_SERVER);
}

/* It is only noted; the task cancels what is out, whose end is only noted in turn. */
static void test_cancelled_from_within(void)
{
    const struct plan plan = {.steps = 1, .lasts = true, .cancels_itself = true};
    struct rg_completion done = play(&plan, "1a2s.3v4c5");
    RG_CHECK_EQ(done.status, RG_STATUS_CANCELLED);
}

static void test_what_was_stopped_may_have_been_done(void)
{
    struct plan plan = {
        .steps = 1, .lasts = true, .cancels_itself = true, .asks = true, .was_done = true};
    struct rg_completion done = play(&plan, "1a2s.3v.1a5");
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    plan = (struct plan){.steps = 1, .lasts = true, .cancels_itself = true, .verify_at_once = true};
    done = play(&plan, "1a2s.3v1a5");
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    plan = (struct plan){.steps = 1, .lasts = true, .cancels_itself = true, .asks = true};
    done = play(&plan, "1a2s.3v.4c5");
    RG_CHECK_EQ(done.status, RG_STATUS_CANCELLED);
}

static void test_it_cleans_up_until_nothing_is_left(void)
{
    const struct plan plan = {.steps = 1, .fails_at = 1, .removals = 2};
    struct rg_completion done = play(&plan, "1a.2s3v4c.c.c5");
    RG_CHECK_EQ(done.status, RG_STATUS_SERVER);
}

static void test_closing_hurries_it(void)
{
    const struct plan plan = {.steps = 1, .fails_at = 1, .removals = 1, .hurries = true};
    struct rg_completion done = play(&plan, "1a.2s3v4cS.c5");
    RG_CHECK_EQ(done.status, RG_STATUS_SERVER);
}

/* When there is memory it goes on, unless it was stopped before. */
static void test_it_waits_for_memory(void)
{
    struct rg_completion done = play(&(struct plan){.waits = true}, "1aam5");
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    done = play(&(struct plan){.waits = true, .cancels_itself = true}, "1a2s3v4c5");
    RG_CHECK_EQ(done.status, RG_STATUS_CANCELLED);
}

/* Most functions need not be there, and one may decide itself what a cancellation means. */
static void test_few_functions(void)
{
    const struct plan plan = {.steps = 1, .cancels_itself = false, .ignores_cancel = true};
    struct rg_completion done = play(&plan, "a.a");
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    done = play(&(struct plan){.steps = 1, .fails_at = 1, .ignores_cancel = true}, "a.");
    RG_CHECK_EQ(done.status, RG_STATUS_SERVER);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_it_runs_to_its_end),
        RG_TEST(test_a_failure_passes_every_state),
        RG_TEST(test_cancelled_from_within),
        RG_TEST(test_what_was_stopped_may_have_been_done),
        RG_TEST(test_it_cleans_up_until_nothing_is_left),
        RG_TEST(test_closing_hurries_it),
        RG_TEST(test_it_waits_for_memory),
        RG_TEST(test_few_functions),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
