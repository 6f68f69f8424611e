/* Events of a trace: all that there is room for, from many threads, and how many there was none
 * for.
 */
#include "runtime/tracing.h"

#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define EACH 1000

static void add(uint64_t at_ns, const char *name)
{
    struct rg_trace_event event = {.at_ns = at_ns, .request = at_ns, .what = "queue"};
    strcpy(event.name, name);
    rg_tracing_add(&event);
}

static void *add_many(void *context)
{
    uint64_t first = (uint64_t)(uintptr_t)context;
    for (uint64_t i = 0; i < EACH; i++) {
        add(first + i, "");
    }
    return NULL;
}

static void threads_run(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, add_many, (void *)(1 + i * EACH)), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        RG_CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
}

static void test_threads_write_side_by_side(void)
{
    static bool seen[THREADS * EACH + 1];
    struct rg_trace_event event;
    uint32_t count;
    uint64_t dropped, found = 0;
    RG_CHECK_EQ(rg_tracing_begin(2 * THREADS * EACH), 0);
    RG_CHECK(rg_tracing_is_on());
    threads_run();
    RG_CHECK(!rg_tracing_get(0, &event));
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    RG_CHECK(!rg_tracing_is_on());
    RG_CHECK_EQ(dropped, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (rg_tracing_get(i, &event)) {
            RG_CHECK(event.at_ns <= THREADS * EACH && !seen[event.at_ns]);
            seen[event.at_ns] = true;
            found++;
        }
    }
    RG_CHECK_EQ(found, THREADS * EACH);
    rg_tracing_free();
    RG_CHECK(!rg_tracing_get(0, &event));
}

static void test_what_has_no_room_is_counted(void)
{
    struct rg_trace_event event;
    uint32_t count;
    uint64_t dropped;
    RG_CHECK_EQ(rg_tracing_begin(100), 0);
    RG_CHECK_EQ(rg_tracing_begin(100), -EBUSY);
    for (uint64_t i = 1; i <= 130; i++) {
        add(i, "bucket/object");
    }
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    RG_CHECK_EQ(count, 100);
    RG_CHECK_EQ(dropped, 30);
    RG_CHECK(rg_tracing_get(99, &event));
    RG_CHECK_EQ(event.at_ns, 100);
    RG_CHECK_STR(event.name, "bucket/object");
    RG_CHECK(!rg_tracing_get(100, &event));
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), -EINVAL);
}

static void test_the_next_trace_has_nothing_of_the_last(void)
{
    struct rg_trace_event event;
    uint32_t count;
    uint64_t dropped;
    RG_CHECK_EQ(rg_tracing_begin(1000), 0);
    rg_tracing_sleep(5, 12);
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    RG_CHECK_EQ(dropped, 0);
    RG_CHECK(rg_tracing_get(0, &event));
    RG_CHECK_EQ(event.took_ns, 7);
    RG_CHECK_STR(event.what, "wait");
    RG_CHECK_STR(event.name, "");
    RG_CHECK(!rg_tracing_get(1, &event));
    rg_tracing_free();
}

static void test_a_child_is_not_in_its_parents_trace(void)
{
    uint32_t count;
    uint64_t dropped;
    RG_CHECK_EQ(rg_tracing_begin(1000), 0);
    add(1, "");
    pid_t child = fork();
    if (child == 0) {
        bool is_off = !rg_tracing_is_on() && rg_tracing_end(&count, &dropped) == -EINVAL;
        bool begins = rg_tracing_begin(2000) == 0 && rg_tracing_end(&count, &dropped) == 0;
        _exit(is_off && begins && count == 0 ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    add(2, "");
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    struct rg_trace_event event;
    RG_CHECK(rg_tracing_get(0, &event) && rg_tracing_get(1, &event));
    rg_tracing_free();
}

static void test_what_lasts_for_no_time_makes_no_event(void)
{
    uint32_t count;
    uint64_t dropped;
    RG_CHECK_EQ(rg_tracing_begin(1000), 0);
    RG_CHECK(rg_tracing_latest(7, 5) == NULL);
    struct rg_trace_event *event = rg_tracing_claim();
    event->request = 7;
    event->what = "queue";
    strcpy(event->name, "bucket/object");
    rg_tracing_publish(event, 5, true);
    RG_CHECK(rg_tracing_latest(7, 6) == NULL);
    RG_CHECK(rg_tracing_latest(8, 5) == NULL);
    RG_CHECK(rg_tracing_latest(7, 5) == event);
    rg_tracing_change(event, "first_byte", 9);
    event = rg_tracing_claim();
    event->request = 7;
    event->what = "OK";
    rg_tracing_publish(event, 5, false);
    RG_CHECK(rg_tracing_latest(7, 5) == NULL); /* an end stays one */
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    struct rg_trace_event found;
    RG_CHECK(rg_tracing_get(0, &found));
    RG_CHECK_EQ(found.at_ns, 5);
    RG_CHECK_EQ(found.connection, 9);
    RG_CHECK_STR(found.what, "first_byte");
    RG_CHECK_STR(found.name, "bucket/object");
    RG_CHECK(rg_tracing_get(1, &found));
    RG_CHECK_STR(found.what, "OK");
    RG_CHECK(!rg_tracing_get(2, &found));
    rg_tracing_free();
    RG_CHECK_EQ(rg_tracing_begin(1000), 0); /* another trace */
    event = rg_tracing_claim();
    event->request = 7;
    rg_tracing_publish(event, 5, true);
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    RG_CHECK_EQ(rg_tracing_begin(1000), 0);
    RG_CHECK(rg_tracing_latest(7, 5) == NULL);
    RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
    rg_tracing_free();
}

/* Else threads that write events take it, page by page. */
static void test_its_memory_is_taken_when_it_begins(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    rg_test_skip("the sanitizers take memory of their own for what is written");
#endif
    struct rusage before, after;
    uint32_t count;
    uint64_t dropped;
    for (int again = 0; again < 2; again++) {
        RG_CHECK_EQ(rg_tracing_begin(20000), 0);
        getrusage(RUSAGE_SELF, &before);
        for (uint64_t i = 1; i <= 20000; i++) {
            add(i, "bucket/object");
        }
        getrusage(RUSAGE_SELF, &after);
        RG_CHECK(after.ru_minflt - before.ru_minflt < 100); /* of 625 pages */
        RG_CHECK_EQ(rg_tracing_end(&count, &dropped), 0);
        RG_CHECK_EQ(count, 20000);
        rg_tracing_free();
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_threads_write_side_by_side),
        RG_TEST(test_what_has_no_room_is_counted),
        RG_TEST(test_the_next_trace_has_nothing_of_the_last),
        RG_TEST(test_what_lasts_for_no_time_makes_no_event),
        RG_TEST(test_its_memory_is_taken_when_it_begins),
        RG_TEST(test_a_child_is_not_in_its_parents_trace),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
