/* Requests and their access tokens: an attempt begins only when there is one, waits on its loop
 * while one is being had, carries it, and is made once more when the service refuses it.
 *
 * This unit knows no requests, only the part of them that it keeps: struct rg_token_wait. What
 * waits is in a list of its loop, and the loop's bearer is asked once for all of them. */
#ifndef RG_GCS_REQUEST_AUTHORIZE_H
#define RG_GCS_REQUEST_AUTHORIZE_H

#include "gcs/credentials/credentials.h"
#include "http/h1_decoder.h"

/* A request's part; zeroed at first. */
struct rg_token_wait {
    struct rg_list node; /* linked while it waits for a token */
    uint64_t version;    /* of the token that the attempt carries */
    bool refused;        /* the service has answered 401 since the start */
};

/* One loop's. */
struct rg_authorizer {
    struct rg_bearer bearer;
    struct rg_list waiting; /* of struct rg_token_wait */
    /* The wait is over: with a token, or without, and then `failure` says why. */
    void (*answer)(struct rg_token_wait *wait, const char *failure);
};

/* credentials NULL: requests carry none of this. `answer` never comes from within a call of this
 * header's. */
void rg_authorizer_open(struct rg_authorizer *authorizer, struct rg_credentials *credentials,
                        struct rg_loop *loop,
                        void (*answer)(struct rg_token_wait *wait, const char *failure));
/* On the loop, when no request waits any more. */
void rg_authorizer_close(struct rg_authorizer *authorizer);

/* True: the attempt may be sent. False: it waits, until `answer` or rg_authorize_cancel. */
bool rg_authorize(struct rg_authorizer *authorizer, struct rg_token_wait *wait);
/* Takes a request that waits out of the wait. */
void rg_authorize_cancel(struct rg_token_wait *wait);
/* The header field for the attempt that is being encoded, with its CRLF; empty where none is sent.
 */
struct rg_h1_slice rg_authorize_field(const struct rg_authorizer *authorizer,
                                      struct rg_token_wait *wait);
/* After an answer of 401. True: there is another token to try; once for each start of a request,
 * and only where it `may` have another attempt. */
bool rg_authorize_again(struct rg_authorizer *authorizer, struct rg_token_wait *wait, bool may);

#endif
