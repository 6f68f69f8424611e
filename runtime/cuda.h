/* Host memory that CUDA knows: registered with it, so that devices copy from it directly and beside
 * other work ("pinned" memory).
 *
 * The driver is looked up when it is asked for (dlopen), so that nothing here needs CUDA to be
 * built or installed. Not PyTorch's or another runtime's: event loops of C programs register too.
 *
 *     open: the driver, a device, its primary context ──> register, unregister ──> close
 *
 * The primary context is the one that PyTorch and the CUDA runtime use: whoever comes later gets
 * the same. The device is that of the caller's current context, or else the first one that is in
 * use, or else that of the local rank: no rank wakes the device of another.
 *
 * What is registered stays in physical memory, and fork() copies it for the child at once. */
#ifndef RG_RUNTIME_CUDA_H
#define RG_RUNTIME_CUDA_H

#include "runtime/base.h"

struct rg_cuda;

/* Returns owned. Otherwise stores in `error` why memory cannot be registered: -ENODEV (no driver,
 * no device, or it is the parent's of this process), -ENOTSUP (the driver or the kernel is too
 * old), -ENOMEM. */
int rg_cuda_open(struct rg_cuda **out_cuda, uint32_t local_rank, char *error, size_t error_size);

/* After everything is unregistered. NULL is fine. Any thread. */
void rg_cuda_close(struct rg_cuda *cuda);

/* The number of the device whose context is used. */
int rg_cuda_device(const struct rg_cuda *cuda);

/* Registers whole pages for all devices; a copy has to lie within one registration. Faults them in.
 * 0, or -ENOMEM (logged): CUDA refuses, and may refuse more. Any thread. */
int rg_cuda_register(struct rg_cuda *cuda, void *address, size_t size);

/* Of what rg_cuda_register was given by its address. No copy may be under way. Any thread. */
void rg_cuda_unregister(struct rg_cuda *cuda, void *address);

#endif
