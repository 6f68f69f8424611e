/* A server's connection: see server_conn.h. From the top: ends of connections and calls, sending
 * responses, reading requests; at the bottom, what the transport and the alarms call. */
#include "http/server_conn.h"

#include "runtime/log.h"

#include <errno.h>
#include <string.h>

/* Pieces of a plain body from this size on are sent out of the handler's memory; smaller ones are
 * copied, so that head and body leave in one system call. At 100 KiB the second call costs less
 * CPU than the copy (34 against 46 us a request). */
#define DIRECT_SIZE_MIN RG_KIB(64)
/* Copied behind the head of a body that is sent directly: the peer has something to read. */
#define DIRECT_FIRST_SIZE RG_KIB(16)
/* The most that one direct send takes: bounds how long a slow peer looks idle. */
#define DIRECT_SIZE_MAX RG_SEND_LARGE_SIZE
/* Up to here a small send buffer does: one record of TLS. */
#define SMALL_SIZE_MAX RG_TLS_PLAIN_MAX

static const char continue_head[] = "HTTP/1.1 100 Continue\r\n\r\n";

#define BIT(state) (1u << (state))

/* The name of each state, and those that may follow it. */
static const struct {
    const char *name;
    uint8_t after;
} states[] = {
    [RG_SERVER_CONN_FREE] = {"free", BIT(RG_SERVER_CONN_HANDSHAKING) | BIT(RG_SERVER_CONN_OPEN)},
    [RG_SERVER_CONN_HANDSHAKING] = {"handshaking",
                                    BIT(RG_SERVER_CONN_OPEN) | BIT(RG_SERVER_CONN_CLOSING)},
    [RG_SERVER_CONN_OPEN] = {"open", BIT(RG_SERVER_CONN_LINGERING) | BIT(RG_SERVER_CONN_CLOSING)},
    [RG_SERVER_CONN_LINGERING] = {"lingering", BIT(RG_SERVER_CONN_CLOSING)},
    [RG_SERVER_CONN_CLOSING] = {"closing", BIT(RG_SERVER_CONN_FREE)},
};
static_assert(RG_ARRAY_LEN(states) == RG_SERVER_CONN_STATE_COUNT, "every state has a name");

static struct rg_loop *loop_of(const struct rg_server_conn *conn)
{
    return conn->shared->loop;
}

static struct rg_server_conn *conn_of_call(struct rg_server_call *call)
{
    return RG_CONTAINER_OF(call, struct rg_server_conn, call);
}

static const struct rg_server_handler *handler_of(const struct rg_server_conn *conn)
{
    RG_ASSERT(conn->calling || conn->request == RG_SERVER_REQUEST_HEAD);
    return conn->shared->handler;
}

/* Between two calls of the transport's or an alarm's. */
static bool invariants(const struct rg_server_conn *conn)
{
    enum rg_server_request request = conn->request;
    bool is_open = conn->state == RG_SERVER_CONN_OPEN;
    bool calls = !conn->calling || (request != RG_SERVER_REQUEST_HEAD &&
                                    (!is_open || conn->answer != RG_SERVER_ANSWER_SENT));
    bool ends = conn->must_close ||
                (request != RG_SERVER_REQUEST_ABANDONED && conn->state != RG_SERVER_CONN_LINGERING);
    bool holds = conn->input != NULL || conn->head != NULL || conn->calling;
    return calls && ends && conn->input_offset <= conn->input_size &&
           (conn->state != RG_SERVER_CONN_LINGERING || !conn->calling) &&
           (conn->state != RG_SERVER_CONN_FREE || !holds);
}

static void conn_enter(struct rg_server_conn *conn, enum rg_server_conn_state state)
{
    RG_ASSERT(states[conn->state].after & BIT(state));
    if (state != RG_SERVER_CONN_FREE) {
        rg_log(RG_LOG_DEBUG, "server's connection of descriptor %d: %s -> %s",
               conn->transport.socket.fd, states[conn->state].name, states[state].name);
    }
    conn->state = (uint8_t)state;
}

