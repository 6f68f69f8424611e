/* One TLS connection: ours against ours, and against BoringSSL's own record layer as the peer. */
#include "http/tls.h"
#include "http/tls_secrets.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"
#include "tests/support/tls_sealer.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#define WIRE_SIZE RG_MIB(1)

static struct rg_test_pki pki;
static struct rg_tls_context *context, *boringssl_context, *server_context;
static struct rg_tls_peer peer, boringssl_peer;
static struct rg_test_end client, server;
static SSL_CTX *raw_context;
static SSL *raw;
static uint8_t wire[WIRE_SIZE], text[WIRE_SIZE], got[WIRE_SIZE];
static struct rg_tls_out rest = {wire, 0, WIRE_SIZE};

/* Everything new, but the contexts and the sessions of the peers. */
static void set_up(void)
{
    rg_test_end_reset(&client);
    rg_test_end_reset(&server);
    SSL_free(raw);
    raw = NULL;
    SSL_CTX_free(raw_context);
    raw_context = rg_test_raw_context(&pki.leaf);
    rest.size = 0;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (uint8_t)rg_test_random();
    }
    RG_CHECK_EQ(client.loop.buffers.lent_count, 0);
    RG_CHECK_EQ(server.loop.buffers.lent_count, 0);
}

static void forget_sessions(void)
{
    rg_tls_peer_fini(&peer);
    rg_tls_peer_fini(&boringssl_peer);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "localhost"), 0);
    RG_CHECK_EQ(rg_tls_peer_init(&boringssl_peer, boringssl_context, "localhost"), 0);
}

/* A client of ours and a server that is BoringSSL's, shaken. What the server sent behind the
 * handshake, its tickets, is in `rest`. */
static int connect_raw(struct rg_tls_peer *to)
{
    raw = rg_test_raw_server(raw_context);
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, to), 0);
    return rg_test_shake_raw(&client, raw, 0, &rest);
}

static void connect_ours(void)
{
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
    RG_CHECK_EQ(rg_tls_init_server(&server.tls, &server.loop, server_context), 0);
    RG_CHECK_EQ(rg_test_shake_ours(&client, &server), 0);
}

/* Appends what the raw server sends to `rest`. */
static void raw_collect(void)
{
    rest.size += rg_test_from_raw(raw, rest.data + rest.size, rest.capacity - rest.size);
}

static void raw_send(const void *data, size_t size)
{
    ERR_clear_error();
    RG_CHECK_EQ(SSL_write(raw, data, (int)size), size);
    raw_collect();
}

/* Opens all of `in` to got[*done..). The last return value: 0 or an error. */
static ssize_t open_all(struct rg_test_end *end, struct rg_tls_in *in, size_t *done)
{
    ssize_t ret = 0;
    while ((ret = rg_tls_open(&end->tls, in, got + *done, sizeof(got) - *done, &end->out)) > 0) {
        *done += (size_t)ret;
    }
    return ret;
}

/* Opens what the raw server has sent so far. */
static ssize_t open_rest(size_t *done)
{
    struct rg_tls_in in = {rest.data, rest.size};
    ssize_t ret = open_all(&client, &in, done);
    rest.size = 0;
    return ret;
}

/* What the raw server makes of what the client sent. */
static int raw_read(void *data, size_t room)
{
    rg_test_to_raw(&client, raw);
    ERR_clear_error();
    int ret = SSL_read(raw, data, (int)room);
    return ret > 0 ? ret : -SSL_get_error(raw, ret);
}

static void check_open_failure(ssize_t ret, enum rg_tls_failure failure, const char *part)
{
    RG_CHECK_EQ(ret, -EPROTO);
    RG_CHECK_STR(rg_tls_failure_name(client.tls.failure), rg_tls_failure_name(failure));
    if (strstr(rg_tls_failure_text(&client.tls), part) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", part,
                     rg_tls_failure_text(&client.tls));
    }
    /* It stays, and nothing is sent any more but the alert that may lie in the output. */
    struct rg_tls_in in = {wire, 0};
    RG_CHECK_EQ(rg_tls_open(&client.tls, &in, got, sizeof(got), &client.out), -EPROTO);
    RG_CHECK_EQ(rg_tls_seal(&client.tls, "x", 1, &client.out), -EPROTO);
}

static void test_our_ends_talk(void)
{
    size_t done = 0;
    set_up();
    connect_ours();
    RG_CHECK(client.tls.own_records);
    RG_CHECK(server.tls.own_records);
    RG_CHECK_STR(rg_tls_version(&client.tls), "TLSv1.3");
    RG_CHECK_STR(rg_tls_cipher(&client.tls), "TLS_AES_128_GCM_SHA256");
    RG_CHECK(rg_tls_alpn(&client.tls));
    RG_CHECK_STR(rg_tls_failure_text(&client.tls), "no failure");

    RG_CHECK_EQ(rg_tls_seal(&client.tls, text, 500, &client.out), 500);
    struct rg_tls_in in = {client.out.data, client.out.size};
    RG_CHECK_EQ(open_all(&server, &in, &done), 0);
    RG_CHECK_MEM(got, done, text, 500);

    RG_CHECK_EQ(rg_tls_seal(&server.tls, text, 40000, &server.out), 40000);
    in = (struct rg_tls_in){server.out.data, server.out.size};
    done = 0;
    RG_CHECK_EQ(open_all(&client, &in, &done), 0);
    RG_CHECK_MEM(got, done, text, 40000);
    RG_CHECK(peer.session_count > 0);
}

