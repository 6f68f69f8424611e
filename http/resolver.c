/* The resolver: see resolver.h.
 *
 * All state is behind one mutex, which is taken per request and per look-up, never per byte. An
 * entry of the cache is unused, idle with an answer, or busy: queued for the thread or being looked
 * up. A busy entry is not evicted, so the thread may keep a pointer to it while it holds no
 * lock. */
#include "http/resolver.h"

#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/fork.h"
#include "runtime/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Name service modules of the C library put large buffers on the stack. */
#define RESOLVER_STACK_SIZE RG_KIB(512)

struct entry {
    char host[RG_RESOLVER_HOST_SIZE_MAX + 1]; /* empty: unused */
    uint16_t port;
    bool busy;
    uint64_t used;                  /* for eviction: the number of the last request */
    struct rg_addresses *addresses; /* the last good answer; NULL: none */
    int gai_error, os_error;        /* of the last look-up, where there are no addresses */
    uint64_t fresh_until_ns, stale_until_ns;
    struct rg_list queued;
    struct rg_list waiters; /* requests */
};

struct rg_resolver {
    struct rg_resolver_options options;
    uint32_t generation; /* of the process, as in fork.h */
    struct {
        pthread_mutex_t mutex;
        pthread_cond_t changed; /* work for the thread, or its end */
        struct entry entries[RG_RESOLVER_HOSTS_MAX];
        struct rg_list queue;
        uint64_t request_count;
        pthread_t thread;
        bool has_thread, stopping, thread_ended;
        uint32_t ref_count; /* the owner's, and the thread's */
    } shared;
};

struct rg_addresses *rg_addresses_ref(struct rg_addresses *addresses)
{
    if (addresses != NULL) {
        uint32_t before = atomic_fetch_add_explicit(&addresses->ref_count, 1, memory_order_relaxed);
        RG_ASSERT(before > 0);
    }
    return addresses;
}

void rg_addresses_unref(struct rg_addresses *addresses)
{
    if (addresses == NULL) {
        return;
    }
    uint32_t before = atomic_fetch_sub_explicit(&addresses->ref_count, 1, memory_order_acq_rel);
    RG_ASSERT(before > 0);
    if (before == 1) {
        free(addresses);
    }
}

static struct rg_addresses *addresses_create(uint32_t count_max)
{
    struct rg_addresses *addresses =
        calloc(1, sizeof(*addresses) + count_max * sizeof(addresses->list[0]));
    if (addresses != NULL) {
        atomic_init(&addresses->ref_count, 1);
    }
    return addresses;
}

static void addresses_add(struct rg_addresses *addresses, const void *address, size_t size)
{
    struct rg_address *entry = &addresses->list[addresses->count++];
    RG_ASSERT(size <= sizeof(entry->storage));
    memcpy(&entry->storage, address, size);
    entry->size = (socklen_t)size;
}

static bool family_is_known(int family)
{
    return family == AF_INET || family == AF_INET6;
}

static const struct addrinfo *list_find(const struct addrinfo *list, int family)
{
    RG_ASSERT(family_is_known(family));
    while (list != NULL && list->ai_family != family) {
        list = list->ai_next;
    }
    return list;
}

/* The family of the first usable address; 0: there is none. */
static int list_examine(const struct addrinfo *list, uint32_t *out_count)
{
    int family = 0;
    uint32_t count = 0;
    for (; list != NULL; list = list->ai_next) {
        if (family_is_known(list->ai_family)) {
            family = family == 0 ? list->ai_family : family;
            count++;
        }
    }
    *out_count = RG_MIN(count, (uint32_t)RG_RESOLVER_ADDRESSES_MAX);
    return family;
}

