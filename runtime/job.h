/* What the environment tells of the job that this process is a part of. */
#ifndef RG_RUNTIME_JOB_H
#define RG_RUNTIME_JOB_H

#include "runtime/base.h"

/* How many processes (ranks) the job has, by whoever started this one; 1 where nobody says so.
 * -EINVAL: the variable, whose name is stored, is no such number. */
int rg_job_processes(uint32_t *out_processes, const char **out_name);

#endif