/* A connection that is free begins anew. */
static void request_enter(struct rg_server_conn *conn, enum rg_server_request request)
{
    static const uint8_t after[] = {
        [RG_SERVER_REQUEST_HEAD] = BIT(RG_SERVER_REQUEST_BODY) | BIT(RG_SERVER_REQUEST_ABANDONED),
        [RG_SERVER_REQUEST_BODY] = BIT(RG_SERVER_REQUEST_DROP) | BIT(RG_SERVER_REQUEST_DONE) |
                                   BIT(RG_SERVER_REQUEST_ABANDONED),
        [RG_SERVER_REQUEST_DROP] = BIT(RG_SERVER_REQUEST_DONE) | BIT(RG_SERVER_REQUEST_ABANDONED),
        [RG_SERVER_REQUEST_DONE] = BIT(RG_SERVER_REQUEST_HEAD),
        [RG_SERVER_REQUEST_ABANDONED] = BIT(RG_SERVER_REQUEST_ABANDONED),
    };
    RG_ASSERT(conn->state == RG_SERVER_CONN_FREE || after[conn->request] & BIT(request));
    conn->request = (uint8_t)request;
}

static void answer_enter(struct rg_server_conn *conn, enum rg_server_answer answer)
{
    static const uint8_t after[] = {
        [RG_SERVER_ANSWER_NONE] = BIT(RG_SERVER_ANSWER_READY),
        [RG_SERVER_ANSWER_READY] = BIT(RG_SERVER_ANSWER_HELD) | BIT(RG_SERVER_ANSWER_SENDING),
        /* Still held, or not. */
        [RG_SERVER_ANSWER_HELD] = BIT(RG_SERVER_ANSWER_HELD) | BIT(RG_SERVER_ANSWER_READY),
        [RG_SERVER_ANSWER_SENDING] = BIT(RG_SERVER_ANSWER_SENT),
        [RG_SERVER_ANSWER_SENT] = BIT(RG_SERVER_ANSWER_NONE),
    };
    RG_ASSERT(conn->state == RG_SERVER_CONN_FREE || after[conn->answer] & BIT(answer));
    conn->answer = (uint8_t)answer;
}

static void progress(struct rg_server_conn *conn)
{
    conn->progress_ns = loop_of(conn)->now_ns;
}

static size_t input_left(const struct rg_server_conn *conn)
{
    RG_ASSERT(conn->input_offset <= conn->input_size);
    return conn->input_size - conn->input_offset;
}

static void input_drop(struct rg_server_conn *conn)
{
    conn->input_offset = conn->input_size = conn->head_scanned = 0;
    rg_server_buffer_return(&conn->shared->inputs, &conn->input);
}

static void call_release(struct rg_server_conn *conn)
{
    if (conn->calling) {
        conn->shared->handler->release(&conn->call);
        conn->calling = false;
    }
}

static void conn_close(struct rg_server_conn *conn, bool reset)
{
    conn_enter(conn, RG_SERVER_CONN_CLOSING);
    rg_loop_cancel_alarm(loop_of(conn), &conn->pace);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, loop_of(conn)->now_ns + RG_SERVER_CLOSE_NS);
    input_drop(conn);
    rg_server_buffer_return(&conn->shared->heads, &conn->head);
    rg_transport_close(&conn->transport, reset);
}

/* Closing with bytes of the peer's unread would make the kernel answer them with RST, which can
 * overtake the response: so we only say that nothing more comes, and read on for a while (RFC 9112
 * section 9.6). */
static void conn_linger(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_SENT && !conn->calling);
    conn_enter(conn, RG_SERVER_CONN_LINGERING);
    input_drop(conn);
    (void)shutdown(conn->transport.socket.fd, SHUT_WR);
    rg_loop_set_alarm(loop_of(conn), &conn->alarm, loop_of(conn)->now_ns + RG_SERVER_LINGER_NS);
    rg_transport_resume(&conn->transport);
}

/* Request and response are both complete. */
static void exchange_finish(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->request == RG_SERVER_REQUEST_DONE);
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_SENT && !conn->calling);
    if (conn->must_close) {
        if (rg_transport_paused(&conn->transport) || input_left(conn) > 0) {
            conn_linger(conn);
        } else {
            conn_close(conn, false);
        }
        return;
    }
    request_enter(conn, RG_SERVER_REQUEST_HEAD);
    answer_enter(conn, RG_SERVER_ANSWER_NONE);
    progress(conn);
    rg_transport_resume(&conn->transport);
}