/* 0 or EAI_*. */
static int addresses_interleave(const struct addrinfo *list, struct rg_addresses **out_addresses)
{
    uint32_t count;
    int family = list_examine(list, &count);
    if (family == 0) {
        return EAI_NODATA;
    }
    struct rg_addresses *addresses = addresses_create(count);
    if (addresses == NULL) {
        return EAI_MEMORY;
    }
    const struct addrinfo *next[2] = {
        list_find(list, family),
        list_find(list, family == AF_INET ? AF_INET6 : AF_INET),
    };
    for (int turn = 0; addresses->count < count; turn ^= 1) {
        const struct addrinfo *info = next[turn];
        if (info != NULL) {
            addresses_add(addresses, info->ai_addr, info->ai_addrlen);
            next[turn] = list_find(info->ai_next, info->ai_family);
        }
    }
    *out_addresses = addresses;
    return 0;
}

/* False if the host is not an address but a name. */
static bool parse_literal(const char *host, uint16_t port, struct rg_address *out_address)
{
    struct rg_address address = {.size = 0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address.storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address.storage;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        address.size = sizeof(*v4);
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        address.size = sizeof(*v6);
    } else {
        return false;
    }
    *out_address = address;
    return true;
}

bool rg_resolver_is_address(const char *host)
{
    struct rg_address address;
    return parse_literal(host, 0, &address);
}

static void request_run(struct rg_mail *mail)
{
    struct rg_resolve *request = RG_CONTAINER_OF(mail, struct rg_resolve, mail);
    RG_ASSERT(request->pending && !rg_list_linked(&request->waiter));
    struct rg_addresses *addresses = request->addresses;
    request->addresses = NULL;
    request->pending = false;
    request->done(request, request->gai_error, addresses);
}

/* Takes the reference. After this the request is its loop's. */
static void request_answer(struct rg_resolve *request, int gai_error, int os_error,
                           struct rg_addresses *addresses)
{
    RG_ASSERT((gai_error == 0) == (addresses != NULL));
    request->gai_error = gai_error;
    request->os_error = os_error;
    request->addresses = addresses;
    rg_loop_post(request->loop, &request->mail);
}

static void request_answer_literal(struct rg_resolve *request, const struct rg_address *address)
{
    struct rg_addresses *addresses = addresses_create(1);
    if (addresses != NULL) {
        addresses_add(addresses, &address->storage, address->size);
    }
    request_answer(request, addresses != NULL ? 0 : EAI_MEMORY, 0, addresses);
}

/* What a look-up gave. Owns the reference. */
struct answer {
    int gai_error, os_error;
    struct rg_addresses *addresses;
};

static bool entry_answers(const struct entry *entry, uint64_t now_ns)
{
    if (entry->addresses != NULL) {
        return now_ns < entry->stale_until_ns;
    }
    return entry->gai_error != 0 && now_ns < entry->fresh_until_ns;
}

static struct entry *entry_find_locked(struct rg_resolver *resolver, const char *host,
                                       uint16_t port)
{
    for (size_t i = 0; i < RG_RESOLVER_HOSTS_MAX; i++) {
        struct entry *entry = &resolver->shared.entries[i];
        if (entry->port == port && strcasecmp(entry->host, host) == 0) {
            return entry;
        }
    }
    return NULL;
}

/* The place of an unused entry, or of the one that was not asked for the longest; NULL: all are
 * busy. */
static struct entry *entry_claim_locked(struct rg_resolver *resolver, const char *host,
                                        uint16_t port)
{
    struct entry *oldest = NULL;
    for (size_t i = 0; i < RG_RESOLVER_HOSTS_MAX; i++) {
        struct entry *entry = &resolver->shared.entries[i];
        if (!entry->busy && (oldest == NULL || entry->used < oldest->used)) {
            oldest = entry;
        }
    }
    if (oldest != NULL) {
        RG_ASSERT(rg_list_empty(&oldest->waiters));
        rg_addresses_unref(oldest->addresses);
        *oldest = (struct entry){.port = port};
        memcpy(oldest->host, host, strlen(host) + 1);
        rg_list_init(&oldest->waiters);
    }
    return oldest;
}

