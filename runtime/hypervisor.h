/* What this machine is a guest of, as results of benchmarks say it. */
#ifndef RG_RUNTIME_HYPERVISOR_H
#define RG_RUNTIME_HYPERVISOR_H

#define RG_HYPERVISOR_SIGNATURE_SIZE 13

/* A name as systemd-detect-virt has them; "unknown": of a hypervisor that tells no name; NULL:
 * there is none. `root` is put before /proc and /sys: "" for this machine. `signature` is that of
 * the CPU. */
const char *rg_hypervisor_name(const char *root, const char *signature);

/* What a hypervisor has the CPU say of it; "" where it says nothing, or the CPU is no x86. */
void rg_hypervisor_signature(char out_signature[RG_HYPERVISOR_SIGNATURE_SIZE]);

#endif
