/* A client's connection: see conn.h. Callbacks of the transport come in at the bottom of this file;
 * above it, first the ends of exchanges, then sending, then what reading comes to. */
#include "http/conn.h"
#include "http/answer.h"

#include "runtime/probe.h"

#include <errno.h>

/* Larger pieces of a plain request are sent from where they lie. */
#define DIRECT_SIZE_MIN RG_KIB(16)
/* How often it is looked how far an upload has come, in the time without progress that ends it. */
#define LOOKS_PER_LIMIT 8

#define BIT(state) (1u << (state))

static const uint8_t states_after[] = {
    [RG_CONN_CLOSED] = BIT(RG_CONN_CONNECTING),
    [RG_CONN_CONNECTING] = BIT(RG_CONN_SLOW) | BIT(RG_CONN_IDLE) | BIT(RG_CONN_CLOSING),
    [RG_CONN_SLOW] = BIT(RG_CONN_IDLE) | BIT(RG_CONN_CLOSING),
    [RG_CONN_IDLE] = BIT(RG_CONN_BUSY) | BIT(RG_CONN_CLOSING),
    [RG_CONN_BUSY] = BIT(RG_CONN_IDLE) | BIT(RG_CONN_CLOSING),
    [RG_CONN_CLOSING] = BIT(RG_CONN_CLOSED),
};
static_assert(RG_ARRAY_LEN(states_after) == RG_CONN_STATE_COUNT, "every state is listed");

static struct rg_loop *loop_of(const struct rg_conn *conn)
{
    return conn->shared->response.loop;
}

/* Between two calls of the transport's. */
static bool invariants(const struct rg_conn *conn)
{
    const struct rg_exchange *x = conn->response.x;
    enum rg_conn_state state = conn->state;
    bool has_one = state == RG_CONN_BUSY;
    bool has_none = rg_conn_connects(state) || state == RG_CONN_CLOSED;
    return (x == NULL || x->conn == conn) && (!has_one || x != NULL) && (!has_none || x == NULL);
}

static void conn_enter(struct rg_conn *conn, enum rg_conn_state state)
{
    RG_ASSERT(states_after[conn->state] & BIT(state));
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
    struct rg_exchange *x = rg_response_end(&conn->response);
    RG_ASSERT(x->conn == conn);
    x->conn = NULL;
    x->status = status;
    x->os_error = os_error;
    x->text = text;
    x->ops->done(x);
}

static void exchange_attach(struct rg_exchange *x, struct rg_conn *conn)
{
    x->conn = conn;
    if (conn != NULL) {
        conn->response.x = x;
    }
}

void rg_exchange_trade(struct rg_exchange *a, struct rg_exchange *b)
{
    struct rg_conn *conn = a->conn;
    RG_ASSERT(a->conn == NULL || a->conn->response.lease == NULL);
    RG_ASSERT(b->conn == NULL || b->conn->response.lease == NULL);
    exchange_attach(a, b->conn);
    exchange_attach(b, conn);
    struct rg_exchange own = *a;
    a->http_status = b->http_status;
    a->good_before = b->good_before;
    a->started_ns = b->started_ns;
    a->request_sent = b->request_sent;
    a->body_max = b->body_max;
    a->stale = b->stale;
    a->final = b->final;
    b->http_status = own.http_status;
    b->good_before = own.good_before;
    b->started_ns = own.started_ns;
    b->request_sent = own.request_sent;
    b->body_max = own.body_max;
    b->stale = own.stale;
    b->final = own.final;
}

static void conn_close(struct rg_conn *conn, const struct rg_transport_failure *failure)
{
    enum rg_conn_state before = conn->state;
    conn_enter(conn, RG_CONN_CLOSING);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, loop_of(conn)->now_ns + RG_CONN_CLOSE_NS);
    /* A response that broke off leaves bytes on the way that nobody will read: RST says so. */
    rg_transport_close(&conn->transport,
                       conn->response.x != NULL && failure->status != RG_STATUS_OK);
    conn->shared->owner->ended(conn, failure, before);
    if (conn->response.x == NULL) {
        return;
    }
    conn->response.x->stale = conn->served > 0 && conn->response.phase == RG_RESPONSE_HEAD &&
                              !rg_response_begun(&conn->response) &&
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

/* How much of the body may be sent now. 0: the alarm goes off when it is to be asked again. Whoever
 * has just sent something goes behind those that wait for the same moment, or it would always be
 * first. */
