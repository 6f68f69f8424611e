/* Objects to files.
 *
 * What fits into one part is one request, and one write into a temporary file that then gets its
 * name. A larger object becomes a file in parts: requests for ranges of one generation, which any
 * worker may make, each written to its place when it comes. */
#include "cli/cp.h"

#include "cli/hash_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Anything that cannot be read is not. */
bool cp_download_is_there(const struct cp_item *item)
{
    struct stat stat;
    if (!item->is_size_known || !item->has_crc32c) {
        return false;
    }
    int fd = open(item->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    uint32_t crc;
    bool there = fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) &&
                 (uint64_t)stat.st_size == item->size &&
                 local_crc32c(fd, 0, item->size, &crc) == 0 && crc == item->crc32c;
    close(fd);
    return there;
}

/* The first request of an item, or of a part. */
static int submit(struct cp_worker *worker, struct cp_item *item, uint32_t part)
{
    uint64_t part_size = worker->run->part_size;
    struct rg_get get = {
        .bucket = item->bucket,
        .object = item->name,
        .generation = item->generation,
        .length = item->is_size_known ? RG_WHOLE : part_size,
    };
    uint64_t cost = item->is_size_known ? item->size : part_size;
    if (part != CP_WHOLE_ITEM) {
        get.offset = part * part_size;
        cost = get.length = local_part_size(&item->file, part);
    }
    struct cp_job *job = cp_job_open(worker, item, part, cost, &get.user_data);
    int rc = rg_submit_get(worker->run->session->client, worker->cq, &get);
    if (rc < 0) {
        cp_job_cancel(worker, job);
    }
    return rc;
}

static void submit_first(struct cp_worker *worker, struct cp_item *item)
{
    int rc = submit(worker, item, CP_WHOLE_ITEM);
    if (rc < 0) {
        cp_item_fail(worker, item, "gs://%s/%s: %s", item->bucket, item->name, cli_submit_text(rc));
    }
}

/* After local_publish gave rc. */
static void item_end(struct cp_worker *worker, struct cp_item *item, int rc)
{
    if (rc == 0) {
        cp_item_done(worker, item, CP_COPIED);
    } else if (rc == -EEXIST && worker->run->options->no_clobber) {
        cp_item_end(worker, item, CP_SKIPPED);
    } else if (rc == -EEXIST) {
        cp_item_fail(worker, item,
                     "%s: not a regular file; write to it as standard output: `cp ... - >%s`",
                     item->path, item->path);
    } else if (item->is_in_parts) {
        cp_item_fail(worker, item, "%s: %s", item->path, local_error_text(rc));
    } else {
        cp_item_unwritten(worker, item, rc);
    }
}

static void write_small(struct cp_worker *worker, struct cp_item *item, const void *data,
                        uint64_t size)
{
    item->size = size;
    int rc = local_open_small(&item->file, item->path);
    if (rc == 0) {
        rc = local_write_small(&item->file, data, size);
        if (rc < 0) {
            local_discard(&item->file);
        } else {
            rc = cp_item_publish(worker, item);
        }
    }
    item_end(worker, item, rc);
}

bool cp_download_next_part(struct cp_item *item, uint32_t *out_part)
{
    while (item->part_next < item->file.part_count) {
        uint32_t part = item->part_next++;
        if (!local_part_is_present(&item->file, part)) {
            *out_part = part;
            return true;
        }
    }
    return false;
}

/* A file gets its name when its bytes were compared with the object's CRC32C: asks for it where the
 * server has not told it. False after saying that nobody knows; the item is the caller's to end. */
static bool crc32c_is_known(struct cp_worker *worker, struct cp_item *item, int64_t generation)
{
    if (!item->has_crc32c) {
        struct cli_uri uri;
        snprintf(uri.bucket, sizeof(uri.bucket), "%s", item->bucket);
        snprintf(uri.name, sizeof(uri.name), "%s", item->name);
        item->has_crc32c = lookup_crc32c(worker->run->session, &uri, generation, item->size,
                                         &item->crc32c) == CLI_DONE;
    }
    return item->has_crc32c;
}

