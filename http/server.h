/* The server side of HTTP/1.1 on our event loops: accepts connections, reads requests, hands them
 * to a handler, and sends what the handler answers. It knows nothing of what the requests mean.
 * What a handler is and does: http/server_handler.h. */
#ifndef RG_HTTP_SERVER_H
#define RG_HTTP_SERVER_H

#include "http/server_handler.h"

struct rg_loop;
struct rg_tls_context;
struct rg_server;

struct rg_server_options {
    const struct rg_server_handler *handler; /* borrowed for the life of the server */
    void *context;
    struct rg_tls_context *tls; /* borrowed; NULL: plain HTTP */
    uint32_t connections_max;   /* per loop */
    uint64_t idle_timeout_ns;
    int listen_fd; /* borrowed, listening, non-blocking; shared by all loops */
};

/* One server per loop; created and destroyed on the loop's own thread. */
int rg_server_create(struct rg_server **out_server, struct rg_loop *loop,
                     const struct rg_server_options *options);
/* Cuts every connection, calls release for open calls, and calls done(done_context) when nothing of
 * the server is left. */
void rg_server_destroy(struct rg_server *server, void (*done)(void *done_context),
                       void *done_context);

/* On the loop's own thread. */
void rg_server_stats(const struct rg_server *server, struct rg_server_stats *out_stats);

#endif
