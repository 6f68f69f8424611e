/* One TLS connection. See tls.h for its life.
 *
 * BoringSSL reads and writes through one BIO per event loop, which leads to the spans of the call
 * in progress: between calls a connection has no buffers. BoringSSL never reads ahead of the record
 * that it needs, so after the handshake the input stands exactly at the first record of application
 * keys, and our record layer goes on from there with the traffic secret and sequence number zero.
 * From then on BoringSSL only sends. */
#include "http/tls.h"
#include "http/tls_internal.h"
#include "http/tls_secrets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/mem.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Handshake messages that may come after the handshake (RFC 8446 section 4.6). */
#define MESSAGE_HEADER_SIZE 4
#define MESSAGE_NEW_SESSION_TICKET 4
#define MESSAGE_KEY_UPDATE 24

/* In BoringSSL's error queue an alert is its number and this. */
#define ALERT_REASON_FIRST SSL_AD_REASON_OFFSET
#define ALERT_REASON_LAST (SSL_AD_REASON_OFFSET + 255)

/* Besides the buffers for cut records: handshake messages that span records are rare. */
#define MESSAGE_BUFFERS 64

static const struct {
    const char *name;
    const char *text;
} failures[] = {
#define XX(name, text) [RG_TLS_FAILURE_##name] = {#name, text},
    RG_TLS_FAILURES(XX)
#undef XX
};

