/* The answer to one request: see response.h. From top to bottom: memory, then body, then head,
 * which leads to the body. */
#include "http/response.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a slab must have behind the body: the content type of a TLS 1.3 record is decrypted after
 * the last byte, and a little padding with it. */
#define BODY_SLACK 64
/* The head and the first record, when nothing is known of what will come. */
#define EARLY_SIZE_MIN RG_KIB(20)
/* A first read that is sure to hold a whole record. */
#define HEAD_READ_SIZE RG_TLS_PLAIN_MAX
/* Plain bodies with more than this to come are received straight into their place. */
#define DIRECT_SIZE_MIN RG_KIB(16)
/* The head of a plain response that a large body follows. */
#define PLAIN_HEAD_SIZE RG_KIB(2)
/* A body of unknown length starts with this much room, or with what the last one needed up to a
 * limit: room is waited for before a body begins, but not while it grows. */
#define GROWING_SIZE_MIN RG_KIB(64)
#define GROWN_SIZE_MAX RG_MIB(4)
#define GROWN_MEMORY_SHARE 4
/* 1xx answers to one request: a server that sends nothing else makes no progress. */
#define INTERIM_ANSWERS_MAX 32

static struct rg_loop *loop_of(const struct rg_response *response)
{
    return response->shared->loop;
}

static bool length_is_known(const struct rg_response *response)
{
    return response->framing == RG_H1_BODY_LENGTH || response->framing == RG_H1_BODY_NONE;
}

/* Early bytes are in a slab or in spare memory; a body has room for what has come of it. */
static void invariants(const struct rg_response *response)
{
    RG_VERIFY(response->early == NULL || response->spare == NULL);
    RG_VERIFY(response->head_end <= response->early_size);
    RG_VERIFY(response->head_scanned <= response->early_size);
    RG_VERIFY(response->phase == RG_RESPONSE_HEAD || response->head_end > 0);
    RG_VERIFY(response->phase == RG_RESPONSE_BODY || response->body_size == 0);
    RG_VERIFY(response->body == NULL || response->body_size <= response->body_room);
    RG_VERIFY(response->lease == NULL || response->action == RG_BODY_LEASE);
    (void)response;
}

static enum rg_response_step fail(struct rg_response *response, enum rg_status status, int os_error,
                                  const char *text)
{
    response->failure =
        (struct rg_transport_failure){.status = status, .os_error = os_error, .text = text};
    return RG_RESPONSE_FAILED;
}

static enum rg_response_step fail_http(struct rg_response *response, const char *text)
{
    return fail(response, RG_STATUS_HTTP_PROTOCOL, 0, text);
}

/* What a body of unknown length took, or would have. */
static void grown_note(struct rg_response *response, uint64_t size)
{
    uint64_t share = rg_slab_size_max(loop_of(response)->slabs) / GROWN_MEMORY_SHARE;
    response->shared->grown = (size_t)RG_MIN(size, RG_MIN((uint64_t)GROWN_SIZE_MAX, share));
}

void rg_response_learn(struct rg_response *response)
{
    struct rg_loop *loop = loop_of(response);
    if (response->action == RG_BODY_LEASE && !length_is_known(response)) {
        /* The next one is about as long: pages of a listing are. */
        grown_note(response, response->body_size + response->body_size / 8);
    }
    rg_histogram_record(&loop->metrics.phases[RG_PHASE_BODY], loop->now_ns - response->head_ns);
}

/* Tells the owner of bytes that lie behind body_size. */
static void body_add(struct rg_response *response, const uint8_t *data, size_t size)
{
    response->body_size += size;
    if (response->x->ops->data != NULL && size > 0) {
        response->x->ops->data(response->x, data, size);
    }
}

