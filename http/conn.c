/* A client's connection: see conn.h. Callbacks of the transport come in at the bottom of this file;
 * above it, first sending, then receiving head and body, then the ends of exchanges. */
#include "http/conn.h"

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
/* How often it is looked how far an upload has come, in the time without progress that ends it. */
#define LOOKS_PER_LIMIT 8
/* 1xx answers to one request: a server that sends nothing else makes no progress. */
#define INTERIM_ANSWERS_MAX 32

static struct rg_loop *loop_of(const struct rg_conn *conn)
{
    return conn->pool->loop;
}

static void conn_enter(struct rg_conn *conn, enum rg_conn_state state)
{
    RG_ASSERT(state < RG_CONN_STATE_COUNT && conn->state != state);
    conn->state = (uint8_t)state;
}

static void progress(struct rg_conn *conn)
{
    conn->progress_ns = loop_of(conn)->now_ns;
}

/* Gives the exchange what became of it, and lets go of it. */
static void exchange_finish(struct rg_conn *conn, enum rg_status status, int os_error,
                            const char *text)
{
    struct rg_exchange *x = conn->x;
    RG_ASSERT(x != NULL && x->conn == conn);
    conn->x = NULL;
    x->conn = NULL;
    x->status = status;
    x->os_error = os_error;
    x->text = text;
    x->body = conn->body;
    x->body_size = conn->body_size;
    x->lease = conn->lease;
    if (conn->early != conn->lease) {
        rg_lease_release(conn->early);
    }
    free(conn->spare);
    conn->spare = NULL;
    conn->early = conn->lease = NULL;
    conn->body = NULL;
    rg_loop_undefer(&conn->slab_task);
    x->ops->done(x);
}

static void exchange_attach(struct rg_exchange *x, struct rg_conn *conn)
{
    x->conn = conn;
    if (conn != NULL) {
        conn->x = x;
    }
}

void rg_exchange_trade(struct rg_exchange *a, struct rg_exchange *b)
{
    struct rg_conn *conn = a->conn;
    RG_ASSERT(a->conn == NULL || a->conn->lease == NULL);
    RG_ASSERT(b->conn == NULL || b->conn->lease == NULL);
    exchange_attach(a, b->conn);
    exchange_attach(b, conn);
    struct rg_exchange own = *a;
    a->http_status = b->http_status;
    a->started_ns = b->started_ns;
    a->request_sent = b->request_sent;
    a->body_max = b->body_max;
    a->stale = b->stale;
    a->final = b->final;
    b->http_status = own.http_status;
    b->started_ns = own.started_ns;
    b->request_sent = own.request_sent;
    b->body_max = own.body_max;
    b->stale = own.stale;
    b->final = own.final;
}

/* True when bytes of an answer have come. */
static bool response_begun(const struct rg_conn *conn)
{
    return conn->early_size > 0 || conn->interim_count > 0;
}

static void conn_close(struct rg_conn *conn, const struct rg_transport_failure *failure)
{
    RG_ASSERT(conn->state != RG_CONN_CLOSED && conn->state != RG_CONN_CLOSING);
    bool was_connecting = conn->state == RG_CONN_CONNECTING;
    conn_enter(conn, RG_CONN_CLOSING);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, loop_of(conn)->now_ns + RG_POOL_CLOSE_NS);
    /* A response that broke off leaves bytes on the way that nobody will read: RST says so. */
    rg_transport_close(&conn->transport, conn->x != NULL && failure->status != RG_STATUS_OK);
    rg_pool_conn_ended(conn, failure, was_connecting);
    if (conn->x == NULL) {
        return;
    }
    conn->x->stale = conn->reused && conn->response == RG_RESPONSE_HEAD && !response_begun(conn) &&
                     failure->status == RG_STATUS_CONNECTION_LOST;
    if (rg_transport_borrows(&conn->transport)) {
        /* The owner may use its memory again as soon as it is told, and the kernel may not, then.
         */
        conn->failure = *failure;
        return;
    }
    exchange_finish(conn, failure->status, failure->os_error, failure->text);
}

void rg_conn_fail(struct rg_conn *conn, enum rg_status status, int os_error, const char *text)
{
    struct rg_transport_failure failure = {.status = status, .os_error = os_error, .text = text};
    conn_close(conn, &failure);
}

static void conn_fail_http(struct rg_conn *conn, const char *text)
{
    rg_conn_fail(conn, RG_STATUS_HTTP_PROTOCOL, 0, text);
}