/* What still comes could not be told from a next request: it is dropped. */
static void request_abandon(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->state == RG_SERVER_CONN_OPEN);
    request_enter(conn, RG_SERVER_REQUEST_ABANDONED);
    conn->must_close = true;
    if (conn->answer == RG_SERVER_ANSWER_SENT) {
        conn_linger(conn);
    }
}

/* True if the rest of a body that nobody wants may be read to keep the connection. */
static bool drop_pays(const struct rg_server_conn *conn)
{
    bool small = conn->framing != RG_H1_BODY_LENGTH || conn->body_left <= RG_SERVER_DROP_MAX;
    /* A client that was not told to continue may leave the body out, or not. */
    return small && !conn->must_close && !conn->continue_due;
}

/* The last byte of the response was sent. */
static void answer_finish(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_SENDING && conn->head == NULL);
    answer_enter(conn, RG_SERVER_ANSWER_SENT);
    call_release(conn);
    if (conn->request == RG_SERVER_REQUEST_DONE) {
        exchange_finish(conn);
    } else if (conn->request == RG_SERVER_REQUEST_ABANDONED || !drop_pays(conn)) {
        request_abandon(conn);
    }
}

/* How many bytes of the body the rate allows now; at least one. */
static uint64_t pace_budget(struct rg_server_conn *conn)
{
    uint64_t now_ns = loop_of(conn)->now_ns;
    RG_ASSERT(now_ns >= conn->due_ns);
    if (conn->response.bytes_per_second == 0) {
        return UINT64_MAX;
    }
    if (now_ns - conn->due_ns > RG_SERVER_PACE_BURST_NS) {
        conn->due_ns = now_ns - RG_SERVER_PACE_BURST_NS;
    }
    uint64_t credit_ns = now_ns - conn->due_ns + RG_SERVER_PACE_SLICE_NS;
    return RG_MAX(credit_ns * conn->response.bytes_per_second / RG_NS_PER_S, UINT64_C(1));
}

static void pace_charge(struct rg_server_conn *conn, uint64_t size)
{
    if (conn->response.bytes_per_second > 0) {
        conn->due_ns += size * RG_NS_PER_S / conn->response.bytes_per_second;
    }
}

/* The next piece of the body, which lies before `end`. */
static size_t body_produce(struct rg_server_conn *conn, uint64_t end, const uint8_t **out_data)
{
    RG_ASSERT(conn->offset < end && end <= conn->response.body_size);
    conn->call.now_ns = loop_of(conn)->now_ns;
    size_t size = handler_of(conn)->produce(&conn->call, conn->offset, out_data);
    RG_ASSERT(size > 0);
    return (size_t)RG_MIN((uint64_t)size, end - conn->offset);
}

/* A small body goes behind its head, so that both are one record. */
static void body_join_head(struct rg_server_conn *conn, uint64_t end)
{
    struct rg_h1_encoder *encoder = &conn->encoder;
    bool fits = end == conn->response.body_size && end <= encoder->capacity - encoder->size;
    while (fits && conn->offset < end) {
        const uint8_t *data;
        size_t size = body_produce(conn, end, &data);
        memcpy(encoder->data + encoder->size, data, size);
        encoder->size += size;
        conn->offset += size;
    }
}

static bool head_write(struct rg_server_conn *conn, uint64_t end)
{
    RG_ASSERT(conn->head != NULL && conn->offset == 0);
    if (conn->transport.secure) {
        body_join_head(conn, end);
    }
    bool large = end - conn->offset + conn->encoder.size > SMALL_SIZE_MAX;
    ssize_t taken =
        rg_transport_write(&conn->transport, conn->encoder.data, conn->encoder.size, large);
    bool whole = taken == (ssize_t)conn->encoder.size;
    rg_server_buffer_return(&conn->shared->heads, &conn->head);
    return whole;
}

/* Gives the transport what it takes of the body before `end`. */
static bool body_write(struct rg_server_conn *conn, uint64_t end)
{
    struct rg_transport *transport = &conn->transport;
    while (conn->offset < end) {
        const uint8_t *data;
        size_t size = body_produce(conn, end, &data);
        bool direct = !transport->secure && size >= DIRECT_SIZE_MIN;
        if (direct && !rg_transport_sending(transport)) {
            size = RG_MIN(size, DIRECT_SIZE_MAX);
            conn->offset += size;
            rg_transport_send_from(transport, data, size);
            return true;
        }
        size = direct ? DIRECT_FIRST_SIZE : size;
        bool large = end - conn->offset > SMALL_SIZE_MAX;
        ssize_t taken = rg_transport_write(transport, data, size, large);
        if (taken < 0) {
            return false;
        }
        conn->offset += (uint64_t)taken;
        if (direct || (size_t)taken < size) {
            break;
        }
    }
    return true;
}