/* Puts bytes that arrived with the head, or that were unchunked elsewhere, into the body. */
static enum rg_response_step body_append(struct rg_response *response, const uint8_t *data,
                                         size_t size)
{
    bool pass = response->action == RG_BODY_PASS, discard = response->action == RG_BODY_DISCARD;
    uint64_t room = pass || discard ? response->x->body_max : response->body_room;
    if (size > room - response->body_size) {
        return fail(response, RG_STATUS_TOO_LARGE, 0, NULL);
    }
    if (discard) {
        response->body_size += size;
        return RG_RESPONSE_MORE;
    }
    if (!pass) {
        uint8_t *place = response->body + response->body_size;
        memcpy(place, data, size);
        data = place;
    }
    body_add(response, data, size);
    return RG_RESPONSE_MORE;
}

/* Makes room for `size` more bytes of a body of unknown length. */
static enum rg_response_step body_grow(struct rg_response *response, size_t size)
{
    if (response->action != RG_BODY_LEASE || size <= response->body_room - response->body_size) {
        return RG_RESPONSE_MORE;
    }
    struct rg_loop *loop = loop_of(response);
    /* The old place is held until the bytes have moved to the new one. */
    uint64_t both_max = rg_slab_size_max(loop->slabs);
    uint64_t limit =
        RG_MIN(response->x->body_max, both_max - RG_MIN(both_max, response->body_room));
    uint64_t wanted = RG_MIN(RG_MAX(response->body_room * 2, response->body_size + size), limit);
    if (wanted < response->body_size + size) {
        return fail(response, RG_STATUS_TOO_LARGE, 0, NULL);
    }
    struct rg_lease *lease = rg_loop_take_slab(loop, (size_t)wanted, NULL);
    if (lease == NULL) {
        /* The next attempt waits for this much. */
        grown_note(response, wanted);
        return fail(response, RG_STATUS_NO_RESOURCES, ENOMEM, "the memory budget is used up");
    }
    memcpy(lease->data, response->body, response->body_size);
    rg_lease_release(response->lease);
    response->lease = lease;
    response->body = lease->data;
    response->body_room = lease->capacity;
    return RG_RESPONSE_MORE;
}

static enum rg_response_step body_grow_by(struct rg_response *response, const uint8_t *data,
                                          size_t size)
{
    enum rg_response_step step = body_grow(response, size);
    return step == RG_RESPONSE_MORE ? body_append(response, data, size) : step;
}

/* Decodes chunked bytes that lie elsewhere. */
static enum rg_response_step chunked_take(struct rg_response *response, const uint8_t *data,
                                          size_t size)
{
    while (size > 0) {
        struct rg_h1_slice piece;
        int consumed = rg_h1_chunked_decode(&response->chunked, data, size, &piece);
        if (consumed < 0) {
            return fail_http(response, rg_h1_error_text(response->chunked.error));
        }
        enum rg_response_step step =
            body_grow_by(response, (const uint8_t *)piece.data, piece.size);
        if (step != RG_RESPONSE_MORE) {
            return step;
        }
        data += consumed;
        size -= (size_t)consumed;
        if (response->chunked.finished) {
            response->keep_alive &= size == 0;
            return RG_RESPONSE_COMPLETE;
        }
    }
    return RG_RESPONSE_MORE;
}

static enum rg_response_step complete_or_more(const struct rg_response *response)
{
    return response->body_size == response->body_length ? RG_RESPONSE_COMPLETE : RG_RESPONSE_MORE;
}

/* Takes bytes of the body that lie elsewhere, or came with the head. */
static enum rg_response_step body_take(struct rg_response *response, const uint8_t *data,
                                       size_t size)
{
    if (response->framing == RG_H1_BODY_CHUNKED) {
        return chunked_take(response, data, size);
    }
    if (response->framing == RG_H1_BODY_UNTIL_CLOSE) {
        return body_grow_by(response, data, size);
    }
    if (size > response->body_length) {
        response->keep_alive = false;
        size = (size_t)response->body_length;
    }
    bool in_place = response->action == RG_BODY_LEASE && response->lease == response->early;
    if (in_place) {
        body_add(response, data, size);
        return complete_or_more(response);
    }
    enum rg_response_step step = body_append(response, data, size);
    return step == RG_RESPONSE_MORE ? complete_or_more(response) : step;
}

