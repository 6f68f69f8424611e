/* Requests and their access tokens: an attempt begins only when there is one, waits on its loop
 * while one is being had, carries it, and is made once more when the service refuses it. */
#ifndef RG_GCS_REQUEST_AUTHORIZE_H
#define RG_GCS_REQUEST_AUTHORIZE_H

#include "gcs/request/request.h"

/* For one loop of a client that has credentials. */
void rg_authorize_open(struct rg_client_loop *client_loop);
/* On the loop, when no request waits any more. */
void rg_authorize_close(struct rg_client_loop *client_loop);

/* True: the attempt may be sent. False: the request waits, and goes on by
 * rg_request_resume, or fails, when there is news; never from within this call. */
bool rg_authorize(struct rg_request *request);
/* Takes a request that waits out of the wait. Harmless for one that does not. */
void rg_authorize_cancel(struct rg_request *request);
/* The header field for the attempt that is being encoded, with its CRLF; empty where none is sent.
 */
struct rg_h1_slice rg_authorize_field(struct rg_request *request);
/* After an answer of 401. True: another attempt may be made at once; once for each start of a
 * request. */
bool rg_authorize_again(struct rg_request *request);

#endif