static int bio_read(BIO *bio, char *data, int size)
{
    struct rg_tls_loop *loop = BIO_get_data(bio);
    RG_ASSERT(loop->bio == bio);
    RG_ASSERT(size >= 0);
    BIO_clear_retry_flags(bio);
    if (loop->in == NULL || loop->in->size == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t part = RG_MIN((size_t)size, loop->in->size);
    memcpy(data, loop->in->data, part);
    loop->in->data += part;
    loop->in->size -= part;
    return (int)part;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct rg_tls_loop *loop = BIO_get_data(bio);
    RG_ASSERT(loop->out != NULL);
    RG_ASSERT(loop->out->size <= loop->out->capacity);
    BIO_clear_retry_flags(bio);
    size_t part = RG_MIN((size_t)size, loop->out->capacity - loop->out->size);
    if (part == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(loop->out->data + loop->out->size, data, part);
    loop->out->size += part;
    return (int)part;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

int rg_tls_loop_init(struct rg_tls_loop *loop, uint32_t connection_max)
{
    RG_ASSERT(connection_max > 0);
    RG_ASSERT(connection_max <= UINT32_MAX - MESSAGE_BUFFERS);
    *loop = (struct rg_tls_loop){0};
    BIO_METHOD *method = BIO_meth_new(0, "span");
    if (method != NULL && BIO_meth_set_read(method, bio_read) == 1 &&
        BIO_meth_set_write(method, bio_write) == 1 && BIO_meth_set_ctrl(method, bio_control) == 1) {
        loop->bio = BIO_new(method);
    }
    if (loop->bio == NULL) {
        BIO_meth_free(method);
        return -ENOMEM;
    }
    loop->method = method;
    BIO_set_data(loop->bio, loop);
    BIO_set_init(loop->bio, 1);
    int ret = rg_tls_buffers_init(&loop->buffers, connection_max + MESSAGE_BUFFERS);
    if (ret != 0) {
        rg_tls_loop_fini(loop);
    }
    return ret;
}

void rg_tls_loop_fini(struct rg_tls_loop *loop)
{
    RG_ASSERT(loop->in == NULL);
    RG_ASSERT(loop->out == NULL);
    BIO_free(loop->bio);
    BIO_meth_free(loop->method);
    rg_tls_buffers_fini(&loop->buffers);
    *loop = (struct rg_tls_loop){0};
}

int rg_tls_peer_init(struct rg_tls_peer *peer, struct rg_tls_context *context, const char *host)
{
    RG_ASSERT(context->roots != NULL);
    uint8_t address[sizeof(struct in6_addr)];
    size_t size = strlen(host);
    /* The dot that ends a fully qualified name is not part of it in certificates. */
    if (size > 1 && host[size - 1] == '.') {
        size--;
    }
    if (size == 0 || size >= RG_TLS_HOST_SIZE) {
        return -EINVAL;
    }
    *peer = (struct rg_tls_peer){.context = context};
    memcpy(peer->host, host, size);
    peer->host_is_address = inet_pton(AF_INET, peer->host, address) == 1 ||
                            inet_pton(AF_INET6, peer->host, address) == 1;
    return 0;
}

void rg_tls_peer_fini(struct rg_tls_peer *peer)
{
    RG_ASSERT(peer->session_count <= RG_TLS_SESSIONS_MAX);
    for (uint32_t i = 0; i < peer->session_count; i++) {
        SSL_SESSION_free(peer->sessions[i]);
    }
    *peer = (struct rg_tls_peer){0};
}

/* Takes the session. The oldest makes room. */
static void peer_keep(struct rg_tls_peer *peer, SSL_SESSION *session)
{
    RG_ASSERT(session != NULL);
    RG_ASSERT(peer->session_count <= RG_TLS_SESSIONS_MAX);
    if (peer->session_count == RG_TLS_SESSIONS_MAX) {
        SSL_SESSION_free(peer->sessions[0]);
        peer->session_count--;
        memmove(peer->sessions, peer->sessions + 1, peer->session_count * sizeof(SSL_SESSION *));
    }
    peer->sessions[peer->session_count++] = session;
}

/* Returns owned, or NULL. A ticket of TLS 1.3 is used once: a second use would let an observer link
 * the connections (RFC 8446 appendix C.4). */
static SSL_SESSION *peer_take(struct rg_tls_peer *peer)
{
    RG_ASSERT(peer->session_count <= RG_TLS_SESSIONS_MAX);
    if (peer->session_count == 0) {
        return NULL;
    }
    SSL_SESSION *session = peer->sessions[peer->session_count - 1];
    if (SSL_SESSION_should_be_single_use(session)) {
        peer->sessions[--peer->session_count] = NULL;
    } else {
        SSL_SESSION_up_ref(session);
    }
    return session;
}

int rg_tls_session_new(SSL *ssl, SSL_SESSION *session)
{
    struct rg_tls *tls = SSL_get_app_data(ssl);
    RG_ASSERT(tls != NULL);
    RG_ASSERT(tls->peer != NULL);
    if (tls->ticket_count >= RG_TLS_TICKETS_MAX) {
        return 0;
    }
    tls->ticket_count++;
    peer_keep(tls->peer, session);
    return 1;
}

int rg_tls_fail(struct rg_tls *tls, enum rg_tls_failure failure, const char *format, ...)
{
    RG_ASSERT(failure != RG_TLS_FAILURE_NONE);
    if (tls->failure == RG_TLS_FAILURE_NONE) {
        va_list args;
        tls->failure = failure;
        va_start(args, format);
        vsnprintf(tls->failure_text, sizeof(tls->failure_text), format, args);
        va_end(args);
    }
    return -EPROTO;
}

/* Everything that may call BoringSSL's SSL functions is between enter and leave: they lend the
 * spans and keep the error queue of this thread to ourselves. */
static void tls_enter(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out)
{
    RG_ASSERT(tls->ssl != NULL);
    RG_ASSERT(tls->loop->out == NULL);
    RG_ASSERT(out != NULL);
    tls->loop->in = in;
    tls->loop->out = out;
    ERR_clear_error();
}

static void tls_leave(struct rg_tls *tls)
{
    RG_ASSERT(tls->loop->out != NULL);
    tls->loop->in = NULL;
    tls->loop->out = NULL;
    ERR_clear_error();
}

static int tls_init(struct rg_tls *tls, struct rg_tls_loop *loop, struct rg_tls_context *context)
{
    RG_ASSERT(loop->bio != NULL);
    ERR_clear_error();
    *tls = (struct rg_tls){.loop = loop, .boringssl_records = context->boringssl_records};
    tls->ssl = SSL_new(context->ssl);
    if (tls->ssl == NULL) {
        ERR_clear_error();
        return -ENOMEM;
    }
    BIO_up_ref(loop->bio);
    SSL_set_bio(tls->ssl, loop->bio, loop->bio);
    /* What was only needed to shake hands is freed afterwards. */
    SSL_set_shed_handshake_config(tls->ssl, 1);
    if (SSL_set_app_data(tls->ssl, tls) != 1) {
        rg_tls_fini(tls);
        return -ENOMEM;
    }
    return 0;
}

int rg_tls_init_client(struct rg_tls *tls, struct rg_tls_loop *loop, struct rg_tls_peer *peer)
{
    RG_ASSERT(peer->host[0] != '\0');
    int ret = tls_init(tls, loop, peer->context);
    if (ret != 0) {
        return ret;
    }
    tls->peer = peer;
    SSL_set_connect_state(tls->ssl);
    /* Addresses are no server names (RFC 6066 section 3). */
    if (!peer->host_is_address && SSL_set_tlsext_host_name(tls->ssl, peer->host) != 1) {
        rg_tls_fini(tls);
        return -ENOMEM;
    }
    SSL_SESSION *session = peer_take(peer);
    if (session != NULL) {
        SSL_set_session(tls->ssl, session);
        SSL_SESSION_free(session);
    }
    return 0;
}

int rg_tls_init_server(struct rg_tls *tls, struct rg_tls_loop *loop, struct rg_tls_context *context)
{
    RG_ASSERT(context->roots == NULL);
    int ret = tls_init(tls, loop, context);
    if (ret == 0) {
        SSL_set_accept_state(tls->ssl);
    }
    return ret;
}

void rg_tls_fini(struct rg_tls *tls)
{
    if (tls->message != NULL) {
        rg_tls_buffers_return(&tls->loop->buffers, tls->message);
    }
    rg_tls_record_fini(&tls->record);
    SSL_free(tls->ssl);
    *tls = (struct rg_tls){0};
}

/* What BoringSSL's reasons mean to a user. Those not listed are errors of the protocol. */
static enum rg_tls_failure reason_classify(int reason)
{
    switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
        return RG_TLS_FAILURE_NOT_TLS;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return RG_TLS_FAILURE_VERSION;
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_UNKNOWN_CIPHER_RETURNED:
    case SSL_R_WRONG_CIPHER_RETURNED:
        return RG_TLS_FAILURE_NO_COMMON_CIPHER;
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
        return RG_TLS_FAILURE_RECORD_MAC;
    default:
        return RG_TLS_FAILURE_PROTOCOL;
    }
}

/* Alerts that every other attempt would meet too: nothing in common, or a certificate of ours that
 * is not wanted or missing (RFC 8446 section 6.2). */
static bool alert_is_refusal(int alert)
{
    switch (alert) {
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_NO_CERTIFICATE:
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_PROTOCOL_VERSION:
    case SSL_AD_INSUFFICIENT_SECURITY:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return true;
    default:
        return false;
    }
}

static int fail_by_alert(struct rg_tls *tls, int alert)
{
    RG_ASSERT(alert >= 0);
    RG_ASSERT(alert != RG_TLS_ALERT_CLOSE_NOTIFY);
    enum rg_tls_failure failure =
        alert_is_refusal(alert) ? RG_TLS_FAILURE_REFUSED : RG_TLS_FAILURE_ALERT;
    return rg_tls_fail(tls, failure, "%s: alert \"%s\"",
                       tls->established ? "ended by the peer" : "handshake refused by the peer",
                       SSL_alert_desc_string_long(alert));
}

static int fail_from_queue(struct rg_tls *tls)
{
    uint32_t error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    if (reason == ERR_R_MALLOC_FAILURE) {
        return rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory");
    }
    if (ERR_GET_LIB(error) != ERR_LIB_SSL) {
        const char *text = ERR_reason_error_string(error);
        return rg_tls_fail(tls, RG_TLS_FAILURE_PROTOCOL, "TLS protocol error: %s",
                           text == NULL ? "unknown" : text);
    }
    enum rg_tls_failure failure = reason_classify(reason);
    if (failure == RG_TLS_FAILURE_NOT_TLS && tls->established) {
        failure = RG_TLS_FAILURE_PROTOCOL;
    }
    if (failure == RG_TLS_FAILURE_PROTOCOL && reason >= ALERT_REASON_FIRST &&
        reason <= ALERT_REASON_LAST) {
        return fail_by_alert(tls, reason - ALERT_REASON_FIRST);
    }
    if (failure == RG_TLS_FAILURE_PROTOCOL) {
        return rg_tls_fail(tls, failure, "%s: %s", failures[failure].text,
                           ERR_reason_error_string(error));
    }
    return rg_tls_fail(tls, failure, "%s", failures[failure].text);
}

/* What a BoringSSL call that did not succeed means. */
static int tls_interpret(struct rg_tls *tls, int ret)
{
    RG_ASSERT(ret <= 0);
    switch (SSL_get_error(tls->ssl, ret)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        return -ENOBUFS;
    case SSL_ERROR_ZERO_RETURN:
        tls->closed = true;
        return -ENODATA;
    default:
        return fail_from_queue(tls);
    }
}

/* Our record layer takes over where it can. Otherwise BoringSSL's stays, and nothing is lost. */
static int tls_take_over(struct rg_tls *tls)
{
    struct rg_tls_record_keys keys = {0};
    const SSL_CIPHER *cipher = SSL_get_current_cipher(tls->ssl);
    RG_ASSERT(cipher != NULL);
    keys.suite = SSL_CIPHER_get_protocol_id(cipher);
    if (tls->boringssl_records || SSL_version(tls->ssl) != TLS1_3_VERSION ||
        !rg_tls_record_knows(keys.suite) || SSL_has_pending(tls->ssl)) {
        return 0;
    }
    int ret = rg_tls_secret_read(tls->ssl, keys.secret, sizeof(keys.secret), &keys.secret_size);
    if (ret == 0) {
        keys.sequence = SSL_get_read_sequence(tls->ssl);
        RG_ASSERT(keys.sequence == 0);
        ret = rg_tls_record_init(&tls->record, &keys, &tls->loop->buffers);
        tls->own_records = ret == 0;
    }
    OPENSSL_cleanse(&keys, sizeof(keys));
    return ret == -ENOMEM ? rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory") : 0;
}

int rg_tls_handshake(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out)
{
    RG_ASSERT(!tls->established);
    if (tls->failure != RG_TLS_FAILURE_NONE) {
        return -EPROTO;
    }
    tls_enter(tls, in, out);
    int ret = SSL_do_handshake(tls->ssl);
    if (ret == 1) {
        ret = tls_take_over(tls);
        tls->established = ret == 0;
        /* A server's tickets wait for its first response, so as not to cost a packet. */
        tls->unflushed = true;
    } else {
        ret = tls_interpret(tls, ret);
        if (ret == -ENODATA) {
            ret = rg_tls_fail(tls, RG_TLS_FAILURE_PROTOCOL, "the peer closed during the handshake");
        }
    }
    tls_leave(tls);
    return ret;
}

/* Sends what BoringSSL holds back for the next record. 0, -ENOBUFS or -EPROTO. */
static int tls_flush(struct rg_tls *tls)
{
    RG_ASSERT(tls->loop->out != NULL);
    if (!tls->unflushed) {
        return 0;
    }
    int ret = SSL_write(tls->ssl, "", 0);
    if (ret < 0) {
        ret = tls_interpret(tls, ret);
        RG_ASSERT(ret != -EAGAIN);
        return ret;
    }
    tls->unflushed = tls->key_update_held = false;
    return 0;
}

/* A KeyUpdate: our sending key changes now; `request` asks the peer to change its own, too. It goes
 * out at once if it fits, else before the next record. Nothing must be held: BoringSSL would drop
 * a second one. */
static int tls_send_key_update(struct rg_tls *tls, int request)
{
    RG_ASSERT(SSL_version(tls->ssl) == TLS1_3_VERSION);
    RG_ASSERT(!tls->key_update_held);
    if (SSL_key_update(tls->ssl, request) != 1) {
        return fail_from_queue(tls);
    }
    tls->unflushed = true;
    int ret = tls_flush(tls);
    tls->key_update_held = ret == -ENOBUFS;
    return ret == -ENOBUFS ? 0 : ret;
}

int rg_tls_flush(struct rg_tls *tls, struct rg_tls_out *out)
{
    RG_ASSERT(tls->established);
    if (tls->failure != RG_TLS_FAILURE_NONE) {
        return -EPROTO;
    }
    tls_enter(tls, NULL, out);
    int ret = tls_flush(tls);
    tls_leave(tls);
    return ret;
}

/* Seals one record of `size` bytes at most. Returns bytes taken, 0 when it does not fit. */
static ssize_t tls_seal_record(struct rg_tls *tls, const uint8_t *data, size_t size)
{
    const struct rg_tls_out *out = tls->loop->out;
    RG_ASSERT(size > 0);
    size_t room = out->capacity - out->size;
    size_t overhead = SSL_max_seal_overhead(tls->ssl);
    if (room < overhead + RG_MIN(size, RG_TLS_SEAL_MIN)) {
        return 0;
    }
    size_t part = RG_MIN(RG_MIN(size, RG_TLS_PLAIN_MAX), room - overhead);
    size_t sealed;
    int ret = rg_tls_seal_direct(tls->ssl, data, part, tls->loop->out->data + tls->loop->out->size,
                                 room, &sealed);
    if (RG_LIKELY(ret == 0)) {
        tls->loop->out->size += sealed;
        return (ssize_t)part;
    }
    if (ret == -EPROTO) {
        return fail_from_queue(tls);
    }
    ret = SSL_write(tls->ssl, data, (int)part);
    if (ret <= 0) {
        ret = tls_interpret(tls, ret);
        /* It was checked that the record fits, so that nothing stays behind in BoringSSL. */
        RG_ASSERT(ret != -ENOBUFS);
        return ret;
    }
    RG_ASSERT((size_t)ret == part);
    return ret;
}

ssize_t rg_tls_seal(struct rg_tls *tls, const void *data, size_t size, struct rg_tls_out *out)
{
    RG_ASSERT(tls->established);
    RG_ASSERT(!tls->close_sent);
    if (tls->failure != RG_TLS_FAILURE_NONE) {
        return -EPROTO;
    }
    size_t taken = 0;
    ssize_t ret = 0;
    tls_enter(tls, NULL, out);
    ret = tls_flush(tls);
    if (ret == 0 && SSL_version(tls->ssl) == TLS1_3_VERSION &&
        SSL_get_write_sequence(tls->ssl) >= RG_TLS_GCM_RECORDS_SOFT) {
        ret = tls_send_key_update(tls, SSL_KEY_UPDATE_NOT_REQUESTED);
        ret = tls->key_update_held ? -ENOBUFS : ret;
    }
    while (ret >= 0 && taken < size) {
        ret = tls_seal_record(tls, (const uint8_t *)data + taken, size - taken);
        if (ret == 0) {
            break;
        }
        taken += ret > 0 ? (size_t)ret : 0;
    }
    tls_leave(tls);
    tls->sealed_bytes += taken;
    return ret == -EPROTO ? ret : (ssize_t)taken;
}

/* Tells the peer why and fails. The alert lies in `out` if there is room for it. */
static int fail_with_alert(struct rg_tls *tls, uint8_t alert, const char *text)
{
    RG_ASSERT(tls->own_records);
    SSL_send_fatal_alert(tls->ssl, alert);
    ERR_clear_error();
    return rg_tls_fail(tls, RG_TLS_FAILURE_PROTOCOL, "TLS protocol error: %s", text);
}

static int fail_by_record(struct rg_tls *tls, int ret)
{
    RG_ASSERT(ret == -EBADMSG || ret == -EPROTO || ret == -ENOMEM);
    if (ret == -ENOMEM) {
        SSL_send_fatal_alert(tls->ssl, SSL_AD_INTERNAL_ERROR);
        return rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of TLS record buffers");
    }
    if (ret == -EBADMSG) {
        rg_tls_fail(tls, RG_TLS_FAILURE_RECORD_MAC, "%s", tls->record.error);
    }
    return fail_with_alert(tls, tls->record.alert, tls->record.error);
}

/* RFC 8446 section 6: every alert ends the connection but user_canceled, which announces
 * close_notify. */
static int take_alert(struct rg_tls *tls, const struct rg_tls_plain *plain)
{
    RG_ASSERT(plain->content == RG_TLS_CONTENT_ALERT);
    if (plain->size != 2) {
        return fail_with_alert(tls, RG_TLS_ALERT_DECODE_ERROR, "an alert of a wrong size");
    }
    uint8_t alert = plain->data[1];
    if (alert == RG_TLS_ALERT_CLOSE_NOTIFY) {
        tls->closed = true;
        return -ENODATA;
    }
    if (alert == RG_TLS_ALERT_USER_CANCELED) {
        return ++tls->warning_count <= RG_TLS_WARNINGS_MAX
                   ? 0
                   : fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE, "too many warnings");
    }
    return fail_by_alert(tls, alert);
}

static int take_ticket(struct rg_tls *tls, const uint8_t *message, size_t size)
{
    RG_ASSERT(size >= MESSAGE_HEADER_SIZE);
    RG_ASSERT(message[0] == MESSAGE_NEW_SESSION_TICKET);
    if (tls->peer == NULL) {
        return fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE, "a client sent a ticket");
    }
    if (tls->ticket_count >= RG_TLS_TICKETS_MAX) {
        return 0;
    }
    SSL_SESSION *session = SSL_process_tls13_new_session_ticket(tls->ssl, message, size);
    if (session == NULL) {
        return fail_with_alert(tls, RG_TLS_ALERT_DECODE_ERROR, "a malformed session ticket");
    }
    tls->ticket_count++;
    peer_keep(tls->peer, session);
    return 0;
}

