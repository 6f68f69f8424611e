/* What the io_uring backend says when the system refuses it, and how it asks the ring to wait. How
 * it works is tested in test_loop. */
#include "runtime/clock.h"
#include "runtime/loop.h"

#include "tests/support/seccomp.h"
#include "tests/support/test.h"

#include <liburing.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Probes in a child in which `error` is what io_uring_setup gives; the child's exit status. */
static int probe_refused(int error, const char *wanted)
{
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        if (rg_test_forbid_uring(error) < 0) {
            _exit(77);
        }
        const char *reason = "";
        int rc = rg_uring_probe(&reason);
        _exit(rc == -error && strstr(reason, wanted) != NULL ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_refusal(int error, const char *wanted)
{
    int status = probe_refused(error, wanted);
    if (status == 77) {
        rg_test_skip("this system has no seccomp filters");
    }
    RG_CHECK_EQ(status, 0);
}

static void test_a_seccomp_profile_is_named(void)
{
    check_refusal(EPERM, "seccomp");
}

static void test_a_kernel_without_io_uring_is_named(void)
{
    check_refusal(ENOSYS, "no io_uring");
}

static void test_an_old_kernel_is_named(void)
{
    check_refusal(EINVAL, "Linux 6.1");
}

static void test_too_little_locked_memory_is_named(void)
{
    check_refusal(ENOMEM, "ulimit -l");
}

static void test_too_few_descriptors_are_named(void)
{
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
        setrlimit(RLIMIT_NOFILE, &limit);
        const char *reason = "";
        int rc = rg_uring_probe(&reason);
        bool forbidden = rc == -EPERM || rc == -ENOSYS;
        _exit(forbidden ? 77 : rc == -EMFILE && strstr(reason, "ulimit -n") != NULL ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        rg_test_skip("io_uring is forbidden here");
    }
    RG_CHECK_EQ(status, 0);
}

/* The flags of the last wait for the ring. */
static unsigned wait_flags;

int __real_io_uring_enter2(unsigned fd, unsigned submit, unsigned count, unsigned flags,
                           sigset_t *wait, size_t size);
int __wrap_io_uring_enter2(unsigned fd, unsigned submit, unsigned count, unsigned flags,
                           sigset_t *wait, size_t size);
int __wrap_io_uring_enter2(unsigned fd, unsigned submit, unsigned count, unsigned flags,
                           sigset_t *wait, size_t size)
{
    wait_flags = flags;
    return __real_io_uring_enter2(fd, submit, count, flags, wait, size);
}

/* Only Linux 6.15 and newer can be told. */
static bool kernel_tells_waits_apart(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(1, &ring, 0) < 0) {
        rg_test_skip("io_uring is not to be had here");
    }
    bool tells = (ring.features & 1U << 17) != 0;
    io_uring_queue_exit(&ring);
    return tells;
}

static void test_an_idle_loop_does_not_wait_for_a_disk(void)
{
    bool tells = kernel_tells_waits_apart();
    const struct rg_loop_options options = {.backend = &rg_uring_backend,
                                            .placement = {.cpu = -1, .node = -1}};
    struct rg_loop *loop;
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    uint64_t deadline_ns = rg_now_ns() + RG_NS_PER_MS;
    /* Several: the end of the ring above may interrupt a wait. */
    while (rg_now_ns() < deadline_ns) {
        rg_loop_pass(loop, deadline_ns);
    }
    RG_CHECK_EQ(wait_flags & 1U << 7, tells ? 1U << 7 : 0);
    RG_CHECK(loop->fallback_reason == NULL);
    rg_loop_destroy(loop);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_seccomp_profile_is_named),
        RG_TEST(test_a_kernel_without_io_uring_is_named),
        RG_TEST(test_an_old_kernel_is_named),
        RG_TEST(test_too_little_locked_memory_is_named),
        RG_TEST(test_too_few_descriptors_are_named),
        RG_TEST(test_an_idle_loop_does_not_wait_for_a_disk),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
