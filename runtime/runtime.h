/* The inner side of a runtime (the outer side is in <ringest/runtime.h>). */
#ifndef RG_RUNTIME_RUNTIME_H
#define RG_RUNTIME_RUNTIME_H

#include "runtime/cuda.h"
#include "runtime/fork.h"
#include "runtime/loop.h"
#include "runtime/near.h"

/* More event loops than any machine has use for. */
#define RG_THREADS_MAX 256
/* The least memory for bodies per loop: a few large chunks, without which nothing overlaps. */
#define RG_LOOP_MEMORY_MIN RG_MIB(8)
/* Less than a piece that can be registered; pinned=1 means none. */
#define RG_PINNED_MIN RG_MIB(2)
#define RG_MEMORY_DEFAULT (UINT64_C(1) << 30)

struct rg_runtime {
    uint32_t fork_generation;
    struct rg_topology *topology;
    const struct rg_backend_ops *backend;
    const char *backend_reason; /* why it is not the other one; "" */
    uint32_t loop_count;
    uint64_t memory_max; /* of leased bodies, over all loops */
    struct rg_loop **loops;
    uint32_t workers;      /* processes of its rank, at least 1 */
    struct rg_cuda *cuda;  /* with which memory is registered; NULL: with nothing */
    char pinned_told[320]; /* for people; "": it was not asked for */
    struct rg_near *near;  /* NULL: all loops are equally near to everybody */
};

/* True if a loop has requests that wait for leased memory. Any thread. */
bool rg_runtime_is_starved(const struct rg_runtime *runtime);
/* The time that gets of its loops have spent at each stage so far. Any thread. */
void rg_runtime_stages(const struct rg_runtime *runtime, uint64_t out_ns[static RG_STAGE_COUNT]);
/* Its loops make a pass, and so say what gets are at. Any thread. */
void rg_runtime_wake(const struct rg_runtime *runtime);
/* How many samples a window may have, and how many of these are at what. */
struct rg_window_fill {
    uint32_t room, out, filled;
};
/* A window that was as `told`, zeroed at first, is as `now`; not in a child of fork(). Any thread.
 */
void rg_runtime_window(struct rg_runtime *runtime, struct rg_window_fill *told,
                       const struct rg_window_fill *now);
/* What its loops have counted; NULL: all of the process, see runtime/census.h. Returns owned, to be
 * freed; NULL: no memory. Any thread. */
struct rg_metrics *rg_runtime_metrics(const struct rg_runtime *runtime);

#endif
