/* See tls_stream.h. */
#include "tests/support/tls_stream.h"

#include "http/tls_context_private.h"
#include "tests/support/loop.h"
#include "tests/support/scripted_server.h"
#include "tests/support/test.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK_SIZE RG_KIB(64)

static struct rg_test_stream *stream_of(struct rg_transport *transport)
{
    return RG_CONTAINER_OF(transport, struct rg_test_stream, transport);
}

static void send_more(struct rg_test_stream *stream)
{
    static _Thread_local uint8_t bytes[CHUNK_SIZE];
    while (stream->sent < stream->send_until) {
        size_t size = (size_t)RG_MIN(stream->send_until - stream->sent, (uint64_t)CHUNK_SIZE);
        rg_script_fill(bytes, stream->sent, size);
        for (size_t i = 0; i < size && stream->bits != 0; i++) {
            bytes[i] |= stream->bits;
        }
        ssize_t taken = rg_transport_write(&stream->transport, bytes, size, true);
        RG_ASSERT(taken >= 0);
        stream->sent += (uint64_t)taken;
        if ((size_t)taken < size) {
            stream->full = true;
            break;
        }
    }
    rg_transport_flush(&stream->transport);
}

static void on_ready(struct rg_transport *transport)
{
    stream_of(transport)->ready = true;
    send_more(stream_of(transport));
}

static void on_data(struct rg_transport *transport)
{
    static _Thread_local uint8_t bytes[CHUNK_SIZE];
    struct rg_test_stream *stream = stream_of(transport);
    if (stream->paused) {
        rg_transport_pause(transport);
        return;
    }
    ssize_t got;
    while ((got = rg_transport_read(transport, bytes, sizeof(bytes))) > 0) {
        if (rg_script_differs(bytes, stream->received, (uint64_t)got) != (uint64_t)got) {
            stream->differs = true;
        }
        stream->received += (uint64_t)got;
    }
}

static void on_sent(struct rg_transport *transport)
{
    stream_of(transport)->full = false;
    send_more(stream_of(transport));
}

static void on_ended(struct rg_transport *transport)
{
    struct rg_test_stream *stream = stream_of(transport);
    RG_ASSERT(!stream->ended);
    stream->failure = transport->failure;
    snprintf(stream->text, sizeof(stream->text), "%s",
             transport->failure.text != NULL ? transport->failure.text : "");
    stream->ended = true;
}

static void on_closed(struct rg_transport *transport)
{
    stream_of(transport)->closed = true;
}

static const struct rg_transport_owner owner = {
    .on_ready = on_ready,
    .on_data = on_data,
    .on_sent = on_sent,
    .on_ended = on_ended,
    .on_closed = on_closed,
};

struct stream_call {
    struct rg_test_stream *stream;
    void (*function)(struct rg_test_stream *stream);
};

static void stream_call_run(void *context)
{
    struct stream_call *call = context;
    call->function(call->stream);
}

void rg_test_stream_call(struct rg_test_stream *stream,
                         void (*function)(struct rg_test_stream *stream))
{
    rg_loop_call(stream->loop, stream_call_run, &(struct stream_call){stream, function});
}

static void accept_run(struct rg_test_stream *stream)
{
    rg_transport_init(&stream->transport, stream->shared, &owner);
    RG_ASSERT(rg_transport_accept(&stream->transport, stream->accepted, stream->context) == 0);
}

