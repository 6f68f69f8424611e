/* CPU limits of control groups, read from made-up /proc and /sys trees. */
#include "runtime/cpu_quota.h"
#include "tests/support/test.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/ringest-cgroup-XXXXXX";

static void folders_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        RG_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

static void file_write(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", root, name);
    folders_make(path);
    FILE *file = fopen(path, "we");
    RG_CHECK(file != NULL);
    RG_CHECK(fputs(text, file) >= 0);
    RG_CHECK_EQ(fclose(file), 0);
}

static int entry_remove(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    (void)stat;
    (void)kind;
    (void)where;
    return remove(path);
}

static void root_remove(void)
{
    RG_CHECK_EQ(nftw(root, entry_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void root_make(const char *groups)
{
    strcpy(root + strlen(root) - 6, "XXXXXX");
    RG_CHECK(mkdtemp(root) != NULL);
    file_write("/proc/self/cgroup", groups);
}

static void test_a_container_sees_its_own_limit(void)
{
    root_make("0::/\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 0);
    file_write("/sys/fs/cgroup/cpu.max", "max 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 0);
    file_write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 4);
    file_write("/sys/fs/cgroup/cpu.max", "400001 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 5);
    file_write("/sys/fs/cgroup/cpu.max", "5000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 1);
    root_remove();
}

static void test_the_tightest_group_on_the_way_up_counts(void)
{
    root_make("0::/pods/web/main\n");
    file_write("/sys/fs/cgroup/pods/web/main/cpu.max", "800000 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 8);
    file_write("/sys/fs/cgroup/pods/cpu.max", "250000 50000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 5);
    file_write("/sys/fs/cgroup/pods/web/main/cpu.max", "300000 100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 3);
    root_remove();
}

static void test_version_1_groups_are_read_too(void)
{
    root_make("4:memory:/m\n3:cpuacct,cpu:/docker/x\n2:cpuset:/\n");
    file_write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
    file_write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 0);
    file_write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "150000\n");
    RG_CHECK_EQ(rg_cpu_quota(root), 2);
    root_remove();
}

static void test_nonsense_is_no_limit(void)
{
    static const char *const groups[] = {"", "\n", "0:\n", "0::\n", "0::x\n", "::/\n", "0::/\n"};
    static const char *const limits[] = {"", "\n", "x", "0 0", "-5 100000", "100000 0", "max"};
    for (size_t i = 0; i < RG_ARRAY_LEN(groups); i++) {
        root_make(groups[i]);
        file_write("/sys/fs/cgroup/cpu.max", limits[i]);
        RG_CHECK_EQ(rg_cpu_quota(root), 0);
        root_remove();
    }
    root_make("0::/\n");
    for (size_t i = 0; i < RG_ARRAY_LEN(limits); i++) {
        file_write("/sys/fs/cgroup/cpu.max", limits[i]);
        RG_CHECK_EQ(rg_cpu_quota(root), 0);
    }
    root_remove();
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