/* Sends what may be sent now. The rest follows from on_sent, or when the pace alarm goes off. */
static void answer_pump(struct rg_server_conn *conn)
{
    struct rg_server_response *response = &conn->response;
    uint64_t now_ns = loop_of(conn)->now_ns;
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_SENDING);
    if (rg_transport_sending(&conn->transport)) {
        return;
    }
    if (conn->head == NULL && conn->offset == response->stall_after) {
        response->stall_after = UINT64_MAX;
        conn->due_ns = rg_time_after(now_ns, response->stall_ns);
    }
    if (now_ns < conn->due_ns) {
        rg_loop_set_alarm(loop_of(conn), &conn->pace, conn->due_ns);
        return;
    }
    uint64_t start = conn->offset;
    uint64_t budget = pace_budget(conn);
    uint64_t end = RG_MIN(response->body_size, RG_MIN(response->cut_after, response->stall_after));
    end = start + RG_MIN(end - start, budget);
    if ((conn->head != NULL && !head_write(conn, end)) || !body_write(conn, end)) {
        conn_close(conn, true);
        return;
    }
    pace_charge(conn, conn->offset - start);
    rg_transport_flush(&conn->transport);
    RG_ASSERT(rg_transport_sending(&conn->transport));
}

/* Everything that was given to the transport is sent. */
static void answer_advance(struct rg_server_conn *conn)
{
    if (conn->head == NULL && conn->offset == conn->response.cut_after) {
        conn_close(conn, conn->response.reset);
    } else if (conn->head == NULL && conn->offset == conn->response.body_size) {
        answer_finish(conn);
    } else {
        answer_pump(conn);
    }
}

static void answer_hold(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->response.held && handler_of(conn)->resume != NULL);
    answer_enter(conn, RG_SERVER_ANSWER_HELD);
    rg_loop_set_alarm(loop_of(conn), &conn->pace, loop_of(conn)->now_ns + RG_SERVER_HOLD_NS);
}

/* The handler has answered. */
static void answer_start(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_READY && conn->head != NULL);
    if (conn->response.held) {
        answer_hold(conn);
        return;
    }
    answer_enter(conn, RG_SERVER_ANSWER_SENDING);
    conn->must_close |= conn->response.close;
    conn->offset = 0;
    conn->due_ns = rg_time_after(loop_of(conn)->now_ns, conn->response.delay_ns);
    if (conn->encoder.error != 0 || conn->response.cut_head) {
        conn_close(conn, conn->response.reset);
        return;
    }
    answer_pump(conn);
}

/* Asks whether a held response may go. */
static void answer_resume(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_HELD);
    conn->call.now_ns = loop_of(conn)->now_ns;
    if (!handler_of(conn)->resume(&conn->call, &conn->response)) {
        answer_hold(conn);
        return;
    }
    conn->response.held = false;
    answer_enter(conn, RG_SERVER_ANSWER_READY);
    answer_start(conn);
}

struct rg_h1_encoder *rg_server_head(struct rg_server_call *call)
{
    struct rg_server_conn *conn = conn_of_call(call);
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_NONE || conn->answer == RG_SERVER_ANSWER_HELD);
    RG_ASSERT(conn->head != NULL);
    return &conn->encoder;
}

void rg_server_respond(struct rg_server_call *call, const struct rg_server_response *response)
{
    struct rg_server_conn *conn = conn_of_call(call);
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_NONE);
    RG_ASSERT(conn->encoder.error != 0 || conn->encoder.size > 0);
    answer_enter(conn, RG_SERVER_ANSWER_READY);
    conn->response = *response;
    conn->response.bytes_per_second = RG_MIN(response->bytes_per_second, RG_SERVER_PACE_MAX);
}

/* Starts the response if the callback that has just returned has given one. */
static void answer_check(struct rg_server_conn *conn)
{
    if (conn->answer == RG_SERVER_ANSWER_READY) {
        if (conn->request == RG_SERVER_REQUEST_BODY) {
            request_enter(conn, RG_SERVER_REQUEST_DROP);
        }
        answer_start(conn);
    }
}

