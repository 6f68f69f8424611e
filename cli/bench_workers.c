/* Processes that measure together: see bench_workers.h.
 *
 * Each has a socket to this process. It says when it is ready, waits for the word to begin, and
 * says when it has measured. The end of the socket is the end of the process, however that came.
 * Results lie in shared memory. */
#include "cli/bench_workers.h"

#include "cli/bench_load.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRESS_EVERY_MS 100

/* What is said over a socket. */
enum word { WORD_READY = 'r', WORD_BEGIN = 'b', WORD_MEASURED = 'm' };

enum worker_state { WORKER_PREPARES, WORKER_READY, WORKER_MEASURED, WORKER_GONE };

struct worker {
    pid_t pid;
    int fd; /* -1: closed */
    enum worker_state state;
    bool has_measured;
};

struct workers {
    const struct bench_options *options;
    uint32_t count; /* that were started */
    struct worker all[BENCH_PROCESSES_MAX];
    struct bench_result *merged;
    bool has_begun, is_ending; /* is_ending: those that are left were asked to end */
    int status;
    struct progress progress;
};

static uint32_t points_max(const struct bench_options *options)
{
    if (options->interval_s == 0) {
        return 0;
    }
    /* What is answered after the time belongs to the last part of it. */
    double points = options->seconds > 0 ? ceil(options->seconds / options->interval_s)
                                         : (double)BENCH_POINTS_MAX;
    return (uint32_t)RG_MIN(points, (double)BENCH_POINTS_MAX);
}

/* Results begin at pages of their own: first that of all together, then those of the processes. */
static size_t slot_size(const struct bench_options *options)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bench_result_size(points_max(options)) + page - 1) / page * page;
}

static struct bench_result *result_of(const struct workers *workers, uint32_t process)
{
    return (struct bench_result *)((char *)workers->merged +
                                   (process + 1) * slot_size(workers->options));
}

static void result_clear(const struct bench_options *options, struct bench_result *result)
{
    memset(result, 0, sizeof(*result));
    result->points_max = points_max(options);
    result->interval_ns = (uint64_t)(options->interval_s * 1e9);
}

static struct bench_result *results_map(const struct bench_options *options)
{
    size_t size = (options->processes + 1) * slot_size(options);
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        cli_fail("no memory for results: %s", strerror(errno));
        return NULL;
    }
    for (uint64_t i = 0; i <= options->processes; i++) {
        result_clear(options, (struct bench_result *)((char *)memory + i * slot_size(options)));
    }
    return memory;
}

void bench_workers_free(const struct bench_options *options, struct bench_result *result)
{
    if (result != NULL) {
        munmap(result, (options->processes + 1) * slot_size(options));
    }
}

static bool word_say(int fd, enum word word)
{
    char byte = (char)word;
    return send(fd, &byte, 1, MSG_NOSIGNAL) == 1;
}

/* In a worker: false if it is not to begin. */
static bool begins(int fd)
{
    char byte;
    ssize_t count;
    if (!word_say(fd, WORD_READY)) {
        return false;
    }
    while ((count = recv(fd, &byte, 1, 0)) < 0 && errno == EINTR && !cli_interrupted()) {
    }
    return count == 1 && byte == WORD_BEGIN;
}

/* All of one process's part. `fd` -1: there are no others. */
static int
work(const struct bench_options *options, uint32_t process, int fd, struct bench_result *result,
     void (*measured)(const struct bench_options *options, const struct bench_result *result))
{
    struct bench_load load;
    int status = bench_load_open(&load, options, process);
    if (status == CLI_DONE) {
        cli_interrupt_catch();
        status = bench_load_prepare(&load, result);
        if (status == CLI_DONE && (fd < 0 || begins(fd))) {
            status = bench_load_measure(&load, result);
            if (fd < 0) {
                measured(options, result);
            } else {
                word_say(fd, WORD_MEASURED);
            }
        }
        int finished = bench_load_finish(&load, result);
        status = status == CLI_DONE ? finished : status;
    }
    bench_load_close(&load);
    return status == CLI_DONE && result->errors > 0 ? CLI_FAILED : status;
}

