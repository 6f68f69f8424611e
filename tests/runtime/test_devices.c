/* Network cards and GPUs in made-up /sys and /proc trees. */
#include "runtime/devices.h"

#include "tests/support/root.h"
#include "tests/support/test.h"

static struct rg_devices devices;

static void device_write(const char *address, const char *class, const char *vendor,
                         const char *node)
{
    char name[128];
    const char *const files[][2] = {{"class", class}, {"vendor", vendor}, {"numa_node", node}};
    for (size_t i = 0; i < RG_ARRAY_LEN(files); i++) {
        snprintf(name, sizeof(name), "/sys/bus/pci/devices/%s/%s", address, files[i][0]);
        if (files[i][1] != NULL) {
            rg_root_write(name, files[i][1]);
        }
    }
}

static void test_devices_are_sorted_by_address(void)
{
    const char *root = rg_root_make();
    device_write("0000:86:00.0", "0x030200\n", "0x10de\n", "1\n");
    device_write("0000:04:00.0", "0x030200\n", "0x10de\n", "0\n");
    device_write("0000:80:00.0", "0x020000\n", "0x1ae0\n", "1\n");
    device_write("0000:00:04.0", "0x020000\n", "0x1ae0\n", "0\n");
    device_write("0000:00:05.0", "0x010802\n", "0x1ae0\n", "0\n");
    rg_devices_find(&devices, root);
    RG_CHECK_EQ(devices.gpu_count, 2);
    RG_CHECK_STR(devices.gpus[0].name, "0000:04:00.0");
    RG_CHECK_EQ(devices.gpus[0].node, 0);
    RG_CHECK_EQ(devices.gpus[1].node, 1);
    RG_CHECK_EQ(devices.nic_count, 2);
    RG_CHECK_STR(devices.nics[0].name, "0000:00:04.0");
    RG_CHECK_EQ(devices.nics[1].node, 1);
    rg_root_remove();
}

static void test_only_what_computes_is_a_gpu(void)
{
    const char *root = rg_root_make();
    device_write("0000:01:00.0", "0x030000\n", "0x1a03\n", "0\n"); /* a server's display */
    device_write("0000:02:00.0", "0x030000\n", "0x10de\n", "0\n");
    device_write("0000:03:00.0", "0x120000\n", "0x1002\n", "-1\n");
    device_write("0000:04:00.0", "0x120000\n", "0x8086\n", "0\n");
    device_write("0000:05:00.0", "0x030200\n", NULL, NULL);
    rg_devices_find(&devices, root);
    RG_CHECK_EQ(devices.gpu_count, 3);
    RG_CHECK_STR(devices.gpus[0].name, "0000:02:00.0");
    RG_CHECK_STR(devices.gpus[1].name, "0000:03:00.0");
    RG_CHECK_EQ(devices.gpus[1].node, -1);
    RG_CHECK_EQ(devices.gpus[2].node, -1);
    rg_root_remove();
}

static void test_a_container_has_the_gpus_that_the_driver_shows(void)
{
    const char *root = rg_root_make();
    device_write("0000:04:00.0", "0x030200\n", "0x10de\n", "0\n");
    device_write("0000:86:00.0", "0x030200\n", "0x10de\n", "1\n");
    rg_root_write("/proc/driver/nvidia/gpus/0000:86:00.0/information", "Model: H100\n");
    rg_devices_find(&devices, root);
    RG_CHECK_EQ(devices.gpu_count, 1);
    RG_CHECK_STR(devices.gpus[0].name, "0000:86:00.0");
    rg_root_remove();
}

static void test_without_a_bus_there_are_none(void)
{
    const char *root = rg_root_make();
    rg_devices_find(&devices, root);
    RG_CHECK_EQ(devices.gpu_count + devices.nic_count, 0);
    RG_CHECK_EQ(rg_devices_gpu(&devices, NULL, 0, 1), -1);
    rg_root_remove();
}

static void test_more_devices_than_there_is_room_for(void)
{
    const char *root = rg_root_make();
    for (int i = 0; i < RG_DEVICES_MAX + 10; i++) {
        char address[16];
        snprintf(address, sizeof(address), "0000:%02x:00.0", i);
        device_write(address, "0x020000\n", "0x1ae0\n", "0\n");
    }
    rg_devices_find(&devices, root);
    RG_CHECK_EQ(devices.nic_count, RG_DEVICES_MAX);
    rg_root_remove();
}

static void test_the_gpu_of_a_rank(void)
{
    static const struct {
        const char *visible;
        uint32_t rank, rank_count;
        int gpu;
    } cases[] = {
        {NULL, 3, 8, 3},
        {NULL, 11, 16, 3},
        {"4,5,6,7", 1, 4, 5},
        {"7,6,5,4", 1, 4, 6},
        {"5", 2, 8, 2},
        {"", 2, 8, 2},
        {"GPU-1f0a,GPU-2", 1, 2, -1},
        {"0,99", 1, 2, -1},
        {"0,1x", 1, 2, -1},
        {"0,1,2,3,4,5,6,7", 7, 8, 7},
    };
    devices = (struct rg_devices){.gpu_count = 8};
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        RG_CHECK_EQ(rg_devices_gpu(&devices, cases[i].visible, cases[i].rank, cases[i].rank_count),
                    cases[i].gpu);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_devices_are_sorted_by_address),
        RG_TEST(test_only_what_computes_is_a_gpu),
        RG_TEST(test_a_container_has_the_gpus_that_the_driver_shows),
        RG_TEST(test_without_a_bus_there_are_none),
        RG_TEST(test_more_devices_than_there_is_room_for),
        RG_TEST(test_the_gpu_of_a_rank),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