static void request_finish(struct rg_server_conn *conn)
{
    RG_ASSERT(conn->request == RG_SERVER_REQUEST_BODY || conn->request == RG_SERVER_REQUEST_DROP);
    request_enter(conn, RG_SERVER_REQUEST_DONE);
    if (conn->answer == RG_SERVER_ANSWER_NONE) {
        conn->call.now_ns = loop_of(conn)->now_ns;
        handler_of(conn)->end(&conn->call);
        RG_ASSERT(conn->answer == RG_SERVER_ANSWER_READY);
        answer_start(conn);
    } else if (conn->answer == RG_SERVER_ANSWER_SENT) {
        exchange_finish(conn);
    }
}

/* Borrows a place for the head of a response. */
static bool head_prepare(struct rg_server_conn *conn)
{
    if (conn->head == NULL) {
        conn->head = rg_server_buffer_borrow(&conn->shared->heads);
    }
    if (conn->head != NULL) {
        rg_h1_encoder_init(&conn->encoder, (char *)conn->head->data, RG_SERVER_HEAD_SIZE_MAX);
    }
    return conn->head != NULL;
}

static const struct {
    uint8_t error;
    uint16_t status;
    const char *reason;
} refusals[] = {
    {RG_H1_ERROR_HEAD_SIZE, 431, "Request Header Fields Too Large"},
    {RG_H1_ERROR_HEADER_COUNT, 431, "Request Header Fields Too Large"},
    {RG_H1_ERROR_TARGET_SIZE, 414, "URI Too Long"},
    {RG_H1_ERROR_METHOD_SIZE, 501, "Not Implemented"},
    {RG_H1_ERROR_TRANSFER_ENCODING, 501, "Not Implemented"},
    {RG_H1_ERROR_VERSION, 505, "HTTP Version Not Supported"},
    {RG_H1_ERROR_NONE, 400, "Bad Request"},
};

static void refusal_encode(struct rg_h1_encoder *encoder, enum rg_h1_error error)
{
    RG_ASSERT(error != RG_H1_ERROR_NONE);
    size_t i = 0;
    while (refusals[i].error != RG_H1_ERROR_NONE && refusals[i].error != error) {
        i++;
    }
    const char *text = rg_h1_error_text(error);
    size_t text_size = strlen(text);
    rg_h1_encode_status(encoder, refusals[i].status, refusals[i].reason);
    rg_h1_encode_header(encoder, "Connection", "close");
    rg_h1_encode_header(encoder, "Content-Type", "text/plain");
    rg_h1_encode_header_u64(encoder, "Content-Length", text_size + 1);
    int size = rg_h1_encode_end(encoder);
    RG_ASSERT(size > 0 && encoder->size + text_size < encoder->capacity);
    memcpy(encoder->data + encoder->size, text, text_size);
    encoder->data[encoder->size + text_size] = '\n';
    encoder->size += text_size + 1;
}

/* The request is malformed. We say so, unless the handler has answered already. */
static void request_refuse(struct rg_server_conn *conn, enum rg_h1_error error)
{
    conn->shared->stats.malformed_count++;
    request_abandon(conn);
    if (conn->answer != RG_SERVER_ANSWER_NONE) {
        return;
    }
    call_release(conn);
    if (!head_prepare(conn)) {
        conn_close(conn, false);
        return;
    }
    refusal_encode(&conn->encoder, error);
    answer_enter(conn, RG_SERVER_ANSWER_READY);
    conn->response = (struct rg_server_response){
        .close = true,
        .cut_after = UINT64_MAX,
        .stall_after = UINT64_MAX,
    };
    answer_start(conn);
}

/* Reads more behind what is there. False: there is no more for now, or the connection has ended. */
static bool input_fill(struct rg_server_conn *conn)
{
    if (conn->input == NULL) {
        conn->input = rg_server_buffer_borrow(&conn->shared->inputs);
        if (conn->input == NULL) {
            conn_close(conn, true);
            return false;
        }
    }
    size_t left = input_left(conn);
    if (conn->input_offset > 0) {
        memmove(conn->input->data, conn->input->data + conn->input_offset, left);
        conn->input_offset = 0;
        conn->input_size = (uint32_t)left;
    }
    size_t room = RG_SERVER_INPUT_SIZE - left;
    RG_ASSERT(room >= RG_TLS_PLAIN_MAX);
    ssize_t got = rg_transport_read(&conn->transport, conn->input->data + left, room);
    if (got <= 0) {
        return false;
    }
    conn->input_size += (uint32_t)got;
    return true;
}