/* CPUs are divided among the processes as among ranks of a host, unless these are ranks' already.
 */
static void rank_set(uint32_t process, uint64_t processes)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", process);
    setenv("RINGEST_LOCAL_RANK", text, 0);
    snprintf(text, sizeof(text), "%u", (unsigned)processes);
    setenv("RINGEST_LOCAL_WORLD_SIZE", text, 0);
}

/* A worker's life. Signals of the terminal reach only the process that started it, which passes
 * them on once, as the second one would end it at once. */
__attribute__((noreturn)) static void worker_main(const struct workers *workers, uint32_t process,
                                                  int fd, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(CLI_FAILED);
    }
    for (uint32_t i = 0; i < workers->count; i++) {
        close(workers->all[i].fd);
    }
    if (process > 0) {
        cli_quiet_set(); /* the first one's notes are enough */
    }
    rank_set(process, workers->options->processes);
    int status = work(workers->options, process, fd, result_of(workers, process), NULL);
    fflush(stderr);
    _exit(cli_exit_status(status));
}

static int worker_start(struct workers *workers)
{
    int ends[2];
    uint32_t process = workers->count;
    pid_t parent = getpid(), pid = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return cli_fail("process %u cannot be started: %s", process, strerror(errno));
    }
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        worker_main(workers, process, ends[1], parent);
    }
    int error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return cli_fail("process %u cannot be started: %s", process, strerror(error));
    }
    workers->all[workers->count++] = (struct worker){.pid = pid, .fd = ends[0]};
    return CLI_DONE;
}

/* Those that wait for the word to begin end when the socket does; the others as by Ctrl-C. */
static void others_end(struct workers *workers)
{
    if (workers->is_ending) {
        return;
    }
    workers->is_ending = true;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->all[i].state != WORKER_GONE) {
            kill(workers->all[i].pid, SIGTERM);
        }
    }
}

static int killed_tell(const struct workers *workers, unsigned process, int number)
{
    const struct bench_options *options = workers->options;
    if (options->op != BENCH_PUT) {
        return cli_fail("process %u of %u was killed by signal %d (%s), so that there is no result",
                        process, workers->count, number, strsignal(number));
    }
    return cli_fail("process %u of %u was killed by signal %d (%s); what it wrote is left in "
                    "gs://%s/%s; remove it with `ringest rm -r`",
                    process, workers->count, number, strsignal(number), options->uri.bucket,
                    options->folder);
}

/* What a process that has ended leaves: what it failed of it has said itself. */
static void worker_reap(struct workers *workers, struct worker *worker)
{
    int status;
    close(worker->fd);
    worker->fd = -1;
    worker->state = WORKER_GONE;
    while (waitpid(worker->pid, &status, 0) < 0) {
        RG_ASSERT(errno == EINTR);
    }
    unsigned number = (unsigned)(worker - workers->all);
    if (WIFSIGNALED(status) && !cli_interrupted()) {
        workers->status = killed_tell(workers, number, WTERMSIG(status));
    } else if (WEXITSTATUS(status) >= CLI_SIGNALLED && !workers->is_ending && !cli_interrupted()) {
        workers->status = cli_fail("process %u of %u was interrupted", number, workers->count);
    } else if (WIFSIGNALED(status) || WEXITSTATUS(status) != CLI_DONE) {
        int failed = WIFEXITED(status) && WEXITSTATUS(status) == CLI_USAGE ? CLI_USAGE : CLI_FAILED;
        workers->status = workers->status == CLI_DONE ? failed : workers->status;
    }
    if (!worker->has_measured || WIFSIGNALED(status)) {
        others_end(workers);
    }
}

