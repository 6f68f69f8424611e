/* Records, tickets, key updates and alerts of an established TLS connection, against BoringSSL's
 * own record layer and against a server whose keys the test holds. */
#include "http/tls_traffic.h"

#include "tests/http/tls_case.h"

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

/* Tickets behind the first application data are as good. */
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
        RG_CHECK_EQ(rg_test_own_records(&client), own);
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
    RG_CHECK_EQ(client.tls.reading, RG_TLS_READING_OWN);
}

/* If two key updates find no room, BoringSSL would drop the second, which is the one that asks. */
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
    RG_CHECK_EQ(client.tls.reading, RG_TLS_READING_OWN);
    RG_CHECK_EQ(rg_tls_flush(&client.tls, &client.out), -ENOBUFS);
    client.out.capacity = sizeof(client.out_data);
    RG_CHECK_EQ(rg_tls_flush(&client.tls, &client.out), 0);
    RG_CHECK(!rg_tls_holds(&client.tls));
    size_t size = client.out.size;
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(client.tls.reading, RG_TLS_READING_RENEWING);
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
        RG_CHECK_EQ(client.tls.reading, RG_TLS_READING_ENDED);
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
    RG_CHECK(rg_test_own_records(&client));
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

/* Neither an answer to a key update nor a request for a new key may follow close_notify. */
static void test_nothing_is_sent_behind_close_notify(void)
{
    struct rg_test_sealer sealer;
    size_t done = 0;
    connect_and_impersonate(&sealer);
    RG_CHECK_EQ(rg_tls_close_notify(&client.tls, &client.out), 0);
    size_t size = client.out.size;
    append(&sealer, RG_TLS_CONTENT_HANDSHAKE, "\x18\0\0\1\1", 5);
    rg_test_sealer_update(&sealer);
    RG_CHECK_EQ(open_rest(&done), 0);
    client.tls.record.sequence = sealer.sequence = RG_TLS_GCM_RECORDS_SOFT;
    append(&sealer, RG_TLS_CONTENT_DATA, text, 1);
    RG_CHECK_EQ(open_rest(&done), 0);
    RG_CHECK_EQ(done, 1);
    RG_CHECK_EQ(client.out.size, size);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sealing_stops_where_no_record_fits),
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
        RG_TEST(test_a_server_opens_requests_and_refuses_tickets),
        RG_TEST(test_own_records_and_boringssl_give_the_same),
        RG_TEST(test_sessions_are_bounded),
        RG_TEST(test_nothing_is_sent_behind_close_notify),
    };
    return tls_case_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