static void call_init(struct rg_server_conn *conn)
{
    RG_ASSERT(!conn->calling);
    conn->call.head = &conn->shared->head;
    conn->call.context = conn->shared->context;
    conn->call.now_ns = loop_of(conn)->now_ns;
    conn->call.loop_index = loop_of(conn)->index;
    memset(conn->call.state, 0, sizeof(conn->call.state));
}

static void continue_send(struct rg_server_conn *conn)
{
    conn->continue_due = false;
    ssize_t taken =
        rg_transport_write(&conn->transport, continue_head, sizeof(continue_head) - 1, false);
    if (taken < 0) {
        conn_close(conn, true);
        return;
    }
    rg_transport_flush(&conn->transport);
}

/* A head has been parsed into shared->head and taken off the input. */
static void request_start(struct rg_server_conn *conn)
{
    const struct rg_h1_head *head = &conn->shared->head;
    RG_ASSERT(conn->answer == RG_SERVER_ANSWER_NONE);
    conn->shared->stats.request_count++;
    conn->framing = head->framing;
    conn->body_left = head->content_length;
    conn->dropped = 0;
    conn->must_close = !head->keep_alive;
    conn->continue_due = head->expect_continue && head->framing != RG_H1_BODY_NONE;
    rg_h1_chunked_init(&conn->chunked);
    bool prepared = head_prepare(conn);
    call_init(conn);
    if (!prepared || handler_of(conn)->begin(&conn->call) != 0) {
        conn_close(conn, false);
        return;
    }
    conn->call.head = NULL;
    conn->calling = true;
    request_enter(conn, RG_SERVER_REQUEST_BODY);
    answer_check(conn);
    if (conn->state != RG_SERVER_CONN_OPEN) {
        return;
    }
    bool empty = conn->framing == RG_H1_BODY_NONE ||
                 (conn->framing == RG_H1_BODY_LENGTH && conn->body_left == 0);
    if (empty) {
        request_finish(conn);
    } else if (conn->request == RG_SERVER_REQUEST_BODY && conn->continue_due &&
               input_left(conn) == 0) {
        continue_send(conn);
    }
}

/* True: go on. The time limit of a head begins with its first byte: a client that sends byte by
 * byte has no more time than others. */
static bool head_read(struct rg_server_conn *conn)
{
    struct rg_h1_head *head = &conn->shared->head;
    size_t size = input_left(conn);
    if (size > 0 && conn->head_scanned == 0) {
        progress(conn);
    }
    const uint8_t *data = size > 0 ? conn->input->data + conn->input_offset : NULL;
    int rc = rg_h1_parse_request(head, data, size, conn->head_scanned);
    if (rc == -EAGAIN) {
        conn->head_scanned = (uint32_t)size;
        return input_fill(conn);
    }
    conn->head_scanned = 0;
    if (rc < 0) {
        request_refuse(conn, head->error);
        return true;
    }
    conn->input_offset += (uint32_t)rc;
    request_start(conn);
    return true;
}

static void body_deliver(struct rg_server_conn *conn, const uint8_t *data, size_t size)
{
    progress(conn);
    if (conn->request == RG_SERVER_REQUEST_DROP) {
        conn->dropped += size;
        if (conn->dropped > RG_SERVER_DROP_MAX) {
            request_abandon(conn);
        }
        return;
    }
    conn->call.now_ns = loop_of(conn)->now_ns;
    if (handler_of(conn)->body(&conn->call, data, size) != 0) {
        conn_close(conn, false);
        return;
    }
    answer_check(conn);
}

/* True if the connection still wants the body that it has just delivered a piece of. */
static bool body_wanted(const struct rg_server_conn *conn)
{
    return conn->state == RG_SERVER_CONN_OPEN && conn->request != RG_SERVER_REQUEST_ABANDONED;
}

