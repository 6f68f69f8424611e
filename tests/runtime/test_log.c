/* The log, read back through a pipe in place of standard error. */
#include "runtime/log.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define CAPTURE_SIZE_MAX 65536

static int saved_stderr = -1, pipe_read = -1;
static char captured[CAPTURE_SIZE_MAX];

static void capture_begin(void)
{
    int fds[2];
    RG_CHECK_EQ(pipe(fds), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    pipe_read = fds[0];
    fcntl(pipe_read, F_SETFL, O_NONBLOCK);
}

/* Reads what was written so far and gives standard error back. */
static const char *capture_end(void)
{
    size_t size = 0;
    ssize_t n;
    while ((n = read(pipe_read, captured + size, sizeof(captured) - 1 - size)) > 0) {
        size += (size_t)n;
    }
    captured[size] = '\0';
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_read);
    return captured;
}

static int configure_from(const char *value)
{
    if (value == NULL) {
        unsetenv("RINGEST_LOG");
    } else {
        setenv("RINGEST_LOG", value, 1);
    }
    return rg_log_configure(RG_LOG_DEFAULT);
}

static int evaluate_and_count(int *count)
{
    return ++*count;
}

static void test_nothing_is_written_or_evaluated_when_off(void)
{
    int evaluated = 0;
    rg_log_configure(RG_LOG_OFF);
    configure_from(NULL);
    capture_begin();
    rg_log(RG_LOG_ERROR, "unasked %d", evaluate_and_count(&evaluated));
    RG_CHECK_STR(capture_end(), "");
    RG_CHECK_EQ(evaluated, 0);
}

static void test_line_has_time_level_place_thread_and_message(void)
{
    rg_log_configure(RG_LOG_INFO);
    capture_begin();
    rg_log(RG_LOG_WARN, "%d of %s", 3, "four");
    const char *line = capture_end();
    int year, day, thread, end = 0;
    RG_CHECK_EQ(sscanf(line,
                       "%4d-%*2d-%2dT%*2d:%*2d:%*2d.%*6dZ ringest warn "
                       "tests/runtime/test_log [%d] 3 of four%n",
                       &year, &day, &thread, &end),
                3);
    RG_CHECK(year >= 2024 && day >= 1 && day <= 31);
    RG_CHECK_EQ(thread, gettid());
    RG_CHECK_STR(line + end, "\n");
}

static void test_only_levels_up_to_the_chosen_one_are_written(void)
{
    rg_log_configure(RG_LOG_WARN);
    capture_begin();
    rg_log(RG_LOG_INFO, "quiet");
    rg_log(RG_LOG_DEBUG, "quiet");
    rg_log(RG_LOG_ERROR, "loud");
    const char *text = capture_end();
    RG_CHECK(strstr(text, "quiet") == NULL);
    RG_CHECK(strstr(text, " error tests/runtime/test_log [") != NULL &&
             strstr(text, "loud\n") != NULL);
}

static void test_environment_names_every_level(void)
{
    static const struct {
        const char *value;
        enum rg_log_level level;
    } cases[] = {{"error", RG_LOG_ERROR},
                 {"warn", RG_LOG_WARN},
                 {"info", RG_LOG_INFO},
                 {"debug", RG_LOG_DEBUG}};
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        configure_from(cases[i].value);
        RG_CHECK_EQ(atomic_load(&rg_log_threshold), cases[i].level);
    }
    configure_from("");
    RG_CHECK(rg_log_enabled(RG_LOG_DEBUG));
    rg_log_configure(RG_LOG_OFF);
    RG_CHECK(!rg_log_enabled(RG_LOG_ERROR));
}

static void test_an_option_beats_the_environment(void)
{
    setenv("RINGEST_LOG", "debug", 1);
    rg_log_configure(RG_LOG_ERROR);
    RG_CHECK(rg_log_enabled(RG_LOG_ERROR));
    RG_CHECK(!rg_log_enabled(RG_LOG_WARN));
}

/* Reports once per process, so this is one case. */
static void test_bad_environment_value_is_reported_once_and_refused(void)
{
    rg_log_configure(RG_LOG_DEBUG);
    capture_begin();
    RG_CHECK_EQ(configure_from("verbose\n\033[31m and very much more text than anybody needs"),
                -EINVAL);
    RG_CHECK_EQ(configure_from("WARN"), -EINVAL);
    RG_CHECK_STR(capture_end(),
                 "ringest: RINGEST_LOG is \"verbose??[31m and very much more\", which is no level: "
                 "use error, warn, info or debug\n");
    RG_CHECK_EQ(configure_from(NULL), 0);
}

static void test_what_comes_often_is_counted_instead(void)
{
    rg_log_configure(RG_LOG_INFO);
    struct rg_log_some some = {0};
    capture_begin();
    for (int i = 0; i < 3 * RG_LOG_SOME_LINES; i++) {
        bool is_written = rg_log_some_allow(&some, RG_LOG_INFO, __FILE__);
        /* Another window may begin between two of them. */
        RG_CHECK(is_written == (i < RG_LOG_SOME_LINES) ||
                 atomic_load(&some.written) <= (unsigned)i);
    }
    (void)capture_end();
    atomic_store(&some.left_out, 7);
    atomic_store(&some.window, 1);
    capture_begin();
    RG_CHECK(rg_log_some_allow(&some, RG_LOG_INFO, __FILE__));
    RG_CHECK(strstr(capture_end(), "7 lines like the next one were left out\n") != NULL);
    rg_log_configure(RG_LOG_DEBUG);
    for (int i = 0; i < 3 * RG_LOG_SOME_LINES; i++) {
        RG_CHECK(rg_log_some_allow(&some, RG_LOG_INFO, __FILE__));
    }
}

