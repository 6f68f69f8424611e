/* What the tests of credentials share: a token server over TLS that the code under test trusts, and
 * one refresh of a credential file against it, straight through. */
#ifndef RG_TESTS_GCS_TOKEN_CASE_H
#define RG_TESTS_GCS_TOKEN_CASE_H

#include "gcs/credentials/exchange.h"
#include "tests/support/client.h"
#include "tests/support/test.h"
#include "tests/support/token_server.h"

#include <ringest/runtime.h>
#include <stdarg.h>
#include <unistd.h>

/* One case: certificates, server, and what a refresh made. */
struct token_case {
    struct rg_test_certificate ca, leaf;
    char ca_path[RG_TEST_PATH_SIZE];
    struct rg_token_server *server;
    struct rg_secret_arena arena; /* of the config */
    struct rg_credentials_reader reader;
    struct rg_credentials_config *config;
    struct rg_credentials_run run;
    struct rg_token_out token;
    char file[8192];
};

static inline void token_case_open(struct token_case *c, const struct rg_token_route *routes,
                                   size_t count)
{
    static const struct rg_test_certificate_spec authority = {.common_name = "ca",
                                                              .authority = true};
    struct rg_test_certificate_spec leaf = {.common_name = "x", .alt_names = "DNS:localhost"};
    *c = (struct token_case){0};
    rg_test_certificate_make(&c->ca, &authority);
    leaf.issuer = &c->ca;
    rg_test_certificate_make(&c->leaf, &leaf);
    rg_test_file_make(c->ca.cert_pem, c->ca_path);
    setenv("SSL_CERT_FILE", c->ca_path, 1);
    struct rg_token_server_options options = {
        .routes = routes, .route_count = count, .certificate = &c->leaf};
    c->server = rg_token_server_start(&options);
    RG_CHECK_EQ(rg_secret_arena_init(&c->arena, RG_MIB(2)), 0);
    c->reader = (struct rg_credentials_reader){.arena = &c->arena, .path = "test.json"};
}

static inline void token_case_run_end(struct token_case *c)
{
    rg_secret_arena_fini(&c->run.arena);
    rg_fetcher_fini(&c->run.fetcher);
}

static inline void token_case_close(struct token_case *c)
{
    token_case_run_end(c);
    rg_secret_arena_fini(&c->arena);
    rg_token_server_stop(c->server);
    rg_test_certificate_free(&c->ca);
    rg_test_certificate_free(&c->leaf);
    unlink(c->ca_path);
    unsetenv("SSL_CERT_FILE");
}

/* Parses a credential file, of which every "$" is the server's URL. */
static inline void token_case_file(struct token_case *c, const char *text)
{
    size_t size = 0;
    for (; *text != '\0'; text++) {
        const char piece[2] = {*text, '\0'};
        const char *put = *text == '$' ? rg_token_server_url(c->server) : piece;
        RG_CHECK(size + strlen(put) < sizeof(c->file));
        strcpy(c->file + size, put);
        size += strlen(put);
    }
    c->config = rg_credentials_parse(&c->reader, c->file, size);
    if (c->config == NULL) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->reader.text);
    }
}

/* One refresh. May be called again. */
static inline int token_case_obtain(struct token_case *c, const char *scope)
{
    token_case_run_end(c);
    c->run = (struct rg_credentials_run){.scope = scope};
    RG_CHECK_EQ(rg_fetcher_init(&c->run.fetcher, rg_now_ns() + RG_TEST_PATIENCE_NS), 0);
    c->run.fetcher.backoff_ns = RG_NS_PER_MS;
    RG_CHECK_EQ(rg_secret_arena_init(&c->run.arena, RG_MIB(4)), 0);
    int rc = c->config->kind->obtain(&c->run, c->config, &c->token);
    RG_CHECK_EQ(rc < 0, c->run.text[0] != '\0');
    return rc;
}

/* A refresh that gives this token. */
static inline void token_case_expect(struct token_case *c, const char *scope, const char *token)
{
    if (token_case_obtain(c, scope) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->run.text);
    }
    RG_CHECK_STR(c->token.text, token);
}

/* What the server was asked, from the last request but `back` on. */
static inline const char *token_case_asked(struct token_case *c, uint32_t back)
{
    uint32_t count = rg_token_server_count(c->server);
    RG_CHECK(count > back);
    return rg_token_server_request(c->server, count - 1 - back);
}

/* Seconds that the token still lives, rounded. */
static inline int64_t token_case_life(const struct token_case *c)
{
    return (int64_t)(c->token.expires_ns - rg_now_ns() + RG_NS_PER_S / 2) / (int64_t)RG_NS_PER_S;
}

#define TOKEN_ANSWER(token) "{\"access_token\":\"" token "\",\"expires_in\":3599}"

#endif