static void request_pump(struct rg_conn *conn)
{
    struct rg_exchange *x = conn->x;
    struct rg_transport *transport = &conn->transport;
    uint64_t total = rg_exchange_body_size(x);
    while (conn->request == RG_REQUEST_SENDING && conn->upload_sent < total) {
        uint64_t left;
        const uint8_t *data = rg_exchange_body_at(x, conn->upload_sent, &left);
        if (transport->secure && left < RG_TLS_PLAIN_MAX && conn->upload_sent + left < total) {
            /* Small pieces are put together, so that they do not become a record each. */
            data = conn->pool->scratch;
            left = rg_exchange_body_gather(x, conn->upload_sent, conn->pool->scratch,
                                           RG_TLS_PLAIN_MAX);
        }
        size_t size = (size_t)RG_MIN(left, (uint64_t)RG_OP_SIZE_MAX);
        if (!transport->secure && left >= DIRECT_SIZE_MIN) {
            if (!rg_transport_sending(transport)) {
                conn->upload_sent += size;
                rg_transport_send_from(transport, data, size);
            } else {
                rg_transport_flush(transport);
            }
            return;
        }
        ssize_t taken = rg_transport_write(transport, data, size, true);
        if (taken <= 0) {
            break;
        }
        conn->upload_sent += (uint64_t)taken;
    }
    if (conn->upload_sent == total) {
        conn->request = RG_REQUEST_SENT;
        x->request_whole = true;
    }
    rg_transport_flush(transport);
}

static void request_start(struct rg_conn *conn)
{
    struct rg_exchange *x = conn->x;
    struct rg_h1_encoder encoder;
    rg_h1_encoder_init(&encoder, (char *)conn->pool->scratch, RG_POOL_SCRATCH_SIZE);
    int size = x->ops->encode(x, &encoder);
    if (size < 0) {
        rg_conn_fail(conn, RG_STATUS_BAD_REQUEST, -size, "the request does not fit HTTP/1.1");
        return;
    }
    ssize_t taken = rg_transport_write(&conn->transport, encoder.data, (size_t)size,
                                       rg_exchange_body_size(x) > 0);
    if (taken != size) {
        rg_conn_fail(conn, RG_STATUS_NO_RESOURCES, ENOMEM, "no buffer for a request's head");
        return;
    }
    x->request_sent = true;
    request_pump(conn);
}

/* What comes first is decrypted to its place, or copied: of a plain response whose body is received
 * straight into its place no more than the head should be. */
static size_t first_receive_size(const struct rg_conn *conn)
{
    if (conn->transport.secure) {
        return RG_RECV_SIZE_MAX;
    }
    return conn->pool->predicted > 2 * DIRECT_SIZE_MIN ? PLAIN_HEAD_SIZE : DIRECT_SIZE_MIN;
}

static uint64_t limit_of(uint64_t own_ns, uint64_t pool_ns)
{
    return own_ns != 0 ? RG_MIN(own_ns, pool_ns) : pool_ns;
}

/* How often the alarm must go off: the shortest of the limits that may come to hold while an
 * exchange is on the connection, and often enough to see an upload's progress in that time. */
static uint64_t watch_ns(const struct rg_conn *conn)
{
    const struct rg_exchange *x = conn->x;
    uint64_t watch_ns = conn->pool->watch_ns;
    if (x == NULL) {
        return watch_ns;
    }
    watch_ns = limit_of(x->head_timeout_ns, limit_of(x->stall_timeout_ns, watch_ns));
    return rg_exchange_body_size(x) > 0 ? RG_MAX(watch_ns / LOOKS_PER_LIMIT, UINT64_C(1))
                                        : watch_ns;
}

void rg_conn_assign(struct rg_conn *conn, struct rg_exchange *x)
{
    RG_ASSERT(conn->x == NULL && conn->early == NULL && conn->lease == NULL);
    RG_ASSERT(conn->spare == NULL);
    conn_enter(conn, RG_CONN_BUSY);
    conn->x = x;
    x->conn = conn;
    x->started_ns = loop_of(conn)->now_ns;
    x->status = RG_STATUS_OK;
    x->http_status = 0;
    x->lease = NULL;
    x->stale = false;
    x->final = false;
    x->request_whole = false;
    conn->request = RG_REQUEST_SENDING;
    conn->response = RG_RESPONSE_HEAD;
    conn->upload_sent = 0;
    conn->early_size = conn->head_scanned = conn->head_end = 0;
    conn->interim_count = 0;
    conn->body = NULL;
    conn->body_size = conn->body_room = 0;
    conn->keep_alive = false;
    conn->transport.receive_max = first_receive_size(conn);
    progress(conn);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm,
                      rg_time_after(conn->progress_ns, watch_ns(conn)));
    rg_metric_add(&loop_of(conn)->metrics.requests, 1);
    request_start(conn);
}