static void body_take_chunked(struct rg_server_conn *conn, const uint8_t *data, size_t size)
{
    struct rg_h1_slice piece;
    int consumed = rg_h1_chunked_decode(&conn->chunked, data, size, &piece);
    if (consumed < 0) {
        request_refuse(conn, conn->chunked.error);
        return;
    }
    conn->input_offset += (uint32_t)consumed;
    if (piece.size > 0) {
        body_deliver(conn, (const uint8_t *)piece.data, piece.size);
    }
    if (conn->chunked.finished && body_wanted(conn)) {
        request_finish(conn);
    }
}

static void body_take_length(struct rg_server_conn *conn, const uint8_t *data, size_t size)
{
    RG_ASSERT(conn->framing == RG_H1_BODY_LENGTH && conn->body_left > 0);
    size = (size_t)RG_MIN((uint64_t)size, conn->body_left);
    conn->body_left -= size;
    conn->input_offset += (uint32_t)size;
    body_deliver(conn, data, size);
    if (conn->body_left == 0 && body_wanted(conn)) {
        request_finish(conn);
    }
}

static bool body_read(struct rg_server_conn *conn)
{
    size_t size = input_left(conn);
    if (size == 0) {
        return input_fill(conn);
    }
    const uint8_t *data = conn->input->data + conn->input_offset;
    if (conn->framing == RG_H1_BODY_CHUNKED) {
        body_take_chunked(conn, data, size);
    } else {
        body_take_length(conn, data, size);
    }
    return true;
}

/* One step of reading. False: nothing more is to be read now. */
static bool conn_read(struct rg_server_conn *conn)
{
    bool drops =
        conn->state == RG_SERVER_CONN_LINGERING ||
        (conn->state == RG_SERVER_CONN_OPEN && conn->request == RG_SERVER_REQUEST_ABANDONED);
    if (drops) {
        conn->input_offset = conn->input_size = 0;
        return input_fill(conn);
    }
    if (conn->state != RG_SERVER_CONN_OPEN) {
        return false;
    }
    switch ((enum rg_server_request)conn->request) {
    case RG_SERVER_REQUEST_HEAD:
        return head_read(conn);
    case RG_SERVER_REQUEST_BODY:
    case RG_SERVER_REQUEST_DROP:
        return body_read(conn);
    default:
        return false;
    }
}

static struct rg_server_conn *conn_of(struct rg_transport *transport)
{
    return RG_CONTAINER_OF(transport, struct rg_server_conn, transport);
}

static void on_ready(struct rg_transport *transport)
{
    struct rg_server_conn *conn = conn_of(transport);
    RG_ASSERT(conn->state == RG_SERVER_CONN_HANDSHAKING);
    conn_enter(conn, RG_SERVER_CONN_OPEN);
    progress(conn);
}

static void on_data(struct rg_transport *transport)
{
    struct rg_server_conn *conn = conn_of(transport);
    while (conn_read(conn)) {
    }
    if (input_left(conn) == 0) {
        input_drop(conn);
    }
    bool ahead = conn->input != NULL || rg_transport_has_input(transport);
    if (conn->state == RG_SERVER_CONN_OPEN && conn->request == RG_SERVER_REQUEST_DONE && ahead) {
        rg_transport_pause(transport);
    }
    RG_VERIFY(invariants(conn));
}

static void on_sent(struct rg_transport *transport)
{
    struct rg_server_conn *conn = conn_of(transport);
    progress(conn);
    if (conn->state == RG_SERVER_CONN_OPEN && conn->answer == RG_SERVER_ANSWER_SENDING) {
        answer_advance(conn);
    }
    RG_VERIFY(invariants(conn));
}

static void on_ended(struct rg_transport *transport)
{
    struct rg_server_conn *conn = conn_of(transport);
    RG_ASSERT(conn->state != RG_SERVER_CONN_FREE);
    conn_close(conn, false);
}

static void on_closed(struct rg_transport *transport)
{
    struct rg_server_conn *conn = conn_of(transport);
    RG_ASSERT(conn->state == RG_SERVER_CONN_CLOSING && conn->input == NULL && conn->head == NULL);
    rg_loop_cancel_alarm(loop_of(conn), &conn->alarm);
    call_release(conn);
    conn_enter(conn, RG_SERVER_CONN_FREE);
    RG_VERIFY(invariants(conn));
    conn->shared->closed(conn);
}

static const struct rg_transport_owner transport_owner = {
    .on_ready = on_ready,
    .on_data = on_data,
    .on_sent = on_sent,
    .on_ended = on_ended,
    .on_closed = on_closed,
};

