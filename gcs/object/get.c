/* Reading an object, whole or by range, through the JSON API (Cloud Storage "objects: get",
 * alt=media). A body that breaks off is continued behind what has arrived, from the same
 * generation; when the server does not go along with that, reading starts again from the first
 * byte. */
#include "gcs/request/cached_read.h"
#include "gcs/request/request.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/media_head.h"
#include "gcs/wire/target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "bytes 18446744073709551615-18446744073709551615" */
#define RANGE_SIZE_MAX 64
#define READ_TARGET_SIZE_MAX                                                                       \
    (RG_URL_PATH_SIZE_MAX + 320 + 3 * (RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX))

static bool get_is_whole(const struct rg_get_state *get)
{
    return get->offset == 0 && get->length == RG_WHOLE;
}

static void range_format(const struct rg_get_state *get, char range[static RANGE_SIZE_MAX])
{
    uint64_t first = get->offset + (get->is_doubted ? 0 : get->received);
    if (get->gap_end != 0) {
        snprintf(range, RANGE_SIZE_MAX, "bytes=%" PRIu64 "-%" PRIu64, first, get->gap_end - 1);
    } else if (get->length == RG_WHOLE) {
        snprintf(range, RANGE_SIZE_MAX, "bytes=%" PRIu64 "-", first);
    } else {
        snprintf(range, RANGE_SIZE_MAX, "bytes=%" PRIu64 "-%" PRIu64, first,
                 get->offset + get->length - 1);
    }
}

static int get_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    struct rg_get_state *get = &request->get;
    char text[READ_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query(&target, "alt", "media");
    if (get->is_doubted) {
        /* 304 says that what the cache has is the newest. */
        struct rg_conditions doubt = {.if_generation_not_match = get->generation};
        rg_target_conditions(&target, &doubt);
        request->accepts = 304;
    } else if (get->received > 0 && !rg_get_state_is_doubtful(get)) {
        /* The conditions held when the first bytes came; the rest is of that generation. */
        rg_target_query_i64(&target, "generation", get->generation);
    } else {
        rg_target_query_i64(&target, "generation", get->want_generation);
        rg_target_conditions(&target, &get->conditions);
    }
    RG_ASSERT(rg_target_end(&target) > 0);
    rg_h1_encode_request(encoder, "GET", text);
    bool is_rest = (get->received > 0 || get->gap_end != 0) && !get->is_doubted;
    if (!get_is_whole(get) || is_rest) {
        char range[RANGE_SIZE_MAX];
        range_format(get, range);
        rg_h1_encode_header(encoder, "Range", range);
    }
    /* Objects stored with gzip come as they are stored, so that lengths, ranges and checksums are
     * of the bytes that we get (Cloud Storage, "Transcoding of gzip-compressed files"). */
    rg_h1_encode_header(encoder, "Accept-Encoding", "gzip");
    return rg_request_encode_end(request, encoder);
}

static int answer_refuse(struct rg_request *request, const char *why)
{
    rg_request_note(request, RG_STATUS_BAD_RESPONSE, "%s", why);
    return -EBADMSG;
}

/* The answer begins with the byte that is wanted next, of the object that is wanted; or with the
 * first byte, where reading starts again. */
static int answer_accept(struct rg_request *request, const struct rg_h1_head *head,
                         const struct rg_media_head *media)
{
    struct rg_get_state *get = &request->get;
    if (get->received > 0 && media->first == get->offset) {
        rg_get_state_restart(get);
    }
    uint64_t wanted = get->offset + get->received;
    if (media->first != wanted) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE,
                        "bytes from %" PRIu64 " on were asked for and bytes from %" PRIu64
                        " on came",
                        wanted, media->first);
        return -EBADMSG;
    }
    if (get->want_generation != 0 && media->generation != 0 &&
        media->generation != get->want_generation) {
        return answer_refuse(request, "another generation came than was asked for");
    }
    if (get->received > 0 && media->generation != get->generation) {
        rg_request_note(request, RG_STATUS_TRUNCATED, RG_MEDIA_REPLACED_TEXT);
        get->is_outdated = rg_get_state_is_doubtful(get);
        rg_get_state_restart(get);
        return -EBADMSG;
    }
    if (media->content_range.size == 0) {
        get->gap_end = 0; /* the server goes by no range */
    }
    uint64_t asked = get->gap_end != 0 ? get->gap_end - wanted : get->length - get->received;
    if (head->framing == RG_H1_BODY_LENGTH && head->content_length > asked) {
        return answer_refuse(request, "more bytes came than were asked for");
    }
    return 0;
}

