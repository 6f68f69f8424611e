/* Application data and what is said between it: see tls_traffic.h.
 *
 * BoringSSL seals everything that is sent. What is received is opened by our own record layer where
 * that has taken over at the end of the handshake, and by BoringSSL otherwise. */
#include "http/tls_traffic.h"

#include "http/tls_secrets.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

/* Handshake messages that may come after the handshake (RFC 8446 section 4.6). */
#define MESSAGE_HEADER_SIZE 4
#define MESSAGE_NEW_SESSION_TICKET 4
#define MESSAGE_KEY_UPDATE 24

/* Sends what BoringSSL holds back for the next record. Nothing may follow close_notify, not even
 * the answer to a key update (RFC 8446 section 6.1). 0, -ENOBUFS or -EPROTO. */
static int tls_flush(struct rg_tls *tls)
{
    RG_ASSERT(tls->loop->out != NULL);
    if (tls->sending == RG_TLS_SENDING_READY || tls->sending == RG_TLS_SENDING_ENDED) {
        return 0;
    }
    int ret = SSL_write(tls->ssl, "", 0);
    if (ret < 0) {
        ret = rg_tls_interpret(tls, ret);
        RG_ASSERT(ret != -EAGAIN);
        return ret;
    }
    rg_tls_sending_enter(tls, RG_TLS_SENDING_READY);
    return 0;
}

/* BoringSSL may have a message for the peer that waits for the next record. */
static void sending_pend(struct rg_tls *tls)
{
    if (tls->sending == RG_TLS_SENDING_READY) {
        rg_tls_sending_enter(tls, RG_TLS_SENDING_PENDING);
    }
}

/* A KeyUpdate: our sending key changes now; `request` asks the peer to change its own, too. It goes
 * out at once if it fits, else before the next record. Nothing must be held: BoringSSL would drop
 * a second one. */
static int tls_send_key_update(struct rg_tls *tls, int request)
{
    RG_ASSERT(SSL_version(tls->ssl) == TLS1_3_VERSION);
    RG_ASSERT(!rg_tls_holds(tls));
    if (SSL_key_update(tls->ssl, request) != 1) {
        return rg_tls_fail_from_queue(tls);
    }
    sending_pend(tls);
    int ret = tls_flush(tls);
    if (ret == -ENOBUFS) {
        rg_tls_sending_enter(tls, RG_TLS_SENDING_HELD);
        return 0;
    }
    return ret;
}

int rg_tls_flush(struct rg_tls *tls, struct rg_tls_out *out)
{
    RG_ASSERT(rg_tls_established(tls));
    if (tls->state == RG_TLS_BROKEN) {
        return -EPROTO;
    }
    rg_tls_call_begin(tls, NULL, out);
    int ret = tls_flush(tls);
    rg_tls_call_end(tls);
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
        return rg_tls_fail_from_queue(tls);
    }
    ret = SSL_write(tls->ssl, data, (int)part);
    if (ret <= 0) {
        ret = rg_tls_interpret(tls, ret);
        /* It was checked that the record fits, so that nothing stays behind in BoringSSL. */
        RG_ASSERT(ret != -ENOBUFS);
        return ret;
    }
    RG_ASSERT((size_t)ret == part);
    return ret;
}

ssize_t rg_tls_seal(struct rg_tls *tls, const void *data, size_t size, struct rg_tls_out *out)
{
    RG_ASSERT(rg_tls_established(tls));
    RG_ASSERT(tls->sending != RG_TLS_SENDING_ENDED);
    if (tls->state == RG_TLS_BROKEN) {
        return -EPROTO;
    }
    size_t taken = 0;
    ssize_t ret = 0;
    rg_tls_call_begin(tls, NULL, out);
    ret = tls_flush(tls);
    if (ret == 0 && SSL_version(tls->ssl) == TLS1_3_VERSION &&
        SSL_get_write_sequence(tls->ssl) >= RG_TLS_GCM_RECORDS_SOFT) {
        ret = tls_send_key_update(tls, SSL_KEY_UPDATE_NOT_REQUESTED);
        ret = rg_tls_holds(tls) ? -ENOBUFS : ret;
    }
    while (ret >= 0 && taken < size) {
        ret = tls_seal_record(tls, (const uint8_t *)data + taken, size - taken);
        if (ret == 0) {
            break;
        }
        taken += ret > 0 ? (size_t)ret : 0;
    }
    rg_tls_call_end(tls);
    tls->sealed_bytes += taken;
    return ret == -EPROTO ? ret : (ssize_t)taken;
}