/* RFC 8446 section 4.6.3. `last`: the message ends its record, as it must before a key change. */
static int take_key_update(struct rg_tls *tls, const uint8_t *body, size_t size, bool last)
{
    RG_ASSERT(tls->own_records);
    if (size != 1 || body[0] > SSL_KEY_UPDATE_REQUESTED) {
        return fail_with_alert(tls, RG_TLS_ALERT_DECODE_ERROR, "a malformed key update");
    }
    if (!last) {
        return fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                               "a handshake message spans a key change");
    }
    if (tls->sealed_bytes - tls->key_update_at >= RG_TLS_KEY_UPDATE_BYTES) {
        tls->key_update_count = 0;
    }
    tls->key_update_at = tls->sealed_bytes;
    if (++tls->key_update_count > RG_TLS_KEY_UPDATES_MAX) {
        return fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE, "too many key updates");
    }
    if (rg_tls_record_update(&tls->record) != 0) {
        return rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory");
    }
    tls->key_update_sent = false;
    /* One that is held answers this request, too (RFC 8446 section 4.6.3). */
    return body[0] == SSL_KEY_UPDATE_REQUESTED && !tls->key_update_held
               ? tls_send_key_update(tls, SSL_KEY_UPDATE_NOT_REQUESTED)
               : 0;
}

