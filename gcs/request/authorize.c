/* See authorize.h. */
#include "gcs/request/authorize.h"

static void bearer_wake(struct rg_bearer *bearer)
{
    struct rg_authorizer *authorizer = RG_CONTAINER_OF(bearer, struct rg_authorizer, bearer);
    struct rg_list turn;
    rg_list_init(&turn);
    if (rg_list_empty(&authorizer->waiting)) {
        return;
    }
    enum rg_bearer_state state = rg_bearer_check(bearer, bearer->loop->now_ns);
    if (state == RG_BEARER_WAIT) {
        return;
    }
    rg_list_splice_back(&turn, &authorizer->waiting);
    struct rg_list *node;
    while ((node = rg_list_pop_front(&turn)) != NULL) {
        struct rg_token_wait *wait = RG_CONTAINER_OF(node, struct rg_token_wait, node);
        authorizer->answer(wait, state == RG_BEARER_READY ? NULL : bearer->failure);
    }
}

void rg_authorizer_open(struct rg_authorizer *authorizer, struct rg_credentials *credentials,
                        struct rg_loop *loop,
                        void (*answer)(struct rg_token_wait *wait, const char *failure))
{
    authorizer->answer = answer;
    rg_list_init(&authorizer->waiting);
    rg_bearer_init(&authorizer->bearer, credentials, loop, bearer_wake);
}

void rg_authorizer_close(struct rg_authorizer *authorizer)
{
    RG_ASSERT(rg_list_empty(&authorizer->waiting));
    rg_bearer_fini(&authorizer->bearer);
}

bool rg_authorize(struct rg_authorizer *authorizer, struct rg_token_wait *wait)
{
    struct rg_bearer *bearer = &authorizer->bearer;
    RG_ASSERT(!rg_list_linked(&wait->node));
    if (bearer->credentials == NULL) {
        return true;
    }
    enum rg_bearer_state state = rg_bearer_check(bearer, bearer->loop->now_ns);
    if (state == RG_BEARER_READY) {
        return true;
    }
    rg_list_push_back(&authorizer->waiting, &wait->node);
    if (state == RG_BEARER_FAILED) {
        rg_bearer_wake_soon(bearer);
    }
    return false;
}

void rg_authorize_cancel(struct rg_token_wait *wait)
{
    RG_ASSERT(rg_list_linked(&wait->node));
    rg_list_remove(&wait->node);
}

struct rg_h1_slice rg_authorize_field(const struct rg_authorizer *authorizer,
                                      struct rg_token_wait *wait)
{
    const struct rg_bearer *bearer = &authorizer->bearer;
    if (bearer->credentials == NULL || bearer->token == NULL) {
        return (struct rg_h1_slice){NULL, 0};
    }
    /* It may have expired while the request waited for a connection; then the service says so. */
    wait->version = bearer->version;
    return (struct rg_h1_slice){bearer->token->field, (uint32_t)bearer->token->field_size};
}

bool rg_authorize_again(struct rg_authorizer *authorizer, struct rg_token_wait *wait, bool may)
{
    struct rg_bearer *bearer = &authorizer->bearer;
    if (bearer->credentials == NULL) {
        return false;
    }
    may = may && !wait->refused;
    wait->refused = true;
    /* The token is given up also where this request has no second try: the next one shall not have
     * it. */
    return rg_bearer_reject(bearer, wait->version, bearer->loop->now_ns) && may;
}
