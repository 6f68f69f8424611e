/* A stand-in for token servers, metadata servers and the like: answers by path, out of a table, and
 * keeps what it was asked. Blocking sockets and a thread for each connection; one request each. */
#ifndef RG_TESTS_SUPPORT_TOKEN_SERVER_H
#define RG_TESTS_SUPPORT_TOKEN_SERVER_H

#include "tests/support/certificates.h"

#define RG_TOKEN_REQUESTS_MAX 512
#define RG_TOKEN_ROUTES_MAX 16

struct rg_token_route {
    const char *path;   /* without the query */
    const char *method; /* NULL: any */
    unsigned status;    /* 0: 200 */
    const char *fields; /* more header fields, each with CRLF; NULL: none */
    const char *body;   /* every "#" becomes the number of the request on this route, from 1 on */
    const char *raw;    /* instead of an HTTP answer */
    unsigned delay_ms;  /* before the answer */
    unsigned fail_first, fail_status; /* so many requests are answered by that status, empty */
    bool hold;                        /* does not answer before rg_token_server_release */
};

struct rg_token_server_options {
    const struct rg_token_route *routes; /* copied */
    size_t route_count;
    const struct rg_test_certificate *certificate; /* NULL: plain */
    const struct rg_test_certificate
        *client_authority; /* of whom clients must show; NULL: nobody */
};

struct rg_token_server;

/* On 127.0.0.1 and a free port; a failure ends the program. */
struct rg_token_server *rg_token_server_start(const struct rg_token_server_options *options);
void rg_token_server_stop(struct rg_token_server *server);
uint16_t rg_token_server_port(const struct rg_token_server *server);
/* "https://localhost:PORT", or http; lives as long as the server. */
const char *rg_token_server_url(const struct rg_token_server *server);
/* From now on every request is answered by this status; 0: by its route again. */
void rg_token_server_fail(struct rg_token_server *server, unsigned status);
/* What is held is answered, and so is what comes. */
void rg_token_server_release(struct rg_token_server *server);
uint32_t rg_token_server_count(struct rg_token_server *server);
/* Head and body of the request; NULL: there is none. */
const char *rg_token_server_request(struct rg_token_server *server, uint32_t index);

#endif