static void test_handshake_and_data_split_anywhere(void)
{
    static const size_t steps[] = {1, 2, 5, 100, 1000};
    for (size_t i = 0; i < RG_ARRAY_LEN(steps); i++) {
        size_t done = 0;
        set_up();
        raw = rg_test_raw_server(raw_context);
        RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
        RG_CHECK_EQ(rg_test_shake_raw(&client, raw, steps[i], &rest), 0);
        raw_send(text, 30000);
        for (size_t at = 0; at < rest.size; at += steps[i]) {
            struct rg_tls_in in = {rest.data + at, RG_MIN(steps[i], rest.size - at)};
            RG_CHECK_EQ(open_all(&client, &in, &done), 0);
            RG_CHECK_EQ(in.size, 0);
        }
        RG_CHECK_MEM(got, done, text, 30000);
    }
}

static void test_a_full_output_is_drained_and_gone_on(void)
{
    struct rg_tls_in in = {wire, 0};
    int ret = 0, calls = 0;
    set_up();
    forget_sessions();
    raw = rg_test_raw_server(raw_context);
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
    client.out.capacity = 10;
    while ((ret = rg_tls_handshake(&client.tls, &in, &client.out)) != 0 && calls++ < 1000) {
        RG_CHECK(ret == -ENOBUFS || ret == -EAGAIN);
        RG_CHECK(ret == -EAGAIN || client.out.size == client.out.capacity);
        rg_test_to_raw(&client, raw);
        ERR_clear_error();
        SSL_do_handshake(raw);
        if (ret == -EAGAIN && in.size == 0) {
            in = (struct rg_tls_in){wire, rg_test_from_raw(raw, wire, sizeof(wire))};
        }
    }
    RG_CHECK_EQ(ret, 0);
    RG_CHECK(calls > 20);
    rg_test_to_raw(&client, raw);
    RG_CHECK_EQ(SSL_do_handshake(raw), 1);
    client.out.capacity = sizeof(client.out_data);
}

static void test_sealing_stops_where_no_record_fits(void)
{
    size_t taken = 0, read = 0;
    set_up();
    RG_CHECK_EQ(connect_raw(&peer), 0);
    rg_test_to_raw(&client, raw);
    client.out.capacity = 20000;
    while (taken < 100000) {
        ssize_t ret = rg_tls_seal(&client.tls, text + taken, 100000 - taken, &client.out);
        RG_CHECK(ret > 0);
        taken += (size_t)ret;
        RG_CHECK_EQ(rg_tls_seal(&client.tls, text + taken, 100000 - taken, &client.out), 0);
        for (int n = 0; (n = raw_read(got + read, sizeof(got) - read)) > 0;) {
            read += (size_t)n;
        }
    }
    client.out.capacity = sizeof(client.out_data);
    RG_CHECK_MEM(got, read, text, 100000);
    RG_CHECK_EQ(rg_tls_seal(&client.tls, text, 0, &client.out), 0);
}

static void test_sessions_are_resumed_once_each(void)
{
    size_t done = 0;
    forget_sessions();
    set_up();
    raw_context = (SSL_CTX_free(raw_context), rg_test_raw_context(&pki.leaf));
    RG_CHECK_EQ(connect_raw(&peer), 0);
    RG_CHECK(!rg_tls_resumed(&client.tls));
    raw_send(text, 10);
    RG_CHECK_EQ(open_rest(&done), 0);
    uint32_t count = peer.session_count;
    RG_CHECK(count >= 1);
    RG_CHECK_EQ(SSL_SESSION_should_be_single_use(peer.sessions[0]), 1);

    SSL_free(raw);
    rg_test_end_reset(&client);
    RG_CHECK_EQ(connect_raw(&peer), 0);
    RG_CHECK(rg_tls_resumed(&client.tls));
    RG_CHECK_EQ(peer.session_count, count - 1);
}

/* Tickets behind the first application data are as good. The keys of the connection are known, so
 * the test itself can send a record of any kind in the server's name. */
static void seal_as_server(struct rg_test_sealer *sealer)
{
    struct rg_tls_record_keys keys = {.suite = 0x1301, .secret_size = 32};
    RG_CHECK(client.tls.own_records);
    memcpy(keys.secret, client.tls.record.secret, sizeof(keys.secret));
    keys.sequence = client.tls.record.sequence;
    rg_test_sealer_init(sealer, &keys);
}

static void append(struct rg_test_sealer *sealer, uint8_t content, const void *data, size_t size)
{
    rest.size += rg_test_seal(
        sealer, &(struct rg_test_record){.content = content, .data = data, .size = size},
        rest.data + rest.size);
}

/* Takes the tickets off and leaves a sealer in the server's place. */
static void connect_and_impersonate(struct rg_test_sealer *sealer)
{
    size_t done = 0;
    set_up();
    RG_CHECK_EQ(connect_raw(&peer), 0);
    raw_collect();
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(done, 0);
    seal_as_server(sealer);
}