/* The response is complete. */
static bool length_is_known(const struct rg_conn *conn)
{
    return conn->framing == RG_H1_BODY_LENGTH || conn->framing == RG_H1_BODY_NONE;
}

/* What a body of unknown length took, or would have. */
static void grown_note(struct rg_conn *conn, uint64_t size)
{
    uint64_t share = rg_slab_size_max(loop_of(conn)->slabs) / GROWN_MEMORY_SHARE;
    conn->pool->grown = (size_t)RG_MIN(size, RG_MIN((uint64_t)GROWN_SIZE_MAX, share));
}

static void response_finish(struct rg_conn *conn)
{
    struct rg_loop *loop = loop_of(conn);
    if (conn->action == RG_BODY_LEASE && !length_is_known(conn)) {
        /* The next one is about as long: pages of a listing are. */
        grown_note(conn, conn->body_size + conn->body_size / 8);
    }
    rg_histogram_record(&loop->metrics.phases[RG_PHASE_BODY], loop->now_ns - conn->head_ns);
    bool live = conn->keep_alive && conn->request == RG_REQUEST_SENT &&
                !rg_transport_has_input(&conn->transport) && !conn->pool->closing;
    conn->reused = true;
    if (!live) {
        struct rg_transport_failure none = {.status = RG_STATUS_OK};
        conn_close(conn, &none);
        return;
    }
    /* Idle first, so that `done` finds a connection when it submits the next exchange. */
    conn_enter(conn, RG_CONN_IDLE);
    struct rg_exchange *x = conn->x;
    RG_ASSERT(x != NULL);
    exchange_finish(conn, RG_STATUS_OK, 0, NULL);
    if (conn->state == RG_CONN_IDLE && conn->x == NULL) {
        rg_pool_conn_ready(conn);
    }
}

/* Tells the owner of bytes that lie behind body_size. */
static void body_add(struct rg_conn *conn, const uint8_t *data, size_t size)
{
    conn->body_size += size;
    if (conn->x->ops->data != NULL && size > 0) {
        conn->x->ops->data(conn->x, data, size);
    }
}

/* Waits for memory: the bytes that are there stay in the transport. */
static void wait_for_memory(struct rg_conn *conn)
{
    rg_transport_pause(&conn->transport);
    rg_pool_conn_waiting(conn);
}

static struct rg_lease *take_slab(struct rg_conn *conn, size_t size)
{
    return rg_loop_take_slab(loop_of(conn), size, &conn->slab_task);
}

/* Puts bytes that arrived with the head, or that were unchunked elsewhere, into the body. False:
 * the connection was ended. */
static bool body_append(struct rg_conn *conn, const uint8_t *data, size_t size)
{
    bool pass = conn->action == RG_BODY_PASS, discard = conn->action == RG_BODY_DISCARD;
    uint64_t room = pass || discard ? conn->x->body_max : conn->body_room;
    if (size > room - conn->body_size) {
        rg_conn_fail(conn, RG_STATUS_TOO_LARGE, 0, NULL);
        return false;
    }
    if (discard) {
        conn->body_size += size;
        return true;
    }
    if (pass) {
        body_add(conn, data, size);
        return true;
    }
    memcpy(conn->body + conn->body_size, data, size);
    body_add(conn, conn->body + conn->body_size, size);
    return true;
}

