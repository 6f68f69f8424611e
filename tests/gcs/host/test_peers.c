/* Peers: who sees whom, what is no record, whose records come back, and how many there are. */
#include "gcs/host/peers.h"
#include "tests/gcs/host/region_case.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TABLE_OFFSET (RG_HOST_HEADER_SIZE + RG_HOST_NOTES_SIZE)
#define KILLS 100

/* What a look found. */
struct found {
    uint32_t count;
    struct rg_peer last;
};

static void note_found(void *context, const struct rg_peer *peer)
{
    struct found *found = context;
    found->count++;
    found->last = *peer;
}

static struct found look(struct rg_peers *peers, uint64_t now_ns)
{
    struct found found = {0};
    rg_peers_look(peers, now_ns, note_found, &found);
    return found;
}

static uint32_t tell(struct rg_peers *peers, uint32_t record, uint32_t in_flight, uint64_t now_ns)
{
    struct rg_peer peer = {.bucket = rg_peers_hash(peers, "b")};
    peer.sides[RG_PEER_READS].in_flight = in_flight;
    return rg_peers_tell(peers, record, &peer, now_ns);
}

/* As if it were another process. */
static struct rg_peers other_open(struct region_case *c, uint64_t process)
{
    struct rg_peers peers;
    rg_peers_init(&peers, c->folder, "https://storage.googleapis.com");
    peers.process += process;
    return peers;
}

static void test_one_sees_the_other_but_not_itself(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers one = other_open(&c, 0), two = other_open(&c, 1);
    uint64_t now_ns = rg_now_ns();
    RG_CHECK_EQ(look(&one, now_ns).count, 0);
    uint32_t record = tell(&one, RG_PEER_NONE, 7, now_ns);
    RG_CHECK(record != RG_PEER_NONE);
    RG_CHECK_EQ(look(&one, now_ns).count, 0);
    struct found found = look(&two, now_ns);
    RG_CHECK_EQ(found.count, 1);
    RG_CHECK_EQ(found.last.sides[RG_PEER_READS].in_flight, 7);
    RG_CHECK_EQ(found.last.bucket, rg_peers_hash(&two, "b"));
    RG_CHECK_EQ(rg_peers_processes(&two), 2);
    RG_CHECK_EQ(tell(&one, record, 8, now_ns), record);
    RG_CHECK_EQ(look(&two, now_ns).last.sides[RG_PEER_READS].in_flight, 8);
    /* What is released is gone at once, and the same place is free. */
    rg_peers_release(&one, record);
    RG_CHECK_EQ(look(&two, now_ns).count, 0);
    RG_CHECK_EQ(rg_peers_processes(&two), 1);
    RG_CHECK(tell(&two, RG_PEER_NONE, 1, now_ns) != RG_PEER_NONE);
    rg_peers_close(&one);
    rg_peers_close(&two);
    region_case_close(&c);
}

static void test_processes_are_counted_and_not_their_loops(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers peers[9];
    uint32_t records[RG_ARRAY_LEN(peers)];
    uint64_t now_ns = rg_now_ns();
    for (unsigned i = 0; i < RG_ARRAY_LEN(peers); i++) {
        peers[i] = other_open(&c, i / 3);
        records[i] = RG_PEER_NONE;
    }
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < RG_ARRAY_LEN(peers); i++) {
            look(&peers[i], now_ns);
            records[i] = tell(&peers[i], records[i], 1, now_ns);
        }
    }
    for (unsigned i = 0; i < RG_ARRAY_LEN(peers); i++) {
        RG_CHECK_EQ(rg_peers_processes(&peers[i]), 3);
        RG_CHECK_EQ(peers[i].siblings, 3);
        rg_peers_close(&peers[i]);
    }
    region_case_close(&c);
}

static void test_other_endpoints_are_not_counted(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers one = other_open(&c, 0), two;
    uint64_t now_ns = rg_now_ns();
    rg_peers_init(&two, c.folder, "http://127.0.0.1:1");
    look(&one, now_ns);
    tell(&one, RG_PEER_NONE, 1, now_ns);
    RG_CHECK_EQ(look(&two, now_ns).count, 0);
    RG_CHECK_EQ(rg_peers_processes(&two), 1);
    RG_CHECK(rg_peers_hash(&one, "b") != rg_peers_hash(&two, "b"));
    rg_peers_close(&one);
    rg_peers_close(&two);
    region_case_close(&c);
}

