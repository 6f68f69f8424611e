/* The handshake of a TLS connection, its failures and its end: ours against ours, and against
 * BoringSSL's own record layer as the peer. */
#include "http/tls.h"

#include "tests/http/tls_case.h"

static void test_our_ends_talk(void)
{
    size_t done = 0;
    set_up();
    connect_ours();
    RG_CHECK(rg_test_own_records(&client));
    RG_CHECK(rg_test_own_records(&server));
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
        RG_CHECK(!rg_test_own_records(&client));
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
        RG_TEST(test_sessions_are_resumed_once_each),
        RG_TEST(test_tls12_works_and_resumes),
        RG_TEST(test_old_versions_are_refused),
        RG_TEST(test_no_common_cipher),
        RG_TEST(test_peers_that_speak_no_tls),
        RG_TEST(test_alerts_that_refuse_and_alerts_that_give_up),
        RG_TEST(test_alpn_is_http11_or_nothing),
        RG_TEST(test_client_certificates_are_shown),
        RG_TEST(test_fini_in_every_state),
    };
    return tls_case_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
