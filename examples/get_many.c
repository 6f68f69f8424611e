/* Reads PREFIX00000000, PREFIX00000001, ... from a bucket: get_many BUCKET PREFIX COUNT
 * Exit status: 0, 1 if an object could not be read, 2 if nothing could be started. */
#include <errno.h>
#include <ringest/ringest.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many objects the text says; 0: it is not the count of any. */
static uint64_t count_parse(const char *text)
{
    char *end;
    errno = 0;
    uint64_t count = strtoull(text, &end, 10);
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0' ? count : 0;
}

int main(int argc, char **argv)
{
    struct rg_runtime *runtime;
    struct rg_client *client;
    struct rg_cq *cq;
    uint64_t count = argc == 4 ? count_parse(argv[3]) : 0, next = 0, finished = 0, failed = 0;
    uint64_t bytes = 0;
    if (count == 0) {
        fprintf(stderr, "usage: get_many BUCKET PREFIX COUNT\n");
        return 2;
    }
    if (rg_runtime_open(&runtime, NULL) < 0 || rg_client_open(&client, runtime, NULL) < 0 ||
        rg_cq_open(&cq, runtime, 1024) < 0) {
        fprintf(stderr, "no client could be opened; RINGEST_LOG=error says why\n");
        return 2;
    }
    while (finished < count) {
        int rc = 0;
        for (; rc == 0 && next < count; next += rc == 0) {
            char name[RG_OBJECT_NAME_SIZE_MAX];
            snprintf(name, sizeof(name), "%s%08llu", argv[2], (unsigned long long)next);
            struct rg_get get = {.bucket = argv[1], .object = name, .user_data = next};
            rc = rg_submit_get(client, cq, &get); /* -EAGAIN: take completions first */
        }
        if (next == finished) {
            fprintf(stderr, "gs://%s/%s...: %s\n", argv[1], argv[2], strerror(-rc));
            return 2; /* nothing is under way and nothing can be submitted: a wrong name */
        }
        struct rg_completion done[64];
        int got = rg_cq_wait(cq, done, 64, 1, RG_FOREVER);
        for (int i = 0; i < got; i++) {
            bytes += done[i].size; /* the bytes are at done[i].data until the lease is released */
            if (done[i].status != RG_STATUS_OK && failed++ == 0) {
                fprintf(stderr, "%s\n", done[i].detail);
            }
            rg_lease_release(done[i].lease);
        }
        finished += got > 0 ? (uint64_t)got : 0;
    }
    printf("%llu objects, %llu bytes, %llu failed\n", (unsigned long long)count,
           (unsigned long long)bytes, (unsigned long long)failed);
    rg_cq_close(cq);
    rg_client_close(client);
    rg_runtime_close(runtime);
    return failed > 0;
}