/* A ticket of `size` bytes as a handshake message; the size of the message. */
static size_t make_ticket(uint8_t *out, size_t size)
{
    size_t body = 4 + 4 + 1 + 1 + 2 + size + 2;
    const uint8_t head[] = {4, (uint8_t)(body >> 16), (uint8_t)(body >> 8), (uint8_t)body,
                            /* lifetime, age_add, nonce */
                            0, 0, 0x1c, 0x20, 1, 2, 3, 4, 1, 7, (uint8_t)(size >> 8),
                            (uint8_t)size};
    memcpy(out, head, sizeof(head));
    memset(out + sizeof(head), 0x5a, size);
    memset(out + sizeof(head) + size, 0, 2);
    return 4 + body;
}

static void test_tickets_behind_data_are_kept(void)
{
    struct rg_test_sealer sealer;
    uint8_t ticket[300];
    size_t done = 0;
    connect_and_impersonate(&sealer);
    forget_sessions();
    append(&sealer, RG_TLS_CONTENT_DATA, text, 100);
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, ticket, make_ticket(ticket, 200));
    append(&sealer, RG_TLS_CONTENT_DATA, text + 100, 100);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_MEM(got, done, text, 200);
    RG_CHECK_EQ(peer.session_count, 1);
    forget_sessions();
}

static void test_tickets_cut_and_joined(void)
{
    struct rg_test_sealer sealer;
    uint8_t messages[12000];
    size_t done = 0;
    connect_and_impersonate(&sealer);
    forget_sessions();
    client.tls.ticket_count = 0;
    size_t size = make_ticket(messages, 10);
    size += make_ticket(messages + size, 9000);
    size += make_ticket(messages + size, 20);
    for (size_t at = 0; at < size; at += 1001) {
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, messages + at, RG_MIN(1001, size - at));
        RG_CHECK_EQ(open_rest(&done), 0);
    }
    RG_CHECK_EQ(peer.session_count, 3);
    RG_CHECK_EQ(client.loop.buffers.lent_count, 0);
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, messages, size);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(peer.session_count, 6);
    /* A server that never stops sending tickets is not listened to. */
    for (int i = 0; i < 40; i++) {
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, messages, make_ticket(messages, 10));
        RG_CHECK_EQ(open_rest(&done), 0);
    }
    RG_CHECK_EQ(peer.session_count, RG_TLS_TICKETS_MAX);
    forget_sessions();
}

static void test_messages_that_may_not_come_are_refused(void)
{
    static const struct {
        uint8_t data[8];
        size_t size;
        const char *text;
    } cases[] = {
        {{4, 0, 0, 1, 0}, 5, "malformed session ticket"},
        {{24, 0, 0, 1, 2}, 5, "malformed key update"},
        {{24, 0, 0, 2, 0, 0}, 6, "malformed key update"},
        {{24, 0, 0, 1, 0, 24}, 6, "spans a key change"},
        {{0, 0, 0, 0}, 4, "may not come"}, /* HelloRequest */
        {{13, 0, 0, 0}, 4, "may not come"},
        {{4, 0, 0x40, 0}, 4, "longer than 16 KiB"},
        {{4, 0xff, 0xff, 0xff}, 4, "longer than 16 KiB"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_test_sealer sealer;
        size_t done = 0;
        connect_and_impersonate(&sealer);
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, cases[i].data, cases[i].size);
        check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, cases[i].text);
        RG_CHECK(client.out.size > 0);
        RG_CHECK_EQ(raw_read(got, sizeof(got)), -SSL_ERROR_SSL);
    }
}

static void test_a_cut_message_may_not_be_interrupted(void)
{
    static const struct {
        uint8_t content;
        size_t size;
    } cases[] = {{RG_TLS_CONTENT_DATA, 5}, {RG_TLS_CONTENT_DATA, 0}, {RG_TLS_CONTENT_ALERT, 2}};
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_test_sealer sealer;
        size_t done = 0;
        connect_and_impersonate(&sealer);
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\4\0", 2);
        append(&sealer, cases[i].content, "\1\0\0\0\0", cases[i].size);
        check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "interrupted");
        RG_CHECK_EQ(done, 0);
    }
}

static void test_data_before_a_failure_is_delivered(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1000);
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1000);
    rest.data[rest.size - 1] ^= 1;
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_RECORD_MAC, "tampered");
    RG_CHECK_MEM(got, done, text, 1000);
    /* The peer is told. */
    RG_CHECK_EQ(raw_read(got, sizeof(got)), -SSL_ERROR_SSL);
    RG_CHECK_EQ(ERR_GET_REASON(ERR_peek_error()), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
}

static void test_empty_records_are_bounded(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < RG_TLS_EMPTY_RECORDS_MAX; i++) {
            append(&sealer, RG_TLS_CONTENT_DATA, text, 0);
        }
        append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    }
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(done, 3);
    for (int i = 0; i <= RG_TLS_EMPTY_RECORDS_MAX; i++) {
        append(&sealer, RG_TLS_CONTENT_DATA, text, 0);
    }
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "too many empty records");
}

static void test_the_clear_is_refused_after_the_handshake(void)
{
    static const uint8_t change_cipher_spec[] = {20, 3, 3, 0, 1, 1};
    size_t done = 0;
    set_up();
    RG_CHECK_EQ(connect_raw(&peer), 0);
    rest.size = 0;
    memcpy(rest.data, change_cipher_spec, sizeof(change_cipher_spec));
    rest.size = sizeof(change_cipher_spec);
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "not encrypted");
}

