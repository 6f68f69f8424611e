/* See write_ways.h. */
#include "tests/support/write_ways.h"

#include "emulator/request/reply.h"
#include "emulator/wire/checksum.h"

#include <inttypes.h>

static uint8_t data[RG_WRITE_LARGE_SIZE];

__attribute__((constructor)) static void data_make(void)
{
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
}

static struct rg_conditions absent(void)
{
    return (struct rg_conditions){.if_generation_match = RG_GENERATION_ABSENT};
}

static void other_put_size(const struct rg_write_run *run, size_t size)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/new", run->bucket);
    /* Exclusive, too: another nonce than ours. */
    rg_talk(&talk, run->port,
            &(struct rg_talk_request){
                "PUT", target, "x-goog-meta-ringest-nonce: 00112233445566778899aabbccddeeff\r\n",
                data, size});
    RG_CHECK_EQ(talk.status, 200);
}

static void other_put(const struct rg_write_run *run)
{
    other_put_size(run, RG_WRITE_SMALL_SIZE);
}

static void other_put_large(const struct rg_write_run *run)
{
    other_put_size(run, RG_WRITE_LARGE_SIZE);
}

static void put(struct rg_write_run *run)
{
    RG_CHECK_EQ(rg_submit_put(run->client.client, run->client.cq,
                              &(struct rg_put){.bucket = run->bucket,
                                               .object = "new",
                                               .data = data,
                                               .size = RG_WRITE_SMALL_SIZE,
                                               .exclusive = run->exclusive,
                                               .if_generation_match = RG_GENERATION_ABSENT}),
                0);
}

static void upload(struct rg_write_run *run, enum rg_upload_method method, uint64_t size,
                   bool guarded)
{
    RG_CHECK_EQ(rg_submit_upload(run->client.client, run->client.cq,
                                 &(struct rg_upload){
                                     .bucket = run->bucket,
                                     .object = "new",
                                     .method = method,
                                     .data = data,
                                     .size = size,
                                     .part_size = RG_WRITE_PART_SIZE,
                                     .exclusive = run->exclusive,
                                     .conditions = guarded ? absent() : (struct rg_conditions){0}}),
                0);
}

static void upload_single(struct rg_write_run *run)
{
    upload(run, RG_UPLOAD_SINGLE, RG_WRITE_SMALL_SIZE, true);
}

static void upload_composed(struct rg_write_run *run)
{
    upload(run, RG_UPLOAD_COMPOSE, RG_WRITE_LARGE_SIZE, true);
}

static void upload_multipart(struct rg_write_run *run)
{
    upload(run, RG_UPLOAD_MULTIPART, RG_WRITE_LARGE_SIZE, false);
}

static void upload_resumable(struct rg_write_run *run)
{
    upload(run, RG_UPLOAD_RESUMABLE, RG_WRITE_SMALL_SIZE, true);
}

static void write_stream(struct rg_write_run *run)
{
    struct rg_writer_options options = {.bucket = run->bucket,
                                        .object = "new",
                                        .exclusive = run->exclusive,
                                        .conditions = absent()};
    RG_CHECK_EQ(rg_writer_open(&run->writer, run->client.client, &options), 0);
    RG_CHECK_EQ(rg_writer_write(run->writer, data, RG_WRITE_SMALL_SIZE), RG_WRITE_SMALL_SIZE);
    RG_CHECK_EQ(rg_writer_finish(run->writer, run->client.cq, 0), 0);
}

static void compose(struct rg_write_run *run)
{
    const struct rg_compose_source source = {.object = "old"};
    RG_CHECK_EQ(
        rg_submit_compose(run->client.client, run->client.cq,
                          &(struct rg_compose){.bucket = run->bucket,
                                               .object = "new",
                                               .sources = &source,
                                               .source_count = 1,
                                               .crc32c = rg_crc32c(0, data, RG_WRITE_SMALL_SIZE),
                                               .has_crc32c = true,
                                               .exclusive = run->exclusive,
                                               .conditions = absent()}),
        0);
}

static void copy(struct rg_write_run *run)
{
    RG_CHECK_EQ(rg_submit_copy(run->client.client, run->client.cq,
                               &(struct rg_copy){.source_bucket = run->bucket,
                                                 .source_object = "old",
                                                 .bucket = run->bucket,
                                                 .object = "new",
                                                 .conditions = absent()}),
                0);
}

