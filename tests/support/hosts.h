/* Names for tests of pools: what a resolver is told instead of asking the system. */
#ifndef RG_TESTS_SUPPORT_HOSTS_H
#define RG_TESTS_SUPPORT_HOSTS_H

#include "http/resolver.h"

/* The addresses of every name, in their order, or an error. Set before the pool is opened. */
struct rg_test_hosts {
    const char *hosts[RG_RESOLVER_ADDRESSES_MAX];
    uint32_t count;
    int error;
    _Atomic unsigned calls;
};
extern struct rg_test_hosts rg_test_hosts;

/* Makes a resolver's options look there. */
void rg_test_hosts_use(struct rg_resolver_options *options);

/* A port that nobody uses at any of these addresses of IPv4, for servers that share a name. */
uint16_t rg_test_hosts_port(const char *const *addresses, size_t count);

#endif