static void entry_store_locked(struct entry *entry, const struct answer *answer, uint64_t now_ns)
{
    if (answer->gai_error == 0) {
        rg_addresses_unref(entry->addresses);
        entry->addresses = answer->addresses;
        entry->fresh_until_ns = now_ns + RG_RESOLVER_FRESH_NS;
        entry->stale_until_ns = entry->fresh_until_ns + RG_RESOLVER_STALE_NS;
    } else {
        entry->fresh_until_ns = now_ns + RG_RESOLVER_FAILED_NS;
        if (now_ns >= entry->stale_until_ns) {
            rg_addresses_unref(entry->addresses);
            entry->addresses = NULL;
        }
    }
    entry->gai_error = entry->addresses != NULL ? 0 : answer->gai_error;
    entry->os_error = entry->addresses != NULL ? 0 : answer->os_error;
}

/* Takes the waiters off the entry, with their answers, as a chain. */
static struct rg_mail *entry_take_waiters_locked(struct entry *entry)
{
    struct rg_mail *chain = NULL, **tail = &chain;
    struct rg_list *node;
    while ((node = rg_list_pop_front(&entry->waiters)) != NULL) {
        struct rg_resolve *request = RG_CONTAINER_OF(node, struct rg_resolve, waiter);
        request->gai_error = entry->gai_error;
        request->os_error = entry->os_error;
        request->addresses = rg_addresses_ref(entry->addresses);
        request->mail.next = NULL;
        *tail = &request->mail;
        tail = &request->mail.next;
    }
    return chain;
}

/* The system call of this file. */
static struct answer look_up(const struct rg_resolver *resolver, const char *host, uint16_t port)
{
    char service[sizeof("65535")];
    snprintf(service, sizeof(service), "%u", port);
    /* Without AI_ADDRCONFIG: it hides ::1 and 127.0.0.1 on hosts that have no other address of the
     * family, and a connection attempt finds out as well. */
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV,
    };
    struct answer answer = {0};
    struct addrinfo *list = NULL;
    answer.gai_error = resolver->options.getaddrinfo(host, service, &hints, &list);
    if (answer.gai_error == EAI_SYSTEM) {
        answer.os_error = errno;
    }
    if (answer.gai_error == 0) {
        answer.gai_error = addresses_interleave(list, &answer.addresses);
        resolver->options.freeaddrinfo(list);
    }
    return answer;
}

static void resolver_lock(struct rg_resolver *resolver)
{
    int rc = pthread_mutex_lock(&resolver->shared.mutex);
    RG_ASSERT(rc == 0);
}

static void resolver_unlock(struct rg_resolver *resolver)
{
    int rc = pthread_mutex_unlock(&resolver->shared.mutex);
    RG_ASSERT(rc == 0);
}

/* Frees it with the last reference. */
static void resolver_unref(struct rg_resolver *resolver)
{
    resolver_lock(resolver);
    RG_ASSERT(resolver->shared.ref_count > 0);
    bool last = --resolver->shared.ref_count == 0;
    resolver_unlock(resolver);
    if (!last) {
        return;
    }
    for (size_t i = 0; i < RG_RESOLVER_HOSTS_MAX; i++) {
        rg_addresses_unref(resolver->shared.entries[i].addresses);
    }
    pthread_cond_destroy(&resolver->shared.changed);
    pthread_mutex_destroy(&resolver->shared.mutex);
    free(resolver);
}

/* Looks one entry up: the lock is given up meanwhile. */
static void resolver_serve_locked(struct rg_resolver *resolver, struct entry *entry)
{
    RG_ASSERT(entry->busy);
    resolver_unlock(resolver);
    struct answer answer = look_up(resolver, entry->host, entry->port);
    resolver_lock(resolver);
    entry_store_locked(entry, &answer, resolver->options.now_ns());
    entry->busy = false;
    struct rg_mail *chain = entry_take_waiters_locked(entry);
    resolver_unlock(resolver);
    while (chain != NULL) {
        struct rg_resolve *request = RG_CONTAINER_OF(chain, struct rg_resolve, mail);
        chain = chain->next;
        rg_loop_post(request->loop, &request->mail);
    }
    resolver_lock(resolver);
}