static void update(struct rg_write_run *run)
{
    const struct rg_metadata pair = {"colour", "green"};
    RG_CHECK_EQ(rg_submit_update(run->client.client, run->client.cq,
                                 &(struct rg_update){.bucket = run->bucket,
                                                     .object = "old",
                                                     .metadata = &pair,
                                                     .metadata_count = 1,
                                                     .exclusive = run->exclusive,
                                                     .conditions.if_metageneration_match = 1}),
                0);
}

static void other_update(const struct rg_write_run *run)
{
    static const char change[] = "{\"metadata\":{\"colour\":\"green\"}}";
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/storage/v1/b/%s/o/old", run->bucket);
    rg_talk(&talk, run->port,
            &(struct rg_talk_request){"PATCH", target, "Content-Type: application/json\r\n", change,
                                      sizeof(change) - 1});
    RG_CHECK_EQ(talk.status, 200);
}

static int64_t old_generation(const struct rg_write_run *run)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "HEAD", .target = target});
    const char *generation = strstr(talk.head, "x-goog-generation: ");
    RG_CHECK(generation != NULL);
    return strtoll(strchr(generation, ' '), NULL, 10);
}

static void delete_one(struct rg_write_run *run)
{
    RG_CHECK_EQ(rg_submit_delete(run->client.client, run->client.cq,
                                 &(struct rg_delete){.bucket = run->bucket,
                                                     .object = "old",
                                                     .generation = old_generation(run),
                                                     .exclusive = run->exclusive}),
                0);
}

static void delete_in_batch(struct rg_write_run *run)
{
    const struct rg_delete item = {.bucket = run->bucket,
                                   .object = "old",
                                   .generation = old_generation(run),
                                   .exclusive = run->exclusive};
    RG_CHECK_EQ(rg_submit_delete_many(run->client.client, run->client.cq,
                                      &(struct rg_delete_many){.deletes = &item, .count = 1}),
                0);
}

static void other_delete(const struct rg_write_run *run)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "DELETE", .target = target});
}

static void put_unguarded(struct rg_write_run *run)
{
    RG_CHECK_EQ(rg_submit_put(run->client.client, run->client.cq,
                              &(struct rg_put){.bucket = run->bucket,
                                               .object = "new",
                                               .data = data,
                                               .size = RG_WRITE_SMALL_SIZE}),
                0);
}

static void upload_auto(struct rg_write_run *run)
{
    upload(run, RG_UPLOAD_AUTO, RG_WRITE_SMALL_SIZE, true);
}

static void upload_resumable_large(struct rg_write_run *run)
{
    upload(run, RG_UPLOAD_RESUMABLE, RG_WRITE_LARGE_SIZE, true);
}

/* Lends all of it, waiting for room. */
static void lend(struct rg_write_run *run, bool with_sum)
{
    struct rg_writer_options options = {.bucket = run->bucket,
                                        .object = "new",
                                        .exclusive = run->exclusive,
                                        .part_size = RG_WRITE_PART_SIZE,
                                        .conditions = absent()};
    uint32_t crc = 0;
    RG_CHECK_EQ(rg_writer_open(&run->writer, run->client.client, &options), 0);
    for (size_t done = 0; done < sizeof(data);) {
        int64_t taken =
            with_sum ? rg_writer_lend_sum(run->writer, data + done, sizeof(data) - done, &crc)
                     : rg_writer_lend(run->writer, data + done, sizeof(data) - done);
        if (taken == -EAGAIN) {
            RG_CHECK_EQ(rg_writer_wait(run->writer, RG_FOREVER), 0);
            taken = 0;
        }
        RG_CHECK(taken >= 0);
        done += (size_t)taken;
    }
    RG_CHECK(!with_sum || crc == rg_crc32c(0, data, sizeof(data)));
    RG_CHECK_EQ(rg_writer_finish(run->writer, run->client.cq, 0), 0);
}

static void lend_stream(struct rg_write_run *run)
{
    lend(run, false);
}

static void lend_summed_stream(struct rg_write_run *run)
{
    lend(run, true);
}

static size_t uploads_begun(const struct rg_write_run *run)
{
    size_t uploads;
    (void)rg_write_run_leftovers(run, &uploads);
    return uploads;
}