/* Makes room for `size` more bytes of a body of unknown length. */
static bool body_grow(struct rg_conn *conn, size_t size)
{
    if (conn->action != RG_BODY_LEASE || size <= conn->body_room - conn->body_size) {
        return true;
    }
    /* The old place is held until the bytes have moved to the new one. */
    uint64_t both_max = rg_slab_size_max(loop_of(conn)->slabs);
    uint64_t limit = RG_MIN(conn->x->body_max, both_max - RG_MIN(both_max, conn->body_room));
    uint64_t wanted = RG_MIN(RG_MAX(conn->body_room * 2, conn->body_size + size), limit);
    if (wanted < conn->body_size + size) {
        rg_conn_fail(conn, RG_STATUS_TOO_LARGE, 0, NULL);
        return false;
    }
    struct rg_lease *lease = rg_loop_take_slab(loop_of(conn), (size_t)wanted, NULL);
    if (lease == NULL) {
        /* The next attempt waits for this much. */
        grown_note(conn, wanted);
        rg_conn_fail(conn, RG_STATUS_NO_RESOURCES, ENOMEM, "the memory budget is used up");
        return false;
    }
    memcpy(lease->data, conn->body, conn->body_size);
    rg_lease_release(conn->lease);
    conn->lease = lease;
    conn->body = lease->data;
    conn->body_room = lease->capacity;
    return true;
}

/* Decodes chunked bytes that lie elsewhere. False: the connection was ended or the response is
 * complete. */
static bool chunked_take(struct rg_conn *conn, const uint8_t *data, size_t size)
{
    while (size > 0) {
        struct rg_h1_slice piece;
        int consumed = rg_h1_chunked_decode(&conn->chunked, data, size, &piece);
        if (consumed < 0) {
            conn_fail_http(conn, rg_h1_error_text(conn->chunked.error));
            return false;
        }
        if (!body_grow(conn, piece.size) ||
            !body_append(conn, (const uint8_t *)piece.data, piece.size)) {
            return false;
        }
        data += consumed;
        size -= (size_t)consumed;
        if (conn->chunked.finished) {
            conn->keep_alive &= size == 0;
            response_finish(conn);
            return false;
        }
    }
    return true;
}

/* Takes the part of the body that came with the head. False: no more of this response is to be read
 * now. */
static bool body_take_early(struct rg_conn *conn, const uint8_t *data, size_t size)
{
    switch (conn->framing) {
    case RG_H1_BODY_CHUNKED:
        return chunked_take(conn, data, size);
    case RG_H1_BODY_UNTIL_CLOSE:
        return body_grow(conn, size) && body_append(conn, data, size);
    default:
        break;
    }
    if (size > conn->body_length) {
        conn->keep_alive = false;
        size = (size_t)conn->body_length;
    }
    bool in_place = conn->action == RG_BODY_LEASE && conn->lease == conn->early;
    if (in_place) {
        body_add(conn, data, size);
    } else if (!body_append(conn, data, size)) {
        return false;
    }
    if (conn->body_size == conn->body_length) {
        response_finish(conn);
        return false;
    }
    return true;
}

static uint8_t *early_data(const struct rg_conn *conn)
{
    return conn->early != NULL ? conn->early->data : conn->spare;
}

static size_t early_capacity(const struct rg_conn *conn)
{
    return conn->early != NULL ? conn->early->capacity : conn->spare_capacity;
}

static const uint8_t *early_body(const struct rg_conn *conn, size_t *out_size)
{
    *out_size = conn->early_size - conn->head_end;
    return early_data(conn) + conn->head_end;
}

/* Moves what has come to other memory of at least `size` bytes: to the slab, or without one to the
 * heap. False: there is none. */
static bool early_move(struct rg_conn *conn, struct rg_lease *slab, size_t size)
{
    RG_ASSERT(size >= conn->early_size);
    uint8_t *spare = slab == NULL ? malloc(size) : NULL;
    uint8_t *data = slab != NULL ? slab->data : spare;
    if (data == NULL) {
        return false;
    }
    if (conn->early_size > 0) {
        memcpy(data, early_data(conn), conn->early_size);
    }
    rg_lease_release(conn->early);
    free(conn->spare);
    conn->early = slab;
    conn->spare = spare;
    conn->spare_capacity = spare != NULL ? size : 0;
    return true;
}

