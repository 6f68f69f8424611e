/* Name resolution against a made-up getaddrinfo and a made-up clock. */
#include "http/resolver.h"

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

/* What the made-up name service answers: a digit per address, its family. Set before a request and
 * read by the resolver's thread under the resolver's lock discipline, or while `gate` holds it. */
static struct {
    char families[80];
    int gai_error, os_error;
    bool gated;
    sem_t entered, gate;
    _Atomic uint32_t calls, freed;
    struct addrinfo hints;
    char service[8];
} names;

static _Atomic uint64_t clock_ns;

static uint64_t fake_now_ns(void)
{
    return atomic_load(&clock_ns);
}

static void *fake_address(char family, uint32_t number, socklen_t *out_size)
{
    if (family == '4') {
        struct sockaddr_in *v4 = calloc(1, sizeof(*v4));
        v4->sin_family = AF_INET;
        v4->sin_addr.s_addr = htonl(number);
        *out_size = sizeof(*v4);
        return v4;
    }
    struct sockaddr_in6 *v6 = calloc(1, sizeof(*v6));
    v6->sin6_family = family == '6' ? AF_INET6 : AF_APPLETALK;
    v6->sin6_addr.s6_addr[15] = (uint8_t)number;
    *out_size = sizeof(*v6);
    return v6;
}

static int fake_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                            struct addrinfo **out_list)
{
    RG_ASSERT(host[0] != '\0');
    names.hints = *hints;
    snprintf(names.service, sizeof(names.service), "%s", service);
    atomic_fetch_add(&names.calls, 1);
    if (names.gated) {
        sem_post(&names.entered);
        sem_wait(&names.gate);
    }
    if (names.gai_error != 0) {
        errno = names.os_error;
        return names.gai_error;
    }
    struct addrinfo *list = NULL, **tail = &list;
    for (uint32_t i = 0; names.families[i] != '\0'; i++) {
        struct addrinfo *info = calloc(1, sizeof(*info));
        info->ai_addr = fake_address(names.families[i], i, &info->ai_addrlen);
        info->ai_family = info->ai_addr->sa_family;
        *tail = info;
        tail = &info->ai_next;
    }
    *out_list = list;
    return 0;
}

static void fake_freeaddrinfo(struct addrinfo *list)
{
    atomic_fetch_add(&names.freed, 1);
    while (list != NULL) {
        struct addrinfo *next = list->ai_next;
        free(list->ai_addr);
        free(list);
        list = next;
    }
}

static const struct rg_resolver_options fake_options = {
    .getaddrinfo = fake_getaddrinfo,
    .freeaddrinfo = fake_freeaddrinfo,
    .now_ns = fake_now_ns,
};

struct client {
    struct rg_resolve request;
    struct rg_addresses *addresses;
    int gai_error;
    uint32_t done_count;
};

static struct rg_loop *loop;
static struct rg_resolver *resolver;