/* In the place of a completion, an object that is asked for. */
static void abort_stream(struct rg_write_run *run)
{
    struct rg_writer_options options = {
        .bucket = run->bucket, .object = "new", .part_size = RG_WRITE_PART_SIZE};
    RG_CHECK_EQ(rg_writer_open(&run->writer, run->client.client, &options), 0);
    for (size_t done = 0; done < sizeof(data);) {
        int64_t taken = rg_writer_write(run->writer, data + done, sizeof(data) - done);
        RG_CHECK(taken > 0);
        done += (size_t)taken;
    }
    RG_AWAIT(uploads_begun(run) > 0);
    rg_writer_close(run->writer);
    run->writer = NULL;
    RG_CHECK_EQ(rg_submit_stat(run->client.client, run->client.cq,
                               &(struct rg_stat){.bucket = run->bucket, .object = "old"}),
                0);
}

static void delete_unguarded(struct rg_write_run *run)
{
    RG_CHECK_EQ(rg_submit_delete(run->client.client, run->client.cq,
                                 &(struct rg_delete){.bucket = run->bucket, .object = "old"}),
                0);
}

static void abort_upload(struct rg_write_run *run)
{
    struct rg_talk talk;
    char target[64], id[64];
    snprintf(target, sizeof(target), "/%s?uploads", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "GET", .target = target});
    const char *at = strstr(talk.text, "<UploadId>");
    RG_CHECK(at != NULL);
    snprintf(id, sizeof(id), "%.*s", (int)strcspn(at + 10, "<"), at + 10);
    RG_CHECK_EQ(rg_submit_abort_upload(
                    run->client.client, run->client.cq,
                    &(struct rg_abort_upload){.bucket = run->bucket, .object = "begun", .id = id}),
                0);
}

#define SMALL .effect = RG_WRITE_MAKES, .size = RG_WRITE_SMALL_SIZE
#define LARGE .effect = RG_WRITE_MAKES, .size = RG_WRITE_LARGE_SIZE

const struct rg_write_way rg_write_ways[] = {
    {"put", "\"writes\":true", put, other_put, SMALL},
    {"put without a condition", "\"writes\":true", put_unguarded, NULL, SMALL, .unguarded = true},
    {"upload as it comes", "\"writes\":true", upload_auto, other_put, SMALL},
    {"upload in one request", "\"writes\":true", upload_single, other_put, SMALL},
    {"upload in composed parts", "\"method\":\"storage.objects.compose\"", upload_composed,
     other_put_large, LARGE},
    {"upload in parts of the XML API", "\"writes\":true,\"target\":\"?uploadId=\"",
     upload_multipart, other_put_large, LARGE},
    {"upload in a session", "\"method\":\"storage.objects.insert\",\"target\":\"upload_id=\"",
     upload_resumable, other_put, SMALL},
    {"large upload in a session", "\"method\":\"storage.objects.insert\",\"target\":\"upload_id=\"",
     upload_resumable_large, other_put_large, LARGE},
    {"writer", "\"writes\":true", write_stream, other_put, SMALL},
    {"writer of lent memory", "\"method\":\"storage.objects.compose\"", lend_stream,
     other_put_large, LARGE},
    {"writer of lent memory, summed up", "\"method\":\"storage.objects.compose\"",
     lend_summed_stream, other_put_large, LARGE},
    {"writer that is aborted", "\"writes\":true", abort_stream, NULL, .effect = RG_WRITE_LEAVES},
    {"compose", "\"method\":\"storage.objects.compose\"", compose, other_put, SMALL},
    {"copy", "\"method\":\"storage.objects.rewrite\"", copy, other_put, SMALL, .unproven = true},
    {"update", "\"method\":\"storage.objects.patch\"", update, other_update,
     .effect = RG_WRITE_CHANGES},
    {"delete", "\"writes\":true", delete_one, other_delete, .effect = RG_WRITE_REMOVES,
     .unproven = true},
    {"delete without a condition", "\"writes\":true", delete_unguarded, NULL,
     .effect = RG_WRITE_REMOVES, .unguarded = true, .unproven = true},
    {"delete in a batch", "\"target\":\"/batch\"", delete_in_batch, other_delete,
     .effect = RG_WRITE_REMOVES, .unproven = true},
    {"abort of an upload", "\"writes\":true", abort_upload, NULL, .effect = RG_WRITE_ENDS,
     .unproven = true},
};
const size_t rg_write_way_count = RG_ARRAY_LEN(rg_write_ways);

