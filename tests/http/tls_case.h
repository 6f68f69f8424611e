/* What the tests of one TLS connection share: a client and a server of ours, and BoringSSL's own
 * record layer as the peer. */
#ifndef RG_TESTS_HTTP_TLS_CASE_H
#define RG_TESTS_HTTP_TLS_CASE_H

#include "http/tls_traffic.h"
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
static inline void set_up(void)
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

static inline void forget_sessions(void)
{
    rg_tls_peer_fini(&peer);
    rg_tls_peer_fini(&boringssl_peer);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "localhost"), 0);
    RG_CHECK_EQ(rg_tls_peer_init(&boringssl_peer, boringssl_context, "localhost"), 0);
}

/* A client of ours and a server that is BoringSSL's, shaken. What the server sent behind the
 * handshake, its tickets, is in `rest`. */
static inline int connect_raw(struct rg_tls_peer *to)
{
    raw = rg_test_raw_server(raw_context);
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, to), 0);
    return rg_test_shake_raw(&client, raw, 0, &rest);
}

static inline void connect_ours(void)
{
    RG_CHECK_EQ(rg_tls_init_client(&client.tls, &client.loop, &peer), 0);
    RG_CHECK_EQ(rg_tls_init_server(&server.tls, &server.loop, server_context), 0);
    RG_CHECK_EQ(rg_test_shake_ours(&client, &server), 0);
}

/* Appends what the raw server sends to `rest`. */
static inline void raw_collect(void)
{
    rest.size += rg_test_from_raw(raw, rest.data + rest.size, rest.capacity - rest.size);
}

static inline void raw_send(const void *data, size_t size)
{
    ERR_clear_error();
    RG_CHECK_EQ(SSL_write(raw, data, (int)size), size);
    raw_collect();
}

/* Opens all of `in` to got[*done..). The last return value: 0 or an error. */
static inline ssize_t open_all(struct rg_test_end *end, struct rg_tls_in *in, size_t *done)
{
    ssize_t ret = 0;
    while ((ret = rg_tls_open(&end->tls, in, got + *done, sizeof(got) - *done, &end->out)) > 0) {
        *done += (size_t)ret;
    }
    return ret;
}

/* Opens what the raw server has sent so far. */
static inline ssize_t open_rest(size_t *done)
{
    struct rg_tls_in in = {rest.data, rest.size};
    ssize_t ret = open_all(&client, &in, done);
    rest.size = 0;
    return ret;
}

/* What the raw server makes of what the client sent. */
static inline int raw_read(void *data, size_t room)
{
    rg_test_to_raw(&client, raw);
    ERR_clear_error();
    int ret = SSL_read(raw, data, (int)room);
    return ret > 0 ? ret : -SSL_get_error(raw, ret);
}

static inline void check_open_failure(ssize_t ret, enum rg_tls_failure failure, const char *part)
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

/* The keys of the connection are known, so the test itself can send a record of any kind in the
 * server's name. */
static inline void seal_as_server(struct rg_test_sealer *sealer)
{
    struct rg_tls_record_keys keys = {.suite = 0x1301, .secret_size = 32};
    RG_CHECK(rg_test_own_records(&client));
    memcpy(keys.secret, client.tls.record.secret, sizeof(keys.secret));
    keys.sequence = client.tls.record.sequence;
    rg_test_sealer_init(sealer, &keys);
}

static inline void append(struct rg_test_sealer *sealer, uint8_t content, const void *data,
                          size_t size)
{
    rest.size += rg_test_seal(
        sealer, &(struct rg_test_record){.content = content, .data = data, .size = size},
        rest.data + rest.size);
}

/* Takes the tickets off and leaves a sealer in the server's place. */
static inline void connect_and_impersonate(struct rg_test_sealer *sealer)
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
static inline size_t make_ticket(uint8_t *out, size_t size)
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

static inline int tls_case_main(int argc, char **argv, const struct rg_test *tests, size_t count)
{
    rg_test_pki_init(&pki);
    context = rg_test_client_context(&pki, false);
    boringssl_context = rg_test_client_context(&pki, true);
    server_context = rg_test_server_context(&pki.leaf);
    RG_ASSERT(rg_tls_peer_init(&peer, context, "localhost") == 0);
    RG_ASSERT(rg_tls_peer_init(&boringssl_peer, boringssl_context, "localhost") == 0);
    rg_test_end_init(&client);
    rg_test_end_init(&server);
    int ret = rg_test_main(argc, argv, tests, count);
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

#endif
