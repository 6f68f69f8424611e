/* Files to objects.
 *
 * Small files are read at once and closed, so that few are open however many are on their way;
 * larger ones are read by the library, part by part. An object that already has the file's size and
 * CRC32C is left alone. */
#include "cli/content_type.h"
#include "cli/cp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_SIZE_MAX RG_MIB(1)
/* Objects up to this size are written in one request, where a condition costs nothing and lets the
 * library try again when an answer was lost; see enum rg_upload_method. */
#define GUARDED_SIZE_MAX RG_MIB(8)
#define PARTS_INFLIGHT_MAX 8
/* What the library makes parts of by default. */
#define PART_SIZE_DEFAULT RG_MIB(16)

/* Opens without waiting for the other end of what has become a pipe meanwhile. */
static int source_open(struct cp_item *item)
{
    item->fd = open(item->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (item->fd < 0 || fstat(item->fd, &item->source) < 0) {
        return -errno;
    }
    if (!S_ISREG(item->source.st_mode)) {
        return -EINVAL;
    }
    item->size = (uint64_t)item->source.st_size;
    return 0;
}

static int source_read(struct cp_item *item)
{
    if (item->buffer != NULL || item->size > SMALL_SIZE_MAX) {
        return 0;
    }
    item->buffer = malloc(RG_MAX(item->size, UINT64_C(1)));
    if (item->buffer == NULL) {
        return -ENOMEM;
    }
    int64_t got = local_read(item->fd, item->buffer, item->size, 0);
    if (got < 0 || (uint64_t)got < item->size) {
        return got < 0 ? (int)got : -ENODATA;
    }
    close(item->fd);
    item->fd = -1;
    return 0;
}

/* What is there is what would be sent. With a condition of the caller's, that is no reason not to
 * send it: what counts then is who wrote it. */
static int is_there(const struct cp_options *options, const struct cp_item *item, bool *out_there)
{
    const struct there *there = &item->there;
    *out_there = false;
    if (options->if_generation_match != 0 || !there->is_known || !there->exists ||
        !there->has_crc32c || there->size != item->size) {
        return 0;
    }
    uint32_t crc;
    if (item->buffer != NULL) {
        crc = rg_crc32c(0, item->buffer, item->size);
    } else {
        int rc = local_crc32c(item->fd, 0, item->size, &crc);
        if (rc < 0) {
            return rc;
        }
    }
    *out_there = crc == there->crc32c;
    return 0;
}

static bool goes_in_one_request(const struct cp_options *options, const struct cp_item *item)
{
    return options->method == RG_UPLOAD_SINGLE ||
           (options->method == RG_UPLOAD_AUTO && item->size <= GUARDED_SIZE_MAX);
}

static struct rg_conditions conditions(const struct cp_options *options, const struct cp_item *item)
{
    struct rg_conditions result = {.if_generation_match = options->no_clobber
                                                              ? RG_GENERATION_ABSENT
                                                              : options->if_generation_match};
    bool in_one_request = item->size <= GUARDED_SIZE_MAX && goes_in_one_request(options, item);
    if (result.if_generation_match == 0 && in_one_request && !item->is_unguarded) {
        bool replaces = item->there.is_known && item->there.exists;
        result.if_generation_match = replaces ? item->there.generation : RG_GENERATION_ABSENT;
    }
    return result;
}

/* How many parts of one object may be out: at most half of all that may be. */
static uint32_t parts_inflight(const struct cp_run *run)
{
    uint64_t part_size = run->options->part_size == CP_PART_SIZE_DEFAULT ? PART_SIZE_DEFAULT
                                                                         : run->options->part_size;
    uint64_t parts = run->bytes_out_max / 2 / part_size;
    return (uint32_t)RG_MAX(RG_MIN(parts, (uint64_t)PARTS_INFLIGHT_MAX), UINT64_C(1));
}

/* The type of a new object; NULL: the service's default. */
static const char *type_choose(const struct cp_options *options, const char *name)
{
    if (options->content_type == NULL) {
        return content_type_guess(name);
    }
    return options->content_type[0] != '\0' ? options->content_type : NULL;
}

static void submit(struct cp_worker *worker, struct cp_item *item)
{
    const struct cp_options *options = worker->run->options;
    struct rg_upload upload = {
        .bucket = item->bucket,
        .object = item->name,
        .method = options->method,
        .data = item->buffer,
        .fd = item->fd,
        .size = item->size,
        .content_type = type_choose(options, item->path),
        .content_encoding = options->content_encoding,
        .cache_control = options->cache_control,
        .storage_class = options->storage_class,
        .metadata = options->metadata,
        .metadata_count = options->metadata_count,
        .conditions = conditions(options, item),
        .exclusive = options->if_generation_match != 0,
        .part_size = options->part_size == CP_PART_SIZE_DEFAULT ? 0 : options->part_size,
        .parts_inflight_max = parts_inflight(worker->run),
    };
    if (upload.data == NULL && goes_in_one_request(options, item)) {
        /* One request is read as a whole. */
        upload.part_size = RG_MAX(item->size, (uint64_t)CP_PART_SIZE_DEFAULT);
        upload.parts_inflight_max = 1;
        if (item->size > RG_MAX(worker->run->bytes_out_max, (uint64_t)GUARDED_SIZE_MAX)) {
            cp_item_fail(
                worker, item,
                "%s: too large for one request, which may take half of --memory; use another "
                "--method",
                item->path);
            return;
        }
    }
    uint64_t cost = RG_MIN(item->size, worker->run->bytes_out_max / 2);
    struct cp_job *job = cp_job_open(worker, item, CP_WHOLE_ITEM, cost, &upload.user_data);
    int rc = rg_submit_upload(worker->run->session->client, worker->cq, &upload);
    if (rc < 0) {
        cp_job_cancel(worker, job);
        cp_item_fail(worker, item, "gs://%s/%s: %s", item->bucket, item->name, cli_submit_text(rc));
    }
}

bool cp_upload_is_there(const struct cp_options *options, struct cp_item *item)
{
    bool there = false;
    there = source_open(item) == 0 && source_read(item) == 0 &&
            is_there(options, item, &there) == 0 && there;
    /* Many of them may have to wait. */
    if (item->fd >= 0) {
        close(item->fd);
        item->fd = -1;
    }
    free(item->buffer);
    item->buffer = NULL;
    return there;
}

void cp_upload_start(struct cp_worker *worker, struct cp_item *item)
{
    bool there = false;
    if (item->is_same) {
        cp_retype_start(worker, item);
        return;
    }
    int rc = source_open(item);
    rc = rc < 0 ? rc : source_read(item);
    rc = rc < 0 ? rc : is_there(worker->run->options, item, &there);
    if (rc < 0) {
        cp_item_fail(worker, item, "%s: %s", item->path,
                     rc == -EINVAL ? "not a regular file" : local_error_text(rc));
    } else if (there && cp_retypes(worker->run->options)) {
        cp_retype_start(worker, item);
    } else if (there) {
        cp_item_done(worker, item, CP_SKIPPED);
    } else {
        submit(worker, item);
    }
}

void cp_upload_take(struct cp_worker *worker, const struct cp_job *job,
                    const struct rg_completion *completion)
{
    struct cp_item *item = job->item;
    const struct cp_options *options = worker->run->options;
    if (completion->status == RG_STATUS_OK && options->storage_class != NULL &&
        !atomic_exchange(&worker->run->has_asked_class, true)) {
        cp_retype_ask_class(worker, item, completion->generation);
    } else if (completion->status == RG_STATUS_OK) {
        cp_item_done(worker, item, CP_COPIED);
    } else if (completion->status == RG_STATUS_PRECONDITION && options->no_clobber) {
        cp_item_end(worker, item, CP_SKIPPED);
    } else if (completion->status == RG_STATUS_PRECONDITION && !item->is_unguarded &&
               options->if_generation_match == 0) {
        /* The condition was ours; another writer came between. The last one wins, as asked. */
        item->is_unguarded = true;
        submit(worker, item);
    } else if (completion->status == RG_STATUS_SOURCE) {
        cp_item_fail(worker, item, "%s: %s", item->path, cli_completion_text(completion));
    } else {
        cp_item_refused(worker, item, completion);
    }
}

/* Whatever can be had at once: reads from pipes are short. */
static int64_t stdin_read(char *block, size_t size)
{
    for (;;) {
        ssize_t got = read(STDIN_FILENO, block, size);
        if (got >= 0 || errno != EINTR || cli_interrupted()) {
            return got >= 0 ? (int64_t)got : -errno;
        }
    }
}

static int block_write(struct rg_writer *writer, const char *block, uint64_t size)
{
    while (size > 0) {
        int64_t taken = rg_writer_write(writer, block, size);
        if (taken == -EAGAIN) {
            int rc = rg_writer_wait(writer, RG_FOREVER);
            if (rc == -EINTR && cli_interrupted()) {
                return rc;
            }
            taken = rc < 0 && rc != -EINTR ? rc : 0;
        }
        if (taken < 0) {
            return (int)taken;
        }
        block += taken;
        size -= (uint64_t)taken;
    }
    return 0;
}

/* What a stream begins with, or all of it where there is no more. */
struct head {
    char *data; /* owned */
    uint64_t size;
    bool is_whole;
};

/* Up to the size that goes in one request, and one byte to know whether there is more. A negative
 * errno of reading; -EINTR: interrupted. */
static int head_read(struct head *out_head)
{
    struct head head = {.data = malloc(GUARDED_SIZE_MAX + 1)};
    int64_t got = head.data != NULL ? 1 : -ENOMEM;
    while (got > 0 && head.size <= GUARDED_SIZE_MAX) {
        got = stdin_read(head.data + head.size, GUARDED_SIZE_MAX + 1 - head.size);
        head.size += (uint64_t)RG_MAX(got, INT64_C(0));
    }
    if (got < 0) {
        free(head.data);
        return (int)got;
    }
    head.is_whole = got == 0;
    *out_head = head;
    return 0;
}

/* The head, and what follows it, into the writer. 0; 1: the writer failed, and its completion says
 * why; a negative errno of reading; -EINTR: interrupted. */
static int stdin_copy(struct rg_writer *writer, const struct head *head, uint64_t *out_bytes)
{
    char *block = malloc(LOCAL_BLOCK_SIZE);
    int64_t got = block == NULL ? -ENOMEM : !head->is_whole;
    int rc = block != NULL ? block_write(writer, head->data, head->size) : 0;
    *out_bytes = head->size;
    while (got > 0 && rc == 0) {
        got = stdin_read(block, LOCAL_BLOCK_SIZE);
        if (got > 0) {
            rc = block_write(writer, block, (uint64_t)got);
            *out_bytes += (uint64_t)got;
        }
    }
    free(block);
    if (rc < 0) {
        return rc == -EINTR ? rc : 1;
    }
    return (int)RG_MIN(got, INT64_C(0));
}

/* The answer to an upload does not tell the class, and not everybody may ask for it. */
static int class_look(struct cli_session *session, const struct cp_options *options,
                      const struct cli_uri *uri, int64_t generation)
{
    struct rg_stat stat = {.bucket = uri->bucket,
                           .object = uri->name,
                           .conditions = {.if_generation_match = generation}};
    struct rg_completion completion;
    if (options->storage_class == NULL || rg_submit_stat(session->client, session->cq, &stat) < 0) {
        return CLI_DONE;
    }
    while (!cli_wait_one(session, &completion)) {
        if (cli_interrupted()) {
            return CLI_DONE; /* It was written. */
        }
    }
    const struct rg_object_info *info = completion.data;
    bool has_other = completion.status == RG_STATUS_OK && info->storage_class != NULL &&
                     strcmp(info->storage_class, options->storage_class) != 0;
    int status = has_other ? cli_fail(CP_CLASS_FORMAT, uri->bucket, uri->name, info->storage_class,
                                      options->storage_class)
                           : CLI_DONE;
    rg_lease_release(completion.lease);
    return status;
}

/* A stream on its way: `guard` is a condition of ours, 0: none. It is lost where another writer
 * came between, of which nothing is said. */
struct sending {
    const struct cli_uri *uri;
    const struct head *head;
    int64_t guard;
    bool is_guard_lost;
};

static int writer_end(struct cli_session *session, const struct cp_options *options,
                      struct sending *sending, struct rg_writer *writer, struct cp_counts *counts)
{
    const struct cli_uri *uri = sending->uri;
    int rc = rg_writer_finish(writer, session->cq, 0);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", uri->bucket, uri->name, strerror(-rc));
    }
    struct rg_completion completion;
    while (!cli_wait_one(session, &completion)) {
        if (cli_interrupted()) {
            return cli_fail("interrupted; gs://%s/%s is as it was", uri->bucket, uri->name);
        }
    }
    sending->is_guard_lost = completion.status == RG_STATUS_PRECONDITION && sending->guard != 0;
    if (sending->is_guard_lost) {
        rg_lease_release(completion.lease);
        return CLI_FAILED;
    }
    /* Somebody's object that is there is what --no-clobber wants kept. */
    bool kept = completion.status == RG_STATUS_PRECONDITION && options->no_clobber;
    int status = completion.status == RG_STATUS_OK || kept
                     ? CLI_DONE
                     : cli_fail("%s", cli_completion_text(&completion));
    if (completion.status == RG_STATUS_OK) {
        status = class_look(session, options, uri, completion.generation);
    }
    *(kept ? &counts->skipped : status == CLI_DONE ? &counts->copied : &counts->failed) = 1;
    rg_lease_release(completion.lease);
    return status;
}

