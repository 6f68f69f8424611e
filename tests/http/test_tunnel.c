/* What a tunnel makes of the answers of a proxy without TLS, whole and in pieces; the TLS in TLS is
 * tested from end to end by gcs/network. */
#include "http/tunnel.h"
#include "tests/support/test.h"

struct setting {
    struct rg_proxy proxy;
    struct rg_tunnel_route route;
    struct rg_tunnel *tunnel;
    uint8_t out[4096];
    struct rg_tls_out sent;
};

static void setting_open(struct setting *setting)
{
    RG_CHECK_EQ(rg_proxy_parse(&setting->proxy, "http://p.example:3128"), 0);
    setting->route = (struct rg_tunnel_route){.proxy = &setting->proxy, .target = "h:443"};
    RG_CHECK_EQ(rg_tunnel_create(&setting->tunnel, &setting->route, NULL), 0);
    setting->sent = (struct rg_tls_out){setting->out, 0, sizeof(setting->out)};
    struct rg_tls_in none = {0};
    RG_CHECK_EQ(rg_tunnel_step(setting->tunnel, &none, &setting->sent), -EAGAIN);
    static const char request[] = "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n";
    RG_CHECK_MEM(setting->out, setting->sent.size, request, sizeof(request) - 1);
}

/* Feeds pieces of the answer until the tunnel has made up its mind. */
static int feed(struct setting *setting, const char *answer, size_t piece)
{
    size_t size = strlen(answer);
    int rc = -EAGAIN;
    for (size_t at = 0; at < size && rc == -EAGAIN; at += piece) {
        struct rg_tls_in in = {(const uint8_t *)answer + at, RG_MIN(piece, size - at)};
        rc = rg_tunnel_step(setting->tunnel, &in, &setting->sent);
    }
    return rc;
}

static void test_answers_that_open_it(void)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200 OK\r\nProxy-Agent: x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 \r\n\r\n",
        /* RFC 9110 section 9.3.6: such fields are ignored. */
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(answers); i++) {
        for (size_t piece = 1; piece < 100; piece += 33) {
            struct setting setting;
            setting_open(&setting);
            RG_CHECK_EQ(feed(&setting, answers[i], piece), 0);
            RG_CHECK_EQ(setting.tunnel->state, RG_TUNNEL_OPEN);
            rg_tunnel_destroy(setting.tunnel);
        }
    }
}

static void test_answers_that_do_not(void)
{
    static const struct {
        const char *answer, *text;
        bool final;
    } rows[] = {
        {"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n",
         "the proxy http://p.example:3128 refuses a tunnel to h:443 with 407 Auth: it wants "
         "another "
         "user and password in the proxy's URL",
         true},
        {"HTTP/1.1 403 Forbidden\r\n\r\n",
         "the proxy http://p.example:3128 refuses a tunnel to h:443 with 403 Forbidden", true},
        {"HTTP/1.1 502 Bad Gateway\r\n\r\n",
         "the proxy http://p.example:3128 refuses a tunnel to h:443 with 502 Bad Gateway", false},
        {"HTTP/1.1 429 Slow\r\n\r\n",
         "the proxy http://p.example:3128 refuses a tunnel to h:443 with 429 Slow", false},
        {"HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n",
         "the proxy http://p.example:3128 refuses a tunnel to h:443 with 302 Found", false},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n",
         "the proxy http://p.example:3128 does not answer in HTTP: the status line is malformed, "
         "or "
         "this is not HTTP",
         false},
        {"HTTP/1.1 200 OK\r\n\r\nHello",
         "the proxy http://p.example:3128 sent bytes behind its answer", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct setting setting;
        setting_open(&setting);
        RG_CHECK_EQ(feed(&setting, rows[i].answer, 1000), -ECONNABORTED);
        RG_CHECK_STR(setting.tunnel->text, rows[i].text);
        RG_CHECK_EQ(setting.tunnel->final, rows[i].final);
        RG_CHECK_EQ(setting.tunnel->status, RG_STATUS_CONNECT);
        RG_CHECK_EQ(setting.tunnel->state, RG_TUNNEL_REFUSED);
        rg_tunnel_destroy(setting.tunnel);
    }
}

static void test_an_answer_without_end(void)
{
    static char answer[RG_PROXY_ANSWER_SIZE_MAX + 1000] = "HTTP/1.1 200 OK\r\nx: ";
    size_t size = strlen(answer);
    memset(answer + size, 'x', sizeof(answer) - size - 1);
    struct setting setting;
    setting_open(&setting);
    RG_CHECK_EQ(feed(&setting, answer, 1000), -ECONNABORTED);
    RG_CHECK_STR(setting.tunnel->text,
                 "the proxy http://p.example:3128 sends an answer without end");
    rg_tunnel_destroy(setting.tunnel);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_answers_that_open_it),
        RG_TEST(test_answers_that_do_not),
        RG_TEST(test_an_answer_without_end),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
