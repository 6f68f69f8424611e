/* The inner side of a client: how it is opened, cancelled and closed. What it is made of, and its
 * requests, are in client_loop.h. */
#ifndef RG_GCS_REQUEST_CLIENT_H
#define RG_GCS_REQUEST_CLIENT_H

#include "gcs/request/client_loop.h"

/* Writes a line, unless `error` is NULL, and returns rc: for functions that explain why they
 * refuse. */
int rg_explain(char *error, size_t error_size, int rc, const char *format, ...) RG_PRINTF(4, 5);

/* rg_cancel for everything that was submitted to a queue. */
int rg_client_cancel_all(struct rg_client *client, struct rg_cq *cq);
/* Ends the requests that `wanted` names, on all loops, which have begun to when it returns: those
 * that other threads submitted before, too. Not on a loop's thread. */
void rg_client_end(struct rg_client *client, enum rg_status status,
                   bool (*wanted)(const struct rg_request *request, const void *context),
                   const void *context);
/* Returns when what the loop has completed so far has been published. Any other thread. */
void rg_client_await_completions(struct rg_client_loop *client_loop);

/* Who submits from loops, on its own account, and so has to stop before the client is closed. */
struct rg_client_user {
    struct rg_list node;
    /* From its return on, nothing is submitted to the client, which may be gone at any time. */
    void (*stop)(struct rg_client_user *user);
};
void rg_client_join(struct rg_client *client, struct rg_client_user *user);
/* Not after `stop`. */
void rg_client_leave(struct rg_client *client, struct rg_client_user *user);

/* The two halves of rg_client_close: who drives the loops himself does so between them, until the
 * pool of every loop is NULL. */
void rg_client_close_begin(struct rg_client *client);
void rg_client_close_finish(struct rg_client *client);

#endif
