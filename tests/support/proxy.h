/* An HTTP proxy for tests: tunnels by CONNECT to ports of this machine, or does what tests of
 * refusals want. It blocks and has a thread for each connection. */
#ifndef RG_TESTS_SUPPORT_PROXY_H
#define RG_TESTS_SUPPORT_PROXY_H

#include "tests/support/certificates.h"

#define RG_TEST_PROXY_CONNECTIONS_MAX 64

struct rg_test_proxy_options {
    const struct rg_test_certificate *certificate; /* NULL: plain */
    const char *authorization; /* what Proxy-Authorization must be, else 407; NULL: any */
    const char *answer;        /* sent instead of making a tunnel; NULL: makes one */
    bool stall;                /* never answers */
    uint32_t piece;            /* bytes of the answer at a time; 0: all */
    uint32_t carry_piece;      /* bytes that go through a tunnel at a time, either way; 0: many */
    uint32_t carry_ms;         /* a pause behind each: a slow line */
    int receive_buffer;        /* SO_RCVBUF towards clients; 0: its own */
    const char *address;       /* instead of 127.0.0.1; NULL: that */
    uint16_t port;             /* 0: a free one */
};

struct rg_test_proxy;

struct rg_test_proxy *rg_test_proxy_start(const struct rg_test_proxy_options *options);
void rg_test_proxy_stop(struct rg_test_proxy *proxy);
uint16_t rg_test_proxy_port(const struct rg_test_proxy *proxy);
/* What it saw so far: connections, and the head of the request that came last. */
uint32_t rg_test_proxy_connections(struct rg_test_proxy *proxy);
void rg_test_proxy_head(struct rg_test_proxy *proxy, char *out, size_t size);

#endif
