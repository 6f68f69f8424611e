/* Forks, for real: what a child sees of the generation and the hooks, also when other threads were
 * changing the hooks at the instant of the fork. */
#include "runtime/fork.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that hangs ends by this alarm, which its parent sees as a failure. */
#define CHILD_SECONDS 20

struct closer {
    struct rg_fork_hook hook;
    int fd;
    unsigned runs;
};

static void close_fd(struct rg_fork_hook *hook)
{
    struct closer *closer = RG_CONTAINER_OF(hook, struct closer, hook);
    close(closer->fd);
    closer->runs++;
}

/* The exit status of a child that runs `body`, which returns 0 when all is well. */
static int run_in_child(int (*body)(void *), void *context)
{
    pid_t pid = fork();
    RG_ASSERT(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        _exit(body(context));
    }
    int status = 0;
    RG_ASSERT(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int check_grandchild_generation(void *parent)
{
    uint32_t here = rg_fork_generation();
    return here == 0 || here == *(uint32_t *)parent ? 2 : 0;
}

static int check_child_generation(void *parent)
{
    uint32_t here = rg_fork_generation();
    if (here == 0 || here == *(uint32_t *)parent) {
        return 1;
    }
    return run_in_child(check_grandchild_generation, &here);
}

static void test_the_generation_tells_a_child_from_its_parent(void)
{
    uint32_t here = rg_fork_generation();
    RG_CHECK(here != 0);
    RG_CHECK_EQ(run_in_child(check_child_generation, &here), 0);
    RG_CHECK_EQ(rg_fork_generation(), here);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int check_no_more_runs(void *context)
{
    return ((struct closer *)context)->runs == 1 ? 0 : 3;
}

static int check_closed(void *context)
{
    struct closer *closer = context;
    if (is_open(closer->fd) || closer->runs != 1) {
        return 1;
    }
    rg_fork_hook_remove(&closer->hook);
    return run_in_child(check_no_more_runs, closer);
}

static int check_closed_and_still_added(void *context)
{
    struct closer *closer = context;
    return is_open(closer->fd) || closer->runs != 1 ? 1 : run_in_child(check_no_more_runs, closer);
}

static int check_open(void *context)
{
    struct closer *closer = context;
    return is_open(closer->fd) && closer->runs == 0 ? 0 : 1;
}

static void test_a_hook_runs_once_and_in_the_child_only(void)
{
    struct closer closer = {.hook = {.child = close_fd}, .fd = dup(0)};
    RG_CHECK_EQ(rg_fork_hook_add(&closer.hook), 0);
    RG_CHECK_EQ(run_in_child(check_closed, &closer), 0);
    RG_CHECK_EQ(run_in_child(check_closed_and_still_added, &closer), 0);
    RG_CHECK(is_open(closer.fd));
    RG_CHECK_EQ(closer.runs, 0);
    rg_fork_hook_remove(&closer.hook);
    RG_CHECK_EQ(run_in_child(check_open, &closer), 0);
    close(closer.fd);
}

static int check_each_ran(void *context)
{
    struct closer *closers = context;
    return closers[0].runs == 1 && closers[1].runs == 1 && closers[2].runs == 1 ? 0 : 1;
}

static void test_all_hooks_run(void)
{
    struct closer closers[3];
    for (int i = 0; i < 3; i++) {
        closers[i] = (struct closer){.hook = {.child = close_fd}, .fd = -1};
        RG_CHECK_EQ(rg_fork_hook_add(&closers[i].hook), 0);
    }
    int failed = run_in_child(check_each_ran, closers);
    for (int i = 0; i < 3; i++) {
        rg_fork_hook_remove(&closers[i].hook);
    }
    RG_CHECK_EQ(failed, 0);
}

static void test_removing_a_hook_twice_or_never_added_is_harmless(void)
{
    struct closer closer = {.hook = {.child = close_fd}, .fd = -1};
    rg_fork_hook_remove(&closer.hook);
    RG_CHECK_EQ(rg_fork_hook_add(&closer.hook), 0);
    rg_fork_hook_remove(&closer.hook);
    rg_fork_hook_remove(&closer.hook);
    RG_CHECK_EQ(rg_fork_hook_add(&closer.hook), 0);
    rg_fork_hook_remove(&closer.hook);
}

static int check_own_hooks_in_child(void *context)
{
    (void)context;
    struct closer closer = {.hook = {.child = close_fd}, .fd = dup(0)};
    if (rg_fork_hook_add(&closer.hook) != 0) {
        return 1;
    }
    int rc = run_in_child(check_closed, &closer);
    rg_fork_hook_remove(&closer.hook);
    return rc;
}

static void test_a_child_has_hooks_of_its_own(void)
{
    RG_CHECK_EQ(run_in_child(check_own_hooks_in_child, NULL), 0);
}

#define CHANGERS 2
#define FORKS 100

static _Atomic bool changers_stop;

/* In a child each hook has run at most once and is in no list; one that was caught in the middle of
 * being added or removed would still look linked. */
static void count_run(struct rg_fork_hook *hook)
{
    RG_CONTAINER_OF(hook, struct closer, hook)->runs++;
}

static void *change_hooks(void *context)
{
    struct closer *closers = context;
    while (!atomic_load_explicit(&changers_stop, memory_order_relaxed)) {
        for (int i = 0; i < 4; i++) {
            RG_ASSERT(rg_fork_hook_add(&closers[i].hook) == 0);
        }
        for (int i = 0; i < 4; i++) {
            rg_fork_hook_remove(&closers[i].hook);
        }
    }
    return NULL;
}

static int check_lists_whole(void *context)
{
    struct closer(*closers)[4] = context;
    for (int c = 0; c < CHANGERS; c++) {
        for (int i = 0; i < 4; i++) {
            if (closers[c][i].runs > 1 || rg_list_linked(&closers[c][i].hook.node)) {
                return 1;
            }
            rg_fork_hook_remove(&closers[c][i].hook);
        }
    }
    return check_own_hooks_in_child(NULL);
}

static void test_forks_amid_changes_find_the_list_whole(void)
{
    static struct closer closers[CHANGERS][4];
    pthread_t threads[CHANGERS];
    atomic_store(&changers_stop, false);
    for (int c = 0; c < CHANGERS; c++) {
        for (int i = 0; i < 4; i++) {
            closers[c][i] = (struct closer){.hook = {.child = count_run}};
        }
        RG_CHECK_EQ(pthread_create(&threads[c], NULL, change_hooks, closers[c]), 0);
    }
    int failed = 0;
    for (int i = 0; i < FORKS && failed == 0; i++) {
        failed = run_in_child(check_lists_whole, closers);
    }
    atomic_store(&changers_stop, true);
    for (int c = 0; c < CHANGERS; c++) {
        pthread_join(threads[c], NULL);
    }
    RG_CHECK_EQ(failed, 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_generation_tells_a_child_from_its_parent),
        RG_TEST(test_a_hook_runs_once_and_in_the_child_only),
        RG_TEST(test_all_hooks_run),
        RG_TEST(test_removing_a_hook_twice_or_never_added_is_harmless),
        RG_TEST(test_a_child_has_hooks_of_its_own),
        RG_TEST(test_forks_amid_changes_find_the_list_whole),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
