/* Machines and guests in made-up /proc and /sys trees. */
#include "runtime/hypervisor.h"

#include "tests/support/root.h"
#include "tests/support/test.h"

#define GUEST "flags\t\t: fpu hypervisor lahf_lm\n"
#define MACHINE "processor\t: 0\nflags\t\t: fpu lahf_lm\n"
#define ARM "processor\t: 0\nFeatures\t: fp asimd\n"

static const struct {
    const char *cpuinfo, *type, *vendor, *product, *signature, *name;
} machines[] = {
    {GUEST, NULL, "Google\n", "Google Compute Engine\n", "KVMKVMKVM", "google"},
    {GUEST, NULL, "Amazon EC2\n", "c7i.large\n", "KVMKVMKVM", "amazon"},
    {GUEST, "xen\n", "Xen\n", "HVM domU\n", "XenVMMXenVMM", "xen"},
    {MACHINE, "xen\n", NULL, NULL, "", "xen"},
    {GUEST, NULL, "QEMU\n", "Standard PC (Q35 + ICH9, 2009)\n", "KVMKVMKVM", "kvm"},
    {GUEST, NULL, "QEMU\n", "Standard PC (Q35 + ICH9, 2009)\n", "TCGTCGTCGTCG", "qemu"},
    {GUEST, NULL, "QEMU\n", "Standard PC (Q35 + ICH9, 2009)\n", "", "qemu"},
    {GUEST, NULL, "Microsoft Corporation\n", "Virtual Machine\n", "", "microsoft"},
    {GUEST, NULL, "innotek GmbH\n", "VirtualBox\n", "", "oracle"},
    {"flags\t\t: fpu hypervisor", NULL, NULL, NULL, "KVMKVMKVM", "kvm"},
    {"flags\t\t: fpu hypervisor", NULL, NULL, NULL, "", "unknown"},
    {GUEST, NULL, "Some Maker\n", "A Box\n", "SomeoneElse", "unknown"},
    /* Whoever made them: */
    {MACHINE, NULL, "Google\n", "Google Compute Engine\n", "", NULL},
    {MACHINE, NULL, "Amazon EC2\n", "m5.metal\n", "", NULL},
    {ARM, NULL, "Amazon EC2\n", "c7g.metal\n", "", NULL},
    {ARM, NULL, "Some Maker\n", "A Box\n", "", NULL},
    {ARM, NULL, "Amazon EC2\n", "c7g.large\n", "", "amazon"},
    {ARM, NULL, "Google\n", "Google Compute Engine\n", "", "google"},
    {ARM, NULL, "QEMU\n", "KVM Virtual Machine\n", "", "kvm"},
    {NULL, NULL, NULL, NULL, "", NULL},
};

static void test_each_guest_has_a_name_and_no_machine_has(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(machines); i++) {
        const char *const files[][2] = {
            {"/proc/cpuinfo", machines[i].cpuinfo},
            {"/sys/hypervisor/type", machines[i].type},
            {"/sys/class/dmi/id/sys_vendor", machines[i].vendor},
            {"/sys/class/dmi/id/product_name", machines[i].product},
        };
        const char *root = rg_root_make();
        for (size_t j = 0; j < RG_ARRAY_LEN(files); j++) {
            if (files[j][1] != NULL) {
                rg_root_write(files[j][0], files[j][1]);
            }
        }
        const char *name = rg_hypervisor_name(root, machines[i].signature);
        RG_CHECK_STR(name != NULL ? name : "", machines[i].name != NULL ? machines[i].name : "");
        rg_root_remove();
    }
}

/* Of a machine without a hypervisor, what the CPU says at that leaf is no name. */
static void test_the_signature_of_this_machine_is_a_name_or_empty(void)
{
    char signature[RG_HYPERVISOR_SIGNATURE_SIZE];
    rg_hypervisor_signature(signature);
    for (const char *c = signature; *c != '\0'; c++) {
        RG_CHECK(*c >= ' ' && *c <= '~');
    }
    RG_CHECK_EQ(signature[RG_HYPERVISOR_SIGNATURE_SIZE - 1], '\0');
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_guest_has_a_name_and_no_machine_has),
        RG_TEST(test_the_signature_of_this_machine_is_a_name_or_empty),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