static void setup(const struct rg_resolver_options *options)
{
    names.families[0] = '\0';
    names.gai_error = names.os_error = 0;
    names.gated = false;
    names.calls = names.freed = 0;
    sem_init(&names.entered, 0, 0);
    sem_init(&names.gate, 0, 0);
    atomic_store(&clock_ns, RG_NS_PER_S);
    const struct rg_loop_options loop_options = {
        .backend = &rg_epoll_backend,
        .placement = {.cpu = -1, .node = -1},
    };
    RG_CHECK_EQ(rg_loop_create(&loop, &loop_options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    RG_CHECK_EQ(rg_resolver_create(&resolver, options), 0);
}

static void teardown(void)
{
    rg_resolver_destroy(resolver);
    rg_loop_destroy(loop);
}

static void client_done(struct rg_resolve *request, int gai_error, struct rg_addresses *addresses)
{
    struct client *client = RG_CONTAINER_OF(request, struct client, request);
    RG_ASSERT((gai_error == 0) == (addresses != NULL));
    rg_addresses_unref(client->addresses);
    client->addresses = addresses;
    client->gai_error = gai_error;
    client->done_count++;
}

static void client_ask(struct client *client, const char *host, uint16_t port)
{
    client->request.loop = loop;
    client->request.done = client_done;
    uint32_t before = client->done_count;
    rg_resolver_resolve(resolver, &client->request, host, port);
    RG_CHECK_EQ(client->done_count, before);
}

static void client_wait(const struct client *client, uint32_t done_count)
{
    uint64_t deadline_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;
    while (client->done_count < done_count && rg_now_ns() < deadline_ns) {
        rg_loop_pass(loop, rg_now_ns() + 10 * RG_NS_PER_MS);
    }
    RG_CHECK_EQ(client->done_count, done_count);
}

static void client_resolve(struct client *client, const char *host, uint16_t port)
{
    client_ask(client, host, port);
    client_wait(client, client->done_count + 1);
}

/* Waits until the thread has finished a refresh that nobody waits for: it serves in order. */
static void wait_for_refresh(uint16_t port)
{
    struct client barrier = {0};
    client_resolve(&barrier, "barrier.example", port);
    rg_addresses_unref(barrier.addresses);
}

static void client_fini(struct client *client)
{
    rg_addresses_unref(client->addresses);
}

static void test_literals_need_no_thread(void)
{
    setup(&fake_options);
    struct client v4 = {0}, v6 = {0};
    client_resolve(&v4, "127.0.0.1", 8080);
    client_resolve(&v6, "::1", 443);
    RG_CHECK_EQ(v4.gai_error, 0);
    RG_CHECK_EQ(v4.addresses->count, 1);
    const struct sockaddr_in *in = (const void *)&v4.addresses->list[0].storage;
    RG_CHECK_EQ(in->sin_family, AF_INET);
    RG_CHECK_EQ(ntohl(in->sin_addr.s_addr), INADDR_LOOPBACK);
    RG_CHECK_EQ(ntohs(in->sin_port), 8080);
    RG_CHECK_EQ(v4.addresses->list[0].size, sizeof(*in));
    const struct sockaddr_in6 *in6 = (const void *)&v6.addresses->list[0].storage;
    RG_CHECK_EQ(in6->sin6_family, AF_INET6);
    RG_CHECK(IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr));
    RG_CHECK_EQ(ntohs(in6->sin6_port), 443);
    RG_CHECK_EQ(names.calls, 0);
    client_fini(&v4);
    client_fini(&v6);
    teardown();
}

static void test_the_system_knows_localhost(void)
{
    setup(NULL);
    struct client client = {0};
    client_resolve(&client, "localhost", 4443);
    RG_CHECK_EQ(client.gai_error, 0);
    RG_CHECK(client.addresses->count >= 1);
    const struct sockaddr_storage *first = &client.addresses->list[0].storage;
    uint16_t port = first->ss_family == AF_INET ? ((const struct sockaddr_in *)first)->sin_port
                                                : ((const struct sockaddr_in6 *)first)->sin6_port;
    RG_CHECK_EQ(ntohs(port), 4443);
    client_fini(&client);
    teardown();
}

/* The order of the answer as a string of digits and the numbers of the addresses. */
static void check_order(const char *families, const char *want)
{
    setup(&fake_options);
    snprintf(names.families, sizeof(names.families), "%s", families);
    struct client client = {0};
    client_resolve(&client, "host.example", 443);
    RG_CHECK_EQ(client.gai_error, 0);
    char got[2 * RG_RESOLVER_ADDRESSES_MAX + 1] = "";
    for (uint32_t i = 0; i < client.addresses->count; i++) {
        const struct sockaddr_storage *storage = &client.addresses->list[i].storage;
        bool is_v4 = storage->ss_family == AF_INET;
        uint32_t number = is_v4 ? ntohl(((const struct sockaddr_in *)storage)->sin_addr.s_addr)
                                : ((const struct sockaddr_in6 *)storage)->sin6_addr.s6_addr[15];
        got[2 * i] = is_v4 ? '4' : '6';
        got[2 * i + 1] = (char)('a' + number);
        got[2 * i + 2] = '\0';
    }
    RG_CHECK_STR(got, want);
    RG_CHECK_EQ(names.freed, 1);
    client_fini(&client);
    teardown();
}

static void test_families_alternate_and_the_systems_first_stays_first(void)
{
    check_order("4", "4a");
    check_order("6", "6a");
    check_order("4466", "4a6c4b6d");
    check_order("6644", "6a4c6b4d");
    check_order("6444", "6a4b4c4d");
    check_order("44446", "4a6e4b4c4d");
    check_order("x46", "4b6c");
}

static void test_addresses_beyond_the_limit_are_left_out(void)
{
    setup(&fake_options);
    memset(names.families, '4', 40);
    memset(names.families + 40, '6', 30);
    names.families[70] = '\0';
    struct client client = {0};
    client_resolve(&client, "many.example", 443);
    RG_CHECK_EQ(client.addresses->count, RG_RESOLVER_ADDRESSES_MAX);
    for (uint32_t i = 0; i < client.addresses->count; i++) {
        RG_CHECK_EQ(client.addresses->list[i].storage.ss_family, i % 2 == 0 ? AF_INET : AF_INET6);
    }
    client_fini(&client);
    teardown();
}

static void test_the_system_is_asked_for_streams_of_any_family(void)
{
    setup(&fake_options);
    strcpy(names.families, "4");
    struct client client = {0};
    client_resolve(&client, "host.example", 65535);
    RG_CHECK_EQ(names.hints.ai_family, AF_UNSPEC);
    RG_CHECK_EQ(names.hints.ai_socktype, SOCK_STREAM);
    RG_CHECK_EQ(names.hints.ai_flags & AI_ADDRCONFIG, 0);
    RG_CHECK_STR(names.service, "65535");
    client_fini(&client);
    teardown();
}

static void test_errors_are_told_and_kept_for_a_second(void)
{
    static const int errors[] = {EAI_NONAME, EAI_AGAIN, EAI_FAIL, EAI_SYSTEM};
    for (size_t i = 0; i < RG_ARRAY_LEN(errors); i++) {
        setup(&fake_options);
        names.gai_error = errors[i];
        names.os_error = EMFILE;
        struct client client = {0};
        client_resolve(&client, "bad.example", 443);
        RG_CHECK_EQ(client.gai_error, errors[i]);
        RG_CHECK_EQ(client.request.os_error, errors[i] == EAI_SYSTEM ? EMFILE : 0);
        atomic_fetch_add(&clock_ns, RG_RESOLVER_FAILED_NS - 1);
        client_resolve(&client, "bad.example", 443);
        RG_CHECK_EQ(client.gai_error, errors[i]);
        RG_CHECK_EQ(names.calls, 1);
        names.gai_error = 0;
        strcpy(names.families, "6");
        atomic_fetch_add(&clock_ns, 1);
        client_resolve(&client, "bad.example", 443);
        RG_CHECK_EQ(client.gai_error, 0);
        RG_CHECK_EQ(names.calls, 2);
        client_fini(&client);
        teardown();
    }
}

static void test_a_name_without_usable_addresses_is_an_error(void)
{
    setup(&fake_options);
    strcpy(names.families, "x");
    struct client client = {0};
    client_resolve(&client, "appletalk.example", 443);
    RG_CHECK_EQ(client.gai_error, EAI_NODATA);
    RG_CHECK_EQ(names.freed, 1);
    teardown();
}

static void test_a_bad_name_is_refused_without_asking(void)
{
    setup(&fake_options);
    char host[RG_RESOLVER_HOST_SIZE_MAX + 2];
    memset(host, 'a', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    struct client client = {0};
    client_resolve(&client, host, 443);
    RG_CHECK_EQ(client.gai_error, EAI_NONAME);
    client_resolve(&client, "", 443);
    RG_CHECK_EQ(client.gai_error, EAI_NONAME);
    RG_CHECK_EQ(names.calls, 0);
    teardown();
}

static void test_answers_are_cached_by_host_and_port(void)
{
    setup(&fake_options);
    strcpy(names.families, "46");
    struct client a = {0}, b = {0};
    client_resolve(&a, "host.example", 443);
    client_resolve(&b, "HOST.example", 443);
    RG_CHECK(a.addresses == b.addresses);
    RG_CHECK_EQ(names.calls, 1);
    client_resolve(&b, "host.example", 80);
    RG_CHECK(a.addresses != b.addresses);
    RG_CHECK_EQ(names.calls, 2);
    client_fini(&a);
    client_fini(&b);
    teardown();
}

static void test_an_old_answer_is_given_out_while_a_new_one_is_looked_up(void)
{
    setup(&fake_options);
    strcpy(names.families, "4");
    struct client client = {0};
    client_resolve(&client, "host.example", 443);
    atomic_fetch_add(&clock_ns, RG_RESOLVER_FRESH_NS);
    strcpy(names.families, "66");
    names.gated = true;
    client_resolve(&client, "host.example", 443);
    RG_CHECK_EQ(client.addresses->count, 1);
    sem_wait(&names.entered);
    client_resolve(&client, "host.example", 443);
    RG_CHECK_EQ(client.addresses->count, 1);
    RG_CHECK_EQ(names.calls, 2);
    sem_post(&names.gate);
    for (int i = 0; i < 10000 && client.addresses->count == 1; i++) {
        client_resolve(&client, "host.example", 443);
    }
    RG_CHECK_EQ(client.addresses->count, 2);
    RG_CHECK_EQ(names.calls, 2);
    client_fini(&client);
    teardown();
}

static void test_a_failing_refresh_keeps_the_old_answer_for_ten_minutes(void)
{
    setup(&fake_options);
    strcpy(names.families, "4");
    struct client client = {0};
    client_resolve(&client, "host.example", 443);
    names.gai_error = EAI_AGAIN;
    atomic_fetch_add(&clock_ns, RG_RESOLVER_FRESH_NS);
    client_resolve(&client, "host.example", 443);
    RG_CHECK_EQ(client.gai_error, 0);
    wait_for_refresh(1);
    RG_CHECK_EQ(names.calls, 3);
    atomic_fetch_add(&clock_ns, RG_RESOLVER_STALE_NS - 1);
    client_resolve(&client, "host.example", 443);
    RG_CHECK_EQ(client.gai_error, 0);
    wait_for_refresh(2);
    RG_CHECK_EQ(names.calls, 5);
    atomic_fetch_add(&clock_ns, RG_RESOLVER_FAILED_NS);
    client_resolve(&client, "host.example", 443);
    RG_CHECK_EQ(client.gai_error, EAI_AGAIN);
    client_fini(&client);
    teardown();
}

static void test_all_who_wait_for_a_name_share_one_look_up(void)
{
    setup(&fake_options);
    strcpy(names.families, "46");
    names.gated = true;
    struct client clients[20] = {0};
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        client_ask(&clients[i], "host.example", 443);
    }
    sem_wait(&names.entered);
    sem_post(&names.gate);
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        client_wait(&clients[i], 1);
        RG_CHECK(clients[i].addresses == clients[0].addresses);
    }
    RG_CHECK_EQ(names.calls, 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        client_fini(&clients[i]);
    }
    teardown();
}