static void worker_hear(struct workers *workers, struct worker *worker)
{
    char byte;
    ssize_t count = recv(worker->fd, &byte, 1, 0);
    if (count == 1) {
        worker->has_measured = byte == WORD_MEASURED;
        worker->state = worker->has_measured ? WORKER_MEASURED : WORKER_READY;
    } else if (count == 0 || errno != EINTR) {
        worker_reap(workers, worker);
    }
}

static void progress_show(struct workers *workers)
{
    const struct bench_options *options = workers->options;
    struct progress_state state = {.total = options->seconds == 0 ? options->count : 0,
                                   .time_ns = (uint64_t)(options->seconds * 1e9)};
    for (uint32_t i = 0; i < workers->count; i++) {
        state.done += __atomic_load_n(&result_of(workers, i)->requests, __ATOMIC_RELAXED);
    }
    progress_draw(&workers->progress, &state);
}

/* Until all of them have come so far. */
static void workers_await(struct workers *workers, enum worker_state state)
{
    for (;;) {
        struct pollfd polled[BENCH_PROCESSES_MAX];
        bool all_there = true;
        for (uint32_t i = 0; i < workers->count; i++) {
            polled[i] = (struct pollfd){.fd = workers->all[i].fd, .events = POLLIN};
            all_there = all_there && workers->all[i].state >= state;
        }
        if (all_there) {
            return;
        }
        int ready = poll(polled, workers->count, PROGRESS_EVERY_MS);
        for (uint32_t i = 0; ready > 0 && i < workers->count; i++) {
            if (polled[i].revents != 0) {
                worker_hear(workers, &workers->all[i]);
            }
        }
        if (cli_interrupted()) {
            others_end(workers);
        }
        if (workers->has_begun) {
            progress_show(workers);
        }
    }
}

static void workers_begin(struct workers *workers)
{
    workers->has_begun = true;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->all[i].fd >= 0 && !workers->is_ending) {
            word_say(workers->all[i].fd, WORD_BEGIN);
        } else if (workers->all[i].fd >= 0) {
            shutdown(workers->all[i].fd, SHUT_WR);
        }
    }
}

/* Whether what was measured is whole: everybody did, or it was cut short for all. */
static bool has_result(const struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        if (!workers->all[i].has_measured) {
            return false;
        }
    }
    return !workers->is_ending || cli_interrupted();
}

static void results_merge(struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        bench_result_merge(workers->merged, result_of(workers, i));
    }
}

/* What became of the objects is known only when the processes have ended. */
static void objects_merge(struct workers *workers)
{
    workers->merged->removed = workers->merged->left = 0;
    for (uint32_t i = 0; i < workers->count; i++) {
        workers->merged->removed += result_of(workers, i)->removed;
        workers->merged->left += result_of(workers, i)->left;
    }
}

static int workers_run(struct workers *workers,
                       void (*measured)(const struct bench_options *options,
                                        const struct bench_result *result))
{
    const struct bench_options *options = workers->options;
    cli_interrupt_catch();
    fflush(NULL);
    while (workers->count < options->processes && workers->status == CLI_DONE) {
        workers->status = worker_start(workers);
    }
    if (workers->status != CLI_DONE) {
        others_end(workers);
    }
    workers_await(workers, WORKER_READY);
    progress_open(&workers->progress, "requests", options->json);
    workers_begin(workers);
    workers_await(workers, WORKER_MEASURED);
    progress_close(&workers->progress);
    bool is_whole = has_result(workers);
    if (is_whole) {
        results_merge(workers);
        measured(options, workers->merged);
    }
    workers_await(workers, WORKER_GONE);
    if (is_whole) {
        objects_merge(workers);
    }
    return workers->status;
}

int bench_workers_run(const struct bench_options *options, struct bench_result **out_result,
                      void (*measured)(const struct bench_options *options,
                                       const struct bench_result *result))
{
    struct bench_result *results = results_map(options);
    *out_result = results;
    if (results == NULL) {
        return CLI_FAILED;
    }
    if (options->processes == 1) {
        return work(options, 0, -1, results, measured);
    }
    struct workers workers = {.options = options, .merged = results};
    return workers_run(&workers, measured);
}