/* By the clock: who is stopped, and who is of another clock. */
static void test_old_records_and_those_of_the_future_do_not_count(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers one = other_open(&c, 0), two = other_open(&c, 1);
    uint64_t now_ns = rg_now_ns();
    look(&one, now_ns);
    uint32_t record = tell(&one, RG_PEER_NONE, 1, now_ns);
    RG_CHECK_EQ(look(&two, now_ns + RG_PEER_LIFE_NS).count, 1);
    RG_CHECK_EQ(look(&two, now_ns + RG_PEER_LIFE_NS + 1).count, 0);
    RG_CHECK_EQ(rg_peers_processes(&two), 1);
    /* Each loop looks at the clock at the beginning of a pass, and the other's may be later. */
    RG_CHECK_EQ(look(&two, now_ns - RG_PEER_LIFE_NS).count, 1);
    RG_CHECK_EQ(look(&two, now_ns - RG_PEER_LIFE_NS - 1).count, 0);
    /* It goes on. */
    RG_CHECK_EQ(tell(&one, record, 1, now_ns + 2 * RG_PEER_LIFE_NS), record);
    RG_CHECK_EQ(look(&two, now_ns + 2 * RG_PEER_LIFE_NS).count, 1);
    rg_peers_close(&one);
    rg_peers_close(&two);
    region_case_close(&c);
}

static void test_all_places_are_taken(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers one = other_open(&c, 0), two = other_open(&c, 1);
    uint64_t now_ns = rg_now_ns();
    uint32_t last = RG_PEER_NONE;
    look(&one, now_ns);
    for (unsigned i = 0; i < RG_PEERS_COUNT; i++) {
        last = tell(&one, RG_PEER_NONE, 1, now_ns);
        RG_CHECK(last != RG_PEER_NONE);
    }
    RG_CHECK_EQ(tell(&one, RG_PEER_NONE, 1, now_ns), RG_PEER_NONE);
    RG_CHECK_EQ(look(&two, now_ns).count, RG_PEERS_COUNT);
    RG_CHECK_EQ(tell(&two, RG_PEER_NONE, 1, now_ns), RG_PEER_NONE);
    rg_peers_release(&one, last);
    RG_CHECK(tell(&two, RG_PEER_NONE, 1, now_ns) != RG_PEER_NONE);
    rg_peers_close(&one);
    rg_peers_close(&two);
    region_case_close(&c);
}

/* Whoever has the old file finds the new one within a second, with other records. */
static void test_a_file_that_is_removed_or_cut_off(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers one = other_open(&c, 0), two = other_open(&c, 1);
    uint64_t now_ns = rg_now_ns();
    look(&one, now_ns);
    uint32_t first = tell(&one, RG_PEER_NONE, 1, now_ns);
    uint32_t second = tell(&one, RG_PEER_NONE, 2, now_ns);
    RG_CHECK_EQ(unlink(c.path), 0);
    now_ns += RG_NS_PER_S;
    look(&one, now_ns);
    /* What the second had is not mistaken for what the first gets. */
    second = tell(&one, second, 2, now_ns);
    first = tell(&one, first, 1, now_ns);
    RG_CHECK(first != second && first != RG_PEER_NONE && second != RG_PEER_NONE);
    RG_CHECK_EQ(look(&two, now_ns).count, 2);
    RG_CHECK_EQ(truncate(c.path, 5000), 0);
    RG_CHECK_EQ(look(&two, now_ns).count, 0);
    RG_CHECK_EQ(two.region.fd, -1);
    RG_CHECK_EQ(tell(&two, RG_PEER_NONE, 1, now_ns), RG_PEER_NONE);
    /* It is alone until the file has been mended. */
    RG_CHECK_EQ(unlink(c.path), 0);
    RG_CHECK_EQ(look(&two, now_ns + 20 * RG_NS_PER_S).count, 0);
    RG_CHECK(tell(&two, RG_PEER_NONE, 1, now_ns + 20 * RG_NS_PER_S) != RG_PEER_NONE);
    rg_peers_close(&one);
    rg_peers_close(&two);
    region_case_close(&c);
}

static void test_nothing_is_shared(void)
{
    const char *const folders[] = {NULL, "/nowhere/at/all"};
    for (unsigned i = 0; i < RG_ARRAY_LEN(folders); i++) {
        struct rg_peers peers;
        rg_peers_init(&peers, folders[i], "e");
        RG_CHECK_EQ(look(&peers, rg_now_ns()).count, 0);
        RG_CHECK_EQ(tell(&peers, RG_PEER_NONE, 1, rg_now_ns()), RG_PEER_NONE);
        rg_peers_release(&peers, RG_PEER_NONE);
        RG_CHECK_EQ(rg_peers_processes(&peers), 1);
        rg_peers_close(&peers);
    }
}

/* Random bytes are no record, and half of one is none. */
static void test_damage_is_no_record(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers one = other_open(&c, 0), two = other_open(&c, 1);
    uint64_t now_ns = rg_now_ns();
    look(&one, now_ns);
    uint32_t record = tell(&one, RG_PEER_NONE, 1, now_ns);
    RG_CHECK_EQ(look(&two, now_ns).count, 1);
    int fd = open(c.path, O_RDWR | O_CLOEXEC);
    for (unsigned round = 0; round < 2000; round++) {
        uint64_t size = rg_test_random_below(3) == 0 ? rg_test_random_below(RG_HOST_PEERS_SIZE)
                                                     : 1 + rg_test_random_below(200);
        uint64_t at = rg_test_random_below(
            rg_test_random_below(2) == 0 ? 256 : RG_HOST_PEERS_SIZE - size + 1);
        size = RG_MIN(size, RG_HOST_PEERS_SIZE - at);
        uint8_t *bytes = malloc(size + 1);
        for (uint64_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)rg_test_random_below(256);
        }
        RG_CHECK_EQ(pwrite(fd, bytes, size, (off_t)(TABLE_OFFSET + at)), (ssize_t)size);
        free(bytes);
        look(&two, now_ns);
        RG_CHECK(rg_peers_processes(&two) <= 2);
        RG_CHECK_EQ(tell(&one, record, round, now_ns), record);
        RG_CHECK_EQ(look(&two, now_ns).last.sides[RG_PEER_READS].in_flight, round);
    }
    close(fd);
    rg_peers_close(&one);
    rg_peers_close(&two);
    region_case_close(&c);
}

