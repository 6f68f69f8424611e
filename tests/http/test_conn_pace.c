/* Slow servers and slow lines over real sockets, all at once: what moves is not given up, and what
 * stands still is. The details are tested by virtual time (tests/sim/test_pool.c); this is about
 * what the kernel says of its buffers. */
#include "tests/support/exchange.h"
#include "tests/support/proxy.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
/* Longer than a busy machine's pauses; and half of what each of these takes. */
#define LIMIT_NS (2 * RG_NS_PER_S)
#define UPLOAD_SIZE 400000
#define DOWNLOAD_SIZE 16000 /* one record */

/* 80 KB and 4 KB a second. */
#define SLOW_PIECE 4096
#define SLOW_MS 50
#define DRIP_PIECE 200
#define DRIP_MS 50

static struct rg_test_pki pki;
static struct rg_tls_context *context;
static const uint8_t upload[UPLOAD_SIZE];

struct line {
    const char *name;
    bool tls, proxied, proxy_tls; /* with a proxy, it is the slow one */
    bool downloads, stops;
    enum rg_status status;
    /* Set by open. */
    struct rg_test_pool pool;
    struct rg_test_exchange exchange;
    struct rg_scripted_server *server;
    struct rg_test_proxy *test_proxy;
    struct rg_proxy proxy;
    const struct rg_step *scripts[1];
};

static const struct rg_step slow[] = {
    {.kind = RG_STEP_READ, .piece = SLOW_PIECE, .ms = SLOW_MS}, RG_SEND(ANSWER), RG_AGAIN};
static const struct rg_step quick[] = {RG_READ, RG_SEND(ANSWER), RG_AGAIN};
static const struct rg_step large[] = {
    RG_READ, {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = DOWNLOAD_SIZE}, RG_AGAIN};
static const struct rg_step stops[] = {RG_READ_HEAD, RG_DEAF};

static void proxy_open(struct line *line)
{
    char url[64];
    line->test_proxy = rg_test_proxy_start(&(struct rg_test_proxy_options){
        .certificate = line->proxy_tls ? &pki.leaf : NULL,
        .carry_piece = line->downloads ? DRIP_PIECE : SLOW_PIECE,
        .carry_ms = line->downloads ? DRIP_MS : SLOW_MS,
        .receive_buffer = SLOW_PIECE,
    });
    snprintf(url, sizeof(url), "%s://127.0.0.1:%u", line->proxy_tls ? "https" : "http",
             rg_test_proxy_port(line->test_proxy));
    RG_CHECK_EQ(rg_proxy_parse(&line->proxy, url), 0);
    line->pool.options.proxy = &line->proxy;
    line->pool.options.proxy_tls = line->proxy_tls ? context : NULL;
}

static void line_open(struct line *line)
{
    line->scripts[0] = line->stops ? stops : line->downloads ? large : line->proxied ? quick : slow;
    line->server = rg_scripted_server_start(&(struct rg_script_options){
        .scripts = line->scripts,
        .script_count = 1,
        .certificate = line->tls ? &pki.leaf : NULL,
        .receive_buffer = SLOW_PIECE,
    });
    if (line->proxied) {
        proxy_open(line);
    }
    line->pool.options.tls = line->tls ? context : NULL;
    line->pool.options.first_byte_timeout_ns = LIMIT_NS;
    line->pool.options.stall_timeout_ns = LIMIT_NS;
    rg_test_pool_open(&line->pool, rg_scripted_server_port(line->server));
    line->exchange.action = RG_BODY_DISCARD;
    line->exchange.upload = line->downloads ? NULL : upload;
    line->exchange.upload_size = line->downloads ? 0 : UPLOAD_SIZE;
    rg_test_exchange_submit(&line->pool, &line->exchange);
}

static void line_close(struct line *line)
{
    rg_test_exchange_wait(&line->pool);
    printf("  %s: %s %s\n", line->name, rg_status_name(line->exchange.status), line->exchange.text);
    RG_CHECK_EQ(line->exchange.status, line->status);
    rg_test_exchange_fini(&line->exchange);
    rg_test_pool_close(&line->pool);
    rg_scripted_server_stop(line->server);
    if (line->test_proxy != NULL) {
        rg_test_proxy_stop(line->test_proxy);
    }
}

static void test_what_moves_goes_on_and_what_does_not_is_given_up(void)
{
    struct line lines[] = {
        {.name = "plain, to a slow server"},
        {.name = "TLS, to a slow server", .tls = true},
        {.name = "TLS, over a slow line", .tls = true, .proxied = true},
        {.name = "TLS in TLS, over a slow line", .tls = true, .proxied = true, .proxy_tls = true},
        {.name = "a record over a slow line", .tls = true, .proxied = true, .downloads = true},
        {.name = "a server that stops", .stops = true, .status = RG_STATUS_STALLED},
        {.name = "a server with TLS that stops",
         .tls = true,
         .stops = true,
         .status = RG_STATUS_STALLED},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(lines); i++) {
        line_open(&lines[i]);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(lines); i++) {
        line_close(&lines[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_moves_goes_on_and_what_does_not_is_given_up),
    };
    rg_test_pki_init(&pki);
    context = rg_test_client_context(&pki, false);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
    return ret;
}