/* Handles the first message of data[0..size). Its size, 0 if it is not whole, or -EPROTO. */
static ssize_t take_message(struct rg_tls *tls, const uint8_t *data, size_t size)
{
    if (size < MESSAGE_HEADER_SIZE) {
        return 0;
    }
    size_t body = (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];
    if (body > RG_TLS_MESSAGE_MAX - MESSAGE_HEADER_SIZE) {
        return fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                               "a handshake message longer than 16 KiB");
    }
    size_t whole = MESSAGE_HEADER_SIZE + body;
    if (size < whole) {
        return 0;
    }
    int ret = 0;
    if (data[0] == MESSAGE_NEW_SESSION_TICKET) {
        ret = take_ticket(tls, data, whole);
    } else if (data[0] == MESSAGE_KEY_UPDATE) {
        ret = take_key_update(tls, data + MESSAGE_HEADER_SIZE, body, whole == size);
    } else {
        ret = fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                              "a handshake message that may not come after the handshake");
    }
    return ret == 0 ? (ssize_t)whole : ret;
}

/* Keeps the beginning of a message for the next record; with nothing to keep, keeps no buffer. */
static int message_keep(struct rg_tls *tls, const uint8_t *rest, size_t size)
{
    RG_ASSERT(size < RG_TLS_MESSAGE_MAX);
    if (size == 0) {
        if (tls->message != NULL) {
            rg_tls_buffers_return(&tls->loop->buffers, tls->message);
            tls->message = NULL;
        }
        tls->message_size = 0;
        return 0;
    }
    if (tls->message == NULL) {
        tls->message = rg_tls_buffers_borrow(&tls->loop->buffers);
        if (tls->message == NULL) {
            return fail_by_record(tls, -ENOMEM);
        }
    }
    memmove(tls->message, rest, size);
    tls->message_size = (uint32_t)size;
    return 0;
}

