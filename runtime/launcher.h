/* The CPUs of whoever started this rank: torchrun, mpirun, srun. A rank that has as many as its
 * launcher was given no share of its own (share.h). */
#ifndef RG_RUNTIME_LAUNCHER_H
#define RG_RUNTIME_LAUNCHER_H

#include "runtime/base.h"

#include <sys/types.h>

/* The launcher is the nearest ancestor that was not started with the same value of `variable`:
 * between it and us are a shell, numactl, or the process that started this worker. One whose start
 * cannot be seen (sudo and other setuid programs, or what made itself private) is passed over,
 * where a launcher can be seen above it; where none can, it is taken for the launcher, as Slurm's
 * daemon is, which belongs to root. Stores the list of the launcher's CPUs as the kernel writes it
 * ("0-51,104-155"). False: there is none to be seen. `root` is put before /proc: "" for this
 * machine. */
bool rg_launcher_cpus(const char *root, pid_t pid, const char *variable, char *out, size_t size);

#endif