/* Decides where a leased body lies. False: memory has to be waited for. */
static bool place_lease(struct rg_conn *conn)
{
    bool known = length_is_known(conn);
    uint64_t early_size = conn->early_size - conn->head_end;
    uint64_t growing = RG_MIN((uint64_t)conn->pool->grown, conn->x->body_max);
    uint64_t body_size = known ? conn->body_length + BODY_SLACK
                               : RG_MAX(RG_MAX((uint64_t)GROWING_SIZE_MIN, growing), early_size);
    uint64_t with_head = body_size + conn->head_end;
    size_t capacity = conn->early != NULL ? conn->early->capacity : 0;
    bool wasteful = capacity > 2 * with_head && capacity > EARLY_SIZE_MIN;
    if (known) {
        conn->pool->predicted = (size_t)RG_MAX(with_head, (uint64_t)EARLY_SIZE_MIN);
    }
    if (known && with_head <= capacity && !wasteful) {
        conn->lease = conn->early;
        conn->body = conn->early->data + conn->head_end;
        conn->body_room = capacity - conn->head_end;
        return true;
    }
    conn->lease = take_slab(conn, (size_t)body_size);
    if (conn->lease == NULL) {
        if (conn->early != NULL) {
            /* Who waits for a slab holds none, or all might wait for each other's. */
            (void)early_move(conn, NULL, conn->early_size);
        }
        return false;
    }
    conn->body = conn->lease->data;
    conn->body_room = conn->lease->capacity;
    return true;
}

/* The head is parsed: finds the body its place and takes what there is of it. False: no more of
 * this response is to be read now. */
static bool body_place(struct rg_conn *conn)
{
    if (conn->action == RG_BODY_LEASE) {
        if (!place_lease(conn)) {
            wait_for_memory(conn);
            return false;
        }
    } else if (conn->action == RG_BODY_INTO) {
        conn->body = conn->x->into;
        conn->body_room = conn->x->into_size;
    }
    conn->response = RG_RESPONSE_BODY;
    size_t size;
    const uint8_t *data = early_body(conn, &size);
    return body_take_early(conn, data, size);
}

/* A body that cannot fit is refused before any of it is read. */
static bool body_fits(struct rg_conn *conn)
{
    uint64_t limit = conn->x->body_max;
    if (conn->action == RG_BODY_LEASE) {
        limit = RG_MIN(limit, (uint64_t)rg_slab_size_max(loop_of(conn)->slabs) - BODY_SLACK);
    } else if (conn->action == RG_BODY_INTO) {
        limit = RG_MIN(limit, conn->x->into_size);
    }
    return conn->framing != RG_H1_BODY_LENGTH || conn->body_length <= limit;
}

static bool head_accept(struct rg_conn *conn, const struct rg_h1_head *head)
{
    struct rg_loop *loop = loop_of(conn);
    struct rg_exchange *x = conn->x;
    conn->head_ns = loop->now_ns;
    rg_histogram_record(&loop->metrics.phases[RG_PHASE_FIRST_BYTE], conn->head_ns - x->started_ns);
    conn->keep_alive = head->keep_alive;
    conn->framing = head->framing;
    conn->body_length = head->framing == RG_H1_BODY_LENGTH ? head->content_length : 0;
    if (conn->framing == RG_H1_BODY_CHUNKED) {
        rg_h1_chunked_init(&conn->chunked);
    }
    x->http_status = head->status;
    x->body_max = UINT64_MAX;
    conn->action = x->ops->head(x, head);
    if (!body_fits(conn)) {
        rg_conn_fail(conn, RG_STATUS_TOO_LARGE, 0, NULL);
        return false;
    }
    conn->response = RG_RESPONSE_PLACE;
    return body_place(conn);
}

/* Parses what is in the early slab. False: no more of this response is to be read now. */
static bool head_parse(struct rg_conn *conn)
{
    struct rg_h1_head *head = &conn->pool->head;
    while (conn->early_size > 0) {
        uint8_t *data = early_data(conn);
        int rc = rg_h1_parse_response(head, conn->x->head_request, data, conn->early_size,
                                      conn->head_scanned);
        if (rc == -EAGAIN) {
            conn->head_scanned = conn->early_size;
            return true;
        }
        if (rc < 0) {
            conn_fail_http(conn, rg_h1_error_text(head->error));
            return false;
        }
        if (head->status >= 200) {
            conn->head_end = (size_t)rc;
            return head_accept(conn, head);
        }
        if (head->status == 101) {
            conn_fail_http(conn, "an upgrade that nobody asked for");
            return false;
        }
        if (++conn->interim_count > INTERIM_ANSWERS_MAX) {
            conn_fail_http(conn, "too many interim answers");
            return false;
        }
        conn->early_size -= (size_t)rc;
        conn->head_scanned = 0;
        memmove(data, data + rc, conn->early_size);
    }
    return true;
}

/* Memory for a head never has to be waited for: it may be the head of the rest of a body whose
 * beginning others wait for. */