/* A record of handshake messages: whole ones, cut ones, several. */
static int take_handshake(struct rg_tls *tls, const struct rg_tls_plain *plain)
{
    const uint8_t *data = plain->data;
    size_t size = plain->size;
    RG_ASSERT(size > 0);
    RG_ASSERT((tls->message != NULL) == (tls->message_size > 0));
    if (tls->message != NULL) {
        if (tls->message_size + size > RG_TLS_MESSAGE_MAX) {
            return fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                                   "too many handshake messages at once");
        }
        memcpy(tls->message + tls->message_size, data, size);
        data = tls->message;
        size += tls->message_size;
    }
    ssize_t taken = 1;
    while (size > 0 && taken > 0) {
        taken = take_message(tls, data, size);
        if (taken < 0) {
            return (int)taken;
        }
        data += taken;
        size -= (size_t)taken;
    }
    return message_keep(tls, data, size);
}

/* Everything but application data. 0, -ENODATA or -EPROTO. */
static int take_control(struct rg_tls *tls, const struct rg_tls_plain *plain)
{
    if (plain->content != RG_TLS_CONTENT_HANDSHAKE && tls->message != NULL) {
        return fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                               "a handshake message is interrupted");
    }
    if (plain->content == RG_TLS_CONTENT_HANDSHAKE) {
        return take_handshake(tls, plain);
    }
    if (plain->content == RG_TLS_CONTENT_ALERT) {
        return take_alert(tls, plain);
    }
    RG_ASSERT(plain->size == 0);
    return ++tls->empty_count <= RG_TLS_EMPTY_RECORDS_MAX
               ? 0
               : fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE, "too many empty records");
}