static uint8_t *early_data(const struct rg_response *response)
{
    return response->early != NULL ? response->early->data : response->spare;
}

static size_t early_capacity(const struct rg_response *response)
{
    return response->early != NULL ? response->early->capacity : response->spare_capacity;
}

/* Moves what has come to other memory of at least `size` bytes: to the slab, or without one to the
 * heap. False: there is none. */
static bool early_move(struct rg_response *response, struct rg_lease *slab, size_t size)
{
    RG_ASSERT(size >= response->early_size);
    uint8_t *spare = slab == NULL ? malloc(size) : NULL;
    uint8_t *data = slab != NULL ? slab->data : spare;
    if (data == NULL) {
        return false;
    }
    if (response->early_size > 0) {
        memcpy(data, early_data(response), response->early_size);
    }
    rg_lease_release(response->early);
    free(response->spare);
    response->early = slab;
    response->spare = spare;
    response->spare_capacity = spare != NULL ? size : 0;
    return true;
}

/* Decides where a leased body lies. False: memory has to be waited for. */
static bool place_lease(struct rg_response *response)
{
    struct rg_response_shared *shared = response->shared;
    bool known = length_is_known(response);
    uint64_t early_size = response->early_size - response->head_end;
    uint64_t growing = RG_MIN((uint64_t)shared->grown, response->x->body_max);
    uint64_t body_size = known ? response->body_length + BODY_SLACK
                               : RG_MAX(RG_MAX((uint64_t)GROWING_SIZE_MIN, growing), early_size);
    uint64_t with_head = body_size + response->head_end;
    size_t capacity = response->early != NULL ? response->early->capacity : 0;
    bool wasteful = capacity > 2 * with_head && capacity > EARLY_SIZE_MIN;
    if (known) {
        shared->predicted = (size_t)RG_MAX(with_head, (uint64_t)EARLY_SIZE_MIN);
    }
    if (known && with_head <= capacity && !wasteful) {
        response->lease = response->early;
        response->body = response->early->data + response->head_end;
        response->body_room = capacity - response->head_end;
        return true;
    }
    response->lease = rg_loop_take_slab(shared->loop, (size_t)body_size, &response->slab_task);
    if (response->lease == NULL) {
        if (response->early != NULL) {
            /* Who waits for a slab holds none, or all might wait for each other's. */
            (void)early_move(response, NULL, response->early_size);
        }
        return false;
    }
    response->body = response->lease->data;
    response->body_room = response->lease->capacity;
    return true;
}

/* The head is parsed: finds the body its place and takes what there is of it. */
static enum rg_response_step body_place(struct rg_response *response)
{
    if (response->action == RG_BODY_LEASE) {
        if (!place_lease(response)) {
            return RG_RESPONSE_WAITS;
        }
    } else if (response->action == RG_BODY_INTO) {
        response->body = response->x->into;
        response->body_room = response->x->into_size;
    }
    response->phase = RG_RESPONSE_BODY;
    return body_take(response, early_data(response) + response->head_end,
                     response->early_size - response->head_end);
}

/* A body that cannot fit is refused before any of it is read. */
static bool body_fits(const struct rg_response *response)
{
    uint64_t limit = response->x->body_max;
    if (response->action == RG_BODY_LEASE) {
        limit = RG_MIN(limit, (uint64_t)rg_slab_size_max(loop_of(response)->slabs) - BODY_SLACK);
    } else if (response->action == RG_BODY_INTO) {
        limit = RG_MIN(limit, response->x->into_size);
    }
    return response->framing != RG_H1_BODY_LENGTH || response->body_length <= limit;
}