static void test_the_peer_changes_its_key(void)
{
    static const int requests[] = {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED};
    for (size_t own = 0; own < 2; own++) {
        set_up();
        RG_CHECK_EQ(connect_raw(own ? &peer : &boringssl_peer), 0);
        RG_CHECK_EQ(client.tls.own_records, own);
        for (int i = 0; i < 100; i++) {
            char reply[16];
            size_t done = 0;
            RG_CHECK_EQ(SSL_key_update(raw, requests[i % 2]), 1);
            raw_send(text, 1000);
            RG_CHECK_EQ(open_rest(&done), 0);
            RG_CHECK_MEM(got, done, text, 1000);
            RG_CHECK_EQ(rg_tls_seal(&client.tls, "reply", 5, &client.out), 5);
            RG_CHECK_EQ(raw_read(reply, sizeof(reply)), 5);
            RG_CHECK_MEM(reply, 5, "reply", 5);
        }
    }
}

static void test_a_key_update_is_answered_at_once_or_when_there_is_room(void)
{
    size_t done = 0;
    char reply[16];
    set_up();
    RG_CHECK_EQ(connect_raw(&peer), 0);
    rg_test_to_raw(&client, raw);
    RG_CHECK_EQ(SSL_key_update(raw, SSL_KEY_UPDATE_REQUESTED), 1);
    raw_send(text, 10);
    client.out.capacity = 7;
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(done, 10);
    RG_CHECK_EQ(client.out.size, 7);
    rg_test_to_raw(&client, raw);
    client.out.capacity = sizeof(client.out_data);
    RG_CHECK_EQ(rg_tls_seal(&client.tls, "reply", 5, &client.out), 5);
    RG_CHECK_EQ(raw_read(reply, sizeof(reply)), 5);
}

/* BoringSSL's answer lies in BoringSSL when the room of the caller is used up exactly. */
static void test_a_held_back_answer_counts_with_the_next_record(void)
{
    for (size_t own = 0; own < 2; own++) {
        set_up();
        RG_CHECK_EQ(connect_raw(own ? &peer : &boringssl_peer), 0);
        RG_CHECK_EQ(rg_tls_seal(&client.tls, "y", 1, &client.out), 1);
        RG_CHECK_EQ(raw_read(got, sizeof(got)), 1);
        raw_collect();
        RG_CHECK_EQ(SSL_key_update(raw, SSL_KEY_UPDATE_REQUESTED), 1);
        raw_send(text, 1000);
        struct rg_tls_in in = {rest.data, rest.size};
        client.out.capacity = 0;
        RG_CHECK_EQ(rg_tls_open(&client.tls, &in, got, 1000, &client.out), 1000);
        RG_CHECK_EQ(client.out.size, 0);
        client.out.capacity = RG_TLS_SEAL_MIN + 30;
        RG_CHECK(rg_tls_seal(&client.tls, text, RG_TLS_SEAL_MIN, &client.out) >= 0);
        rg_test_to_raw(&client, raw);
        client.out.capacity = sizeof(client.out_data);
        RG_CHECK_EQ(rg_tls_seal(&client.tls, "x", 1, &client.out), 1);
        RG_CHECK(raw_read(got, sizeof(got)) > 0);
    }
}

static void test_key_updates_without_data_are_bounded(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    for (int i = 0; i <= RG_TLS_KEY_UPDATES_MAX; i++) {
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\x18\0\0\1\0", 5);
        rg_test_sealer_update(&sealer);
    }
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "too many key updates");
}

static void test_a_worn_key_is_renewed_on_request(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    client.out.size = 0;
    client.tls.record.sequence = sealer.sequence = RG_TLS_GCM_RECORDS_SOFT - 2;
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(client.out.size, 0);
    for (int i = 0; i < 5; i++) {
        append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    }
    RG_CHECK_EQ(open_rest(&done), 0);
    size_t size = client.out.size;
    RG_CHECK(size > 0 && size < 64);
    /* The real peer does as it is asked; we cannot follow, our server is an impostor. */
    RG_CHECK_EQ(raw_read(got, sizeof(got)), -SSL_ERROR_WANT_READ);
    RG_CHECK_EQ(SSL_write(raw, "x", 1), 1);
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\x18\0\0\1\0", 5);
    rg_test_sealer_update(&sealer);
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(done, 7);
    RG_CHECK(!client.tls.key_update_sent);
}

/* Of two key updates that find no room BoringSSL would drop the second, the one that asks. */
static void test_a_new_key_is_asked_for_when_an_answer_has_found_room(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    client.out.capacity = client.out.size;
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\x18\0\0\1\1", 5);
    rg_test_sealer_update(&sealer);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK(rg_tls_holds(&client.tls));
    client.tls.record.sequence = sealer.sequence = RG_TLS_GCM_RECORDS_SOFT;
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK(!client.tls.key_update_sent);
    RG_CHECK_EQ(rg_tls_flush(&client.tls, &client.out), -ENOBUFS);
    client.out.capacity = sizeof(client.out_data);
    RG_CHECK_EQ(rg_tls_flush(&client.tls, &client.out), 0);
    RG_CHECK(!rg_tls_holds(&client.tls));
    size_t size = client.out.size;
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK(client.tls.key_update_sent);
    RG_CHECK(client.out.size > size);
    RG_CHECK_EQ(done, 2);
}

