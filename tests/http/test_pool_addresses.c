/* The addresses of a pool's host: when they are looked up, what remains of them, and what is told
 * of failures. */
#include "http/pool_addresses.h"

#include "tests/support/hosts.h"
#include "tests/support/test.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>

struct setting {
    struct rg_loop *loop;
    struct rg_resolver *resolver;
    struct rg_pool_addresses addresses;
    uint32_t told_count;
    struct rg_transport_failure told;
    char text[256];
};

static void looked_up(struct rg_pool_addresses *addresses,
                      const struct rg_transport_failure *failure)
{
    struct setting *setting = RG_CONTAINER_OF(addresses, struct setting, addresses);
    setting->told_count++;
    setting->told = failure != NULL ? *failure : (struct rg_transport_failure){0};
    snprintf(setting->text, sizeof(setting->text), "%s", failure != NULL ? failure->text : "");
}

static struct setting *setting_open(const char *via)
{
    struct setting *setting = calloc(1, sizeof(*setting));
    const struct rg_loop_options loop_options = {
        .backend = &rg_epoll_backend,
        .placement = {.cpu = -1, .node = -1},
    };
    struct rg_resolver_options options = {0};
    rg_test_hosts_use(&options);
    RG_CHECK_EQ(rg_loop_create(&setting->loop, &loop_options), 0);
    RG_CHECK_EQ(rg_loop_attach(setting->loop), 0);
    RG_CHECK_EQ(rg_resolver_create(&setting->resolver, &options), 0);
    setting->addresses = (struct rg_pool_addresses){
        .loop = setting->loop,
        .resolver = setting->resolver,
        .name = "the.server",
        .host = "any.example",
        .port = 443,
        .via = via,
        .looked_up = looked_up,
    };
    rg_pool_addresses_init(&setting->addresses);
    return setting;
}

static void setting_close(struct setting *setting)
{
    rg_pool_addresses_fini(&setting->addresses);
    rg_resolver_destroy(setting->resolver);
    rg_loop_destroy(setting->loop);
    free(setting);
}

/* Asks, and waits for the answer, if there is to be one. */
static void refresh(struct setting *setting)
{
    rg_pool_addresses_refresh(&setting->addresses);
    while (rg_pool_addresses_looking_up(&setting->addresses)) {
        rg_loop_pass(setting->loop, rg_now_ns() + RG_NS_PER_MS);
    }
}

static void hosts_set(const char *first, const char *second)
{
    rg_test_hosts.hosts[0] = first;
    rg_test_hosts.hosts[1] = second;
    rg_test_hosts.count = second != NULL ? 2 : 1;
    rg_test_hosts.error = 0;
}

static void test_they_are_looked_up_when_wanted_and_again_after_a_while(void)
{
    hosts_set("127.0.0.1", NULL);
    struct setting *setting = setting_open(NULL);
    RG_CHECK(!rg_pool_addresses_known(&setting->addresses));
    refresh(setting);
    RG_CHECK_EQ(setting->told_count, 1);
    RG_CHECK_EQ(setting->told.status, RG_STATUS_OK);
    RG_CHECK(rg_pool_addresses_known(&setting->addresses));
    refresh(setting);
    RG_CHECK_EQ(setting->told_count, 1);
    setting->addresses.resolved_ns = setting->loop->now_ns - RG_POOL_RESOLVE_INTERVAL_NS;
    refresh(setting);
    RG_CHECK_EQ(setting->told_count, 2);
    setting_close(setting);
}

static void test_an_address_is_looked_up_once(void)
{
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < RG_ARRAY_LEN(hosts); i++) {
        struct setting *setting = setting_open(NULL);
        setting->addresses.host = hosts[i];
        rg_pool_addresses_init(&setting->addresses);
        refresh(setting);
        RG_CHECK(rg_pool_addresses_known(&setting->addresses));
        setting->addresses.resolved_ns = setting->loop->now_ns - RG_POOL_RESOLVE_INTERVAL_NS;
        refresh(setting);
        RG_CHECK_EQ(setting->told_count, 1);
        setting_close(setting);
    }
}