static int stream_fail(int rc, const struct cli_uri *uri)
{
    return rc == -EINTR ? cli_fail("interrupted; gs://%s/%s is as it was", uri->bucket, uri->name)
                        : cli_fail("standard input: %s; gs://%s/%s is as it was", strerror(-rc),
                                   uri->bucket, uri->name);
}

static int stream_send(struct cli_session *session, const struct cp_options *options,
                       struct sending *sending, struct cp_counts *counts)
{
    const struct cli_uri *uri = sending->uri;
    uint64_t part_size = options->part_size == CP_PART_SIZE_DEFAULT ? 0 : options->part_size;
    struct rg_writer_options writer_options = {
        .bucket = uri->bucket,
        .object = uri->name,
        .method = options->method,
        .content_type = type_choose(options, uri->name),
        .content_encoding = options->content_encoding,
        .cache_control = options->cache_control,
        .storage_class = options->storage_class,
        .metadata = options->metadata,
        .metadata_count = options->metadata_count,
        .conditions = {.if_generation_match = sending->guard != 0   ? sending->guard
                                              : options->no_clobber ? RG_GENERATION_ABSENT
                                                                    : options->if_generation_match},
        .exclusive = options->if_generation_match != 0,
        /* What is guarded goes in one request. */
        .part_size = sending->guard != 0 ? PART_SIZE_DEFAULT : part_size,
    };
    struct rg_writer *writer;
    int rc = rg_writer_open(&writer, session->client, &writer_options);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", uri->bucket, uri->name, cli_submit_text(rc));
    }
    rc = stdin_copy(writer, sending->head, &counts->bytes);
    int status =
        rc < 0 ? stream_fail(rc, uri) : writer_end(session, options, sending, writer, counts);
    rg_writer_close(writer);
    return status;
}

