/* Four threads take the samples of two datasets from one queue: every object below two prefixes
 * once, in an order of its own, read ahead: two_datasets BUCKET PREFIX BUCKET PREFIX
 * Exit status: 0, 1 if a dataset is empty or a sample could not be read, 2 if nothing could be
 * started. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <ringest/ringest.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define DATASETS 2
#define THREADS 4

struct dataset {
    const char *bucket, *prefix;
    struct rg_manifest *objects;
    struct rg_reader *reader;
    _Atomic uint64_t samples, bytes, failed;
};
static struct rg_runtime *runtime;
static struct rg_client *client;
static struct rg_cq *cq;
static struct dataset datasets[DATASETS];
static _Atomic unsigned ended;

/* Adds one page; how many names it had, or a negative errno. */
static int page_add(struct rg_manifest_writer *writer, const struct rg_completion *done)
{
    if (done->status != RG_STATUS_OK) {
        fprintf(stderr, "%s\n", done->detail);
        return -EIO;
    }
    const struct rg_list_page *page = done->data;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < page->object_count; i++) {
        rc = rg_manifest_writer_add(writer, &page->objects[i]);
    }
    return rc < 0 ? rc : (int)page->object_count;
}

/* Lists all names, in their order, into memory. 0 or a negative errno. */
static int dataset_list(struct dataset *dataset)
{
    struct rg_listing *listing;
    struct rg_manifest_writer *writer;
    const struct rg_listing_options options = {
        .bucket = dataset->bucket, .prefix = dataset->prefix, .ordered = true};
    int rc = rg_manifest_writer_open(&writer, NULL, dataset->bucket);
    if (rc < 0) {
        return rc;
    }
    rc = rg_listing_open(&listing, client, &options);
    if (rc < 0) {
        rg_manifest_writer_close(writer, true);
        return rc;
    }
    do {
        struct rg_completion done;
        rc = rg_listing_next(listing, cq, 0);
        if (rc == 0 && (rc = rg_cq_wait(cq, &done, 1, 1, RG_FOREVER)) == 1) {
            rc = page_add(writer, &done);
            rg_lease_release(done.lease);
        }
    } while (rc > 0);
    rg_listing_close(listing);
    if (rc < 0) {
        rg_manifest_writer_close(writer, true);
        return rc;
    }
    return rg_manifest_writer_finish(writer, &dataset->objects);
}

/* From now on its samples come to the queue, with its number as user_data. */
static int dataset_start(struct dataset *dataset)
{
    struct rg_reader_options options;
    char error[256] = "";
    rg_reader_options_init(&options);
    options.manifest = dataset->objects;
    options.shuffle = true;
    int rc = rg_reader_open(&dataset->reader, client, &options, error, sizeof(error));
    if (rc < 0) {
        fprintf(stderr, "gs://%s/%s: %s\n", dataset->bucket, dataset->prefix, error);
        return rc;
    }
    return rg_reader_start(dataset->reader, cq, (uint64_t)(dataset - datasets));
}

static void completion_take(const struct rg_completion *done)
{
    struct dataset *dataset = &datasets[done->user_data];
    if (done->status == RG_STATUS_END) {
        ended++;
    } else if (done->status == RG_STATUS_OK) {
        dataset->samples++;
        dataset->bytes += done->size; /* they are at done->data */
    } else if (dataset->failed++ == 0) {
        fprintf(stderr, "%s\n", done->detail);
    }
    rg_lease_release(done->lease);
}

static void *work(void *nothing)
{
    struct rg_completion done[32];
    while (ended < DATASETS) {
        int got = rg_cq_wait(cq, done, 32, 1, RG_FOREVER);
        for (int i = 0; i < got; i++) {
            completion_take(&done[i]);
        }
    }
    rg_cq_interrupt(cq); /* the next thread that waits for what will not come; it tells the next */
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    if (argc != 1 + 2 * DATASETS) {
        fprintf(stderr, "usage: two_datasets BUCKET PREFIX BUCKET PREFIX\n");
        return 2;
    }
    if (rg_runtime_open(&runtime, NULL) < 0 || rg_client_open(&client, runtime, NULL) < 0 ||
        rg_cq_open(&cq, runtime, 1024) < 0) {
        fprintf(stderr, "no client could be opened; RINGEST_LOG=error says why\n");
        return 2;
    }
    for (size_t i = 0; i < DATASETS; i++) {
        datasets[i].bucket = argv[1 + 2 * i];
        datasets[i].prefix = argv[2 + 2 * i];
        int rc = dataset_list(&datasets[i]);
        if (rc < 0) {
            fprintf(stderr, "gs://%s/%s: %s\n", argv[1 + 2 * i], argv[2 + 2 * i], strerror(-rc));
            return 2;
        }
        if (rg_manifest_count(datasets[i].objects) == 0) {
            fprintf(stderr, "gs://%s/%s: no object's name begins like this; check the prefix\n",
                    argv[1 + 2 * i], argv[2 + 2 * i]);
            return 1;
        }
    }
    for (size_t i = 0; i < DATASETS; i++) {
        if (dataset_start(&datasets[i]) < 0) {
            return 2;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) {
            perror("a thread");
            return 2;
        }
    }
    bool is_good = true;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < DATASETS; i++) {
        struct dataset *dataset = &datasets[i];
        printf("gs://%s/%s: %" PRIu64 " samples, %" PRIu64 " bytes, %" PRIu64 " failed\n",
               dataset->bucket, dataset->prefix, dataset->samples, dataset->bytes, dataset->failed);
        is_good &= dataset->failed == 0;
        rg_reader_close(dataset->reader);
        rg_manifest_close(dataset->objects);
    }
    rg_cq_close(cq);
    rg_client_close(client);
    rg_runtime_close(runtime);
    return is_good ? 0 : 1;
}