static enum rg_response_step head_accept(struct rg_response *response,
                                         const struct rg_h1_head *head)
{
    struct rg_loop *loop = loop_of(response);
    struct rg_exchange *x = response->x;
    response->head_ns = loop->now_ns;
    rg_histogram_record(&loop->metrics.phases[RG_PHASE_FIRST_BYTE],
                        response->head_ns - x->started_ns);
    response->keep_alive = head->keep_alive;
    response->framing = head->framing;
    response->body_length = head->framing == RG_H1_BODY_LENGTH ? head->content_length : 0;
    if (response->framing == RG_H1_BODY_CHUNKED) {
        rg_h1_chunked_init(&response->chunked);
    }
    x->http_status = head->status;
    x->body_max = UINT64_MAX;
    /* The answer may go on as another exchange's from here: rg_exchange_trade. */
    response->action = x->ops->head(x, head);
    if (!body_fits(response)) {
        return fail(response, RG_STATUS_TOO_LARGE, 0, NULL);
    }
    response->phase = RG_RESPONSE_PLACE;
    return body_place(response);
}

/* What answers a plain request on a port for TLS: an alert (RFC 8446 section 5.1). */
static bool is_tls_record(const struct rg_response *response, const uint8_t *data)
{
    return !response->transport->secure && response->early_size >= 2 && data[0] == 0x15 &&
           data[1] == 0x03;
}

/* Parses what there is of the head. */
static enum rg_response_step head_parse(struct rg_response *response)
{
    struct rg_h1_head *head = &response->shared->head;
    while (response->early_size > 0) {
        uint8_t *data = early_data(response);
        int rc = rg_h1_parse_response(head, response->x->head_request, data, response->early_size,
                                      response->head_scanned);
        if (rc == -EAGAIN) {
            response->head_scanned = response->early_size;
            return RG_RESPONSE_MORE;
        }
        if (rc < 0 && is_tls_record(response, data)) {
            return fail(response, RG_STATUS_TLS_PROTOCOL, 0, "the server speaks TLS on this port");
        }
        if (rc < 0) {
            return fail_http(response, rg_h1_error_text(head->error));
        }
        if (head->status >= 200) {
            response->head_end = (size_t)rc;
            return head_accept(response, head);
        }
        if (head->status == 101) {
            return fail_http(response, "an upgrade that nobody asked for");
        }
        if (++response->interim_count > INTERIM_ANSWERS_MAX) {
            return fail_http(response, "too many interim answers");
        }
        response->early_size -= (size_t)rc;
        response->head_scanned = 0;
        memmove(data, data + rc, response->early_size);
    }
    return RG_RESPONSE_MORE;
}

/* Memory for a head never has to be waited for: it may be the head of the rest of a body whose
 * beginning others wait for. */
static bool early_take(struct rg_response *response)
{
    struct rg_slab_arena *slabs = loop_of(response)->slabs;
    size_t size = RG_MIN(RG_MAX(response->shared->predicted, (size_t)EARLY_SIZE_MIN),
                         rg_slab_size_max(slabs));
    /* A prediction too large for the memory that is left must not keep a small response waiting. */
    struct rg_lease *slab = rg_slab_take(slabs, size);
    if (slab == NULL && size > EARLY_SIZE_MIN) {
        slab = rg_slab_take(slabs, EARLY_SIZE_MIN);
    }
    return early_move(response, slab, EARLY_SIZE_MIN);
}

static bool early_grow(struct rg_response *response)
{
    size_t size = response->early_size + HEAD_READ_SIZE;
    return early_move(response, rg_slab_take(loop_of(response)->slabs, size), size);
}

/* Reads more of the head. */
static enum rg_response_step head_read(struct rg_response *response)
{
    bool begun = early_data(response) != NULL;
    bool cramped = begun && early_capacity(response) - response->early_size < HEAD_READ_SIZE;
    if ((!begun && !early_take(response)) || (cramped && !early_grow(response))) {
        return fail(response, RG_STATUS_NO_RESOURCES, ENOMEM,
                    "no memory for the head of an answer");
    }
    size_t room = early_capacity(response) - response->early_size;
    ssize_t got =
        rg_transport_read(response->transport, early_data(response) + response->early_size,
                          RG_MIN(room, (size_t)HEAD_READ_SIZE));
    if (got <= 0) {
        return RG_RESPONSE_DRAINED;
    }
    response->early_size += (size_t)got;
    return head_parse(response);
}