static void test_cancelling_ends_one_wait_and_no_other(void)
{
    setup(&fake_options);
    strcpy(names.families, "4");
    names.gated = true;
    struct client first = {0}, second = {0};
    client_ask(&first, "host.example", 443);
    client_ask(&second, "host.example", 443);
    sem_wait(&names.entered);
    rg_resolver_cancel(resolver, &first.request);
    RG_CHECK_EQ(first.done_count, 0);
    rg_resolver_cancel(resolver, &first.request);
    client_wait(&first, 1);
    RG_CHECK_EQ(first.gai_error, EAI_CANCELED);
    RG_CHECK_EQ(second.done_count, 0);
    sem_post(&names.gate);
    client_wait(&second, 1);
    RG_CHECK_EQ(second.gai_error, 0);
    rg_resolver_cancel(resolver, &second.request);
    rg_loop_pass(loop, 0);
    RG_CHECK_EQ(first.done_count, 1);
    RG_CHECK_EQ(second.done_count, 1);
    client_fini(&first);
    client_fini(&second);
    teardown();
}

static void test_more_hosts_at_once_than_the_cache_holds_are_refused(void)
{
    setup(&fake_options);
    strcpy(names.families, "4");
    names.gated = true;
    static struct client clients[RG_RESOLVER_HOSTS_MAX + 1];
    memset(clients, 0, sizeof(clients));
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        char host[32];
        snprintf(host, sizeof(host), "host-%zu.example", i);
        client_ask(&clients[i], host, 443);
    }
    struct client *last = &clients[RG_RESOLVER_HOSTS_MAX];
    client_wait(last, 1);
    RG_CHECK_EQ(last->gai_error, EAI_AGAIN);
    for (size_t i = 0; i < RG_RESOLVER_HOSTS_MAX; i++) {
        sem_post(&names.gate);
        client_wait(&clients[i], 1);
        RG_CHECK_EQ(clients[i].gai_error, 0);
    }
    /* Idle entries make room, and the one that was asked for last stays. */
    names.gated = false;
    client_resolve(&clients[0], "host-0.example", 443);
    RG_CHECK_EQ(names.calls, RG_RESOLVER_HOSTS_MAX);
    client_resolve(last, "new.example", 443);
    RG_CHECK_EQ(last->gai_error, 0);
    client_resolve(&clients[0], "host-0.example", 443);
    RG_CHECK_EQ(names.calls, RG_RESOLVER_HOSTS_MAX + 1);
    client_resolve(&clients[1], "host-1.example", 443);
    RG_CHECK_EQ(names.calls, RG_RESOLVER_HOSTS_MAX + 2);
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        client_fini(&clients[i]);
    }
    teardown();
}