/* Sending so much between the peer's key updates is what an upload does, and no flood. */
static void test_key_updates_amid_an_upload_are_not_bounded(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    for (int i = 0; i <= 2 * RG_TLS_KEY_UPDATES_MAX; i++) {
        for (size_t sent = 0; sent < RG_TLS_KEY_UPDATE_BYTES; sent += RG_KIB(8)) {
            client.out.size = 0;
            RG_CHECK_EQ(rg_tls_seal(&client.tls, text, RG_KIB(8), &client.out), RG_KIB(8));
        }
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\x18\0\0\1\0", 5);
        rg_test_sealer_update(&sealer);
        RG_CHECK_EQ(open_rest(&done), 0);
    }
}

static void test_close_notify_in_both_directions(void)
{
    for (size_t own = 0; own < 2; own++) {
        size_t done = 0;
        set_up();
        RG_CHECK_EQ(connect_raw(own ? &peer : &boringssl_peer), 0);
        raw_send(text, 100);
        SSL_shutdown(raw);
        raw_collect();
        RG_CHECK_EQ(open_rest(&done), -ENODATA);
        RG_CHECK_EQ(done, 100);
        RG_CHECK_EQ(open_rest(&done), -ENODATA);
        RG_CHECK(client.tls.closed);
        client.out.capacity = client.out.size + 3;
        RG_CHECK_EQ(rg_tls_close_notify(&client.tls, &client.out), -ENOBUFS);
        client.out.capacity = sizeof(client.out_data);
        RG_CHECK_EQ(rg_tls_close_notify(&client.tls, &client.out), 0);
        RG_CHECK_EQ(rg_tls_close_notify(&client.tls, &client.out), 0);
        RG_CHECK_EQ(raw_read(got, sizeof(got)), -SSL_ERROR_ZERO_RETURN);
    }
}

static void test_alerts_are_named(void)
{
    for (size_t own = 0; own < 2; own++) {
        size_t done = 0;
        set_up();
        RG_CHECK_EQ(connect_raw(own ? &peer : &boringssl_peer), 0);
        SSL_send_fatal_alert(raw, SSL_AD_ACCESS_DENIED);
        raw_collect();
        check_open_failure(open_rest(&done), RG_TLS_FAILURE_REFUSED, "access denied");
    }
}

static void test_warnings_are_bounded_and_odd_alerts_refused(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    for (int i = 0; i < RG_TLS_WARNINGS_MAX; i++) {
        append(&sealer, RG_TLS_CONTENT_ALERT, "\1\x5a", 2);
    }
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(done, 1);
    append(&sealer, RG_TLS_CONTENT_ALERT, "\1\x5a", 2);
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "too many warnings");
    connect_and_impersonate(&sealer);
    append(&sealer, RG_TLS_CONTENT_ALERT, "\1\0\0", 3);
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "wrong size");
}

static void test_room_runs_out(void)
{
    for (size_t own = 0; own < 2; own++) {
        size_t done = 0, rooms = 0;
        set_up();
        RG_CHECK_EQ(connect_raw(own ? &peer : &boringssl_peer), 0);
        raw_send(text, 100000);
        struct rg_tls_in in = {rest.data, rest.size};
        RG_CHECK_EQ(rg_tls_open(&client.tls, &in, got, 0, &client.out), -ENOSPC);
        while (done < 100000) {
            size_t room = own ? RG_TLS_PLAIN_MAX + rg_test_random_below(RG_TLS_PLAIN_MAX)
                              : 1 + rg_test_random_below(RG_TLS_PLAIN_MAX);
            uint8_t *part = malloc(room);
            RG_CHECK(part != NULL);
            ssize_t ret = rg_tls_open(&client.tls, &in, part, room, &client.out);
            RG_CHECK(ret > 0);
            memcpy(got + done, part, (size_t)ret);
            free(part);
            done += (size_t)ret;
            rooms++;
        }
        RG_CHECK(rooms >= 4);
        RG_CHECK_MEM(got, done, text, 100000);
    }
}

static void test_tls12_works_and_resumes(void)
{
    size_t done = 0;
    char request[16];
    forget_sessions();
    for (int round = 0; round < 3; round++) {
        if (round == 0) {
            set_up();
            SSL_CTX_set_max_proto_version(raw_context, TLS1_2_VERSION);
        } else {
            rg_test_end_reset(&client);
            SSL_free(raw);
        }
        done = 0;
        RG_CHECK_EQ(connect_raw(&peer), 0);
        RG_CHECK(!client.tls.own_records);
        RG_CHECK_STR(rg_tls_version(&client.tls), "TLSv1.2");
        RG_CHECK_EQ(rg_tls_resumed(&client.tls), round > 0);
        RG_CHECK_EQ(rg_tls_seal(&client.tls, "request", 7, &client.out), 7);
        RG_CHECK_EQ(raw_read(request, sizeof(request)), 7);
        raw_send(text, 50000);
        RG_CHECK_EQ(open_rest(&done), 0);
        RG_CHECK_MEM(got, done, text, 50000);
    }
    forget_sessions();
}