/* True where our record layer opens what is received. */
static bool reads_itself(const struct rg_tls *tls)
{
    return tls->reading == RG_TLS_READING_OWN || tls->reading == RG_TLS_READING_RENEWING;
}

/* Tells the peer why and fails. The alert lies in `out` if there is room for it. */
static int fail_with_alert(struct rg_tls *tls, uint8_t alert, const char *text)
{
    RG_ASSERT(reads_itself(tls));
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
        rg_tls_reading_enter(tls, RG_TLS_READING_ENDED);
        return -ENODATA;
    }
    if (alert == RG_TLS_ALERT_USER_CANCELED) {
        return ++tls->warning_count <= RG_TLS_WARNINGS_MAX
                   ? 0
                   : fail_with_alert(tls, RG_TLS_ALERT_UNEXPECTED_MESSAGE, "too many warnings");
    }
    return rg_tls_fail_by_alert(tls, alert);
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
    rg_tls_peer_keep(tls->peer, session);
    return 0;
}

/* RFC 8446 section 4.6.3. `last`: the message ends its record, as it must before a key change. */
static int take_key_update(struct rg_tls *tls, const uint8_t *body, size_t size, bool last)
{
    RG_ASSERT(reads_itself(tls));
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
    if (tls->reading == RG_TLS_READING_RENEWING) {
        rg_tls_reading_enter(tls, RG_TLS_READING_OWN);
    }
    /* One that is held answers this request, too (RFC 8446 section 4.6.3). */
    return body[0] == SSL_KEY_UPDATE_REQUESTED && !rg_tls_holds(tls)
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
    if (RG_UNLIKELY(rg_tls_record_worn(&tls->record) && tls->reading == RG_TLS_READING_OWN &&
                    !rg_tls_holds(tls))) {
        rg_tls_reading_enter(tls, RG_TLS_READING_RENEWING);
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
    RG_ASSERT(tls->reading == RG_TLS_READING_BORINGSSL);
    size_t done = 0;
    uint8_t probe;
    /* BoringSSL's answer to a KeyUpdate waits for the next record to be sent, which must leave room
     * for it. */
    sending_pend(tls);
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
        ret = rg_tls_interpret(tls, ret);
        if (ret == -ENODATA) {
            rg_tls_reading_enter(tls, RG_TLS_READING_ENDED);
        }
        return done > 0 || ret == -EAGAIN || ret == -ENOBUFS ? (ssize_t)done : ret;
    }
}

ssize_t rg_tls_open(struct rg_tls *tls, struct rg_tls_in *in, uint8_t *dest, size_t room,
                    struct rg_tls_out *out)
{
    RG_ASSERT(rg_tls_established(tls));
    RG_ASSERT(dest != NULL);
    if (tls->state == RG_TLS_BROKEN) {
        return -EPROTO;
    }
    if (tls->reading == RG_TLS_READING_ENDED) {
        return -ENODATA;
    }
    rg_tls_call_begin(tls, in, out);
    ssize_t ret =
        reads_itself(tls) ? open_own(tls, in, dest, room) : open_boringssl(tls, dest, room);
    rg_tls_call_end(tls);
    return ret;
}

int rg_tls_close_notify(struct rg_tls *tls, struct rg_tls_out *out)
{
    if (tls->state != RG_TLS_ESTABLISHED || tls->sending == RG_TLS_SENDING_ENDED) {
        return 0;
    }
    rg_tls_call_begin(tls, NULL, out);
    int ret = tls_flush(tls);
    if (ret == 0) {
        ret = SSL_shutdown(tls->ssl);
        ret = ret < 0 ? rg_tls_interpret(tls, ret) : 0;
        if (ret == 0) {
            rg_tls_sending_enter(tls, RG_TLS_SENDING_ENDED);
        }
    }
    rg_tls_call_end(tls);
    return ret;
}