static void test_a_resolver_that_never_looked_anything_up_closes(void)
{
    setup(&fake_options);
    teardown();
    rg_resolver_destroy(NULL);
    rg_addresses_unref(NULL);
    RG_CHECK(rg_addresses_ref(NULL) == NULL);
}

static void test_closing_does_not_wait_for_a_look_up_that_hangs(void)
{
    setup(&fake_options);
    strcpy(names.families, "4");
    names.gated = true;
    struct client client = {0};
    client_ask(&client, "host.example", 443);
    sem_wait(&names.entered);
    rg_resolver_cancel(resolver, &client.request);
    client_wait(&client, 1);
    uint64_t before_ns = rg_now_ns();
    teardown();
    uint64_t waited_ns = rg_now_ns() - before_ns;
    RG_CHECK(waited_ns >= RG_RESOLVER_CLOSE_NS);
    RG_CHECK(waited_ns < RG_RESOLVER_CLOSE_NS + RG_TEST_PATIENCE_NS);
    /* The thread now frees the resolver; the address sanitizer would see it use what is gone. */
    sem_post(&names.gate);
    RG_AWAIT(atomic_load(&names.freed) != 0);
    RG_CHECK_EQ(names.freed, 1);
}

static void test_every_error_has_a_text(void)
{
    for (int error = 1; error > -200; error--) {
        const char *text = rg_resolver_failure(error, 0).text;
        RG_CHECK(text != NULL && text[0] != '\0');
    }
    RG_CHECK_STR(rg_resolver_failure(EAI_NONAME, 0).text, "no such host");
}