static void test_old_versions_are_refused(void)
{
    set_up();
    SSL_CTX_set_min_proto_version(raw_context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(raw_context, TLS1_1_VERSION);
    RG_CHECK_EQ(connect_raw(&peer), -EPROTO);
    RG_CHECK_EQ(client.tls.failure, RG_TLS_FAILURE_VERSION);

    set_up();
    SSL_CTX_set_min_proto_version(raw_context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(raw_context, TLS1_1_VERSION);
    raw = rg_test_raw_client(raw_context);
    RG_CHECK_EQ(rg_tls_init_server(&client.tls, &client.loop, server_context), 0);
    SSL_do_handshake(raw);
    RG_CHECK_EQ(rg_test_shake_raw(&client, raw, 0, NULL), -EPROTO);
    RG_CHECK_EQ(client.tls.failure, RG_TLS_FAILURE_VERSION);
}

static void test_no_common_cipher(void)
{
    set_up();
    SSL_CTX_set_max_proto_version(raw_context, TLS1_2_VERSION);
    RG_CHECK_EQ(SSL_CTX_set_strict_cipher_list(raw_context, "AES128-SHA"), 1);
    raw = rg_test_raw_client(raw_context);
    RG_CHECK_EQ(rg_tls_init_server(&client.tls, &client.loop, server_context), 0);
    SSL_do_handshake(raw);
    RG_CHECK_EQ(rg_test_shake_raw(&client, raw, 0, NULL), -EPROTO);
    RG_CHECK_EQ(client.tls.failure, RG_TLS_FAILURE_NO_COMMON_CIPHER);

    set_up();
    SSL_CTX_set_max_proto_version(raw_context, TLS1_2_VERSION);
    RG_CHECK_EQ(SSL_CTX_set_strict_cipher_list(raw_context, "AES128-SHA"), 1);
    RG_CHECK_EQ(connect_raw(&peer), -EPROTO);
    RG_CHECK_EQ(client.tls.failure, RG_TLS_FAILURE_REFUSED);
    RG_CHECK(strstr(rg_tls_failure_text(&client.tls), "handshake failure") != NULL);
}

static void check_first_bytes(const void *bytes, size_t size, enum rg_tls_failure failure)
{
    struct rg_tls_in in = {bytes, size};
    struct rg_tls_in nothing = {NULL, 0};
    set_up();
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
    RG_CHECK_EQ(rg_tls_handshake(&client.tls, &nothing, &client.out), -EAGAIN);
    RG_CHECK_EQ(rg_tls_handshake(&client.tls, &in, &client.out), -EPROTO);
    RG_CHECK_EQ(client.tls.failure, failure);
    RG_CHECK_EQ(rg_tls_handshake(&client.tls, &in, &client.out), -EPROTO);
}

static void test_peers_that_speak_no_tls(void)
{
    check_first_bytes("HTTP/1.1 400 Bad Request\r\n\r\n", 28, RG_TLS_FAILURE_NOT_TLS);
    check_first_bytes("SSH-2.0-OpenSSH_9.2\r\n", 21, RG_TLS_FAILURE_NOT_TLS);
    check_first_bytes("\x15\x03\x01\0\x02\x02\x28", 7, RG_TLS_FAILURE_REFUSED);
    check_first_bytes("\x16\x03\x03\0\x04\x63\0\0\0", 9, RG_TLS_FAILURE_PROTOCOL);

    static const char request[] = "GET /storage/v1/b HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct rg_tls_in in = {(const uint8_t *)request, strlen(request)};
    set_up();
    RG_CHECK_EQ(rg_tls_init_server(&server.tls, &server.loop, server_context), 0);
    RG_CHECK_EQ(rg_tls_handshake(&server.tls, &in, &server.out), -EPROTO);
    RG_CHECK_EQ(server.tls.failure, RG_TLS_FAILURE_NOT_TLS);
}

/* Which alerts of a handshake mean that another attempt would fare no better. */
static void test_alerts_that_refuse_and_alerts_that_give_up(void)
{
    static const uint8_t refusals[] = {40, 41, 42, 43, 44, 45, 46, 48, 49, 70, 71, 116};
    for (unsigned alert = 1; alert < 256; alert++) {
        uint8_t record[] = {21, 3, 3, 0, 2, 2, (uint8_t)alert};
        struct rg_tls_in in = {record, sizeof(record)}, nothing = {NULL, 0};
        set_up();
        RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
        RG_CHECK_EQ(rg_tls_handshake(&client.tls, &nothing, &client.out), -EAGAIN);
        RG_CHECK_EQ(rg_tls_handshake(&client.tls, &in, &client.out), -EPROTO);
        bool refuses = memchr(refusals, (int)alert, sizeof(refusals)) != NULL;
        enum rg_status status = rg_tls_failure_status(client.tls.failure);
        RG_CHECK_EQ(status, refuses ? RG_STATUS_TLS_PROTOCOL : RG_STATUS_CONNECT);
        RG_CHECK_EQ(rg_status_retryable(status), !refuses);
        RG_CHECK(strstr(rg_tls_failure_text(&client.tls), "refused by the peer: alert") != NULL ||
                 strstr(rg_tls_failure_text(&client.tls), "no TLS 1.2") != NULL);
    }
}

static int select_h2(SSL *ssl, const uint8_t **out, uint8_t *out_len, const uint8_t *in,
                     unsigned in_len, void *arg)
{
    (void)ssl, (void)in, (void)in_len, (void)arg;
    *out = (const uint8_t *)"h2";
    *out_len = 2;
    return SSL_TLSEXT_ERR_OK;
}

static void test_alpn_is_http11_or_nothing(void)
{
    set_up();
    RG_CHECK_EQ(connect_raw(&peer), 0);
    RG_CHECK(!rg_tls_alpn(&client.tls));
    set_up();
    SSL_CTX_set_alpn_select_cb(raw_context, select_h2, NULL);
    RG_CHECK(connect_raw(&peer) == -EPROTO);

    static const struct {
        const char *protocols;
        int want;
    } clients[] = {{"\2h2\x8http/1.1", 0}, {"\x8http/1.1", 0}, {"\2h2", -EPROTO}};
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        set_up();
        raw = rg_test_raw_client(raw_context);
        RG_CHECK_EQ(SSL_set_alpn_protos(raw, (const uint8_t *)clients[i].protocols,
                                        strlen(clients[i].protocols)),
                    0);
        RG_CHECK_EQ(rg_tls_init_server(&client.tls, &client.loop, server_context), 0);
        SSL_do_handshake(raw);
        RG_CHECK_EQ(rg_test_shake_raw(&client, raw, 0, NULL), clients[i].want);
    }
}

static void test_a_server_opens_requests_and_refuses_tickets(void)
{
    struct rg_test_sealer sealer;
    uint8_t ticket[64];
    size_t done = 0;
    set_up();
    raw = rg_test_raw_client(raw_context);
    RG_CHECK_EQ(rg_tls_init_server(&client.tls, &client.loop, server_context), 0);
    SSL_do_handshake(raw);
    RG_CHECK_EQ(rg_test_shake_raw(&client, raw, 0, &rest), 0);
    RG_CHECK(client.tls.own_records);
    RG_CHECK_EQ(SSL_key_update(raw, SSL_KEY_UPDATE_REQUESTED), 1);
    raw_send("request", 7);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_MEM(got, done, "request", 7);
    RG_CHECK_EQ(rg_tls_seal(&client.tls, "answer", 6, &client.out), 6);
    RG_CHECK_EQ(raw_read(got, sizeof(got)), 6);
    seal_as_server(&sealer);
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, ticket, make_ticket(ticket, 10));
    check_open_failure(open_rest(&done), RG_TLS_FAILURE_PROTOCOL, "a client sent a ticket");
}