/* Tells for ever, each record being alike in all its parts. */
static void teller_main(struct region_case *c, int said)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rg_peers peers;
    rg_peers_init(&peers, c->folder, "https://storage.googleapis.com");
    uint32_t record = RG_PEER_NONE;
    look(&peers, rg_now_ns());
    for (uint32_t n = 1;; n++) {
        struct rg_peer peer = {.bucket = n};
        peer.sides[RG_PEER_READS].in_flight = peer.sides[RG_PEER_WRITES].loops = n;
        peer.kinds[RG_PEER_KIND_COUNT - 1].silence_us = n;
        record = rg_peers_tell(&peers, record, &peer, rg_now_ns());
        if (n == 1 && (record == RG_PEER_NONE || write(said, "x", 1) != 1)) {
            _exit(1);
        }
    }
}

static void check_whole(void *context, const struct rg_peer *peer)
{
    uint32_t *count = context;
    uint32_t n = peer->sides[RG_PEER_READS].in_flight;
    RG_CHECK(peer->bucket == n && peer->sides[RG_PEER_WRITES].loops == n && n > 0);
    RG_CHECK_EQ(peer->kinds[RG_PEER_KIND_COUNT - 1].silence_us, n);
    ++*count;
}

/* At any instruction. Places are never used up. */
static void test_tellers_are_killed(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers here = other_open(&c, 0);
    for (unsigned i = 0; i < KILLS; i++) {
        int said[2];
        char byte;
        RG_CHECK_EQ(pipe2(said, O_CLOEXEC), 0);
        pid_t child = fork();
        RG_CHECK(child >= 0);
        if (child == 0) {
            teller_main(&c, said[1]);
        }
        close(said[1]);
        RG_CHECK_EQ(read(said[0], &byte, 1), 1);
        close(said[0]);
        uint32_t count = 0;
        for (uint64_t looks = rg_test_random_below(200); looks > 0; looks--) {
            rg_peers_look(&here, rg_now_ns(), check_whole, &count);
        }
        RG_CHECK_EQ(kill(child, SIGKILL), 0);
        RG_CHECK_EQ(waitpid(child, NULL, 0), child);
        rg_peers_look(&here, rg_now_ns(), check_whole, &count);
    }
    /* Its place is free, and its record is nobody's when its time has come. */
    look(&here, rg_now_ns() + 2 * RG_PEER_LIFE_NS);
    RG_CHECK_EQ(rg_peers_processes(&here), 1);
    RG_CHECK_EQ(tell(&here, RG_PEER_NONE, 1, rg_now_ns()) & 0xffff, 0);
    rg_peers_close(&here);
    region_case_close(&c);
}

static void test_a_forked_child_is_another_process(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_peers parent = other_open(&c, 0);
    uint64_t now_ns = rg_now_ns();
    look(&parent, now_ns);
    uint32_t record = tell(&parent, RG_PEER_NONE, 1, now_ns);
    for (unsigned i = 0; i < 2; i++) {
        pid_t child = fork();
        RG_CHECK(child >= 0);
        if (child == 0) {
            struct rg_peers own;
            rg_peers_init(&own, c.folder, "https://storage.googleapis.com");
            bool ok = fcntl(parent.region.fd, F_GETFD) == -1 && own.process != parent.process;
            ok &= look(&own, now_ns).count == 1 && rg_peers_processes(&own) == 2;
            ok &= tell(&own, RG_PEER_NONE, 1, now_ns) != record;
            rg_peers_close(&own);
            _exit(ok ? 0 : 1);
        }
        int status = 0;
        RG_CHECK_EQ(waitpid(child, &status, 0), child);
        RG_CHECK_EQ(status, 0);
    }
    rg_peers_close(&parent);
    region_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_one_sees_the_other_but_not_itself),
        RG_TEST(test_processes_are_counted_and_not_their_loops),
        RG_TEST(test_other_endpoints_are_not_counted),
        RG_TEST(test_old_records_and_those_of_the_future_do_not_count),
        RG_TEST(test_all_places_are_taken),
        RG_TEST(test_a_file_that_is_removed_or_cut_off),
        RG_TEST(test_nothing_is_shared),
        RG_TEST(test_damage_is_no_record),
        RG_TEST(test_tellers_are_killed),
        RG_TEST(test_a_forked_child_is_another_process),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