static void test_a_look_up_that_fails_leaves_what_was_known(void)
{
    hosts_set("127.0.0.1", NULL);
    struct setting *setting = setting_open(NULL);
    refresh(setting);
    /* The resolver's cache would hide a failure of the system: it is given by hand. */
    setting->addresses.state = RG_POOL_ADDRESSES_LOOKING_UP;
    setting->addresses.resolve.done(&setting->addresses.resolve, EAI_AGAIN, NULL);
    RG_CHECK_EQ(setting->addresses.state, RG_POOL_ADDRESSES_KNOWN);
    RG_CHECK_EQ(setting->told.status, RG_STATUS_RESOLVE);
    RG_CHECK(!setting->told.final);
    setting_close(setting);
}

static void test_a_name_that_is_not_there_is_told_with_its_proxy(void)
{
    rg_test_hosts.error = EAI_NONAME;
    struct setting *setting = setting_open("proxy p");
    refresh(setting);
    RG_CHECK_EQ(setting->addresses.state, RG_POOL_ADDRESSES_UNKNOWN);
    RG_CHECK_EQ(setting->told.status, RG_STATUS_RESOLVE);
    RG_CHECK(setting->told.final);
    RG_CHECK_STR(setting->text, "proxy p: no such host");
    setting_close(setting);
}

/* A connection to the next address fails. */
static void fail_next(struct setting *setting, enum rg_status status, int os_error,
                      const char *text)
{
    struct rg_candidates *candidates = &setting->addresses.candidates;
    struct rg_candidate_use use;
    const struct rg_transport_failure failure = {
        .status = status, .os_error = os_error, .text = text};
    rg_candidates_begin(candidates, rg_candidates_choose(candidates, setting->loop->now_ns), &use);
    rg_pool_addresses_failed(&setting->addresses, &use, &failure);
    rg_candidate_release(&use);
}

static void test_what_may_pass_is_told_before_what_is_final(void)
{
    hosts_set("127.0.0.1", "127.0.0.2");
    struct setting *setting = setting_open(NULL);
    struct rg_candidates *candidates = &setting->addresses.candidates;
    refresh(setting);
    fail_next(setting, RG_STATUS_CONNECT, ETIMEDOUT, NULL);
    RG_CHECK(!rg_candidates_lost(candidates, setting->loop->now_ns));
    fail_next(setting, RG_STATUS_TLS_CERTIFICATE, 0, "expired");
    RG_CHECK(rg_candidates_lost(candidates, setting->loop->now_ns));
    const struct rg_transport_failure *told = rg_pool_addresses_all_failed(&setting->addresses);
    RG_CHECK_EQ(told->status, RG_STATUS_CONNECT);
    RG_CHECK_STR(told->text, "127.0.0.1, one of 2 addresses");
    setting_close(setting);
}

static void test_what_is_final_of_all_is_told(void)
{
    hosts_set("127.0.0.1", NULL);
    struct setting *setting = setting_open(NULL);
    refresh(setting);
    fail_next(setting, RG_STATUS_TLS_CERTIFICATE, 0, "expired");
    RG_CHECK(rg_candidates_lost(&setting->addresses.candidates, setting->loop->now_ns));
    const struct rg_transport_failure *told = rg_pool_addresses_all_failed(&setting->addresses);
    RG_CHECK_EQ(told->status, RG_STATUS_TLS_CERTIFICATE);
    RG_CHECK_STR(told->text, "expired");
    setting_close(setting);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_they_are_looked_up_when_wanted_and_again_after_a_while),
        RG_TEST(test_an_address_is_looked_up_once),
        RG_TEST(test_a_look_up_that_fails_leaves_what_was_known),
        RG_TEST(test_a_name_that_is_not_there_is_told_with_its_proxy),
        RG_TEST(test_what_may_pass_is_told_before_what_is_final),
        RG_TEST(test_what_is_final_of_all_is_told),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
