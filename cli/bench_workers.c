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

/* How many words there were of a process that is ready for a round, or has measured it. */
#define HEARD_READY(round) (2 * (round) + 1)
#define HEARD_MEASURED(round) (2 * (round) + 2)

struct worker {
    pid_t pid;
    int fd;         /* -1: the process has ended */
    uint64_t heard; /* words */
};

struct workers {
    const struct bench_options *options;
    uint32_t count; /* that were started */
    struct worker all[BENCH_PROCESSES_MAX];
    const struct bench_results *results;
    uint64_t round;
    bool is_measuring, is_ending; /* is_ending: those that are left were asked to end */
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

/* Results begin at pages of their own: for each round that of all together, and those of the
 * processes. */
static size_t slot_size(const struct bench_options *options)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bench_result_size(points_max(options)) + page - 1) / page * page;
}

static size_t results_size(const struct bench_options *options)
{
    return options->rounds * (options->processes + 1) * slot_size(options);
}

struct bench_result *bench_results_round(const struct bench_results *results, uint64_t round)
{
    size_t of_round = (results->options->processes + 1) * slot_size(results->options);
    return (struct bench_result *)(results->memory + round * of_round);
}

static struct bench_result *result_of(const struct bench_results *results, uint64_t round,
                                      uint32_t process)
{
    char *merged = (char *)bench_results_round(results, round);
    return (struct bench_result *)(merged + (process + 1) * slot_size(results->options));
}

uint64_t bench_results_count(const struct bench_results *results)
{
    uint64_t count = 0;
    while (results->memory != NULL && count < results->options->rounds &&
           bench_results_round(results, count)->requests > 0) {
        count++;
    }
    return count;
}

static int results_open(struct bench_results *results, const struct bench_options *options)
{
    *results = (struct bench_results){.options = options};
    void *memory = mmap(NULL, results_size(options), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return cli_fail("no memory for results: %s", strerror(errno));
    }
    results->memory = memory;
    if (options->per_connection) {
        results->connections = calloc(options->rounds, sizeof(*results->connections));
        if (results->connections == NULL) {
            return cli_fail("no memory for results: %s", strerror(errno));
        }
    }
    for (size_t at = 0; at < results_size(options); at += slot_size(options)) {
        struct bench_result *result = (struct bench_result *)(results->memory + at);
        result->points_max = points_max(options);
        result->interval_ns = (uint64_t)(options->interval_s * 1e9);
    }
    return CLI_DONE;
}

