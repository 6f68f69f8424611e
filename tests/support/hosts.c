/* See hosts.h. */
#include "tests/support/hosts.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

struct rg_test_hosts rg_test_hosts;

static int fake_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                            struct addrinfo **out_list)
{
    (void)host;
    rg_test_hosts.calls++;
    if (rg_test_hosts.error != 0) {
        return rg_test_hosts.error;
    }
    struct addrinfo *first = NULL, **next = &first;
    for (uint32_t i = 0; i < rg_test_hosts.count; i++) {
        struct addrinfo *info = calloc(1, sizeof(*info) + sizeof(struct sockaddr_in));
        struct sockaddr_in *address = (struct sockaddr_in *)(info + 1);
        address->sin_family = AF_INET;
        address->sin_port = htons((uint16_t)atoi(service));
        RG_ASSERT(inet_pton(AF_INET, rg_test_hosts.hosts[i], &address->sin_addr) == 1);
        info->ai_family = AF_INET;
        info->ai_socktype = hints != NULL ? hints->ai_socktype : SOCK_STREAM;
        info->ai_addr = (struct sockaddr *)address;
        info->ai_addrlen = sizeof(*address);
        *next = info;
        next = &info->ai_next;
    }
    *out_list = first;
    return 0;
}

static void fake_freeaddrinfo(struct addrinfo *list)
{
    while (list != NULL) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

void rg_test_hosts_use(struct rg_resolver_options *options)
{
    options->getaddrinfo = fake_getaddrinfo;
    options->freeaddrinfo = fake_freeaddrinfo;
}

/* Port 0: any that is free. The port, or 0: another one has it. */
static uint16_t port_try(const char *host, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    RG_ASSERT(fd >= 0 && inet_pton(AF_INET, host, &address.sin_addr) == 1);
    RG_ASSERT(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    bool is_free = bind(fd, (struct sockaddr *)&address, size) == 0;
    RG_ASSERT(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    close(fd);
    return is_free ? ntohs(address.sin_port) : 0;
}

uint16_t rg_test_hosts_port(const char *const *addresses, size_t count)
{
    for (;;) {
        uint16_t port = port_try(addresses[0], 0);
        size_t i = 1;
        while (i < count && port_try(addresses[i], port) == port) {
            i++;
        }
        if (i == count) {
            return port;
        }
    }
}
