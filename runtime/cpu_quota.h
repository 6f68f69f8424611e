/* How many CPUs' worth of time a control group allows this process: what a container's CPU limit
 * says, while its set of CPUs shows all of the machine. */
#ifndef RG_RUNTIME_CPU_QUOTA_H
#define RG_RUNTIME_CPU_QUOTA_H

#include <stdint.h>

/* CPUs, rounded up; 0: unlimited, or not to be found out. `root` is put before /proc and /sys: ""
 * for this machine. The tightest group on the way up counts (Linux, admin-guide/cgroup-v2.rst,
 * cpu.max; version 1: scheduler/sched-bwc.rst). */
uint32_t rg_cpu_quota(const char *root);

#endif
