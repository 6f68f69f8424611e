/* A server's name, and the sessions that are kept for it. */
#include "http/tls_peer.h"

#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#include <openssl/ssl.h>

static struct rg_test_pki pki;
static struct rg_tls_context *context;
static SSL_CTX *raw_context;

static SSL_SESSION *session_make(uint16_t version)
{
    SSL_SESSION *session = SSL_SESSION_new(raw_context);
    RG_CHECK(session != NULL);
    RG_CHECK_EQ(SSL_SESSION_set_protocol_version(session, version), 1);
    return session;
}

static void test_names_and_addresses(void)
{
    char host[RG_TLS_HOST_SIZE + 1];
    struct rg_tls_peer peer;
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "storage.googleapis.com."), 0);
    RG_CHECK_STR(peer.host, "storage.googleapis.com");
    RG_CHECK(!peer.host_is_address);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "127.0.0.1"), 0);
    RG_CHECK(peer.host_is_address);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "::1"), 0);
    RG_CHECK(peer.host_is_address);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, ""), -EINVAL);
    memset(host, 'a', sizeof(host));
    host[RG_TLS_HOST_SIZE] = '\0';
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, host), -EINVAL);
    host[RG_TLS_HOST_SIZE - 1] = '\0';
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, host), 0);
    rg_tls_peer_fini(&peer);
}

static void test_the_newest_session_is_taken_once(void)
{
    struct rg_tls_peer peer;
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "localhost"), 0);
    RG_CHECK(rg_tls_peer_take(&peer) == NULL);
    SSL_SESSION *first = session_make(TLS1_3_VERSION), *second = session_make(TLS1_3_VERSION);
    rg_tls_peer_keep(&peer, first);
    rg_tls_peer_keep(&peer, second);
    SSL_SESSION *taken = rg_tls_peer_take(&peer);
    RG_CHECK(taken == second);
    SSL_SESSION_free(taken);
    RG_CHECK_EQ(peer.session_count, 1);
    rg_tls_peer_fini(&peer);
}

static void test_a_session_of_tls12_stays(void)
{
    struct rg_tls_peer peer;
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "localhost"), 0);
    rg_tls_peer_keep(&peer, session_make(TLS1_2_VERSION));
    for (int i = 0; i < 2; i++) {
        SSL_SESSION *taken = rg_tls_peer_take(&peer);
        RG_CHECK(taken == peer.sessions[0]);
        SSL_SESSION_free(taken);
    }
    RG_CHECK_EQ(peer.session_count, 1);
    rg_tls_peer_fini(&peer);
}

static void test_the_oldest_session_makes_room(void)
{
    struct rg_tls_peer peer;
    SSL_SESSION *last = NULL;
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "localhost"), 0);
    for (int i = 0; i < 2 * RG_TLS_SESSIONS_MAX; i++) {
        last = session_make(TLS1_3_VERSION);
        rg_tls_peer_keep(&peer, last);
    }
    RG_CHECK_EQ(peer.session_count, RG_TLS_SESSIONS_MAX);
    RG_CHECK(peer.sessions[RG_TLS_SESSIONS_MAX - 1] == last);
    rg_tls_peer_fini(&peer);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_names_and_addresses),
        RG_TEST(test_the_newest_session_is_taken_once),
        RG_TEST(test_a_session_of_tls12_stays),
        RG_TEST(test_the_oldest_session_makes_room),
    };
    rg_test_pki_init(&pki);
    context = rg_test_client_context(&pki, false);
    raw_context = rg_test_raw_context(&pki.leaf);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    SSL_CTX_free(raw_context);
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
    return ret;
}
