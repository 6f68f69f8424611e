/* One TLS connection: its states, handshake and failures. See tls.h.
 *
 * BoringSSL never reads ahead of the record that it needs, so after the handshake the input stands
 * exactly at the first record of application keys, and our record layer goes on from there with the
 * traffic secret and sequence number zero. From then on BoringSSL only sends. */
#include "http/tls.h"

#include "http/tls_context_private.h"
#include "http/tls_secrets.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/mem.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* In BoringSSL's error queue an alert is its number and this. */
#define ALERT_REASON_FIRST SSL_AD_REASON_OFFSET
#define ALERT_REASON_LAST (SSL_AD_REASON_OFFSET + 255)

#define BIT(state) (1u << (state))

/* What each state may be followed by. fini sets all to zero, from any state. */
static const uint8_t states_after[RG_TLS_STATE_COUNT] = {
    [RG_TLS_NONE] = BIT(RG_TLS_HANDSHAKING),
    [RG_TLS_HANDSHAKING] = BIT(RG_TLS_ESTABLISHED) | BIT(RG_TLS_REFUSED),
    [RG_TLS_ESTABLISHED] = BIT(RG_TLS_BROKEN),
};
static const uint8_t readings_after[RG_TLS_READING_COUNT] = {
    [RG_TLS_READING_HANDSHAKE] = BIT(RG_TLS_READING_BORINGSSL) | BIT(RG_TLS_READING_OWN),
    [RG_TLS_READING_BORINGSSL] = BIT(RG_TLS_READING_ENDED),
    [RG_TLS_READING_OWN] = BIT(RG_TLS_READING_RENEWING) | BIT(RG_TLS_READING_ENDED),
    [RG_TLS_READING_RENEWING] = BIT(RG_TLS_READING_OWN) | BIT(RG_TLS_READING_ENDED),
};
static const uint8_t sendings_after[RG_TLS_SENDING_COUNT] = {
    [RG_TLS_SENDING_HANDSHAKE] = BIT(RG_TLS_SENDING_PENDING),
    [RG_TLS_SENDING_READY] = BIT(RG_TLS_SENDING_PENDING) | BIT(RG_TLS_SENDING_ENDED),
    [RG_TLS_SENDING_PENDING] = BIT(RG_TLS_SENDING_READY) | BIT(RG_TLS_SENDING_HELD),
    [RG_TLS_SENDING_HELD] = BIT(RG_TLS_SENDING_READY),
};

static const char *const state_names[] = {
    [RG_TLS_NONE] = "none",       [RG_TLS_HANDSHAKING] = "handshaking",
    [RG_TLS_REFUSED] = "refused", [RG_TLS_ESTABLISHED] = "established",
    [RG_TLS_BROKEN] = "broken",
};
static_assert(RG_ARRAY_LEN(state_names) == RG_TLS_STATE_COUNT, "every state has a name");

static bool invariants(const struct rg_tls *tls)
{
    bool failed = tls->state == RG_TLS_REFUSED || tls->state == RG_TLS_BROKEN;
    bool established = rg_tls_established(tls);
    bool boringssl = tls->reading == RG_TLS_READING_BORINGSSL ||
                     (tls->reading == RG_TLS_READING_ENDED && tls->record.aead == NULL);
    return failed == (tls->failure != RG_TLS_FAILURE_NONE) &&
           established == (tls->reading != RG_TLS_READING_HANDSHAKE) &&
           established == (tls->sending != RG_TLS_SENDING_HANDSHAKE) &&
           (!established || boringssl == (tls->record.aead == NULL)) &&
           (tls->message != NULL) == (tls->message_size > 0) &&
           tls->ticket_count <= RG_TLS_TICKETS_MAX && tls->key_update_at <= tls->sealed_bytes;
}

static void tls_enter(struct rg_tls *tls, enum rg_tls_state state)
{
    RG_ASSERT(states_after[tls->state] & BIT(state));
    tls->state = (uint8_t)state;
}

void rg_tls_reading_enter(struct rg_tls *tls, enum rg_tls_reading reading)
{
    RG_ASSERT(readings_after[tls->reading] & BIT(reading));
    tls->reading = (uint8_t)reading;
}

void rg_tls_sending_enter(struct rg_tls *tls, enum rg_tls_sending sending)
{
    RG_ASSERT(sendings_after[tls->sending] & BIT(sending));
    tls->sending = (uint8_t)sending;
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
    rg_tls_peer_keep(tls->peer, session);
    return 1;
}

int rg_tls_fail(struct rg_tls *tls, enum rg_tls_failure failure, const char *format, ...)
{
    RG_ASSERT(failure != RG_TLS_FAILURE_NONE);
    if (tls->failure == RG_TLS_FAILURE_NONE) {
        va_list args;
        tls_enter(tls, rg_tls_established(tls) ? RG_TLS_BROKEN : RG_TLS_REFUSED);
        tls->failure = failure;
        va_start(args, format);
        vsnprintf(tls->failure_text, sizeof(tls->failure_text), format, args);
        va_end(args);
    }
    return -EPROTO;
}

int rg_tls_fail_by_alert(struct rg_tls *tls, int alert)
{
    RG_ASSERT(alert >= 0);
    RG_ASSERT(alert != RG_TLS_ALERT_CLOSE_NOTIFY);
    return rg_tls_fail(tls, rg_tls_failure_of_alert(alert), "%s: alert \"%s\"",
                       rg_tls_established(tls) ? "ended by the peer"
                                               : "handshake refused by the peer",
                       SSL_alert_desc_string_long(alert));
}