/* The same server traffic, cut in the same places, through both record layers. */
static void test_own_records_and_boringssl_give_the_same(void)
{
    static uint8_t reference[RG_KIB(512)];
    for (int round = 0; round < 20; round++) {
        size_t opened[2] = {0, 0};
        uint8_t plan[64];
        for (size_t i = 0; i < sizeof(plan); i++) {
            plan[i] = (uint8_t)rg_test_random();
        }
        for (size_t own = 0; own < 2; own++) {
            size_t done = 0, sent = 0;
            set_up();
            RG_CHECK_EQ(connect_raw(own ? &peer : &boringssl_peer), 0);
            for (size_t i = 0; i < sizeof(plan) && sent < sizeof(reference) - 40000; i++) {
                size_t size = (size_t)plan[i] * plan[(i * 7) % sizeof(plan)] % 40000 + 1;
                if (plan[i] % 16 == 0) {
                    SSL_key_update(raw, plan[i] / 16 % 2);
                }
                raw_send(own ? reference + sent : text + sent, size);
                if (!own) {
                    memcpy(reference + sent, text + sent, size);
                }
                sent += size;
            }
            for (size_t at = 0; at < rest.size;) {
                size_t part = 1 + rg_test_random_below(60000);
                struct rg_tls_in in = {rest.data + at, RG_MIN(part, rest.size - at)};
                at += in.size;
                RG_CHECK_EQ(open_all(&client, &in, &done), 0);
            }
            RG_CHECK_MEM(got, done, reference, sent);
            opened[own] = done;
        }
        RG_CHECK_EQ(opened[0], opened[1]);
    }
}

/* One loop and many connections of it: the session list is bounded, and the oldest goes first. */
static void test_sessions_are_bounded(void)
{
    forget_sessions();
    for (int i = 0; i < 50; i++) {
        struct rg_test_sealer sealer;
        uint8_t ticket[64];
        size_t done = 0;
        connect_and_impersonate(&sealer);
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, ticket, make_ticket(ticket, 10));
        append(&sealer, RG_TLS_CONTENT_HANDSHAKE, ticket, make_ticket(ticket, 11));
        RG_CHECK_EQ(open_rest(&done), 0);
        RG_CHECK(peer.session_count <= RG_TLS_SESSIONS_MAX);
    }
    RG_CHECK_EQ(peer.session_count, RG_TLS_SESSIONS_MAX);
    forget_sessions();
}

