/* See sim_connect.h. */
#include "tests/support/sim_connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

static struct rg_sim_listener *listener_find(struct rg_sim *sim, const struct sockaddr *address)
{
    bool v4 = address->sa_family == AF_INET;
    RG_ASSERT(v4 || address->sa_family == AF_INET6);
    for (uint32_t i = 0; i < sim->listener_count; i++) {
        struct rg_sim_listener *listener = &sim->listeners[i];
        if (listener->address.ss_family != address->sa_family) {
            continue;
        }
        const void *a = &listener->address, *b = address;
        const struct sockaddr_in *a4 = a, *b4 = b;
        const struct sockaddr_in6 *a6 = a, *b6 = b;
        if (v4 ? a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr
               : a6->sin6_port == b6->sin6_port &&
                     memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0) {
            return listener;
        }
    }
    return NULL;
}

static struct rg_sim_listener *listener_get(struct rg_sim *sim, const struct sockaddr *address)
{
    struct rg_sim_listener *listener = listener_find(sim, address);
    if (listener == NULL) {
        RG_ASSERT(sim->listener_count < RG_SIM_LISTENERS_MAX);
        listener = &sim->listeners[sim->listener_count++];
        memcpy(&listener->address, address,
               address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6));
    }
    return listener;
}

void rg_sim_listen(struct rg_sim *sim, const struct sockaddr *address,
                   const struct rg_sim_service *service, void *context)
{
    RG_ASSERT(service == NULL || service->received != NULL);
    struct rg_sim_listener *listener = listener_get(sim, address);
    listener->service = service;
    listener->context = context;
}

int rg_sim_listen_fd(struct rg_sim *sim, const struct sockaddr *address)
{
    struct rg_sim_listener *listener = listener_get(sim, address);
    RG_ASSERT(listener->socket == NULL && listener->service == NULL);
    listener->socket = rg_sim_end_create(sim);
    listener->socket->listener = listener;
    return listener->socket->fd;
}

void rg_sim_delay_connections(struct rg_sim *sim, const struct sockaddr *address, uint64_t delay_ns)
{
    listener_get(sim, address)->delay_ns = delay_ns;
}

/* The other side of a connection that is being made. */
static void connect_accept(struct rg_sim_end *end, struct rg_sim_listener *listener)
{
    struct rg_sim_end *other = rg_sim_end_create(end->sim);
    other->other = end;
    end->other = other;
    if (listener->service != NULL) {
        other->service = listener->service;
        other->context = listener->context;
        if (other->service->connected != NULL) {
            other->service->connected(other);
        }
    } else {
        rg_list_push_back(&listener->socket->backlog, &other->backlog_node);
        rg_sim_end_poke_at(listener->socket, end->sim->now_ns);
    }
}

static void connect_run(struct rg_sim *sim, const struct rg_sim_event *event)
{
    struct rg_sim_end *end = event->target;
    struct rg_sim_slot *slot = &end->slots[RG_SIM_WRITING];
    if (slot->op == NULL || slot->completing || slot->serial != event->tag) {
        return;
    }
    struct rg_sim_listener *listener = listener_find(sim, slot->op->data);
    bool listened = listener != NULL && (listener->service != NULL || listener->socket != NULL);
    bool unanswered = event->size != 0;
    if (unanswered) {
        rg_sim_slot_complete(end, slot, -ETIMEDOUT);
    } else if (!listened || rg_sim_strikes(sim, RG_SIM_FAULT_CONNECT_REFUSED)) {
        rg_sim_slot_complete(end, slot, -ECONNREFUSED);
    } else {
        rg_sim_slot_complete(end, slot, 0);
        connect_accept(end, listener);
    }
}

void rg_sim_connect_start(struct rg_sim_end *end, struct rg_sim_slot *slot)
{
    struct rg_sim *sim = end->sim;
    RG_ASSERT(end->other == NULL && !end->shut);
    const struct rg_sim_listener *listener = listener_find(sim, slot->op->data);
    uint64_t delay_ns = listener != NULL ? listener->delay_ns : 0;
    bool unanswered = delay_ns == RG_FOREVER || rg_sim_strikes(sim, RG_SIM_FAULT_CONNECT_TIMEOUT);
    if (unanswered) {
        delay_ns = RG_SIM_CONNECT_NS_MAX;
    } else if (rg_sim_strikes(sim, RG_SIM_FAULT_CONNECT_SLOW)) {
        delay_ns += rg_sim_random_below(sim, RG_SIM_LATE_NS_MAX);
    }
    rg_sim_event_add(sim, (struct rg_sim_event){
                              .at_ns = sim->now_ns + 2 * sim->options.latency_ns + delay_ns,
                              .run = connect_run,
                              .target = end,
                              .tag = slot->serial,
                              .size = unanswered,
                          });
}
