/* One thread and one epoll: objects come beside a timer and Ctrl-C.  epoll_loop BUCKET OBJECT...
 * Exit status: 0, 1 if an object could not be read, 2 if nothing could be started. */
#include <errno.h>
#include <inttypes.h>
#include <ringest/ringest.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static struct rg_runtime *runtime;
static struct rg_client *client;
static struct rg_cq *cq;
static const char *bucket;
static char **names;
static uint64_t count, next, finished, failed;

/* Until the queue is full: the next completion makes room. */
static void submit_more(void)
{
    for (; next < count; next++) {
        struct rg_get get = {.bucket = bucket, .object = names[next], .user_data = next};
        int rc = rg_submit_get(client, cq, &get);
        if (rc == -EAGAIN) {
            return;
        }
        if (rc < 0) {
            fprintf(stderr, "gs://%s/%s: %s\n", bucket, names[next], strerror(-rc));
            failed++, finished++;
        }
    }
}

/* The descriptor is readable: resets it, and then takes all that there is. */
static void take(int fd)
{
    uint64_t readable;
    struct rg_completion done[64];
    int got;
    if (read(fd, &readable, sizeof(readable)) < 0 && errno != EAGAIN) {
        perror("the completion queue");
    }
    while ((got = rg_cq_poll(cq, done, 64)) > 0) {
        for (int i = 0; i < got; i++) {
            if (done[i].status == RG_STATUS_OK) {
                printf("%s: %" PRIu64 " bytes\n", names[done[i].user_data], done[i].size);
            } else {
                fprintf(stderr, "%s\n", done[i].detail);
                failed++;
            }
            rg_lease_release(done[i].lease);
        }
        finished += (uint64_t)got;
    }
    submit_more();
}

/* Each request that is out ends soon, and gives its completion. */
static void interrupted(void)
{
    fprintf(stderr, "interrupted\n");
    count = next;
    for (uint64_t i = 0; i < count; i++) {
        (void)rg_cancel(client, cq, i);
    }
}

static int watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return fd < 0 ? -1 : epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: epoll_loop BUCKET OBJECT...\n");
        return 2;
    }
    if (rg_runtime_open(&runtime, NULL) < 0 || rg_client_open(&client, runtime, NULL) < 0 ||
        rg_cq_open(&cq, runtime, 256) < 0) {
        fprintf(stderr, "no client could be opened; RINGEST_LOG=error says why\n");
        return 2;
    }
    bucket = argv[1];
    names = argv + 2;
    count = (uint64_t)argc - 2;

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    const struct itimerspec second = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
    int epoll = epoll_create1(EPOLL_CLOEXEC), queue = rg_cq_fd(cq);
    int interrupts = signalfd(-1, &signals, SFD_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (watch(epoll, queue) < 0 || watch(epoll, interrupts) < 0 || watch(epoll, timer) < 0 ||
        timerfd_settime(timer, 0, &second, NULL) < 0) {
        perror("the event loop");
        return 2;
    }
    submit_more();
    while (finished < count) {
        struct epoll_event event;
        struct signalfd_siginfo what;
        uint64_t ticks;
        if (epoll_wait(epoll, &event, 1, -1) != 1) {
            continue;
        }
        if (event.data.fd == queue) {
            take(queue);
        } else if (event.data.fd == timer && read(timer, &ticks, sizeof(ticks)) > 0) {
            fprintf(stderr, "%" PRIu64 " of %" PRIu64 "\n", finished, count);
        } else if (event.data.fd == interrupts && read(interrupts, &what, sizeof(what)) > 0) {
            interrupted();
        }
    }
    rg_cq_close(cq); /* and with it its descriptor */
    rg_client_close(client);
    rg_runtime_close(runtime);
    return failed > 0;
}
