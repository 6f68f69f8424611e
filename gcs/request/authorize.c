/* Requests and their tokens: see authorize.h. Requests that wait for a token are in a list of their
 * loop, and the loop's bearer is told once for all of them. */
#include "gcs/request/authorize.h"

static void bearer_wake(struct rg_bearer *bearer)
{
    struct rg_client_loop *client_loop = RG_CONTAINER_OF(bearer, struct rg_client_loop, bearer);
    struct rg_list turn;
    rg_list_init(&turn);
    if (rg_list_empty(&client_loop->unauthorized)) {
        return;
    }
    enum rg_bearer_state state = rg_bearer_check(bearer, client_loop->loop->now_ns);
    if (state == RG_BEARER_WAIT) {
        return;
    }
    rg_list_splice_back(&turn, &client_loop->unauthorized);
    struct rg_list *node;
    while ((node = rg_list_pop_front(&turn)) != NULL) {
        struct rg_request *request = RG_CONTAINER_OF(node, struct rg_request, token_node);
        if (state == RG_BEARER_READY) {
            rg_request_resume(request);
        } else {
            rg_request_note(request, RG_STATUS_CREDENTIALS, "%s", bearer->failure);
            rg_request_give_up(request);
        }
    }
}

void rg_authorize_open(struct rg_client_loop *client_loop)
{
    rg_list_init(&client_loop->unauthorized);
    rg_bearer_init(&client_loop->bearer, client_loop->client->credentials, client_loop->loop,
                   bearer_wake);
}

void rg_authorize_close(struct rg_client_loop *client_loop)
{
    rg_bearer_fini(&client_loop->bearer);
}

bool rg_authorize(struct rg_request *request)
{
    struct rg_client_loop *client_loop = request->client_loop;
    if (client_loop->bearer.credentials == NULL) {
        return true;
    }
    enum rg_bearer_state state = rg_bearer_check(&client_loop->bearer, client_loop->loop->now_ns);
    if (state == RG_BEARER_READY) {
        return true;
    }
    rg_list_push_back(&client_loop->unauthorized, &request->token_node);
    if (state == RG_BEARER_FAILED) {
        rg_bearer_wake_soon(&client_loop->bearer);
    }
    return false;
}

void rg_authorize_cancel(struct rg_request *request)
{
    rg_list_remove(&request->token_node);
}

struct rg_h1_slice rg_authorize_field(struct rg_request *request)
{
    const struct rg_bearer *bearer = &request->client_loop->bearer;
    if (bearer->credentials == NULL || bearer->token == NULL) {
        return (struct rg_h1_slice){NULL, 0};
    }
    /* It may have expired while the request waited for a connection; then the service says so. */
    request->token_version = bearer->version;
    return (struct rg_h1_slice){bearer->token->field, (uint32_t)bearer->token->field_size};
}

bool rg_authorize_again(struct rg_request *request)
{
    struct rg_client_loop *client_loop = request->client_loop;
    bool may = client_loop->bearer.credentials != NULL && !client_loop->closing &&
               !request->token_refused && request->client->options.attempts_max > 1;
    if (client_loop->bearer.credentials == NULL) {
        return false;
    }
    request->token_refused = true;
    /* The token is given up also where this request has no second try: the next one shall not have
     * it. */
    return rg_bearer_reject(&client_loop->bearer, request->token_version,
                            client_loop->loop->now_ns) &&
           may;
}
