/* Network cards and GPUs on the PCI bus, and the NUMA nodes that they are attached to.
 *
 * Read from sysfs, not by hwloc: its I/O discovery reads each device's configuration space, which
 * under a hypervisor takes about 1 ms a device, and there are hundreds in a GPU machine. Nor by a
 * driver, which must not be started before a fork. */
#ifndef RG_RUNTIME_DEVICES_H
#define RG_RUNTIME_DEVICES_H

#include "runtime/base.h"

#define RG_DEVICES_MAX 64

struct rg_device {
    char name[16]; /* address: "0000:04:00.0" */
    int node;      /* OS index; -1: not known */
};

/* Each sorted by address, as CUDA numbers equal GPUs. */
struct rg_devices {
    struct rg_device nics[RG_DEVICES_MAX], gpus[RG_DEVICES_MAX];
    uint32_t nic_count, gpu_count;
};

/* `root` is put before /sys and /proc: "" for this machine. A container sees the PCI devices of the
 * whole machine; of NVIDIA's GPUs those count that the driver shows to the container. */
void rg_devices_find(struct rg_devices *out_devices, const char *root);

/* The GPU of a rank, as an index of `gpus`; -1: not known. `visible` is CUDA_VISIBLE_DEVICES, or
 * NULL. All ranks have to come to one result for each of them, so a list with fewer entries than
 * ranks, which is a rank's own, is left aside: then GPU n is rank n's. */
int rg_devices_gpu(const struct rg_devices *devices, const char *visible, uint32_t rank,
                   uint32_t rank_count);

#endif