int rg_tls_fail_from_queue(struct rg_tls *tls)
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
    enum rg_tls_failure failure = rg_tls_failure_of_reason(reason);
    if (failure == RG_TLS_FAILURE_NOT_TLS && rg_tls_established(tls)) {
        failure = RG_TLS_FAILURE_PROTOCOL;
    }
    if (failure == RG_TLS_FAILURE_PROTOCOL && reason >= ALERT_REASON_FIRST &&
        reason <= ALERT_REASON_LAST) {
        return rg_tls_fail_by_alert(tls, reason - ALERT_REASON_FIRST);
    }
    if (failure == RG_TLS_FAILURE_PROTOCOL) {
        return rg_tls_fail(tls, failure, "%s: %s", rg_tls_failure_summary(failure),
                           ERR_reason_error_string(error));
    }
    return rg_tls_fail(tls, failure, "%s", rg_tls_failure_summary(failure));
}

int rg_tls_interpret(struct rg_tls *tls, int ret)
{
    RG_ASSERT(ret <= 0);
    switch (SSL_get_error(tls->ssl, ret)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        return -ENOBUFS;
    case SSL_ERROR_ZERO_RETURN:
        return -ENODATA;
    default:
        return rg_tls_fail_from_queue(tls);
    }
}

void rg_tls_call_begin(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out)
{
    RG_ASSERT(tls->ssl != NULL);
    rg_tls_loop_lend(tls->loop, in, out);
    ERR_clear_error();
}

void rg_tls_call_end(struct rg_tls *tls)
{
    rg_tls_loop_take_back(tls->loop);
    ERR_clear_error();
    RG_VERIFY(invariants(tls));
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
    tls_enter(tls, RG_TLS_HANDSHAKING);
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
    SSL_SESSION *session = rg_tls_peer_take(peer);
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

/* Gives our record layer the keys, where it can open what is to come. Otherwise BoringSSL opens it,
 * and nothing is lost. */
static int record_take_over(struct rg_tls *tls)
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
    }
    OPENSSL_cleanse(&keys, sizeof(keys));
    return ret == -ENOMEM ? rg_tls_fail(tls, RG_TLS_FAILURE_MEMORY, "out of memory") : 0;
}

/* Both directions begin. A server's tickets wait for its first response, so as not to cost a
 * packet. */
static int handshake_finish(struct rg_tls *tls)
{
    int ret = record_take_over(tls);
    if (ret == 0) {
        bool own = tls->record.aead != NULL;
        tls_enter(tls, RG_TLS_ESTABLISHED);
        rg_tls_reading_enter(tls, own ? RG_TLS_READING_OWN : RG_TLS_READING_BORINGSSL);
        rg_tls_sending_enter(tls, RG_TLS_SENDING_PENDING);
    }
    return ret;
}

/* Tells a client that speaks plain HTTP what is wrong, as other servers do. */
static void plain_answer(struct rg_tls_out *out)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
                                 "Content-Length: 61\r\nConnection: close\r\n\r\n"
                                 "A plain HTTP request was sent to the port of an HTTPS server\n";
    size_t size = sizeof(answer) - 1;
    if (out->capacity - out->size >= size) {
        memcpy(out->data + out->size, answer, size);
        out->size += size;
    }
}

int rg_tls_handshake(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out)
{
    RG_ASSERT(!rg_tls_established(tls));
    if (tls->state == RG_TLS_REFUSED) {
        return -EPROTO;
    }
    rg_tls_call_begin(tls, in, out);
    int ret = SSL_do_handshake(tls->ssl);
    if (ret == 1) {
        ret = handshake_finish(tls);
    } else {
        ret = rg_tls_interpret(tls, ret);
        if (ret == -ENODATA) {
            ret = rg_tls_fail(tls, RG_TLS_FAILURE_PROTOCOL, "the peer closed during the handshake");
        } else if (tls->failure == RG_TLS_FAILURE_NOT_TLS && tls->peer == NULL) {
            plain_answer(out);
        }
    }
    rg_tls_call_end(tls);
    return ret;
}

const char *rg_tls_state_name(const struct rg_tls *tls)
{
    return state_names[tls->state];
}

const char *rg_tls_failure_text(const struct rg_tls *tls)
{
    return tls->failure == RG_TLS_FAILURE_NONE ? rg_tls_failure_summary(RG_TLS_FAILURE_NONE)
                                               : tls->failure_text;
}

const char *rg_tls_version(const struct rg_tls *tls)
{
    RG_ASSERT(rg_tls_established(tls));
    return SSL_get_version(tls->ssl);
}

const char *rg_tls_cipher(const struct rg_tls *tls)
{
    RG_ASSERT(rg_tls_established(tls));
    return SSL_CIPHER_standard_name(SSL_get_current_cipher(tls->ssl));
}

bool rg_tls_resumed(const struct rg_tls *tls)
{
    RG_ASSERT(rg_tls_established(tls));
    return SSL_session_reused(tls->ssl) == 1;
}

bool rg_tls_alpn(const struct rg_tls *tls)
{
    const uint8_t *name = NULL;
    unsigned size = 0;
    RG_ASSERT(rg_tls_established(tls));
    SSL_get0_alpn_selected(tls->ssl, &name, &size);
    return size > 0;
}