/* No part is out and none will be asked for: the file is whole, or has failed. */
static void parts_end(struct cp_worker *worker, struct cp_item *item)
{
    struct cp_run *run = worker->run;
    if (item->has_failed) {
        bool kept = local_leave(&item->file);
        pthread_mutex_lock(&run->lock);
        run->counts.kept += kept;
        pthread_mutex_unlock(&run->lock);
        cp_item_end(worker, item, CP_FAILED);
        return;
    }
    uint32_t crc = local_parts_crc32c(&item->file);
    if (!crc32c_is_known(worker, item, item->generation)) {
        local_discard(&item->file);
        cp_item_end(worker, item, CP_FAILED);
        return;
    }
    if (crc != item->crc32c) {
        local_discard(&item->file);
        cp_item_fail(worker, item,
                     "gs://%s/%s: what was read has CRC32C %s, the object %s; run it again",
                     item->bucket, item->name, CRC32C_TEXT(crc), CRC32C_TEXT(item->crc32c));
        return;
    }
    item_end(worker, item, cp_item_publish(worker, item));
}

/* Called for each part that ends, with what it brought. Whoever finds that nothing is left to wait
 * for ends the item. */
static void part_done(struct cp_worker *worker, struct cp_item *item, uint32_t parts,
                      uint64_t bytes)
{
    struct cp_run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    RG_ASSERT(item->parts_out > 0 && item->parts_left >= parts);
    item->parts_out--;
    item->parts_left -= parts;
    run->counts.bytes_now += bytes;
    bool gives_up = item->parts_left > 0 && (item->has_failed || run->stopping);
    bool ended = item->parts_out == 0 && (item->parts_left == 0 || gives_up);
    item->has_failed = item->has_failed || (ended && gives_up);
    for (struct cp_item **link = &run->in_parts; ended && *link != NULL; link = &(*link)->next) {
        if (*link == item) {
            *link = item->next;
            break;
        }
    }
    pthread_mutex_unlock(&run->lock);
    if (ended) {
        parts_end(worker, item);
    }
}

void cp_download_stop(struct cp_worker *worker)
{
    struct cp_run *run = worker->run;
    for (;;) {
        pthread_mutex_lock(&run->lock);
        struct cp_item **link = &run->in_parts;
        while (*link != NULL && (*link)->parts_out > 0) {
            link = &(*link)->next;
        }
        struct cp_item *item = *link;
        if (item != NULL) {
            *link = item->next;
            item->has_failed = true;
        }
        pthread_mutex_unlock(&run->lock);
        if (item == NULL) {
            return;
        }
        parts_end(worker, item);
    }
}

/* One line for a file, whatever becomes of its other parts. */
static void part_fail(struct cp_worker *worker, struct cp_item *item, const char *where,
                      const char *text)
{
    struct cp_run *run = worker->run;
    pthread_mutex_lock(&run->lock);
    bool first = !item->has_failed && !run->stopping;
    item->has_failed = true;
    pthread_mutex_unlock(&run->lock);
    if (first) {
        cli_fail("%s%s%s", where, *where != '\0' ? ": " : "", text);
    }
    part_done(worker, item, 0, 0);
}

void cp_download_part(struct cp_worker *worker, struct cp_item *item, uint32_t part)
{
    int rc = submit(worker, item, part);
    if (rc < 0) {
        part_fail(worker, item, item->path, cli_submit_text(rc));
    }
}

static void part_take(struct cp_worker *worker, struct cp_item *item, uint32_t part,
                      const struct rg_completion *completion)
{
    if (completion->status != RG_STATUS_OK) {
        part_fail(worker, item, "", cli_completion_text(completion));
        return;
    }
    if (completion->size != local_part_size(&item->file, part)) {
        part_fail(worker, item, item->path,
                  "a part of the answer has another size than was asked for");
        return;
    }
    /* What is known of the whole from a listing may lack the checksum. */
    pthread_mutex_lock(&worker->run->lock);
    if (completion->has_object_crc32c) {
        item->crc32c = completion->object_crc32c;
        item->has_crc32c = true;
    }
    item->is_gzip = completion->is_gzip;
    pthread_mutex_unlock(&worker->run->lock);
    int rc = local_put_part(&item->file, part, completion->data, completion->crc32c);
    if (rc < 0) {
        part_fail(worker, item, item->path, local_error_text(rc));
    } else {
        part_done(worker, item, 1, completion->size);
    }
}