static bool early_take(struct rg_conn *conn)
{
    struct rg_slab_arena *slabs = loop_of(conn)->slabs;
    size_t size =
        RG_MIN(RG_MAX(conn->pool->predicted, (size_t)EARLY_SIZE_MIN), rg_slab_size_max(slabs));
    /* A prediction too large for the memory that is left must not keep a small response waiting. */
    struct rg_lease *slab = rg_slab_take(slabs, size);
    if (slab == NULL && size > EARLY_SIZE_MIN) {
        slab = rg_slab_take(slabs, EARLY_SIZE_MIN);
    }
    return early_move(conn, slab, EARLY_SIZE_MIN);
}

static bool early_grow(struct rg_conn *conn)
{
    size_t size = conn->early_size + HEAD_READ_SIZE;
    return early_move(conn, rg_slab_take(loop_of(conn)->slabs, size), size);
}

/* Reads more of the head. True: go on reading. */
static bool head_read(struct rg_conn *conn)
{
    bool begun = early_data(conn) != NULL;
    bool cramped = begun && early_capacity(conn) - conn->early_size < HEAD_READ_SIZE;
    if ((!begun && !early_take(conn)) || (cramped && !early_grow(conn))) {
        rg_conn_fail(conn, RG_STATUS_NO_RESOURCES, ENOMEM, "no memory for the head of an answer");
        return false;
    }
    size_t room = early_capacity(conn) - conn->early_size;
    ssize_t got = rg_transport_read(&conn->transport, early_data(conn) + conn->early_size,
                                    RG_MIN(room, (size_t)HEAD_READ_SIZE));
    if (got <= 0) {
        return false;
    }
    conn->early_size += (size_t)got;
    progress(conn);
    return head_parse(conn);
}

/* Reads a body of unknown length through the scratch buffer. */
static bool body_read_scratch(struct rg_conn *conn)
{
    uint8_t *scratch = conn->pool->scratch;
    ssize_t got = rg_transport_read(&conn->transport, scratch, RG_POOL_SCRATCH_SIZE);
    if (got <= 0) {
        return false;
    }
    progress(conn);
    if (conn->framing == RG_H1_BODY_CHUNKED) {
        return chunked_take(conn, scratch, (size_t)got);
    }
    if (conn->framing == RG_H1_BODY_UNTIL_CLOSE) {
        return body_grow(conn, (size_t)got) && body_append(conn, scratch, (size_t)got);
    }
    RG_ASSERT(conn->action == RG_BODY_DISCARD || conn->action == RG_BODY_PASS);
    return body_take_early(conn, scratch, (size_t)got);
}

static bool body_progressed(struct rg_conn *conn, size_t size)
{
    uint64_t left = conn->body_length - conn->body_size;
    if (size > left) {
        conn->keep_alive = false;
        size = (size_t)left;
    }
    progress(conn);
    body_add(conn, conn->body + conn->body_size, size);
    if (conn->body_size == conn->body_length) {
        response_finish(conn);
        return false;
    }
    return true;
}

/* Reads a body of known length to its place. True: go on reading. */
static bool body_read(struct rg_conn *conn)
{
    bool has_place = conn->action == RG_BODY_LEASE || conn->action == RG_BODY_INTO;
    if (conn->framing != RG_H1_BODY_LENGTH || !has_place) {
        return body_read_scratch(conn);
    }
    struct rg_transport *transport = &conn->transport;
    uint64_t left = conn->body_length - conn->body_size;
    uint8_t *dest = conn->body + conn->body_size;
    /* More than is to come, where there is room for it: a short receive also tells that the socket
     * is empty, which saves asking once more. */
    size_t room = (size_t)RG_MIN(conn->body_room - conn->body_size, left + BODY_SLACK);
    if (!transport->secure && left >= DIRECT_SIZE_MIN && !rg_transport_has_input(transport)) {
        rg_transport_receive_into(transport, dest, room);
        return false;
    }
    ssize_t got = rg_transport_read(transport, dest, room);
    if (got == -ENOSPC) {
        conn_fail_http(conn, "more bytes than Content-Length says");
        return false;
    }
    return got > 0 && body_progressed(conn, (size_t)got);
}

/* Nothing but the end may come on an idle connection; TLS tickets are no data. */
static bool idle_read(struct rg_conn *conn)
{
    ssize_t got = rg_transport_read(&conn->transport, conn->pool->scratch, RG_POOL_SCRATCH_SIZE);
    if (got > 0) {
        conn_fail_http(conn, "bytes that belong to no response");
    }
    return false;
}