static uint64_t upload_room(struct rg_conn *conn)
{
    struct rg_send_pace *pace = conn->response.x->pace;
    uint64_t look_ns;
    if (pace == NULL) {
        return UINT64_MAX;
    }
    uint64_t room = rg_send_pace_room(pace, loop_of(conn)->now_ns, &look_ns);
    conn->held = room == 0;
    if (conn->held) {
        conn->response.x->was_held = true;
        rg_loop_cancel_alarm(loop_of(conn), &conn->alarm);
        rg_loop_set_alarm(loop_of(conn), &conn->alarm, look_ns);
        return 0;
    }
    /* A record that is cut short costs as much as a whole one. */
    return RG_MAX(room, (uint64_t)RG_TLS_PLAIN_MAX);
}

static void upload_took(struct rg_conn *conn, uint64_t size)
{
    conn->upload_sent += size;
    if (conn->response.x->pace != NULL) {
        rg_send_pace_sent(conn->response.x->pace, size);
    }
}

static void request_pump(struct rg_conn *conn)
{
    struct rg_exchange *x = conn->response.x;
    struct rg_transport *transport = &conn->transport;
    uint64_t total = rg_exchange_body_size(x);
    RG_ASSERT(conn->request == RG_REQUEST_SENDING);
    while (conn->upload_sent < total) {
        uint64_t left, room = upload_room(conn);
        if (room == 0) {
            break;
        }
        const uint8_t *data = rg_exchange_body_at(x, conn->upload_sent, &left);
        if (transport->secure && left < RG_TLS_PLAIN_MAX && conn->upload_sent + left < total) {
            /* Small pieces are put together, so that they do not become a record each. */
            data = conn->shared->response.scratch;
            left = rg_exchange_body_gather(x, conn->upload_sent, conn->shared->response.scratch,
                                           RG_TLS_PLAIN_MAX);
        }
        size_t size = (size_t)RG_MIN(RG_MIN(left, room), (uint64_t)RG_OP_SIZE_MAX);
        if (!transport->secure && left >= DIRECT_SIZE_MIN) {
            if (!rg_transport_sending(transport)) {
                upload_took(conn, size);
                rg_transport_send_from(transport, data, size);
            } else {
                rg_transport_flush_more(transport);
            }
            return;
        }
        ssize_t taken = rg_transport_write(transport, data, size, true);
        if (taken <= 0) {
            break;
        }
        upload_took(conn, (uint64_t)taken);
    }
    if (conn->upload_sent == total) {
        conn->request = RG_REQUEST_SENT;
        x->request_whole = true;
    }
    rg_transport_flush(transport);
}

static void request_start(struct rg_conn *conn)
{
    struct rg_exchange *x = conn->response.x;
    struct rg_h1_encoder encoder;
    rg_h1_encoder_init(&encoder, (char *)conn->shared->response.scratch, RG_SCRATCH_SIZE);
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

static uint64_t limit_of(uint64_t own_ns, uint64_t pool_ns)
{
    return own_ns != 0 ? RG_MIN(own_ns, pool_ns) : pool_ns;
}

/* How often the alarm must go off: the shortest of the limits that may come to hold while an
 * exchange is on the connection, and often enough to see an upload's progress in that time. */
static uint64_t watch_ns(const struct rg_conn *conn)
{
    const struct rg_exchange *x = conn->response.x;
    uint64_t watch_ns = conn->shared->watch_ns;
    if (x == NULL) {
        return watch_ns;
    }
    watch_ns = limit_of(x->head_timeout_ns, limit_of(x->stall_timeout_ns, watch_ns));
    return rg_exchange_body_size(x) > 0 ? RG_MAX(watch_ns / LOOKS_PER_LIMIT, UINT64_C(1))
                                        : watch_ns;
}

void rg_conn_assign(struct rg_conn *conn, struct rg_exchange *x)
{
    conn_enter(conn, RG_CONN_BUSY);
    rg_response_begin(&conn->response, x);
    x->conn = conn;
    x->started_ns = loop_of(conn)->now_ns;
    x->status = RG_STATUS_OK;
    x->http_status = 0;
    x->good_before = conn->good_count;
    x->lease = NULL;
    x->stale = false;
    x->final = false;
    x->request_whole = false;
    x->was_held = false;
    conn->request = RG_REQUEST_SENDING;
    conn->upload_sent = 0;
    conn->held = false;
    conn->transport.receive_max = rg_response_first_size(&conn->response);
    progress(conn);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm,
                      rg_time_after(conn->progress_ns, watch_ns(conn)));
    rg_metric_add(&loop_of(conn)->metrics.attempts, 1);
    if (conn->served > 0) {
        rg_metric_add(&loop_of(conn)->metrics.connections_reused, 1);
    }
    request_start(conn);
}