void rg_write_run_open(struct rg_write_run *run, const struct rg_write_way *way, size_t number)
{
    char target[64];
    struct rg_talk talk;
    snprintf(run->bucket, sizeof(run->bucket), "bucket-%zu", number);
    snprintf(target, sizeof(target), "/%s", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "PUT", .target = target});
    RG_CHECK_EQ(talk.status, 200);
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, run->port,
            &(struct rg_talk_request){"PUT", target, NULL, data, RG_WRITE_SMALL_SIZE});
    RG_CHECK_EQ(talk.status, 200);
    if (way->effect == RG_WRITE_ENDS) {
        snprintf(target, sizeof(target), "/%s/begun?uploads", run->bucket);
        rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "POST", .target = target});
        RG_CHECK_EQ(talk.status, 200);
    }
    run->client.no_server = true;
    rg_test_client_open(&run->client);
}

void rg_write_run_close(struct rg_write_run *run)
{
    rg_writer_close(run->writer);
    run->writer = NULL;
    rg_test_client_close(&run->client);
}

struct rg_completion rg_write_run_take(struct rg_write_run *run)
{
    struct rg_completion done = rg_test_take(&run->client);
    if (done.status == RG_STATUS_OK && done.data != NULL &&
        done.size == sizeof(struct rg_delete_result)) {
        const struct rg_delete_result *result = done.data;
        done.status = result->status;
        done.found_done = result->found_done;
    }
    return done;
}

/* 404, or 200 with the right bytes. */
static unsigned status_of_new(const struct rg_write_run *run, uint64_t size)
{
    char target[64], want[64], crc32c[RG_REPLY_CRC32C_SIZE];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/new", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "HEAD", .target = target});
    if (talk.status == 200) {
        rg_reply_format_crc32c(crc32c, rg_checksum_extend(0, data, size));
        snprintf(want, sizeof(want), "crc32c=%.8s", crc32c);
        RG_CHECK(strstr(talk.head, want) != NULL);
        snprintf(want, sizeof(want), "x-goog-stored-content-length: %" PRIu64 "\r\n", size);
        RG_CHECK(strstr(talk.head, want) != NULL);
    }
    return talk.status;
}

static struct rg_talk talk_of_old(const struct rg_write_run *run)
{
    char target[64];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/old", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "HEAD", .target = target});
    return talk;
}

bool rg_write_run_is_done(const struct rg_write_run *run, const struct rg_write_way *way)
{
    struct rg_talk old = talk_of_old(run);
    bool is_removed = way->effect == RG_WRITE_REMOVES;
    RG_CHECK(old.status == 200 || (old.status == 404 && is_removed));
    size_t uploads;
    (void)rg_write_run_leftovers(run, &uploads);
    switch (way->effect) {
    case RG_WRITE_MAKES:
        return status_of_new(run, way->size) == 200;
    case RG_WRITE_CHANGES:
        return strstr(old.head, "x-goog-meta-colour: green\r\n") != NULL;
    case RG_WRITE_ENDS:
        return uploads == 0;
    case RG_WRITE_LEAVES:
        RG_CHECK_EQ(status_of_new(run, 0), 404);
        return true;
    default:
        return old.status == 404;
    }
}

static size_t occurrences(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

size_t rg_write_run_leftovers(const struct rg_write_run *run, size_t *out_uploads)
{
    char target[96];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s?uploads", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "GET", .target = target});
    RG_CHECK_EQ(talk.status, 200);
    *out_uploads = occurrences(talk.text, "<Upload>");
    snprintf(target, sizeof(target), "/storage/v1/b/%s/o?fields=items(name)", run->bucket);
    rg_talk(&talk, run->port, &(struct rg_talk_request){.method = "GET", .target = target});
    RG_CHECK_EQ(talk.status, 200);
    return occurrences(talk.text, "\"name\":") - occurrences(talk.text, "\"name\":\"old\"") -
           occurrences(talk.text, "\"name\":\"new\"");
}