/* Opens one record at `dest`. Bytes of application data, 0 for a record without, or negative. */
static ssize_t open_record(struct rg_tls *tls, struct rg_tls_in *in, uint8_t *dest, size_t room)
{
    struct rg_tls_plain plain;
    int ret = rg_tls_record_next(&tls->record, in, dest, room, &plain);
    if (ret == -EAGAIN || ret == -ENOSPC) {
        return ret;
    }
    if (RG_UNLIKELY(ret != 0)) {
        return fail_by_record(tls, ret);
    }
    if (RG_UNLIKELY(rg_tls_record_worn(&tls->record) && !tls->key_update_sent &&
                    !tls->key_update_held)) {
        tls->key_update_sent = true;
        ret = tls_send_key_update(tls, SSL_KEY_UPDATE_REQUESTED);
        if (ret != 0) {
            return ret;
        }
    }
    if (plain.content != RG_TLS_CONTENT_DATA || plain.size == 0 || tls->message != NULL) {
        return take_control(tls, &plain);
    }
    tls->empty_count = 0;
    tls->key_update_count = 0;
    return (ssize_t)plain.size;
}

static ssize_t open_own(struct rg_tls *tls, struct rg_tls_in *in, uint8_t *dest, size_t room)
{
    size_t done = 0;
    /* When what is left of the room would make the next record take the way through the scratch,
     * the caller first gets what it has: it may come back with another destination. */
    while (done == 0 || rg_tls_record_room(&tls->record, in) <= room - done) {
        ssize_t ret = open_record(tls, in, dest + done, room - done);
        if (ret == -EAGAIN) {
            break;
        }
        if (ret < 0) {
            return done > 0 ? (ssize_t)done : ret;
        }
        done += (size_t)ret;
        RG_ASSERT(done <= room);
    }
    return (ssize_t)done;
}