/* The response is complete. */
static void response_finish(struct rg_conn *conn)
{
    rg_response_learn(&conn->response);
    bool live = conn->response.keep_alive && conn->request == RG_REQUEST_SENT &&
                !rg_transport_has_input(&conn->transport);
    conn->served++;
    bool is_good = !rg_answer_throttles(conn->response.x->http_status);
    conn->good_count = is_good ? conn->good_count + 1 : 0;
    conn->exchange_ns = loop_of(conn)->now_ns - conn->response.x->started_ns;
    if (!live) {
        struct rg_transport_failure none = {.status = RG_STATUS_OK};
        conn_close(conn, &none);
        return;
    }
    /* Idle first, so that `done` finds a connection when it submits the next exchange. */
    conn_enter(conn, RG_CONN_IDLE);
    exchange_finish(conn, RG_STATUS_OK, 0, NULL);
    if (conn->state == RG_CONN_IDLE && conn->response.x == NULL) {
        conn->shared->owner->ready(conn, RG_CONN_BUSY);
    }
}

/* Does what reading has come to. True: read again. */
static bool response_step(struct rg_conn *conn, enum rg_response_step step)
{
    const struct rg_transport_failure *failure = &conn->response.failure;
    switch (step) {
    case RG_RESPONSE_MORE:
        return true;
    case RG_RESPONSE_DRAINED:
        break;
    case RG_RESPONSE_WAITS:
        /* The bytes that are there stay in the transport. */
        rg_transport_pause(&conn->transport);
        conn->shared->owner->waiting(conn);
        break;
    case RG_RESPONSE_COMPLETE:
        response_finish(conn);
        break;
    case RG_RESPONSE_FAILED:
        rg_conn_fail(conn, failure->status, failure->os_error, failure->text);
        break;
    }
    return false;
}

/* On an idle connection only the end may come. TLS tickets are no data. */
static bool idle_read(struct rg_conn *conn)
{
    ssize_t got =
        rg_transport_read(&conn->transport, conn->shared->response.scratch, RG_SCRATCH_SIZE);
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
    return response_step(conn, rg_response_read(&conn->response));
}

static struct rg_conn *conn_of(struct rg_transport *transport)
{
    return RG_CONTAINER_OF(transport, struct rg_conn, transport);
}

static void on_data(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    if (conn->state == RG_CONN_BUSY) {
        /* A part of a record counts, too: on a slow line 16 KiB take a while. */
        progress(conn);
    }
    while (conn_read(conn)) {
    }
    RG_VERIFY(invariants(conn));
}

static void on_direct(struct rg_transport *transport, size_t size)
{
    struct rg_conn *conn = conn_of(transport);
    RG_ASSERT(conn->state == RG_CONN_BUSY && conn->response.phase == RG_RESPONSE_BODY);
    progress(conn);
    if (response_step(conn, rg_response_received(&conn->response, size))) {
        /* Which looks whether the owner has ended it in the meantime. */
        (void)conn_read(conn);
    }
}

static void on_ready(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    struct rg_metrics *metrics = &loop_of(conn)->metrics;
    enum rg_conn_state before = conn->state;
    rg_metric_add(&metrics->connections_opened, 1);
    if (transport->secure) {
        rg_metric_add(&metrics->tls_handshakes, 1);
        rg_metric_add(&metrics->tls_resumed, rg_tls_resumed(&transport->tls));
    }
    enum rg_phase phase = transport->secure ? RG_PHASE_TLS : RG_PHASE_CONNECT;
    uint64_t took_ns = loop_of(conn)->now_ns - conn->opened_ns;
    rg_histogram_record(&metrics->phases[phase], took_ns);
    RG_PROBE3(connect, conn, took_ns, (int)transport->secure);
    progress(conn);
    conn_enter(conn, RG_CONN_IDLE);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm,
                      rg_time_after(conn->progress_ns, conn->shared->watch_ns));
    conn->shared->owner->ready(conn, before);
    RG_VERIFY(invariants(conn));
}

static void on_sent(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    if (conn->state == RG_CONN_BUSY) {
        progress(conn);
        if (conn->request == RG_REQUEST_SENDING) {
            request_pump(conn);
        }
    }
    RG_VERIFY(invariants(conn));
}

static void on_ended(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    struct rg_transport_failure failure = transport->failure;
    bool until_close = conn->state == RG_CONN_BUSY && rg_response_ended_by_close(&conn->response);
    if (failure.status == RG_STATUS_OK && until_close) {
        conn->response.keep_alive = false;
        response_finish(conn);
        return;
    }
    if (conn->state == RG_CONN_BUSY && failure.status == RG_STATUS_OK) {
        bool has_answered = conn->served > 0 || rg_response_begun(&conn->response);
        failure.status = RG_STATUS_CONNECTION_LOST;
        failure.text = has_answered ? "the server closed the connection"
                                    : "the server closed the connection before any answer";
    }
    bool in_body = conn->state == RG_CONN_BUSY && conn->response.phase != RG_RESPONSE_HEAD;
    if (in_body && failure.status == RG_STATUS_CONNECTION_LOST) {
        failure.status = RG_STATUS_TRUNCATED;
    }
    conn_close(conn, &failure);
}

