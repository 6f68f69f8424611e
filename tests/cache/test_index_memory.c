/* The memory of an index: shared, told from others', and left behind by nobody for long. */
#include "cache/index_memory.h"

#include "tests/cache/cache_case.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

static void test_what_one_writes_another_reads(void)
{
    struct rg_cache_index_memory one, two;
    RG_CHECK_EQ(rg_cache_index_memory_make(&one, "/nowhere/index", 16), 0);
    RG_CHECK_EQ(rg_cache_index_memory_attach(&two, one.id, &one.nonce, 16), 0);
    RG_CHECK(one.slots != two.slots);
    atomic_store(&one.slots[16 * RG_CACHE_LINE_SLOTS - 1].word, 7);
    RG_CHECK_EQ(atomic_load(&two.slots[16 * RG_CACHE_LINE_SLOTS - 1].word), 7);
    rg_cache_index_memory_detach(&one);
    RG_CHECK_EQ(one.id, -1);
    RG_CHECK(memory_is_there(two.id));
    rg_cache_index_memory_remove(two.id, &two.nonce);
    RG_CHECK(!memory_is_there(two.id));
    /* Who has it goes on with it. */
    RG_CHECK_EQ(atomic_load(&two.slots[16 * RG_CACHE_LINE_SLOTS - 1].word), 7);
    rg_cache_index_memory_detach(&two);
}

static void test_what_is_not_attached(void)
{
    struct rg_cache_index_memory one, two;
    struct rg_cache_nonce other = {{1}};
    RG_CHECK_EQ(rg_cache_index_memory_make(&one, "/nowhere/index", 16), 0);
    RG_CHECK_EQ(rg_cache_index_memory_attach(&two, one.id, &other, 16), -ENOENT);
    RG_CHECK_EQ(rg_cache_index_memory_attach(&two, one.id, &one.nonce, 17), -ENOENT);
    RG_CHECK_EQ(rg_cache_index_memory_attach(&two, INT_MAX, &one.nonce, 16), -ENOENT);
    RG_CHECK(two.slots == NULL);
    /* A segment of another program. */
    int id = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
    RG_CHECK(id >= 0);
    RG_CHECK_EQ(rg_cache_index_memory_attach(&two, id, &one.nonce, 16), -ENOENT);
    rg_cache_index_memory_remove(id, &one.nonce);
    rg_cache_index_memory_remove(one.id, &other);
    RG_CHECK(memory_is_there(id) && memory_is_there(one.id));
    RG_CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
    rg_cache_index_memory_remove(one.id, &one.nonce);
    struct rg_cache_index_memory gone = one;
    rg_cache_index_memory_detach(&one);
    RG_CHECK_EQ(rg_cache_index_memory_attach(&two, gone.id, &gone.nonce, 16), -ENOENT);
}

/* Sweeps go over all of a user's: those of other indexes stay. */
static int swept_id;

static bool is_other(const char *path, int id, const struct rg_cache_nonce *nonce)
{
    (void)nonce;
    return id != swept_id || strcmp(path, "/nowhere/swept") != 0;
}

/* What the sweep of another process looks at in this moment, that one removes. */
static void sweep_until_gone(void)
{
    do {
        rg_cache_index_memory_sweep(is_other);
    } while (memory_is_there(swept_id));
}

static void test_what_nobody_has_and_no_file_names_is_swept(void)
{
    struct rg_cache_index_memory one;
    int foreign = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
    RG_CHECK(foreign >= 0);
    RG_CHECK_EQ(rg_cache_index_memory_make(&one, "/nowhere/swept", 16), 0);
    swept_id = one.id;
    rg_cache_index_memory_sweep(is_other);
    RG_CHECK(memory_is_there(swept_id));
    rg_cache_index_memory_detach(&one);
    sweep_until_gone();
    RG_CHECK(memory_is_there(foreign));
    RG_CHECK_EQ(shmctl(foreign, IPC_RMID, NULL), 0);
}

/* Some programs take a segment that somebody has attached for one that is in use. */
static void test_what_is_plainly_anothers_is_not_attached(void)
{
    key_t key = (key_t)(rg_test_random() | 1);
    const int all[] = {
        shmget(key, 65536, IPC_CREAT | IPC_EXCL | 0600),
        shmget(IPC_PRIVATE, 65536 + 64, IPC_CREAT | 0600),
        shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0644),
    };
    struct rg_cache_index_memory memory;
    struct rg_cache_nonce nonce = {{1}};
    swept_id = -1;
    rg_cache_index_memory_sweep(is_other);
    for (unsigned i = 0; i < RG_ARRAY_LEN(all); i++) {
        struct shmid_ds status;
        RG_CHECK(all[i] >= 0);
        RG_CHECK_EQ(rg_cache_index_memory_attach(&memory, all[i], &nonce, 30), -ENOENT);
        RG_CHECK_EQ(shmctl(all[i], IPC_STAT, &status), 0);
        RG_CHECK_EQ(shmctl(all[i], IPC_RMID, NULL), 0);
        RG_CHECK(status.shm_lpid != getpid());
    }
}

/* The kernel detaches what a killed process had. */
static void test_a_process_that_is_killed_holds_nothing(void)
{
    int ready[2];
    RG_CHECK_EQ(pipe(ready), 0);
    pid_t pid = fork();
    RG_CHECK(pid >= 0);
    if (pid == 0) {
        struct rg_cache_index_memory memory;
        bool made = rg_cache_index_memory_make(&memory, "/nowhere/swept", 16) == 0;
        int id = made ? memory.id : -1;
        (void)!write(ready[1], &id, sizeof(id));
        pause();
        _exit(0);
    }
    RG_CHECK_EQ(read(ready[0], &swept_id, sizeof(swept_id)), sizeof(swept_id));
    rg_cache_index_memory_sweep(is_other);
    RG_CHECK(memory_is_there(swept_id));
    RG_CHECK_EQ(kill(pid, SIGKILL), 0);
    RG_CHECK_EQ(waitpid(pid, NULL, 0), pid);
    sweep_until_gone();
    close(ready[0]);
    close(ready[1]);
}

static void test_memory_of_one_process(void)
{
    struct rg_cache_index_memory memory;
    RG_CHECK_EQ(rg_cache_index_memory_make(&memory, NULL, 16), 0);
    RG_CHECK_EQ(memory.id, -1);
    RG_CHECK_EQ(memory.lines, 16);
    RG_CHECK_EQ(atomic_load(&memory.slots[0].hash), 0);
    rg_cache_index_memory_detach(&memory);
    RG_CHECK(memory.slots == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_one_writes_another_reads),
        RG_TEST(test_what_is_not_attached),
        RG_TEST(test_what_nobody_has_and_no_file_names_is_swept),
        RG_TEST(test_what_is_plainly_anothers_is_not_attached),
        RG_TEST(test_a_process_that_is_killed_holds_nothing),
        RG_TEST(test_memory_of_one_process),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
