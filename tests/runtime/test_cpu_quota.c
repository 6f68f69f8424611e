/* CPU limits of control groups, read from made-up /proc and /sys trees. */
#include "runtime/cpu_quota.h"

#include "tests/support/root.h"
#include "tests/support/test.h"

static const char *root;

static void root_make(const char *groups)
{
    root = rg_root_make();
    rg_root_write("/proc/self/cgroup", groups);
}

static void test_a_container_sees_its_own_limit(void)
{
    root_make("0::/\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 0);
    rg_root_write("/sys/fs/cgroup/cpu.max", "max 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 0);
    rg_root_write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 4);
    rg_root_write("/sys/fs/cgroup/cpu.max", "400001 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 5);
    rg_root_write("/sys/fs/cgroup/cpu.max", "5000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 1);
    rg_root_remove();
}

static void test_the_tightest_group_on_the_way_up_counts(void)
{
    root_make("0::/pods/web/main\n");
    rg_root_write("/sys/fs/cgroup/pods/web/main/cpu.max", "800000 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 8);
    rg_root_write("/sys/fs/cgroup/pods/cpu.max", "250000 50000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 5);
    rg_root_write("/sys/fs/cgroup/pods/web/main/cpu.max", "300000 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 3);
    rg_root_remove();
}

static void test_version_1_groups_are_read_too(void)
{
    root_make("4:memory:/m\n3:cpuacct,cpu:/docker/x\n2:cpuset:/\n");
    rg_root_write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
    rg_root_write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 0);
    rg_root_write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "150000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 2);
    rg_root_remove();
}

static void test_nonsense_is_no_limit(void)
{
    static const char *const groups[] = {"", "\n", "0:\n", "0::\n", "0::x\n", "::/\n", "0::/\n"};
    static const char *const limits[] = {"", "\n", "x", "0 0", "-5 100000", "100000 0", "max"};
    for (size_t i = 0; i < RG_ARRAY_LEN(groups); i++) {
        root_make(groups[i]);
        rg_root_write("/sys/fs/cgroup/cpu.max", limits[i]);
        RG_CHECK_EQ(rg_cpu_quota(root), 0);
        rg_root_remove();
    }
    root_make("0::/\n");
    for (size_t i = 0; i < RG_ARRAY_LEN(limits); i++) {
        rg_root_write("/sys/fs/cgroup/cpu.max", limits[i]);
        RG_CHECK_EQ(rg_cpu_quota(root), 0);
    }
    rg_root_remove();
    RG_CHECK_EQ(rg_cpu_quota("/nowhere"), 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_container_sees_its_own_limit),
        RG_TEST(test_the_tightest_group_on_the_way_up_counts),
        RG_TEST(test_version_1_groups_are_read_too),
        RG_TEST(test_nonsense_is_no_limit),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