static ssize_t open_boringssl(struct rg_tls *tls, uint8_t *dest, size_t room)
{
    RG_ASSERT(!tls->own_records);
    size_t done = 0;
    uint8_t probe;
    /* BoringSSL's answer to a KeyUpdate waits for the next record to be sent, which must count with
     * it. */
    tls->unflushed = true;
    for (;;) {
        if (done > 0 && done == room) {
            return (ssize_t)done;
        }
        int part = (int)RG_MIN(room - done, (size_t)RG_TLS_PLAIN_MAX);
        int ret = part > 0 ? SSL_read(tls->ssl, dest + done, part) : SSL_peek(tls->ssl, &probe, 1);
        if (ret > 0 && part == 0) {
            return -ENOSPC;
        }
        if (ret > 0) {
            done += (size_t)ret;
            continue;
        }
        ret = tls_interpret(tls, ret);
        return done > 0 || ret == -EAGAIN || ret == -ENOBUFS ? (ssize_t)done : ret;
    }
}

ssize_t rg_tls_open(struct rg_tls *tls, struct rg_tls_in *in, uint8_t *dest, size_t room,
                    struct rg_tls_out *out)
{
    RG_ASSERT(tls->established);
    RG_ASSERT(dest != NULL);
    if (tls->failure != RG_TLS_FAILURE_NONE) {
        return -EPROTO;
    }
    if (tls->closed) {
        return -ENODATA;
    }
    tls_enter(tls, in, out);
    ssize_t ret =
        tls->own_records ? open_own(tls, in, dest, room) : open_boringssl(tls, dest, room);
    tls_leave(tls);
    return ret;
}