static void connect_run(struct rg_test_stream *stream)
{
    stream->address = (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons(stream->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    struct rg_transport_target target = {
        .address = (struct sockaddr *)&stream->address,
        .address_size = sizeof(stream->address),
        .peer = &stream->peer_name,
    };
    rg_transport_init(&stream->transport, stream->shared, &owner);
    RG_ASSERT(rg_transport_connect(&stream->transport, &target) == 0);
}

static void context_open(struct rg_test_stream *stream)
{
    char error[256];
    const struct rg_test_certificate *leaf =
        stream->leaf != NULL ? stream->leaf : &stream->pki->leaf;
    if (!stream->is_server) {
        stream->context = rg_test_client_context(stream->pki, stream->boringssl_records);
        RG_CHECK_EQ(rg_tls_peer_init(&stream->peer_name, stream->context, "localhost"), 0);
        return;
    }
    struct rg_tls_server_options options = {
        .cert_pem = leaf->cert_pem,
        .cert_size = strlen(leaf->cert_pem),
        .key_pem = leaf->key_pem,
        .key_size = strlen(leaf->key_pem),
        .boringssl_records = stream->boringssl_records,
    };
    RG_CHECK_EQ(rg_tls_context_open_server(&stream->context, &options, error, sizeof(error)), 0);
    if (stream->tickets != 0) {
        RG_CHECK_EQ(SSL_CTX_set_num_tickets(stream->context->ssl, stream->tickets), 1);
    }
}

static void raw_open(struct rg_test_stream *stream)
{
    stream->raw_context = rg_test_raw_context(stream->is_server ? NULL : &stream->pki->leaf);
    if (stream->version != 0) {
        SSL_CTX_set_max_proto_version(stream->raw_context, stream->version);
    }
    stream->raw = stream->is_server ? rg_test_raw_client(stream->raw_context)
                                    : rg_test_raw_server(stream->raw_context);
    stream->wire_room = RG_MIB(4);
    stream->wire = malloc(stream->wire_room);
}

static void shrink_run(struct rg_test_stream *stream)
{
    setsockopt(stream->transport.socket.fd, SOL_SOCKET, SO_SNDBUF, &stream->buffers,
               sizeof(stream->buffers));
}

/* The peer's end of a connection over the loopback device, and whatever else ours needs. */
static void peer_open(struct rg_test_stream *stream)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (stream->buffers != 0) {
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &stream->buffers, sizeof(stream->buffers));
    }
    RG_CHECK_EQ(bind(listener, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(listen(listener, 1), 0);
    RG_CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    if (stream->is_server) {
        stream->accepted = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        RG_CHECK_EQ(connect(stream->accepted, (struct sockaddr *)&address, size), 0);
    } else {
        stream->port = ntohs(address.sin_port);
        rg_test_stream_call(stream, connect_run);
    }
    stream->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    RG_CHECK(stream->fd >= 0);
    close(listener);
    raw_open(stream);
}

void rg_test_stream_open(struct rg_test_stream *stream)
{
    stream->loop = rg_test_loop_start(0);
    RG_CHECK_EQ(rg_transport_loop_create(&stream->shared, stream->loop, 2), 0);
    context_open(stream);
    stream->fd = -1;
    if (stream->port == 0 && stream->accepted == 0) {
        peer_open(stream);
    } else if (!stream->is_server) {
        rg_test_stream_call(stream, connect_run);
    }
    if (stream->is_server) {
        rg_test_stream_call(stream, accept_run);
    }
    if (stream->buffers != 0) {
        rg_test_stream_call(stream, shrink_run);
    }
}

static void send_run(struct rg_test_stream *stream)
{
    if (stream->ready && !stream->ended) {
        send_more(stream);
    }
}

void rg_test_stream_send(struct rg_test_stream *stream, uint64_t until)
{
    stream->send_until = until;
    rg_test_stream_call(stream, send_run);
}

static void end_run(struct rg_test_stream *stream)
{
    rg_transport_close(&stream->transport, false);
}

void rg_test_stream_end(struct rg_test_stream *stream)
{
    rg_test_stream_call(stream, end_run);
}

static void resume_run(struct rg_test_stream *stream)
{
    stream->paused = false;
    rg_transport_resume(&stream->transport);
}

void rg_test_stream_resume(struct rg_test_stream *stream)
{
    rg_test_stream_call(stream, resume_run);
}

static void reset_run(struct rg_test_stream *stream)
{
    if (!stream->closed) {
        rg_transport_close(&stream->transport, true);
    }
}

void rg_test_stream_close(struct rg_test_stream *stream)
{
    rg_test_stream_call(stream, reset_run);
    RG_AWAIT(stream->closed);
    rg_loop_stop(stream->loop);
    rg_transport_loop_destroy(stream->shared);
    rg_loop_destroy(stream->loop);
    if (!stream->is_server) {
        rg_tls_peer_fini(&stream->peer_name);
    }
    rg_tls_context_close(stream->context);
    SSL_free(stream->raw);
    SSL_CTX_free(stream->raw_context);
    free(stream->wire);
    if (stream->fd >= 0) {
        close(stream->fd);
    }
}

/* What BoringSSL says of a call that did not succeed. */
static void raw_note(struct rg_test_stream *stream, int ret)
{
    int error = SSL_get_error(stream->raw, ret);
    if (error == SSL_ERROR_ZERO_RETURN) {
        stream->raw_ended = true;
    } else if (error == SSL_ERROR_SSL && stream->raw_error[0] == '\0') {
        ERR_error_string_n(ERR_peek_error(), stream->raw_error, sizeof(stream->raw_error));
    }
    ERR_clear_error();
}

void rg_test_raw_write(struct rg_test_stream *stream, size_t size)
{
    uint8_t bytes[RG_KIB(16)];
    while (size > 0) {
        size_t part = RG_MIN(size, sizeof(bytes));
        rg_script_fill(bytes, stream->raw_sent, part);
        RG_CHECK_EQ(SSL_write(stream->raw, bytes, (int)part), part);
        stream->raw_sent += part;
        size -= part;
    }
}

static void raw_send(struct rg_test_stream *stream)
{
    stream->wire_size += rg_test_from_raw(stream->raw, stream->wire + stream->wire_size,
                                          stream->wire_room - stream->wire_size);
    size_t at = 0;
    while (at < stream->wire_size) {
        size_t part = stream->wire_size - at;
        if (stream->piece_max != 0) {
            size_t piece = 1 + rg_test_random_below(stream->piece_max);
            part = RG_MIN(part, piece);
        }
        ssize_t sent = send(stream->fd, stream->wire + at, part, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0) {
            break;
        }
        at += (size_t)sent;
    }
    stream->wire_size -= at;
    memmove(stream->wire, stream->wire + at, stream->wire_size);
}

static void raw_read(struct rg_test_stream *stream)
{
    uint8_t bytes[RG_KIB(16)];
    int got;
    while ((got = SSL_read(stream->raw, bytes, sizeof(bytes))) > 0) {
        RG_CHECK_EQ(rg_script_differs(bytes, stream->raw_received, (uint64_t)got), got);
        stream->raw_received += (uint64_t)got;
    }
    raw_note(stream, got);
}

static void raw_receive(struct rg_test_stream *stream)
{
    uint8_t bytes[CHUNK_SIZE];
    ssize_t got = recv(stream->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        RG_CHECK_EQ(BIO_write(SSL_get_rbio(stream->raw), bytes, (int)got), got);
    }
    stream->raw_finished |= got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (!SSL_is_init_finished(stream->raw)) {
        int ret = SSL_do_handshake(stream->raw);
        if (ret != 1) {
            raw_note(stream, ret);
        }
    }
    if (SSL_is_init_finished(stream->raw)) {
        raw_read(stream);
    }
}

void rg_test_raw_turn(struct rg_test_stream *stream)
{
    raw_send(stream);
    if (!stream->raw_deaf) {
        raw_receive(stream);
        raw_send(stream);
    }
}