static bool conn_read(struct rg_conn *conn)
{
    if (conn->state == RG_CONN_IDLE) {
        return idle_read(conn);
    }
    if (conn->state != RG_CONN_BUSY) {
        return false;
    }
    switch ((enum rg_response_phase)conn->response) {
    case RG_RESPONSE_HEAD:
        return head_read(conn);
    case RG_RESPONSE_PLACE:
        return body_place(conn);
    case RG_RESPONSE_BODY:
        return body_read(conn);
    }
    return false;
}

static struct rg_conn *conn_of(struct rg_transport *transport)
{
    return RG_CONTAINER_OF(transport, struct rg_conn, transport);
}

static void on_data(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    if (conn->state == RG_CONN_BUSY) {
        /* A part of a record, too: a slow line takes its time for 16 KiB. */
        progress(conn);
    }
    while (conn_read(conn)) {
    }
}

static void on_direct(struct rg_transport *transport, size_t size)
{
    struct rg_conn *conn = conn_of(transport);
    RG_ASSERT(conn->state == RG_CONN_BUSY && conn->response == RG_RESPONSE_BODY);
    if (body_progressed(conn, size)) {
        (void)body_read(conn);
    }
}

static void on_ready(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    struct rg_metrics *metrics = &loop_of(conn)->metrics;
    RG_ASSERT(conn->state == RG_CONN_CONNECTING);
    rg_metric_add(&metrics->connections_opened, 1);
    if (transport->secure && rg_tls_resumed(&transport->tls)) {
        rg_metric_add(&metrics->tls_resumed, 1);
    }
    enum rg_phase phase = transport->secure ? RG_PHASE_TLS : RG_PHASE_CONNECT;
    rg_histogram_record(&metrics->phases[phase], loop_of(conn)->now_ns - conn->opened_ns);
    progress(conn);
    conn_enter(conn, RG_CONN_IDLE);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm,
                      rg_time_after(conn->progress_ns, conn->pool->watch_ns));
    rg_pool_conn_ready(conn);
}

static void on_sent(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    if (conn->state == RG_CONN_BUSY) {
        progress(conn);
        request_pump(conn);
    }
}

static void on_ended(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    struct rg_transport_failure failure = transport->failure;
    bool until_close = conn->state == RG_CONN_BUSY && conn->response == RG_RESPONSE_BODY &&
                       conn->framing == RG_H1_BODY_UNTIL_CLOSE;
    if (failure.status == RG_STATUS_OK && until_close) {
        conn->keep_alive = false;
        response_finish(conn);
        return;
    }
    if (conn->state == RG_CONN_BUSY && failure.status == RG_STATUS_OK) {
        failure.status = RG_STATUS_CONNECTION_LOST;
        failure.text = "the server closed the connection";
    }
    bool in_body = conn->state == RG_CONN_BUSY && conn->response != RG_RESPONSE_HEAD;
    if (in_body && failure.status == RG_STATUS_CONNECTION_LOST) {
        failure.status = RG_STATUS_TRUNCATED;
    }
    conn_close(conn, &failure);
}

static void on_closed(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    if (conn->x != NULL) {
        exchange_finish(conn, conn->failure.status, conn->failure.os_error, conn->failure.text);
    }
    rg_loop_cancel_alarm(loop_of(conn), &conn->alarm);
    conn_enter(conn, RG_CONN_CLOSED);
    rg_pool_conn_closed(conn);
}

static const struct rg_transport_owner transport_owner = {
    .on_ready = on_ready,
    .on_data = on_data,
    .on_direct = on_direct,
    .on_sent = on_sent,
    .on_ended = on_ended,
    .on_closed = on_closed,
};

static void slab_task_run(struct rg_task *task)
{
    struct rg_conn *conn = RG_CONTAINER_OF(task, struct rg_conn, slab_task);
    rg_transport_resume(&conn->transport);
}

static void connecting_alarm(struct rg_conn *conn, uint64_t now_ns)
{
    uint64_t limit_ns = rg_time_after(conn->opened_ns, conn->pool->options.connect_timeout_ns);
    bool stuck = now_ns >= conn->opened_ns + RG_POOL_STUCK_CONNECT_NS && rg_pool_conn_stuck(conn);
    if (now_ns >= limit_ns || stuck) {
        rg_metric_add(&loop_of(conn)->metrics.timeouts, 1);
        const struct rg_proxy *proxy = conn->pool->options.proxy;
        rg_conn_fail(conn, RG_STATUS_CONNECT, ETIMEDOUT, proxy != NULL ? proxy->via : NULL);
        return;
    }
    rg_loop_set_alarm(loop_of(conn), &conn->alarm,
                      RG_MIN(limit_ns, now_ns + RG_POOL_STUCK_CONNECT_NS));
    if (!conn->slow) {
        conn->slow = true;
        rg_pool_conn_slow(conn);
    }
}