/* Takes note of the object that the answer tells of. */
static void answer_note(struct rg_get_state *get, const struct rg_h1_head *head,
                        const struct rg_media_head *media)
{
    get->is_part = media->content_range.size > 0;
    get->is_endless = head->framing != RG_H1_BODY_LENGTH && head->framing != RG_H1_BODY_NONE;
    get->is_confirmed = true;
    if (get->received > 0) {
        return;
    }
    get->crc = 0;
    get->generation = media->generation;
    get->has_object_crc = media->hashes.has_crc32c;
    get->object_crc = media->hashes.crc32c;
    get->is_gzip = media->is_gzip;
    get->has_object_size = media->has_total;
    get->object_size = media->total;
}

/* Makes room for the rest, which this answer may have more of than was expected. */
static int rest_make_room(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_get_state *get = &request->get;
    uint64_t rest = head->framing == RG_H1_BODY_LENGTH ? head->content_length : 0;
    if (head->framing != RG_H1_BODY_LENGTH && get->has_object_size) {
        rest = get->object_size - RG_MIN(get->object_size, get->offset + get->received);
    }
    int rc = rg_get_state_reserve(get, request->client_loop->loop->slabs,
                                  get->received + RG_MIN(rest, get->length - get->received));
    if (rc < 0) {
        rg_request_note(request, rc == -ENOMEM ? RG_STATUS_NO_RESOURCES : RG_STATUS_TOO_LARGE,
                        "no memory for the rest of the object");
        rg_get_state_restart(get);
    }
    return rc;
}

static int get_head(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_get_state *get = &request->get;
    struct rg_media_head media;
    const char *problem;
    if (head->status == 304) {
        return RG_BODY_DISCARD;
    }
    if (get->is_doubted) {
        rg_get_state_restart(get);
        request->accepts = 0;
    }
    if (rg_media_head_parse(head, &media, &problem) < 0) {
        return answer_refuse(request, problem);
    }
    int rc = answer_accept(request, head, &media);
    if (rc < 0) {
        return rc;
    }
    answer_note(get, head, &media);
    if (get->sink != NULL) {
        get->sunk = get->received;
        rg_cached_read_keep(request);
        request->x.body_max = get->buf_size - get->received;
        return RG_BODY_PASS;
    }
    if (get->buf != NULL) {
        request->x.into = get->buf + get->received;
        request->x.into_size = get->buf_size - get->received;
        return RG_BODY_INTO;
    }
    if (get->lease == NULL) {
        return RG_BODY_LEASE;
    }
    rc = rest_make_room(request, head);
    if (rc < 0) {
        return rc;
    }
    request->x.into = get->body + get->received;
    request->x.into_size = rg_get_state_room(get) - get->received;
    return RG_BODY_INTO;
}

static void get_data(struct rg_request *request, const uint8_t *data, size_t size)
{
    struct rg_get_state *get = &request->get;
    if (get->sink != NULL) {
        get->sink(request, get->sunk, data, size);
        if (RG_UNLIKELY(get->kept != NULL)) {
            memcpy(get->kept->data + get->sunk, data, size);
        }
        get->sunk += size;
    } else if (!get->no_checksum) {
        get->crc = rg_crc32c(get->crc, data, size);
    }
}

/* Takes over what the exchange has put in its place. */
static void body_keep(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    struct rg_exchange *x = &request->x;
    if (x->lease != NULL) {
        RG_ASSERT(get->lease == NULL && get->buf == NULL);
        get->lease = x->lease;
        get->body = x->body;
        x->lease = NULL;
    }
    get->received += x->body_size;
    x->body_size = 0;
}

/* Where in the object what was asked for ends, as far as is known. */
static uint64_t wanted_end(const struct rg_get_state *get)
{
    uint64_t end = get->length == RG_WHOLE ? UINT64_MAX : get->offset + get->length;
    return get->has_object_size ? RG_MIN(end, get->object_size) : end;
}

/* False: the rest cannot be asked for alone, and what there is was dropped. Without a generation
 * the rest might be another object's, and an answer that did not say how long it is may have been
 * complete. */
static bool get_may_resume(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    uint64_t end = wanted_end(get);
    struct rg_slab_arena *slabs = request->client_loop->loop->slabs;
    bool has_rest = get->received > 0 && get->offset + get->received < end;
    if (!has_rest || get->generation == 0 || get->is_endless ||
        (get->lease != NULL && rg_get_state_reserve(get, slabs, end - get->offset) < 0)) {
        rg_get_state_restart(get);
        return false;
    }
    return true;
}