/* Reads a body without a place, or of unknown length, through the scratch buffer. */
static enum rg_response_step body_read_scratch(struct rg_response *response)
{
    uint8_t *scratch = response->shared->scratch;
    ssize_t got = rg_transport_read(response->transport, scratch, RG_SCRATCH_SIZE);
    return got > 0 ? body_take(response, scratch, (size_t)got) : RG_RESPONSE_DRAINED;
}

enum rg_response_step rg_response_received(struct rg_response *response, size_t size)
{
    uint64_t left = response->body_length - response->body_size;
    if (size > left) {
        response->keep_alive = false;
        size = (size_t)left;
    }
    body_add(response, response->body + response->body_size, size);
    return complete_or_more(response);
}

/* Reads a body of known length to its place. */
static enum rg_response_step body_read(struct rg_response *response)
{
    bool has_place = response->action == RG_BODY_LEASE || response->action == RG_BODY_INTO;
    if (response->framing != RG_H1_BODY_LENGTH || !has_place) {
        return body_read_scratch(response);
    }
    struct rg_transport *transport = response->transport;
    uint64_t left = response->body_length - response->body_size;
    uint8_t *dest = response->body + response->body_size;
    /* More than is to come, where there is room for it: a short receive also tells that the socket
     * is empty, which saves asking once more. */
    size_t room = (size_t)RG_MIN(response->body_room - response->body_size, left + BODY_SLACK);
    if (!transport->secure && left >= DIRECT_SIZE_MIN && !rg_transport_has_input(transport)) {
        rg_transport_receive_into(transport, dest, room);
        return RG_RESPONSE_DRAINED;
    }
    ssize_t got = rg_transport_read(transport, dest, room);
    if (got == -ENOSPC) {
        return fail_http(response, "more bytes than Content-Length says");
    }
    return got > 0 ? rg_response_received(response, (size_t)got) : RG_RESPONSE_DRAINED;
}

enum rg_response_step rg_response_read(struct rg_response *response)
{
    RG_ASSERT(response->x != NULL);
    invariants(response);
    switch (response->phase) {
    case RG_RESPONSE_HEAD:
        return head_read(response);
    case RG_RESPONSE_PLACE:
        return body_place(response);
    default:
        return body_read(response);
    }
}

bool rg_response_ended_by_close(const struct rg_response *response)
{
    return response->phase == RG_RESPONSE_BODY && response->framing == RG_H1_BODY_UNTIL_CLOSE;
}

void rg_response_begin(struct rg_response *response, struct rg_exchange *x)
{
    RG_ASSERT(response->x == NULL && response->early == NULL && response->lease == NULL);
    RG_ASSERT(response->spare == NULL);
    response->x = x;
    response->phase = RG_RESPONSE_HEAD;
    response->keep_alive = false;
    response->early_size = response->head_scanned = response->head_end = 0;
    response->interim_count = 0;
    response->body = NULL;
    response->body_size = response->body_room = 0;
}

struct rg_exchange *rg_response_end(struct rg_response *response)
{
    struct rg_exchange *x = response->x;
    RG_ASSERT(x != NULL);
    response->x = NULL;
    x->body = response->body;
    x->body_size = response->body_size;
    x->lease = response->lease;
    if (response->early != response->lease) {
        rg_lease_release(response->early);
    }
    free(response->spare);
    response->spare = NULL;
    response->early = response->lease = NULL;
    response->body = NULL;
    rg_loop_undefer(&response->slab_task);
    return x;
}

size_t rg_response_first_size(const struct rg_response *response)
{
    if (response->transport->secure) {
        /* It is decrypted to its place. */
        return RG_RECV_SIZE_MAX;
    }
    /* It is copied: where the body is received straight into its place, no more than the head
     * should be. */
    bool is_large = response->shared->predicted > 2 * DIRECT_SIZE_MIN;
    return is_large ? PLAIN_HEAD_SIZE : DIRECT_SIZE_MIN;
}
