/* See job.h. */
#include "runtime/job.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

/* The innermost first: torchrun may be started by mpirun, and mpirun's daemons by srun. The script
 * of a batch job of Slurm has SLURM_NTASKS, but is no task of a step, which alone has the last. */
static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                    "SLURM_STEP_NUM_TASKS"};

int rg_job_processes(uint32_t *out_processes, const char **out_name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        const char *text = getenv(sizes[i]);
        if (text == NULL) {
            continue;
        }
        char *end;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10);
        bool is_number = isdigit((unsigned char)*text) && *end == '\0' && errno == 0;
        if (!is_number || value == 0 || value > UINT32_MAX) {
            *out_name = sizes[i];
            return -EINVAL;
        }
        *out_processes = (uint32_t)value;
        return 0;
    }
    *out_processes = 1;
    return 0;
}
