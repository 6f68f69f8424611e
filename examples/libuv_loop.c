/* The completion queue in a loop of libuv, beside a timer and Ctrl-C.  libuv_loop BUCKET OBJECT...
 * Exit status: 0, 1 if an object could not be read, 2 if nothing could be started. */
#include <errno.h>
#include <inttypes.h>
#include <ringest/ringest.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

static struct rg_runtime *runtime;
static struct rg_client *client;
static struct rg_cq *cq;
static const char *bucket;
static char **names;
static uint64_t count, next, finished, failed;
static uv_poll_t queue;
static uv_timer_t timer;
static uv_signal_t interrupt;

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

/* The loop ends when nothing is watched any more. */
static void stop_if_finished(void)
{
    if (finished == count) {
        uv_close((uv_handle_t *)&queue, NULL);
        uv_close((uv_handle_t *)&timer, NULL);
        uv_close((uv_handle_t *)&interrupt, NULL);
    }
}

/* The descriptor is readable: resets it, and then takes all that there is. */
static void on_queue(uv_poll_t *handle, int status, int events)
{
    uint64_t readable;
    struct rg_completion done[64];
    int fd, got;
    (void)status, (void)events;
    if (uv_fileno((uv_handle_t *)handle, &fd) == 0 && read(fd, &readable, sizeof(readable)) < 0 &&
        errno != EAGAIN) {
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
    stop_if_finished();
}

static void on_timer(uv_timer_t *handle)
{
    (void)handle;
    fprintf(stderr, "%" PRIu64 " of %" PRIu64 "\n", finished, count);
}

/* Each request that is out ends soon, and gives its completion. */
static void on_interrupt(uv_signal_t *handle, int number)
{
    (void)handle, (void)number;
    fprintf(stderr, "interrupted\n");
    count = next;
    for (uint64_t i = 0; i < count; i++) {
        (void)rg_cancel(client, cq, i);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: libuv_loop BUCKET OBJECT...\n");
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

    uv_loop_t *loop = uv_default_loop();
    int fd = rg_cq_fd(cq);
    if (fd < 0 || uv_poll_init(loop, &queue, fd) < 0 || uv_timer_init(loop, &timer) < 0 ||
        uv_signal_init(loop, &interrupt) < 0 || uv_poll_start(&queue, UV_READABLE, on_queue) < 0 ||
        uv_timer_start(&timer, on_timer, 1000, 1000) < 0 ||
        uv_signal_start(&interrupt, on_interrupt, SIGINT) < 0) {
        fprintf(stderr, "no event loop could be made\n");
        return 2;
    }
    submit_more();
    stop_if_finished(); /* where every name was refused */
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
    rg_cq_close(cq); /* and with it its descriptor, which nobody watches any more */
    rg_client_close(client);
    rg_runtime_close(runtime);
    return failed > 0;
}