static void *resolver_thread(void *context)
{
    struct rg_resolver *resolver = context;
    resolver_lock(resolver);
    while (!resolver->shared.stopping) {
        struct rg_list *node = rg_list_pop_front(&resolver->shared.queue);
        if (node != NULL) {
            resolver_serve_locked(resolver, RG_CONTAINER_OF(node, struct entry, queued));
        } else {
            pthread_cond_wait(&resolver->shared.changed, &resolver->shared.mutex);
        }
    }
    resolver->shared.thread_ended = true;
    pthread_cond_signal(&resolver->shared.changed);
    resolver_unlock(resolver);
    resolver_unref(resolver);
    return NULL;
}

/* 0 or a negative errno. */
static int thread_start_locked(struct rg_resolver *resolver)
{
    if (resolver->shared.has_thread) {
        return 0;
    }
    int rc =
        rg_thread_start(&resolver->shared.thread, RESOLVER_STACK_SIZE, resolver_thread, resolver);
    if (rc == 0) {
        resolver->shared.has_thread = true;
        resolver->shared.ref_count++;
    }
    return rc;
}

int rg_resolver_create(struct rg_resolver **out_resolver, const struct rg_resolver_options *options)
{
    uint32_t generation = rg_fork_generation();
    struct rg_resolver *resolver = generation != 0 ? calloc(1, sizeof(*resolver)) : NULL;
    if (resolver == NULL) {
        return -ENOMEM;
    }
    resolver->options = options != NULL ? *options : (struct rg_resolver_options){0};
    if (resolver->options.getaddrinfo == NULL) {
        resolver->options.getaddrinfo = getaddrinfo;
        resolver->options.freeaddrinfo = freeaddrinfo;
    }
    if (resolver->options.now_ns == NULL) {
        resolver->options.now_ns = rg_now_ns;
    }
    RG_ASSERT(resolver->options.freeaddrinfo != NULL);
    resolver->generation = generation;
    resolver->shared.ref_count = 1;
    pthread_mutex_init(&resolver->shared.mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&resolver->shared.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rg_list_init(&resolver->shared.queue);
    for (size_t i = 0; i < RG_RESOLVER_HOSTS_MAX; i++) {
        rg_list_init(&resolver->shared.entries[i].waiters);
    }
    *out_resolver = resolver;
    return 0;
}

/* True if the thread ended in time. */
static bool thread_wait_locked(struct rg_resolver *resolver)
{
    struct timespec deadline = rg_timespec_from_ns(rg_now_ns() + RG_RESOLVER_CLOSE_NS);
    int rc = 0;
    while (rc == 0 && !resolver->shared.thread_ended) {
        rc = pthread_cond_timedwait(&resolver->shared.changed, &resolver->shared.mutex, &deadline);
    }
    return resolver->shared.thread_ended;
}

void rg_resolver_destroy(struct rg_resolver *resolver)
{
    /* In a forked child the lock may be held by a thread that does not exist: the copy is given
     * up. */
    if (resolver == NULL || resolver->generation != rg_fork_generation()) {
        return;
    }
    resolver_lock(resolver);
    for (size_t i = 0; i < RG_RESOLVER_HOSTS_MAX; i++) {
        RG_ASSERT(rg_list_empty(&resolver->shared.entries[i].waiters));
    }
    bool has_thread = resolver->shared.has_thread;
    pthread_t thread = resolver->shared.thread;
    resolver->shared.stopping = true;
    pthread_cond_signal(&resolver->shared.changed);
    bool ended = has_thread && thread_wait_locked(resolver);
    resolver_unlock(resolver);
    if (ended) {
        pthread_join(thread, NULL);
    } else if (has_thread) {
        pthread_detach(thread);
    }
    resolver_unref(resolver);
}

/* Answers the request from the cache (true), or makes it wait. */
static bool resolve_locked(struct rg_resolver *resolver, struct rg_resolve *request,
                           struct entry *entry, struct answer *out_answer)
{
    uint64_t now_ns = resolver->options.now_ns();
    entry->used = ++resolver->shared.request_count;
    if (!entry->busy && now_ns >= entry->fresh_until_ns) {
        int rc = thread_start_locked(resolver);
        if (rc != 0) {
            entry_store_locked(entry, &(struct answer){EAI_SYSTEM, -rc, NULL}, now_ns);
        } else {
            entry->busy = true;
            rg_list_push_back(&resolver->shared.queue, &entry->queued);
            pthread_cond_signal(&resolver->shared.changed);
        }
    }
    if (!entry_answers(entry, now_ns)) {
        RG_ASSERT(entry->busy);
        rg_list_push_back(&entry->waiters, &request->waiter);
        return false;
    }
    *out_answer = (struct answer){
        .gai_error = entry->gai_error,
        .os_error = entry->os_error,
        .addresses = rg_addresses_ref(entry->addresses),
    };
    return true;
}

void rg_resolver_resolve(struct rg_resolver *resolver, struct rg_resolve *request, const char *host,
                         uint16_t port)
{
    RG_ASSERT(!request->pending && request->loop != NULL && request->done != NULL);
    request->pending = true;
    request->mail.run = request_run;
    struct rg_address literal;
    if (parse_literal(host, port, &literal)) {
        request_answer_literal(request, &literal);
        return;
    }
    if (host[0] == '\0' || strlen(host) > RG_RESOLVER_HOST_SIZE_MAX) {
        request_answer(request, EAI_NONAME, 0, NULL);
        return;
    }
    resolver_lock(resolver);
    RG_ASSERT(!resolver->shared.stopping);
    struct answer answer = {.gai_error = EAI_AGAIN};
    bool answered = true;
    struct entry *entry = entry_find_locked(resolver, host, port);
    if (entry == NULL) {
        entry = entry_claim_locked(resolver, host, port);
    }
    if (entry != NULL) {
        answered = resolve_locked(resolver, request, entry, &answer);
    }
    resolver_unlock(resolver);
    if (answered) {
        request_answer(request, answer.gai_error, answer.os_error, answer.addresses);
    }
}

void rg_resolver_cancel(struct rg_resolver *resolver, struct rg_resolve *request)
{
    resolver_lock(resolver);
    bool waited = rg_list_linked(&request->waiter);
    rg_list_remove(&request->waiter);
    resolver_unlock(resolver);
    if (waited) {
        RG_ASSERT(request->pending);
        request_answer(request, EAI_CANCELED, 0, NULL);
    }
}

static const struct {
    int gai_error;
    bool final;
    const char *text;
} failures[] = {
    {EAI_NONAME, true, "no such host"}, /* the name servers have answered, unlike with EAI_AGAIN */
    {EAI_NODATA, false, "the host has no IPv4 or IPv6 address"},
    {EAI_ADDRFAMILY, false, "the host has no IPv4 or IPv6 address"},
    {EAI_AGAIN, false, "the name server did not answer"},
    {EAI_FAIL, false, "the name server failed"},
    {EAI_MEMORY, false, "no memory for looking up a name"},
    {EAI_SYSTEM, false, "looking up the name failed in the operating system"},
    {EAI_CANCELED, false, "looking up the name was cancelled"},
};

struct rg_resolver_failure rg_resolver_failure(int gai_error, int os_error)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(failures); i++) {
        if (failures[i].gai_error == gai_error) {
            bool by_system = gai_error == EAI_SYSTEM && os_error > 0;
            return (struct rg_resolver_failure){
                .status =
                    by_system ? rg_errors_status(RG_ERRORS_RESOLVE, os_error) : RG_STATUS_RESOLVE,
                .final = failures[i].final,
                .text = failures[i].text,
            };
        }
    }
    return (struct rg_resolver_failure){
        .status = RG_STATUS_UNEXPECTED,
        .text = gai_strerror(gai_error),
    };
}