/* The same of what was sent for. */
static uint64_t sent_end(const struct rg_get_state *get)
{
    uint64_t end = wanted_end(get);
    return get->gap_end != 0 ? RG_MIN(end, get->gap_end) : end;
}

/* A complete answer may still be shorter than what was asked for (RFC 9110 15.3.7), or longer. */
static enum rg_status get_check_extent(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    uint64_t end = get->offset + get->received;
    if (!get->has_object_size && !get->is_part) {
        get->object_size = end;
        get->has_object_size = true;
    }
    if (!get->has_object_size && get->length == RG_WHOLE) {
        rg_get_state_restart(get);
        (void)answer_refuse(request, "a part came without the size of the whole");
        return RG_STATUS_BAD_RESPONSE;
    }
    if (end < sent_end(get)) {
        rg_request_note(request, RG_STATUS_TRUNCATED, "%" PRIu64 " bytes came instead of %" PRIu64,
                        get->received, sent_end(get) - get->offset);
        (void)get_may_resume(request);
        return RG_STATUS_TRUNCATED;
    }
    if (end > sent_end(get)) {
        rg_get_state_restart(get);
        (void)answer_refuse(request, "more bytes came than the object has or were asked for");
        return RG_STATUS_BAD_RESPONSE;
    }
    return RG_STATUS_OK;
}

bool rg_get_has_gap(const struct rg_request *request)
{
    const struct rg_get_state *get = &request->get;
    return get->gap_end != 0 && get->offset + get->received < wanted_end(get);
}

static enum rg_status get_finish(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_get_state *get = &request->get;
    body_keep(request);
    enum rg_status status = get_check_extent(request);
    if (status != RG_STATUS_OK || rg_get_has_gap(request)) {
        return status;
    }
    bool whole = get->offset == 0 && get->has_object_size && get->received == get->object_size;
    bool check = whole && get->has_object_crc && !get->no_checksum && get->sink == NULL;
    if (check && get->crc != get->object_crc) {
        rg_request_note(
            request, RG_STATUS_CHECKSUM, "CRC32C is %s instead of %s over %" PRIu64 " bytes",
            rg_crc32c_text(get->crc).text, rg_crc32c_text(get->object_crc).text, get->received);
        rg_cached_read_doubt(request);
        rg_get_state_restart(get);
        return RG_STATUS_CHECKSUM;
    }
    if (RG_UNLIKELY(request->client->newest != NULL)) {
        rg_cached_read_finish(request);
    }
    completion->status = RG_STATUS_OK;
    completion->data = get->buf != NULL ? get->buf : get->body;
    completion->size = get->received;
    completion->crc32c = get->crc;
    completion->generation = get->generation;
    completion->object_size = get->object_size;
    completion->object_crc32c = get->object_crc;
    completion->has_object_crc32c = get->has_object_crc;
    completion->is_gzip = get->is_gzip;
    completion->lease = get->lease;
    get->lease = NULL;
    return RG_STATUS_OK;
}

static bool get_broken(struct rg_request *request)
{
    bool progress = request->x.body_size > 0;
    body_keep(request);
    return get_may_resume(request) && progress;
}

/* The generation whose beginning we have is gone, and the newest was asked for: it is read instead.
 * Where that is too short for the rest, what the cache has is of an older one. */
static void get_refused(struct rg_request *request, uint16_t http_status)
{
    struct rg_get_state *get = &request->get;
    bool is_begun = get->received > 0 && !get->is_doubted;
    if (rg_get_state_is_doubtful(get) && !get->is_doubted) {
        get->is_outdated = http_status == 416;
        rg_get_state_restart(get);
    } else if (http_status == 404 && is_begun && get->want_generation == 0) {
        rg_request_note(request, RG_STATUS_TRUNCATED, RG_MEDIA_REPLACED_TEXT);
        rg_get_state_restart(get);
    }
}

static void get_release(struct rg_request *request)
{
    rg_lease_release(request->get.lease);
    rg_lease_release(request->get.kept);
    request->get.lease = request->get.kept = NULL;
    free(request->get.gaps);
    request->get.gaps = NULL;
}

const struct rg_request_ops rg_get_ops = {
    .verb = "get",
    .operation = RG_VERB_GET,
    .traffic = RG_TRAFFIC_MEDIA,
    .encode = get_encode,
    .head = get_head,
    .data = get_data,
    .finish = get_finish,
    .broken = get_broken,
    .refused = get_refused,
    .release = get_release,
};