static void test_every_error_has_a_meaning(void)
{
    static const int listed[] = {EAI_NONAME, EAI_NODATA, EAI_ADDRFAMILY, EAI_AGAIN,
                                 EAI_FAIL,   EAI_MEMORY, EAI_CANCELED};
    for (size_t i = 0; i < RG_ARRAY_LEN(listed); i++) {
        struct rg_resolver_failure failure = rg_resolver_failure(listed[i], 0);
        RG_CHECK_EQ(failure.status, RG_STATUS_RESOLVE);
        RG_CHECK_EQ(failure.final, listed[i] == EAI_NONAME);
    }
    RG_CHECK_EQ(rg_resolver_failure(EAI_BADFLAGS, 0).status, RG_STATUS_UNEXPECTED);
    /* EAI_SYSTEM is as bad as the number that comes with it, if one does. */
    RG_CHECK_EQ(rg_resolver_failure(EAI_SYSTEM, 0).status, RG_STATUS_RESOLVE);
    RG_CHECK_EQ(rg_resolver_failure(EAI_SYSTEM, EMFILE).status, RG_STATUS_RESOLVE);
    RG_CHECK_EQ(rg_resolver_failure(EAI_SYSTEM, EBADF).status, RG_STATUS_UNEXPECTED);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_literals_need_no_thread),
        RG_TEST(test_the_system_knows_localhost),
        RG_TEST(test_families_alternate_and_the_systems_first_stays_first),
        RG_TEST(test_addresses_beyond_the_limit_are_left_out),
        RG_TEST(test_the_system_is_asked_for_streams_of_any_family),
        RG_TEST(test_errors_are_told_and_kept_for_a_second),
        RG_TEST(test_a_name_without_usable_addresses_is_an_error),
        RG_TEST(test_a_bad_name_is_refused_without_asking),
        RG_TEST(test_answers_are_cached_by_host_and_port),
        RG_TEST(test_an_old_answer_is_given_out_while_a_new_one_is_looked_up),
        RG_TEST(test_a_failing_refresh_keeps_the_old_answer_for_ten_minutes),
        RG_TEST(test_all_who_wait_for_a_name_share_one_look_up),
        RG_TEST(test_cancelling_ends_one_wait_and_no_other),
        RG_TEST(test_more_hosts_at_once_than_the_cache_holds_are_refused),
        RG_TEST(test_a_resolver_that_never_looked_anything_up_closes),
        RG_TEST(test_closing_does_not_wait_for_a_look_up_that_hangs),
        RG_TEST(test_every_error_has_a_text),
        RG_TEST(test_every_error_has_a_meaning),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