int rg_tls_close_notify(struct rg_tls *tls, struct rg_tls_out *out)
{
    if (tls->failure != RG_TLS_FAILURE_NONE || !tls->established || tls->close_sent) {
        return 0;
    }
    tls_enter(tls, NULL, out);
    int ret = tls_flush(tls);
    if (ret == 0) {
        ret = SSL_shutdown(tls->ssl);
        ret = ret < 0 ? tls_interpret(tls, ret) : 0;
        tls->close_sent = ret == 0;
    }
    tls_leave(tls);
    return ret;
}

const char *rg_tls_failure_text(const struct rg_tls *tls)
{
    return tls->failure == RG_TLS_FAILURE_NONE ? failures[0].text : tls->failure_text;
}

enum rg_status rg_tls_failure_status(enum rg_tls_failure failure)
{
    switch (failure) {
    case RG_TLS_FAILURE_EXPIRED:
    case RG_TLS_FAILURE_NOT_YET_VALID:
    case RG_TLS_FAILURE_UNKNOWN_ISSUER:
    case RG_TLS_FAILURE_SELF_SIGNED:
    case RG_TLS_FAILURE_HOST_MISMATCH:
    case RG_TLS_FAILURE_BAD_CERTIFICATE:
        return RG_STATUS_TLS_CERTIFICATE;
    case RG_TLS_FAILURE_MEMORY:
        return RG_STATUS_NO_RESOURCES;
    case RG_TLS_FAILURE_ALERT:
        return RG_STATUS_CONNECT;
    case RG_TLS_FAILURE_RECORD_MAC:
        /* Damage on the way; another connection may fare better. */
        return RG_STATUS_CONNECTION_LOST;
    default:
        return RG_STATUS_TLS_PROTOCOL;
    }
}

const char *rg_tls_failure_name(enum rg_tls_failure failure)
{
    RG_ASSERT(failure < RG_ARRAY_LEN(failures));
    return failures[failure].name;
}

const char *rg_tls_version(const struct rg_tls *tls)
{
    RG_ASSERT(tls->established);
    return SSL_get_version(tls->ssl);
}

const char *rg_tls_cipher(const struct rg_tls *tls)
{
    RG_ASSERT(tls->established);
    return SSL_CIPHER_standard_name(SSL_get_current_cipher(tls->ssl));
}

bool rg_tls_resumed(const struct rg_tls *tls)
{
    RG_ASSERT(tls->established);
    return SSL_session_reused(tls->ssl) == 1;
}

bool rg_tls_alpn(const struct rg_tls *tls)
{
    const uint8_t *name = NULL;
    unsigned size = 0;
    RG_ASSERT(tls->established);
    SSL_get0_alpn_selected(tls->ssl, &name, &size);
    return size > 0;
}
