/* A server on a loop of its own with a handler that answers as the request says, and blocking
 * sockets to talk to it. One at a time. Of a request,
 *
 *   GET /N, HEAD /N, PUT /N          is answered by N bytes of rg_test_blob, over and over
 *   /early, /early-body              by 413 in `begin`, or at the first bytes of the body
 *   /refuse, /refuse-body            not at all
 *   x-delay-ms, x-rate, x-cut, x-cut-head, x-reset, x-stall, x-stall-ms,
 *   x-close, x-held                  are the response's fields; a held one goes out with a byte
 * more when rg_test_calls.let_go is set
 *
 * and the answer's x-received and x-sum say what came of the request's body. */
#ifndef RG_TESTS_SUPPORT_SERVER_H
#define RG_TESTS_SUPPORT_SERVER_H

#include "http/server.h"
#include "tests/support/loop.h"

#include <semaphore.h>

#define RG_TEST_BLOB_SIZE RG_KIB(300)
/* Longer than a busy machine holds anything up. */
#define RG_TEST_CLIENT_TIMEOUT_S 90

/* Offset x of every body is rg_test_blob[x % RG_TEST_BLOB_SIZE]. */
extern uint8_t rg_test_blob[RG_TEST_BLOB_SIZE];

/* What the handler has seen. Written by the loop, read by the test. */
struct rg_test_calls {
    _Atomic uint32_t begun, released, ended, body_calls;
    _Atomic uint64_t body_bytes;
    _Atomic uint32_t resume_calls;
    _Atomic bool let_go; /* Written by the test. */
};
extern struct rg_test_calls rg_test_calls;

struct rg_test_server {
    /* Options; 0: whatever will do. */
    struct rg_tls_context *tls;
    uint32_t connections_max;
    uint64_t idle_timeout_ns;
    /* The rest is made by the start. */
    struct rg_loop *loop;
    struct rg_server *server;
    int listen_fd;
    uint16_t port;
    sem_t gone;
    struct rg_server_stats stats;
};
extern struct rg_test_server rg_test_server;

void rg_test_server_start(void);
void rg_test_server_start_with(const struct rg_test_server *options);
/* Destroys the server and checks that each call was released exactly once. */
void rg_test_server_stop(void);
const struct rg_server_stats *rg_test_server_stats(void);
/* Waits until `want` calls were begun and released. */
void rg_test_server_check_released(uint32_t want);

/* All of these end the case when something fails that should not. */
int rg_test_peer_open(void);
int rg_test_peer_open_at(uint16_t port); /* of 127.0.0.1 */
void rg_test_peer_send(int fd, const void *data, size_t size);
void rg_test_peer_say(int fd, const char *text);
void rg_test_peer_get(int fd, uint64_t size, const char *fields);
/* Like recv. */
ssize_t rg_test_peer_recv(int fd, void *data, size_t size);

struct rg_test_answer {
    unsigned status;
    uint64_t content_length, received, sum;
    bool close;
};
/* Takes nothing of what is behind the head. 0, or -ECONNABORTED for an end, or what recv said. */
int rg_test_peer_read_head(int fd, struct rg_test_answer *out_answer);
/* Reads `size` bytes of a body from `offset` on and compares them. How many came before the end. */
uint64_t rg_test_peer_read_body(int fd, uint64_t offset, uint64_t size);
/* Reads a whole answer of 200 with a body of `size` bytes. */
void rg_test_peer_expect(int fd, uint64_t size);
/* The status of an answer whose body is skipped. */
unsigned rg_test_peer_expect_status(int fd);
/* What the next recv says: 0 for an orderly end, or the errno. */
int rg_test_peer_expect_end(int fd);
uint64_t rg_test_now_ms(void);

#endif