int rg_get_prepare(struct rg_request *request, const struct rg_get *get)
{
    uint64_t length = get->length != 0 ? get->length : RG_WHOLE;
    uint64_t end;
    bool valid = get->object != NULL && get->generation >= 0 &&
                 (get->buf != NULL || !get->buf_size) &&
                 (length == RG_WHOLE || !rg_add_overflow(get->offset, length, &end)) &&
                 rg_conditions_valid(&get->conditions);
    if (!valid || rg_request_set_names(request, get->bucket, get->object) < 0) {
        return -EINVAL;
    }
    rg_request_prepare(request, &rg_get_ops, get->user_data, get->deadline_ns);
    request->get = (struct rg_get_state){
        .want_generation = get->generation,
        .offset = get->offset,
        .length = length,
        .buf = get->buf,
        .buf_size = get->buf_size,
        .conditions = get->conditions,
        .no_checksum = request->client->options.checksum == RG_SWITCH_OFF,
    };
    if (get->generation != 0) {
        rg_verify_expect_read(&request->verify, get->generation);
    }
    return 0;
}

/* Copied only where the caller's struct is not the library's: it was built against another version.
 */
static int get_prepare(struct rg_request *request, const struct rg_get *given, size_t struct_size)
{
    if (struct_size == sizeof(*given)) {
        return rg_get_prepare(request, given);
    }
    struct rg_get own = {0};
    memcpy(&own, given, RG_MIN(struct_size, sizeof(own)));
    return rg_get_prepare(request, &own);
}

/* Posts prepared requests to the loops, each loop in one chain, and wakes each at most once. */
static void requests_post(struct rg_client *client, struct rg_request **requests, uint32_t count)
{
    uint32_t per_loop = (count + client->loop_count - 1) / client->loop_count;
    for (uint32_t first = 0; first < count; first += per_loop) {
        uint32_t end = RG_MIN(first + per_loop, count);
        struct rg_client_loop *client_loop = rg_client_next_loop(client, count);
        for (uint32_t i = first; i < end; i++) {
            requests[i]->client_loop = client_loop;
            requests[i]->mail.next = i + 1 < end ? &requests[i + 1]->mail : NULL;
        }
        if (rg_mailbox_post_chain(&client_loop->loop->mailbox, &requests[first]->mail)) {
            rg_loop_wake(client_loop->loop);
        }
    }
}

/* Submitted in one go; a longer array is cut into these. */
#define SUBMIT_BATCH_MAX 256

static int submit_batch(struct rg_client *client, struct rg_cq *cq, const uint8_t *gets,
                        uint32_t count, size_t struct_size)
{
    struct rg_request *requests[SUBMIT_BATCH_MAX];
    int reserved = rg_cq_reserve(cq, count);
    if (reserved <= 0) {
        return reserved < 0 ? reserved : -EAGAIN;
    }
    struct rg_request *next;
    uint32_t taken = rg_client_take_requests(client, (uint32_t)reserved, &next);
    uint32_t ready = 0;
    int rc = taken > 0 ? 0 : -EAGAIN;
    for (uint32_t i = 0; i < taken; i++) {
        struct rg_request *request = next;
        next = request->free_next != 0 ? &client->requests[request->free_next - 1] : NULL;
        if (rc == 0) {
            rc = get_prepare(request, (const struct rg_get *)(gets + i * struct_size), struct_size);
        }
        if (rc == 0) {
            request->cq = cq;
            requests[ready++] = request;
        } else {
            rg_client_give_request(client, request);
        }
    }
    rg_cq_unreserve(cq, (uint32_t)reserved - ready);
    if (ready > 0) {
        requests_post(client, requests, ready);
    }
    return ready > 0 ? (int)ready : rc;
}

int rg_submit_gets_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_get *gets,
                         size_t count, size_t struct_size)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (count == 0 || count > INT32_MAX || gets == NULL) {
        return -EINVAL;
    }
    size_t accepted = 0;
    while (accepted < count) {
        uint32_t batch = (uint32_t)RG_MIN(count - accepted, (size_t)SUBMIT_BATCH_MAX);
        int rc = submit_batch(client, cq, (const uint8_t *)gets + accepted * struct_size, batch,
                              struct_size);
        if (rc < 0) {
            return accepted > 0 ? (int)accepted : rc;
        }
        accepted += (size_t)rc;
        if ((uint32_t)rc < batch) {
            break;
        }
    }
    return (int)accepted;
}