void bench_results_free(struct bench_results *results)
{
    for (uint64_t i = 0; results->connections != NULL && i < results->options->rounds; i++) {
        bench_connections_fini(&results->connections[i]);
    }
    free(results->connections);
    if (results->memory != NULL) {
        munmap(results->memory, results_size(results->options));
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

/* Where one process measures, and whom it tells. */
struct place {
    uint32_t process;
    int fd; /* -1: there are no other processes */
    const struct bench_results *results;
    bench_measured_fn *measured;
};

static struct bench_result *place_result(const struct place *place, uint64_t round)
{
    return place->fd < 0 ? bench_results_round(place->results, round)
                         : result_of(place->results, round, place->process);
}

static int rounds_measure(struct bench_load *load, const struct place *place)
{
    int status = CLI_DONE;
    for (uint64_t round = 0; round < load->options->rounds && status == CLI_DONE; round++) {
        if (cli_interrupted() || (place->fd >= 0 && !begins(place->fd))) {
            break;
        }
        struct bench_result *result = place_result(place, round);
        struct bench_connections *connections = place->results->connections;
        status = connections != NULL ? bench_connections_begin() : CLI_DONE;
        status = status == CLI_DONE ? bench_load_measure(load, result) : status;
        if (connections != NULL) {
            bench_connections_end(&connections[round]);
        }
        if (place->fd < 0) {
            place->measured(place->results, round);
        } else {
            word_say(place->fd, WORD_MEASURED);
        }
    }
    return status;
}

static bool has_errors(const struct bench_options *options, const struct place *place)
{
    for (uint64_t round = 0; round < options->rounds; round++) {
        if (place_result(place, round)->errors > 0) {
            return true;
        }
    }
    return false;
}

/* All of one process's part. What is removed at the end counts as the first round's. */
static int work(const struct bench_options *options, const struct place *place)
{
    struct bench_load load;
    struct bench_result *first = place_result(place, 0);
    int status = bench_load_open(&load, options, place->process);
    if (status == CLI_DONE) {
        cli_interrupt_catch();
        status = bench_load_prepare(&load, first);
        status = status == CLI_DONE ? rounds_measure(&load, place) : status;
        int finished = bench_load_finish(&load, first);
        status = status == CLI_DONE ? finished : status;
    }
    bench_load_close(&load);
    return status == CLI_DONE && has_errors(options, place) ? CLI_FAILED : status;
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
    struct place place = {.process = process, .fd = fd, .results = workers->results};
    int status = work(workers->options, &place);
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

/* Those that wait for the word to begin end when nothing more can come, as a signal may have come
 * just before they wait; the others as by Ctrl-C. */
static void others_end(struct workers *workers)
{
    if (workers->is_ending) {
        return;
    }
    workers->is_ending = true;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->all[i].fd >= 0) {
            kill(workers->all[i].pid, SIGTERM);
            shutdown(workers->all[i].fd, SHUT_WR);
        }
    }
}

static int killed_tell(const struct workers *workers, unsigned process, int number)
{
    const struct bench_options *options = workers->options;
    if (options->op != BENCH_PUT) {
        return cli_fail(
            "process %u of %u was killed by signal %d (%s), so that there is no whole result",
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
    if (worker->heard < HEARD_MEASURED(workers->options->rounds - 1) || WIFSIGNALED(status)) {
        others_end(workers);
    }
}

static void worker_hear(struct workers *workers, struct worker *worker)
{
    char byte;
    ssize_t count = recv(worker->fd, &byte, 1, 0);
    if (count == 1) {
        worker->heard++;
        RG_ASSERT(byte == (worker->heard % 2 == 1 ? WORD_READY : WORD_MEASURED));
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
        state.done += __atomic_load_n(&result_of(workers->results, workers->round, i)->requests,
                                      __ATOMIC_RELAXED);
    }
    progress_draw(&workers->progress, &state);
}

/* Until so many words came of each, or its end. */
static void workers_await(struct workers *workers, uint64_t heard)
{
    for (;;) {
        struct pollfd polled[BENCH_PROCESSES_MAX];
        bool all_there = true;
        for (uint32_t i = 0; i < workers->count; i++) {
            const struct worker *worker = &workers->all[i];
            polled[i] = (struct pollfd){.fd = worker->fd, .events = POLLIN};
            all_there = all_there && (worker->fd < 0 || worker->heard >= heard);
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
        if (workers->is_measuring) {
            progress_show(workers);
        }
    }
}

/* Whether what was measured is whole: everybody did, or it was cut short for all. */
static bool round_is_whole(const struct workers *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->all[i].heard < HEARD_MEASURED(workers->round)) {
            return false;
        }
    }
    return !workers->is_ending || cli_interrupted();
}

/* False: there is no result, and there will be none of a later round. */
static bool round_run(struct workers *workers)
{
    workers_await(workers, HEARD_READY(workers->round));
    for (uint32_t i = 0; i < workers->count && !workers->is_ending; i++) {
        word_say(workers->all[i].fd, WORD_BEGIN);
    }
    progress_open(&workers->progress, "requests", workers->options->json);
    workers->is_measuring = true;
    workers_await(workers, HEARD_MEASURED(workers->round));
    workers->is_measuring = false;
    progress_close(&workers->progress);
    if (!round_is_whole(workers)) {
        return false;
    }
    for (uint32_t i = 0; i < workers->count; i++) {
        bench_result_merge(bench_results_round(workers->results, workers->round),
                           result_of(workers->results, workers->round, i));
    }
    return true;
}

/* What became of the objects is known only when the processes have ended. */
static void objects_merge(const struct workers *workers)
{
    struct bench_result *merged = bench_results_round(workers->results, 0);
    merged->removed = merged->left = 0;
    for (uint32_t i = 0; i < workers->count; i++) {
        merged->removed += result_of(workers->results, 0, i)->removed;
        merged->left += result_of(workers->results, 0, i)->left;
    }
}

static int workers_run(struct workers *workers, bench_measured_fn *measured)
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
    while (workers->round < options->rounds && round_run(workers)) {
        measured(workers->results, workers->round++);
    }
    workers_await(workers, UINT64_MAX);
    objects_merge(workers);
    return workers->status;
}

int bench_workers_run(const struct bench_options *options, struct bench_results *out_results,
                      bench_measured_fn *measured)
{
    int status = results_open(out_results, options);
    if (status != CLI_DONE) {
        return status;
    }
    if (options->processes == 1) {
        return work(options,
                    &(struct place){.fd = -1, .results = out_results, .measured = measured});
    }
    struct workers workers = {.options = options, .results = out_results};
    return workers_run(&workers, measured);
}
