/* See sim_resolver.h. */
#include "tests/support/sim_resolver.h"

#include "tests/support/test.h"

#include <sched.h>

static uint64_t resolver_now(void)
{
    return RG_NS_PER_S;
}

static struct sockaddr_in name_addresses[RG_RESOLVER_ADDRESSES_MAX];
static struct addrinfo name_infos[RG_RESOLVER_ADDRESSES_MAX];

static int name_look_up(const char *host, const char *service, const struct addrinfo *hints,
                        struct addrinfo **out_list)
{
    RG_ASSERT(host != NULL && service != NULL && hints != NULL);
    *out_list = name_infos;
    return 0;
}

static void name_free(struct addrinfo *list)
{
    RG_ASSERT(list == name_infos);
}

static void name_found(struct rg_resolve *resolve, int error, struct rg_addresses *addresses)
{
    RG_ASSERT(error == 0);
    rg_addresses_unref(addresses);
    resolve->done = NULL;
}

struct rg_resolver *rg_sim_resolver_create(struct rg_sim *sim, struct rg_loop *loop,
                                           const char *host, const struct sockaddr_in *addresses,
                                           uint32_t count)
{
    RG_CHECK(count <= RG_RESOLVER_ADDRESSES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        name_addresses[i] = addresses[i];
        name_infos[i] = (struct addrinfo){
            .ai_family = AF_INET,
            .ai_addr = (struct sockaddr *)&name_addresses[i],
            .ai_addrlen = sizeof(name_addresses[i]),
            .ai_next = i + 1 < count ? &name_infos[i + 1] : NULL,
        };
    }
    const struct rg_resolver_options options = {
        .getaddrinfo = name_look_up,
        .freeaddrinfo = name_free,
        .now_ns = resolver_now,
    };
    struct rg_resolver *resolver;
    RG_CHECK_EQ(rg_resolver_create(&resolver, &options), 0);
    struct rg_resolve resolve = {.loop = loop, .done = name_found};
    rg_resolver_resolve(resolver, &resolve, host, 80);
    while (atomic_load(&loop->mailbox.newest) == NULL) {
        sched_yield();
    }
    (void)rg_sim_run(sim, rg_sim_now_ns(sim), NULL, NULL);
    RG_CHECK(resolve.done == NULL);
    return resolver;
}