/* Size and generation are known. `first`, if not NULL, has the bytes of part 0. The item counts as
 * one part itself until it is split, so that it does not end before. */
static void parts_start(struct cp_worker *worker, struct cp_item *item,
                        const struct rg_completion *first)
{
    struct cp_run *run = worker->run;
    item->is_in_parts = true;
    int rc =
        local_open_parts(&item->file, item->path, item->generation, item->size, run->part_size);
    if (rc < 0) {
        item_end(worker, item, rc);
        return;
    }
    uint64_t present = 0, read = 0;
    for (uint32_t i = 0; i < item->file.part_count; i++) {
        bool is_present = local_part_is_present(&item->file, i);
        present += is_present ? local_part_size(&item->file, i) : 0;
        item->parts_left += !is_present;
    }
    item->parts_out = 1;
    if (first != NULL && !local_part_is_present(&item->file, 0)) {
        rc = local_put_part(&item->file, 0, first->data, first->crc32c);
        read = first->size;
        item->parts_left--;
    }
    if (rc < 0) {
        part_fail(worker, item, item->path, local_error_text(rc));
        return;
    }
    pthread_mutex_lock(&run->lock);
    run->counts.bytes_skipped += present;
    run->counts.bytes_now += present;
    pthread_mutex_unlock(&run->lock);
    cp_run_split(worker, item);
    part_done(worker, item, 0, read);
}

void cp_download_start(struct cp_worker *worker, struct cp_item *item)
{
    if (cp_download_is_there(item)) {
        cp_item_done(worker, item, CP_SKIPPED);
    } else if (item->is_size_known && item->size == 0) {
        write_small(worker, item, "", 0);
    } else if (item->is_size_known && item->size > worker->run->part_size) {
        parts_start(worker, item, NULL);
    } else {
        submit_first(worker, item);
    }
}

static void first_take(struct cp_worker *worker, struct cp_item *item,
                       const struct rg_completion *completion)
{
    if (!item->is_size_known && completion->status == RG_STATUS_RANGE) {
        /* Not even the first byte is there: the object is empty. */
        write_small(worker, item, "", 0);
        return;
    }
    if (completion->status == RG_STATUS_NOT_FOUND && item->generation != 0) {
        /* Replaced since it was listed: what is there now is taken. */
        item->generation = 0;
        item->is_size_known = item->has_crc32c = false;
        submit_first(worker, item);
        return;
    }
    if (completion->status != RG_STATUS_OK) {
        cp_item_refused(worker, item, completion);
        return;
    }
    item->is_gzip = completion->is_gzip;
    if (!item->is_size_known && completion->object_size > completion->size) {
        item->is_size_known = true;
        item->size = completion->object_size;
        item->generation = completion->generation;
        item->has_crc32c = completion->has_object_crc32c;
        item->crc32c = completion->object_crc32c;
        parts_start(worker, item, completion);
        return;
    }
    item->size = completion->size;
    item->generation = completion->generation;
    if (completion->has_object_crc32c) {
        item->has_crc32c = true;
        item->crc32c = completion->object_crc32c;
    }
    if (!crc32c_is_known(worker, item, completion->generation)) {
        cp_item_end(worker, item, CP_FAILED);
        return;
    }
    if (completion->crc32c != item->crc32c) {
        cp_item_fail(
            worker, item, "gs://%s/%s: what was read has CRC32C %s, the object %s; run it again",
            item->bucket, item->name, CRC32C_TEXT(completion->crc32c), CRC32C_TEXT(item->crc32c));
        return;
    }
    write_small(worker, item, completion->data, completion->size);
}

void cp_download_take(struct cp_worker *worker, const struct cp_job *job,
                      const struct rg_completion *completion)
{
    if (job->part == CP_WHOLE_ITEM) {
        first_take(worker, job->item, completion);
    } else {
        part_take(worker, job->item, job->part, completion);
    }
}