static void pace_fire(struct rg_alarm *alarm)
{
    struct rg_server_conn *conn = RG_CONTAINER_OF(alarm, struct rg_server_conn, pace);
    RG_ASSERT(conn->state == RG_SERVER_CONN_OPEN);
    progress(conn);
    if (conn->answer == RG_SERVER_ANSWER_HELD) {
        answer_resume(conn);
    } else {
        answer_pump(conn);
    }
    RG_VERIFY(invariants(conn));
}

static bool conn_idle(const struct rg_server_conn *conn)
{
    return conn->state == RG_SERVER_CONN_OPEN && conn->request == RG_SERVER_REQUEST_HEAD &&
           conn->input == NULL;
}

/* How long the connection may go without progress in what it is doing now. The pace may be due in
 * the same pass, and not have been called yet. */
static uint64_t conn_limit_ns(const struct rg_server_conn *conn)
{
    if (rg_list_linked(&conn->pace.timer.node)) {
        return UINT64_MAX;
    }
    return conn_idle(conn) ? conn->shared->idle_timeout_ns : conn->shared->stall_ns;
}

/* A slow client takes long for what was given to the system at once: bytes that have reached it are
 * progress. */
static void answer_look(struct rg_server_conn *conn)
{
    struct rg_socket_output output;
    if (conn->state == RG_SERVER_CONN_OPEN && conn->answer == RG_SERVER_ANSWER_SENDING) {
        rg_transport_progress(&conn->transport, &output);
        if (output.acknowledged != conn->acknowledged) {
            conn->acknowledged = output.acknowledged;
            progress(conn);
        }
    }
}

/* Progress is only noted as it happens; what it means is worked out here. The alarm is never
 * further away than the shortest limit, so no change of what the connection does need set it. */
static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_server_conn *conn = RG_CONTAINER_OF(alarm, struct rg_server_conn, alarm);
    struct rg_server_shared *shared = conn->shared;
    uint64_t now_ns = loop_of(conn)->now_ns;
    RG_ASSERT(conn->state != RG_SERVER_CONN_FREE);
    if (conn->state == RG_SERVER_CONN_CLOSING) {
        rg_transport_close(&conn->transport, true);
        return;
    }
    if (conn->state == RG_SERVER_CONN_LINGERING) {
        conn_close(conn, false);
        return;
    }
    answer_look(conn);
    uint64_t deadline_ns = rg_time_after(conn->progress_ns, conn_limit_ns(conn));
    if (now_ns < deadline_ns) {
        rg_loop_set_alarm(loop_of(conn), alarm,
                          RG_MIN(deadline_ns, rg_time_after(now_ns, shared->stall_ns)));
        return;
    }
    shared->stats.timeout_count += conn_idle(conn) ? 0 : 1;
    conn_close(conn, conn->answer == RG_SERVER_ANSWER_SENDING);
}

void rg_server_conn_init(struct rg_server_conn *conn, struct rg_server_shared *shared)
{
    conn->shared = shared;
    rg_alarm_init(&conn->alarm, alarm_fire);
    rg_alarm_init(&conn->pace, pace_fire);
}

int rg_server_conn_open(struct rg_server_conn *conn, int fd)
{
    struct rg_server_shared *shared = conn->shared;
    RG_ASSERT(conn->state == RG_SERVER_CONN_FREE && !conn->calling);
    rg_transport_init(&conn->transport, shared->transports, &transport_owner);
    int rc = rg_transport_accept(&conn->transport, fd, shared->tls);
    if (rc < 0) {
        return rc;
    }
    request_enter(conn, RG_SERVER_REQUEST_HEAD);
    answer_enter(conn, RG_SERVER_ANSWER_NONE);
    conn->acknowledged = 0;
    conn_enter(conn, shared->tls != NULL ? RG_SERVER_CONN_HANDSHAKING : RG_SERVER_CONN_OPEN);
    progress(conn);
    rg_loop_set_alarm(shared->loop, &conn->alarm,
                      rg_time_after(conn->progress_ns, shared->stall_ns));
    return 0;
}

void rg_server_conn_cut(struct rg_server_conn *conn)
{
    if (conn->state != RG_SERVER_CONN_FREE && conn->state != RG_SERVER_CONN_CLOSING) {
        /* A client that waits for an answer sees RST. */
        conn_close(conn, conn->calling);
    }
}