/* Looks how far an upload has come. True while not all of it has reached the server's system. */
static bool upload_look(struct rg_conn *conn)
{
    if (rg_exchange_body_size(conn->x) == 0) {
        return false;
    }
    struct rg_socket_output output;
    rg_transport_output(&conn->transport, &output);
    bool goes_on = conn->request == RG_REQUEST_SENDING || output.pending > 0 ||
                   rg_transport_sending(&conn->transport);
    if (output.acknowledged != conn->acknowledged) {
        conn->acknowledged = output.acknowledged;
        progress(conn);
    }
    return goes_on;
}

/* What a connection that is busy waits for, and how long. */
static uint64_t busy_limit_ns(struct rg_conn *conn, const char **out_text)
{
    const struct rg_exchange *x = conn->x;
    const struct rg_pool_options *options = &conn->pool->options;
    if (upload_look(conn)) {
        *out_text = "no byte of the upload was taken for the stall timeout";
        return limit_of(x->stall_timeout_ns, options->stall_timeout_ns);
    }
    if (conn->early_size > 0) {
        *out_text = "no byte of the answer came for the stall timeout";
        return limit_of(x->stall_timeout_ns, options->stall_timeout_ns);
    }
    *out_text = "no answer came within the first-byte timeout";
    return limit_of(x->head_timeout_ns, options->first_byte_timeout_ns);
}

/* One alarm serves all limits: progress is only noted as it happens, and what it means is worked
 * out when the alarm goes off. That is at least as often as the shortest limit says, because the
 * state may change meanwhile and another limit may then hold. */
static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_conn *conn = RG_CONTAINER_OF(alarm, struct rg_conn, alarm);
    const struct rg_pool_options *options = &conn->pool->options;
    uint64_t now_ns = loop_of(conn)->now_ns;
    if (conn->state == RG_CONN_CONNECTING) {
        connecting_alarm(conn, now_ns);
        return;
    }
    if (conn->state == RG_CONN_CLOSING) {
        rg_transport_close(&conn->transport, true);
        return;
    }
    const char *text = NULL;
    uint64_t limit_ns = options->idle_timeout_ns;
    if (conn->state == RG_CONN_BUSY) {
        limit_ns = busy_limit_ns(conn, &text);
    }
    /* Waiting for memory is ours to answer for, not the server's. */
    if (rg_transport_paused(&conn->transport)) {
        progress(conn);
    }
    uint64_t deadline_ns = rg_time_after(conn->progress_ns, limit_ns);
    if (now_ns < deadline_ns) {
        rg_loop_set_alarm(loop_of(conn), alarm,
                          RG_MIN(deadline_ns, rg_time_after(now_ns, watch_ns(conn))));
    } else if (conn->state == RG_CONN_BUSY) {
        rg_metric_add(&loop_of(conn)->metrics.timeouts, 1);
        rg_conn_fail(conn, RG_STATUS_STALLED, ETIMEDOUT, text);
    } else {
        rg_conn_fail(conn, RG_STATUS_OK, 0, NULL);
    }
}

void rg_conn_init(struct rg_conn *conn, struct rg_pool *pool)
{
    *conn = (struct rg_conn){.pool = pool, .slab_task.run = slab_task_run};
    rg_alarm_init(&conn->alarm, alarm_fire);
}

int rg_conn_open(struct rg_conn *conn, const struct rg_transport_target *target)
{
    RG_ASSERT(conn->state == RG_CONN_CLOSED);
    rg_transport_init(&conn->transport, conn->pool->options.transports, &transport_owner);
    conn->slow = conn->reused = false;
    conn->acknowledged = 0;
    conn->opened_ns = conn->progress_ns = loop_of(conn)->now_ns;
    int rc = rg_transport_connect(&conn->transport, target);
    if (rc < 0) {
        return rc;
    }
    conn_enter(conn, RG_CONN_CONNECTING);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, conn->opened_ns + RG_POOL_SLOW_CONNECT_NS);
    return 0;
}