static void test_client_certificates_are_shown(void)
{
    char error[256], cert_path[RG_TEST_PATH_SIZE], key_path[RG_TEST_PATH_SIZE];
    struct rg_test_certificate identity;
    struct rg_tls_context *with_identity = NULL;
    struct rg_tls_peer identified;
    rg_test_certificate_make(&identity, &(struct rg_test_certificate_spec){.common_name = "client",
                                                                           .issuer = &pki.ca,
                                                                           .for_clients = true});
    rg_test_file_make(identity.cert_pem, cert_path);
    rg_test_file_make(identity.key_pem, key_path);
    struct rg_tls_client_options options = {
        .ca_file = pki.ca_path, .cert_file = cert_path, .key_file = key_path};
    RG_CHECK_EQ(rg_tls_context_open_client(&with_identity, &options, error, sizeof(error)), 0);
    RG_CHECK_EQ(rg_tls_peer_init(&identified, with_identity, "localhost"), 0);
    set_up();
    SSL_CTX_set_verify(raw_context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    RG_CHECK_EQ(X509_STORE_add_cert(SSL_CTX_get_cert_store(raw_context), pki.ca.x509), 1);
    RG_CHECK_EQ(connect_raw(&identified), 0);
    RG_CHECK_EQ(SSL_is_init_finished(raw), 1);
    RG_CHECK(SSL_get0_peer_certificates(raw) != NULL);
    rg_test_end_reset(&client);
    rg_tls_peer_fini(&identified);
    rg_tls_context_close(with_identity);
    remove(cert_path);
    remove(key_path);
    rg_test_certificate_free(&identity);
}

static void test_fini_in_every_state(void)
{
    struct rg_tls none = {0};
    struct rg_test_sealer sealer;
    size_t done = 0;
    rg_tls_fini(&none);
    set_up();
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
    RG_CHECK_EQ(rg_tls_close_notify(&client.tls, &client.out), 0);
    connect_and_impersonate(&sealer);
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\4\0\0", 3);
    append(&sealer, RG_TLS_CONTENT_DATA, text, 100);
    rest.size -= 50;
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(client.loop.buffers.lent_count, 2);
    rg_tls_fini(&client.tls);
    RG_CHECK_EQ(client.loop.buffers.lent_count, 0);
    const struct rg_tls zero = {0};
    RG_CHECK_MEM(&client.tls, sizeof(zero), &zero, sizeof(zero));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_our_ends_talk),
        RG_TEST(test_handshake_and_data_split_anywhere),
        RG_TEST(test_a_full_output_is_drained_and_gone_on),
        RG_TEST(test_sealing_stops_where_no_record_fits),
        RG_TEST(test_sessions_are_resumed_once_each),
        RG_TEST(test_tickets_behind_data_are_kept),
        RG_TEST(test_tickets_cut_and_joined),
        RG_TEST(test_messages_that_may_not_come_are_refused),
        RG_TEST(test_a_cut_message_may_not_be_interrupted),
        RG_TEST(test_data_before_a_failure_is_delivered),
        RG_TEST(test_empty_records_are_bounded),
        RG_TEST(test_the_clear_is_refused_after_the_handshake),
        RG_TEST(test_the_peer_changes_its_key),
        RG_TEST(test_a_key_update_is_answered_at_once_or_when_there_is_room),
        RG_TEST(test_a_held_back_answer_counts_with_the_next_record),
        RG_TEST(test_key_updates_without_data_are_bounded),
        RG_TEST(test_a_worn_key_is_renewed_on_request),
        RG_TEST(test_a_new_key_is_asked_for_when_an_answer_has_found_room),
        RG_TEST(test_key_updates_amid_an_upload_are_not_bounded),
        RG_TEST(test_close_notify_in_both_directions),
        RG_TEST(test_alerts_are_named),
        RG_TEST(test_warnings_are_bounded_and_odd_alerts_refused),
        RG_TEST(test_room_runs_out),
        RG_TEST(test_tls12_works_and_resumes),
        RG_TEST(test_old_versions_are_refused),
        RG_TEST(test_no_common_cipher),
        RG_TEST(test_peers_that_speak_no_tls),
        RG_TEST(test_alerts_that_refuse_and_alerts_that_give_up),
        RG_TEST(test_alpn_is_http11_or_nothing),
        RG_TEST(test_a_server_opens_requests_and_refuses_tickets),
        RG_TEST(test_own_records_and_boringssl_give_the_same),
        RG_TEST(test_sessions_are_bounded),
        RG_TEST(test_client_certificates_are_shown),
        RG_TEST(test_fini_in_every_state),
    };
    rg_test_pki_init(&pki);
    context = rg_test_client_context(&pki, false);
    boringssl_context = rg_test_client_context(&pki, true);
    server_context = rg_test_server_context(&pki.leaf);
    RG_ASSERT(rg_tls_peer_init(&peer, context, "localhost") == 0);
    RG_ASSERT(rg_tls_peer_init(&boringssl_peer, boringssl_context, "localhost") == 0);
    rg_test_end_init(&client);
    rg_test_end_init(&server);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    SSL_free(raw);
    SSL_CTX_free(raw_context);
    rg_test_end_fini(&client);
    rg_test_end_fini(&server);
    rg_tls_peer_fini(&peer);
    rg_tls_peer_fini(&boringssl_peer);
    rg_tls_context_close(server_context);
    rg_tls_context_close(boringssl_context);
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
    return ret;
}
