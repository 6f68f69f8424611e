/* Which rank of how many on this host a process is, as whoever started it says:
 *
 *     RINGEST_LOCAL_RANK, RINGEST_LOCAL_WORLD_SIZE                       the user
 *     LOCAL_RANK, LOCAL_WORLD_SIZE                                       torchrun
 *     OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE             Open MPI's mpirun
 *     MPI_LOCALRANKID, MPI_LOCALNRANKS                                   MPICH's and Intel's
 * mpiexec SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE or SLURM_NTASKS_PER_NODE  srun
 *
 * The innermost launcher comes first: srun may start torchrun. Slurm's count only in a step, where
 * SLURM_STEP_NUM_TASKS is set: a batch script has the others, too. */
#ifndef RG_RUNTIME_LOCAL_RANK_H
#define RG_RUNTIME_LOCAL_RANK_H

#include "runtime/base.h"

struct rg_local_rank {
    uint32_t rank, size;      /* below size; 0 and 1: alone */
    uint32_t worker, workers; /* the process is one of so many workers of the rank; 0: none */
    const char *variable;     /* static: where the rank was found; "": not in the environment */
    bool is_given;            /* by the program */
    /* Of a process that is alone: what a launcher has set all the same, and what it lacks or does
     * not go with. Static; NULL: nothing. */
    const char *aside, *aside_from;
    bool lacks; /* aside_from is not set */
};

/* What the environment says; without it, alone. What the launchers' variables say that cannot be is
 * left aside, with a line in the log. -EINVAL: the user's own are wrong, and the log says how. */
int rg_local_rank_find(struct rg_local_rank *out_rank);

#endif
