/* What it costs that several threads instead of one take batches from a queue: nothing of ours, but
 * a ring with a mutex and a condition, of which one thread is woken for what one can take. Another
 * process answers, as a server on another core would; one thread reads its answers, works as long
 * as a client does for a small object, and puts them into the queue. Beside perf/streams.c it says
 * what no queue can save.
 *
 * Each round runs with one thread and with THREADS. A line of each: threads, CPU time in µs,
 * switches between threads, and wake-ups of threads that then found too little, all for one answer.
 */
#include "runtime/base.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 16
#define WINDOW 512 /* answers that are asked for and not taken yet */
#define OUT 128    /* asked for and not there yet */
#define AT_ONCE 32
#define COPY RG_KIB(4)
/* Copies of 4 KiB for each answer: by the server, the thread that receives, and for each batch. */
#define SERVER_COPIES 30
#define CLIENT_COPIES 25
#define BATCH_COPIES 1

static struct {
    pthread_mutex_t lock;
    pthread_cond_t some;
    uint64_t count;
    uint32_t sleeping, batch;
    bool is_over;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};
static _Atomic uint64_t taken, woken_for_nothing;

static void check(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "floor_queue: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void work(uint64_t copies)
{
    static _Thread_local uint8_t from[2 * COPY], to[COPY];
    for (uint64_t i = 0; i < copies; i++) {
        memcpy(to, &from[i % COPY], COPY);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
}

static void pin(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    (void)sched_setaffinity(0, sizeof(cores), &cores); /* a figure needs it, a test does not */
}

static void serve(int fd)
{
    uint8_t requests[AT_ONCE];
    ssize_t size;
    pin(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while ((size = read(fd, requests, sizeof(requests))) > 0) {
        work((uint64_t)size * SERVER_COPIES);
        check(write(fd, requests, (size_t)size) == size, "write");
    }
    _exit(0);
}

static void *take(void *nothing)
{
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        for (bool is_woken = false; queue.count < queue.batch && !queue.is_over; is_woken = true) {
            woken_for_nothing += is_woken;
            queue.sleeping++;
            pthread_cond_wait(&queue.some, &queue.lock);
            queue.sleeping--;
        }
        uint64_t count = RG_MIN(queue.count, (uint64_t)queue.batch);
        if (count == 0) {
            break;
        }
        queue.count -= count;
        bool is_enough = queue.sleeping > 0 && queue.count >= queue.batch;
        pthread_mutex_unlock(&queue.lock);
        if (is_enough) {
            pthread_cond_signal(&queue.some);
        }
        work(BATCH_COPIES);
        taken += count;
        pthread_mutex_lock(&queue.lock);
    }
    pthread_mutex_unlock(&queue.lock);
    return nothing;
}

static void put(uint64_t count)
{
    pthread_mutex_lock(&queue.lock);
    queue.count += count;
    bool is_enough = queue.sleeping > 0 && queue.count >= queue.batch;
    pthread_mutex_unlock(&queue.lock);
    if (is_enough) {
        pthread_cond_signal(&queue.some);
    }
}

static void receive(int fd, uint64_t total)
{
    static const uint8_t requests[AT_ONCE];
    uint8_t answers[AT_ONCE];
    for (uint64_t asked = 0, come = 0; come < total;) {
        uint64_t room = RG_MIN(WINDOW - (asked - taken), OUT - (asked - come));
        room = RG_MIN(room, total - asked);
        for (; room > 0; room -= RG_MIN(room, (uint64_t)AT_ONCE)) {
            uint64_t count = RG_MIN(room, (uint64_t)AT_ONCE);
            check(write(fd, requests, count) == (ssize_t)count, "write");
            asked += count;
        }
        if (asked == come) {
            sched_yield(); /* all that is there waits to be taken */
            continue;
        }
        ssize_t size = read(fd, answers, sizeof(answers));
        check(size > 0, "read");
        work((uint64_t)size * CLIENT_COPIES);
        come += (uint64_t)size;
        put((uint64_t)size);
    }
    pthread_mutex_lock(&queue.lock);
    queue.is_over = true;
    pthread_mutex_unlock(&queue.lock);
    pthread_cond_broadcast(&queue.some);
}

static double microseconds(struct timeval time)
{
    return (double)time.tv_sec * 1e6 + (double)time.tv_usec;
}

static void measure(int fd, uint32_t thread_count, uint64_t total)
{
    pthread_t threads[THREADS_MAX];
    struct rusage before, after;
    queue.is_over = false;
    taken = woken_for_nothing = 0;
    getrusage(RUSAGE_SELF, &before);
    for (uint32_t i = 0; i < thread_count; i++) {
        check(pthread_create(&threads[i], NULL, take, NULL) == 0, "pthread_create");
    }
    receive(fd, total);
    for (uint32_t i = 0; i < thread_count; i++) {
        pthread_join(threads[i], NULL);
    }
    getrusage(RUSAGE_SELF, &after);
    check(taken == total, "answers are missing");
    double cpu = microseconds(after.ru_utime) - microseconds(before.ru_utime) +
                 microseconds(after.ru_stime) - microseconds(before.ru_stime);
    printf("%" PRIu32 " %.3f %.4f %.4f\n", thread_count, cpu / (double)total,
           (double)(after.ru_nvcsw - before.ru_nvcsw) / (double)total,
           (double)woken_for_nothing / (double)total);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int ends[2];
    if (argc != 5) {
        fprintf(stderr, "usage: %s THREADS BATCH COUNT ROUNDS\n", argv[0]);
        return 2;
    }
    uint32_t threads = RG_MIN((uint32_t)strtoul(argv[1], NULL, 10), (uint32_t)THREADS_MAX);
    queue.batch = (uint32_t)strtoul(argv[2], NULL, 10);
    uint64_t total = strtoull(argv[3], NULL, 10);
    check(queue.batch > 0 && queue.batch <= WINDOW, "BATCH");
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    pid_t server = fork();
    check(server >= 0, "fork");
    if (server == 0) {
        close(ends[0]);
        serve(ends[1]);
    }
    close(ends[1]);
    pin(1);
    for (uint64_t round = strtoull(argv[4], NULL, 10); round > 0; round--) {
        measure(ends[0], 1, total);
        measure(ends[0], threads, total);
    }
    close(ends[0]);
    return waitpid(server, NULL, 0) == server ? 0 : 1;
}