/* The generation that a small stream replaces, so that it can be sent again after a lost answer, as
 * files are: CLI_DONE. Who may not ask takes the object for a new one. */
static int guard_find(struct cli_session *session, const struct cli_uri *uri, int64_t *out_guard)
{
    struct rg_stat stat = {.bucket = uri->bucket, .object = uri->name};
    struct rg_completion completion;
    int rc = rg_submit_stat(session->client, session->cq, &stat);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", uri->bucket, uri->name, cli_submit_text(rc));
    }
    while (!cli_wait_one(session, &completion)) {
        if (cli_interrupted()) {
            return stream_fail(-EINTR, uri);
        }
    }
    bool exists = completion.status == RG_STATUS_OK;
    bool may_go_on = exists || completion.status == RG_STATUS_NOT_FOUND ||
                     completion.status == RG_STATUS_PERMISSION;
    int status = may_go_on ? CLI_DONE : cli_fail("%s", cli_completion_text(&completion));
    if (may_go_on) {
        *out_guard = exists ? completion.generation : RG_GENERATION_ABSENT;
    }
    rg_lease_release(completion.lease);
    return status;
}

int cp_from_stdin(struct cli_session *session, const struct cp_options *options,
                  const struct cli_uri *uri, struct cp_counts *counts)
{
    struct head head = {0};
    struct sending sending = {.uri = uri, .head = &head};
    bool may_guard = options->method == RG_UPLOAD_AUTO && !options->no_clobber &&
                     options->if_generation_match == 0;
    counts->planned = 1;
    int rc = may_guard ? head_read(&head) : 0;
    if (rc < 0) {
        return stream_fail(rc, uri);
    }
    int status = head.is_whole ? guard_find(session, uri, &sending.guard) : CLI_DONE;
    if (status == CLI_DONE) {
        status = stream_send(session, options, &sending, counts);
    } else {
        counts->failed = 1;
    }
    if (sending.is_guard_lost) {
        /* As of files: the last one wins, as asked. */
        sending = (struct sending){.uri = uri, .head = &head};
        status = stream_send(session, options, &sending, counts);
    }
    free(head.data);
    return status;
}