static void on_closed(struct rg_transport *transport)
{
    struct rg_conn *conn = conn_of(transport);
    if (conn->response.x != NULL) {
        exchange_finish(conn, conn->failure.status, conn->failure.os_error, conn->failure.text);
    }
    rg_loop_cancel_alarm(loop_of(conn), &conn->alarm);
    conn_enter(conn, RG_CONN_CLOSED);
    RG_VERIFY(invariants(conn));
    conn->shared->owner->closed(conn);
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
    struct rg_conn *conn = RG_CONTAINER_OF(task, struct rg_conn, response.slab_task);
    rg_transport_resume(&conn->transport);
}

static void connecting_alarm(struct rg_conn *conn, uint64_t now_ns)
{
    uint64_t limit_ns = rg_time_after(conn->opened_ns, conn->shared->connect_timeout_ns);
    bool stuck = now_ns >= conn->opened_ns + RG_CONN_STUCK_NS && conn->shared->owner->stuck(conn);
    if (now_ns >= limit_ns || stuck) {
        rg_metric_add(&loop_of(conn)->metrics.timeouts, 1);
        rg_conn_fail(conn, RG_STATUS_CONNECT, ETIMEDOUT, conn->shared->via);
        return;
    }
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, RG_MIN(limit_ns, now_ns + RG_CONN_STUCK_NS));
    if (conn->state == RG_CONN_CONNECTING) {
        conn_enter(conn, RG_CONN_SLOW);
        conn->shared->owner->slow(conn);
    }
}

/* Looks how far an upload has come. True while not all of it has reached the server's system. */
static bool upload_look(struct rg_conn *conn)
{
    if (rg_exchange_body_size(conn->response.x) == 0) {
        return false;
    }
    struct rg_socket_output output;
    rg_transport_progress(&conn->transport, &output);
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
    const struct rg_exchange *x = conn->response.x;
    const struct rg_conn_shared *shared = conn->shared;
    if (upload_look(conn)) {
        *out_text = "no byte of the upload was taken for the stall timeout";
        return limit_of(x->stall_timeout_ns, shared->stall_timeout_ns);
    }
    if (conn->response.early_size > 0) {
        *out_text = "no byte of the answer came for the stall timeout";
        return limit_of(x->stall_timeout_ns, shared->stall_timeout_ns);
    }
    *out_text = "no answer came within the first-byte timeout";
    return limit_of(x->head_timeout_ns, shared->first_byte_timeout_ns);
}

/* One alarm serves all limits: progress is only noted as it happens, and what it means is worked
 * out when the alarm goes off. That is at least as often as the shortest limit says, because the
 * state may change meanwhile and another limit may then hold. */
static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_conn *conn = RG_CONTAINER_OF(alarm, struct rg_conn, alarm);
    const struct rg_conn_shared *shared = conn->shared;
    uint64_t now_ns = loop_of(conn)->now_ns;
    if (rg_conn_connects(conn->state)) {
        connecting_alarm(conn, now_ns);
        return;
    }
    if (conn->state == RG_CONN_CLOSING) {
        rg_transport_close(&conn->transport, true);
        return;
    }
    if (conn->state == RG_CONN_BUSY && conn->held) {
        /* Meanwhile the server's time did not run. */
        progress(conn);
        request_pump(conn);
        if (conn->held) {
            return;
        }
    }
    const char *text = NULL;
    uint64_t limit_ns = shared->idle_timeout_ns;
    if (conn->state == RG_CONN_BUSY) {
        limit_ns = busy_limit_ns(conn, &text);
    }
    /* While we wait for memory, the server's time does not run. */
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

void rg_conn_init(struct rg_conn *conn, struct rg_conn_shared *shared)
{
    *conn = (struct rg_conn){
        .shared = shared,
        .response = {.shared = &shared->response,
                     .transport = &conn->transport,
                     .slab_task.run = slab_task_run},
    };
    rg_alarm_init(&conn->alarm, alarm_fire);
}

int rg_conn_open(struct rg_conn *conn, const struct rg_transport_target *target)
{
    RG_ASSERT(conn->state == RG_CONN_CLOSED);
    rg_transport_init(&conn->transport, conn->shared->transports, &transport_owner);
    conn->served = 0;
    conn->good_count = 0;
    conn->acknowledged = 0;
    conn->opened_ns = conn->progress_ns = loop_of(conn)->now_ns;
    int rc = rg_transport_connect(&conn->transport, target);
    if (rc < 0) {
        return rc;
    }
    conn_enter(conn, RG_CONN_CONNECTING);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, conn->opened_ns + RG_CONN_SLOW_NS);
    return 0;
}