static char sunk[256];

static void sink(enum rg_log_level level, const char *place, const char *text)
{
    snprintf(sunk, sizeof(sunk), "%d %s %s", level, place, text);
}

static void test_a_sink_takes_lines_beside_standard_error(void)
{
    rg_log_configure(RG_LOG_ERROR);
    RG_CHECK_EQ(rg_log_to(RG_LOG_INFO, sink), 0);
    capture_begin();
    rg_log(RG_LOG_DEBUG, "neither");
    rg_log(RG_LOG_INFO, "the sink\nalone");
    RG_CHECK_STR(capture_end(), "");
    RG_CHECK_STR(sunk, "3 tests/runtime/test_log the sink?alone");
    RG_CHECK_EQ(rg_log_to(RG_LOG_OFF, NULL), 0);
    RG_CHECK(rg_log_enabled(RG_LOG_ERROR) && !rg_log_enabled(RG_LOG_WARN));
    RG_CHECK_EQ(rg_log_to(RG_LOG_DEFAULT, sink), -EINVAL);
}

/* A program that keeps a line at the foot of a terminal has it cleared. */
static void test_what_precedes_a_line_is_written_with_it(void)
{
    RG_CHECK_EQ(rg_log_configure(RG_LOG_DEBUG), 0);
    capture_begin();
    rg_log_precede("\r\033[K");
    rg_log(RG_LOG_INFO, "one");
    rg_log_precede(NULL);
    rg_log(RG_LOG_INFO, "two");
    const char *text = capture_end();
    RG_CHECK(strncmp(text, "\r\033[K20", 6) == 0);
    const char *second = strchr(text, '\n');
    RG_CHECK(second != NULL && strncmp(second, "\n20", 3) == 0);
}

static void test_text_of_a_peer_cannot_forge_a_line(void)
{
    rg_log_configure(RG_LOG_ERROR);
    capture_begin();
    rg_log(RG_LOG_ERROR, "server said \"%s\"", "a\nb\r\033[2J\177");
    const char *text = capture_end();
    RG_CHECK(strstr(text, "server said \"a?b??[2J?\"\n") != NULL);
    RG_CHECK(strchr(text, '\n') == text + strlen(text) - 1);
}

static void test_long_line_is_cut_and_still_ends(void)
{
    static char message[3 * RG_LOG_LINE_SIZE_MAX];
    memset(message, 'x', sizeof(message) - 1);
    rg_log_configure(RG_LOG_ERROR);
    capture_begin();
    rg_log(RG_LOG_ERROR, "%s", message);
    const char *text = capture_end();
    RG_CHECK_EQ(strlen(text), RG_LOG_LINE_SIZE_MAX);
    RG_CHECK_EQ(text[RG_LOG_LINE_SIZE_MAX - 1], '\n');
}

static void test_closed_pipe_raises_no_signal_and_keeps_errno(void)
{
    signal(SIGPIPE, SIG_DFL);
    rg_log_configure(RG_LOG_ERROR);
    capture_begin();
    int reader = pipe_read;
    pipe_read = dup(STDIN_FILENO);
    fcntl(pipe_read, F_SETFL, O_NONBLOCK);
    close(reader);
    errno = ENOTCONN;
    rg_log(RG_LOG_ERROR, "into the void");
    int kept = errno;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_read);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    RG_CHECK(!sigismember(&mask, SIGPIPE));
    RG_CHECK_EQ(kept, ENOTCONN);
}

enum { THREAD_COUNT = 4, LINES_PER_THREAD = 50 };

static void *log_lines(void *arg)
{
    for (int i = 0; i < LINES_PER_THREAD; i++) {
        rg_log(RG_LOG_ERROR, "thread %d line %d end", *(const int *)arg, i);
    }
    return NULL;
}

static void test_lines_of_several_threads_do_not_mix(void)
{
    pthread_t threads[THREAD_COUNT];
    int numbers[THREAD_COUNT];
    rg_log_configure(RG_LOG_ERROR);
    capture_begin();
    for (int i = 0; i < THREAD_COUNT; i++) {
        numbers[i] = i;
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, log_lines, &numbers[i]), 0);
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    const char *line = capture_end();
    unsigned count = 0;
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        int thread, number, tail = 0;
        sscanf(line, "%*s ringest error %*s [%*d] thread %d line %d end%n", &thread, &number,
               &tail);
        RG_CHECK(line + tail == end);
        count++;
    }
    RG_CHECK_EQ(count, THREAD_COUNT * LINES_PER_THREAD);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_nothing_is_written_or_evaluated_when_off),
        RG_TEST(test_line_has_time_level_place_thread_and_message),
        RG_TEST(test_only_levels_up_to_the_chosen_one_are_written),
        RG_TEST(test_environment_names_every_level),
        RG_TEST(test_an_option_beats_the_environment),
        RG_TEST(test_bad_environment_value_is_reported_once_and_refused),
        RG_TEST(test_what_comes_often_is_counted_instead),
        RG_TEST(test_a_sink_takes_lines_beside_standard_error),
        RG_TEST(test_what_precedes_a_line_is_written_with_it),
        RG_TEST(test_text_of_a_peer_cannot_forge_a_line),
        RG_TEST(test_long_line_is_cut_and_still_ends),
        RG_TEST(test_closed_pipe_raises_no_signal_and_keeps_errno),
        RG_TEST(test_lines_of_several_threads_do_not_mix),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
