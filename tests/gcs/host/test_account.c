/* Accounts: who is seen, and who is not any more, by the kernel's locks. */
#include "gcs/host/account.h"

#include "gcs/host/peers.h"
#include "tests/gcs/host/region_case.h"
#include "tests/support/test.h"

#include <signal.h>
#include <sys/wait.h>

struct found {
    uint32_t count;
    struct rg_account last;
};

static void note_found(void *context, const struct rg_account *account)
{
    struct found *found = context;
    found->count++;
    found->last = *account;
}

static struct found look(struct region_case *c)
{
    struct found found = {0};
    struct rg_host_region region;
    RG_CHECK_EQ(rg_host_region_find(&region, c->folder, c->why, sizeof(c->why)), 0);
    RG_CHECK_EQ(rg_accounts_read(&region, note_found, &found), 0);
    rg_host_region_close(&region);
    return found;
}

static void peer_ignore(void *context, const struct rg_peer *peer)
{
    (void)context, (void)peer;
}

/* As a loop does. */
static uint32_t tell(struct rg_peers *peers, uint32_t record, uint64_t requests)
{
    uint64_t now_ns = rg_now_ns();
    struct rg_peer peer = {.bucket = rg_peers_hash(peers, "b")};
    struct rg_account account = {
        .told_ns = now_ns, .requests = requests, .command = "test", .bucket = "b"};
    rg_peers_look(peers, now_ns, peer_ignore, NULL);
    record = rg_peers_tell(peers, record, &peer, now_ns);
    rg_peers_account(peers, record, &account);
    return record;
}

static struct rg_peers peers_open(struct region_case *c)
{
    struct rg_peers peers;
    rg_peers_init(&peers, c->folder, "https://storage.googleapis.com");
    return peers;
}

static void test_what_is_told_is_seen_until_it_is_released(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers peers = peers_open(&c);
    uint32_t record = tell(&peers, RG_PEER_NONE, 7);
    struct found found = look(&c);
    RG_CHECK_EQ(found.count, 1);
    RG_CHECK_EQ(found.last.requests, 7);
    RG_CHECK_EQ(found.last.process, peers.process);
    RG_CHECK_STR(found.last.bucket, "b");
    (void)tell(&peers, record, 8);
    RG_CHECK_EQ(look(&c).last.requests, 8);
    rg_peers_release(&peers, record);
    RG_CHECK_EQ(look(&c).count, 0);
    rg_peers_close(&peers);
    region_case_close(&c);
}

static void test_one_that_is_killed_is_gone_at_once(void)
{
    struct region_case c;
    region_case_open(&c);
    int ready[2];
    char byte;
    RG_CHECK_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct rg_peers peers = peers_open(&c);
        (void)tell(&peers, RG_PEER_NONE, 1);
        RG_CHECK_EQ(write(ready[1], "", 1), 1);
        for (;;) {
            pause();
        }
    }
    RG_CHECK_EQ(read(ready[0], &byte, 1), 1);
    RG_CHECK_EQ(look(&c).count, 1);
    kill(child, SIGKILL);
    RG_CHECK_EQ(waitpid(child, NULL, 0), child);
    RG_CHECK_EQ(look(&c).count, 0);
    /* Whoever has its place next shows nothing of it. */
    struct rg_peers peers = peers_open(&c);
    struct rg_peer peer = {.bucket = 1};
    rg_peers_look(&peers, rg_now_ns(), peer_ignore, NULL);
    RG_CHECK_EQ(rg_peers_tell(&peers, RG_PEER_NONE, &peer, rg_now_ns()) & 0xffff, 0);
    RG_CHECK_EQ(look(&c).count, 0);
    rg_peers_close(&peers);
    close(ready[0]);
    close(ready[1]);
    region_case_close(&c);
}

static void test_what_somebody_else_wrote_is_no_account(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers peers = peers_open(&c);
    uint32_t record = tell(&peers, RG_PEER_NONE, 1);
    struct rg_account endless = {.told_ns = 1};
    memset(endless.bucket, 'x', sizeof(endless.bucket));
    rg_peers_account(&peers, record, &endless);
    RG_CHECK_EQ(look(&c).count, 0);
    uint64_t damage = 99;
    (void)tell(&peers, record, 1);
    RG_CHECK_EQ(rg_host_region_write(&peers.region, RG_HOST_TAKEN_SIZE - RG_HOST_ACCOUNTS_SIZE + 32,
                                     &damage, sizeof(damage)),
                0);
    RG_CHECK_EQ(look(&c).count, 0);
    rg_peers_close(&peers);
    region_case_close(&c);
}

static void test_looking_makes_no_region(void)
{
    struct region_case c;
    struct rg_host_region region;
    region_case_open(&c);
    RG_CHECK_EQ(rg_host_region_find(&region, c.folder, c.why, sizeof(c.why)), -ENOENT);
    region_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_told_is_seen_until_it_is_released),
        RG_TEST(test_one_that_is_killed_is_gone_at_once),
        RG_TEST(test_what_somebody_else_wrote_is_no_account),
        RG_TEST(test_looking_makes_no_region),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
