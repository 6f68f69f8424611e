/* The requests of a client, free and posted: see client_loop.h. */
#include "gcs/request/client_loop.h"

#include "gcs/request/request_type.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdio.h>

/* Free requests are a stack, linked by index + 1, 0 being its end. A link is stored as its
 * difference (exclusive or) from the one to the next request of the array. So an array of zeros, as
 * it is from calloc, is a stack of all of them in order, and memory is touched only for as many as
 * were ever in flight. */
static uint32_t link_in_order(const struct rg_client *client, uint32_t link)
{
    return link < client->options.requests_max ? link + 1 : 0;
}

void rg_client_fill_requests(struct rg_client *client)
{
    atomic_init(&client->shared.free_head, 1);
}

uint32_t rg_client_take_requests(struct rg_client *client, uint32_t count,
                                 struct rg_request **out_first)
{
    struct rg_request *first = NULL;
    uint32_t taken = 0;
    while (taken < count) {
        uint64_t head = atomic_load_explicit(&client->shared.free_head, memory_order_acquire);
        struct rg_request *request;
        uint64_t next;
        do {
            uint32_t index = (uint32_t)head;
            if (index == 0) {
                *out_first = first;
                return taken;
            }
            request = &client->requests[index - 1];
            /* May be stale by now; then the tag has changed and the exchange fails. */
            uint32_t below = __atomic_load_n(&request->free_next, __ATOMIC_RELAXED) ^
                             link_in_order(client, index);
            next = ((head >> 32) + 1) << 32 | below;
        } while (!atomic_compare_exchange_weak_explicit(
            &client->shared.free_head, &head, next, memory_order_acquire, memory_order_acquire));
        uint32_t link = first != NULL ? (uint32_t)(first - client->requests) + 1 : 0;
        __atomic_store_n(&request->free_next, link, __ATOMIC_RELAXED);
        request->client = client;
        first = request;
        taken++;
    }
    *out_first = first;
    return taken;
}

int rg_client_principal_write(const struct rg_client *client, char *out, size_t out_size)
{
    if (client->credentials != NULL) {
        return rg_credentials_principal_write(client->credentials, out, out_size);
    }
    return snprintf(out, out_size, "%s",
                    client->has_token ? "the holder of the token that was given"
                                      : "anonymous: no credentials are sent");
}

void rg_client_give_request(struct rg_client *client, struct rg_request *request)
{
    uint32_t index = (uint32_t)(request - client->requests) + 1;
    uint32_t in_order = link_in_order(client, index);
    uint64_t head = atomic_load_explicit(&client->shared.free_head, memory_order_relaxed);
    uint64_t next;
    do {
        __atomic_store_n(&request->free_next, (uint32_t)head ^ in_order, __ATOMIC_RELAXED);
        next = ((head >> 32) + 1) << 32 | index;
    } while (!atomic_compare_exchange_weak_explicit(&client->shared.free_head, &head, next,
                                                    memory_order_release, memory_order_relaxed));
}

/* A loop of the caller's node, unless those have more to do then than they have connections: the
 * others help. */
static struct rg_client_loop *near_loop(struct rg_client *client, uint32_t turn, uint32_t count)
{
    struct rg_near_loops loops = rg_near_caller(client->runtime->near);
    struct rg_client_loop *near = &client->loops[rg_near_turn(&loops, turn)];
    uint64_t in_flight = rg_metric_load(&near->loop->metrics.in_flight);
    uint32_t loop_count = rg_near_count(&loops), each = (count + loop_count - 1) / loop_count;
    uint32_t connections = client->options.connections_max / client->loop_count;
    return in_flight + each <= connections ? near : &client->loops[turn % client->loop_count];
}

struct rg_client_loop *rg_client_next_loop(struct rg_client *client, uint32_t count)
{
    uint32_t turn = atomic_fetch_add_explicit(&client->shared.loop_next, 1, memory_order_relaxed);
    if (client->runtime->near != NULL) {
        return near_loop(client, turn, count);
    }
    return &client->loops[turn % client->loop_count];
}

int rg_client_reserve(struct rg_client *client, struct rg_cq *cq, struct rg_request **out_request)
{
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    int reserved = rg_cq_reserve(cq, 1);
    if (reserved <= 0) {
        return reserved < 0 ? reserved : -EAGAIN;
    }
    struct rg_request *request;
    if (rg_client_take_requests(client, 1, &request) == 0) {
        rg_cq_unreserve(cq, 1);
        return -EAGAIN;
    }
    request->cq = cq;
    *out_request = request;
    return 0;
}

void rg_client_unreserve(struct rg_request *request)
{
    rg_cq_unreserve(request->cq, 1);
    rg_client_give_request(request->client, request);
}

void rg_client_post(struct rg_request *request)
{
    request->client_loop = rg_client_next_loop(request->client, 1);
    rg_loop_post(request->client_loop->loop, &request->mail);
}

static const char *state_name(enum rg_client_loop_state state)
{
    static const char *const names[] = {
        [RG_CLIENT_LOOP_OPEN] = "open",
        [RG_CLIENT_LOOP_CLOSING] = "closing",
        [RG_CLIENT_LOOP_POOL_CLOSED] = "pool closed",
        [RG_CLIENT_LOOP_CLOSED] = "closed",
    };
    return names[state];
}

/* Nothing is left of a client loop that is closed. Before, each request in its list is in use, and
 * on this loop. */
static bool invariants(const struct rg_client_loop *client_loop)
{
    const struct rg_list *active = &client_loop->active;
    for (const struct rg_list *node = active->next; node != active; node = node->next) {
        const struct rg_request *request = RG_CONTAINER_OF(node, struct rg_request, node);
        if (request->client_loop != client_loop || request->state == RG_REQUEST_FREE) {
            return false;
        }
    }
    return client_loop->state != RG_CLIENT_LOOP_CLOSED ||
           (client_loop->pool == NULL && rg_list_empty(active));
}

void rg_client_loop_become(struct rg_client_loop *client_loop, enum rg_client_loop_state state)
{
    RG_ASSERT(state == client_loop->state + 1);
    rg_log(RG_LOG_DEBUG, "client of %s: %s", client_loop->client->endpoint.text, state_name(state));
    client_loop->state = state;
    RG_VERIFY(invariants(client_loop));
}

void rg_client_check_closed(struct rg_client_loop *client_loop)
{
    if (client_loop->state == RG_CLIENT_LOOP_POOL_CLOSED && rg_list_empty(&client_loop->active) &&
        client_loop->reads_out == 0) {
        client_loop->pool = NULL;
        rg_client_loop_become(client_loop, RG_CLIENT_LOOP_CLOSED);
        client_loop->emptied(client_loop);
    }
}
