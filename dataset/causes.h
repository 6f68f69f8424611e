/* What the time of steps was spent on, and what would make them faster: what dataset.explain() and
 * `ringest explain` say. No state. */
#ifndef RG_DATASET_CAUSES_H
#define RG_DATASET_CAUSES_H

#include "gcs/host/told.h"

/* Of a wait: the stages of gets (enum rg_stage), where the place of NONE is for what is not known,
 * and the time in which the loop's own thread makes a value. */
#define RG_CAUSE_OTHER ((unsigned)RG_STAGE_NONE)
#define RG_CAUSE_DECODE ((unsigned)RG_STAGE_COUNT)
#define RG_CAUSE_COUNT (RG_STAGE_COUNT + 1)

#define RG_CAUSES_TEXT_MAX 2048
#define RG_CAUSES_ADVICE_MAX 512

/* In seconds. */
struct rg_causes {
    uint64_t steps;
    double consumer; /* between getting a value and asking for the next one */
    double wait;     /* the rest, and its parts by cause */
    double open;     /* of the wait: what a step that goes on has waited so far; 0: none does */
    double parts[RG_CAUSE_COUNT];
    double busy; /* which part of a CPU each event loop has used */
};

/* "first_byte", "decode", "other" */
const char *rg_cause_name(unsigned cause);

/* `open` may be a zeroed one; the sum has it, too. */
struct rg_causes rg_causes_find(const struct rg_told_step *sum, const struct rg_told_step *open,
                                double busy);
/* Which part of the wait has a known cause, 0 to 1. */
double rg_causes_attributed(const struct rg_causes *causes);
/* A sentence. `ahead` names the option that limits what is read ahead. */
void rg_causes_advise(const struct rg_causes *causes, const char *ahead,
                      char out[static RG_CAUSES_ADVICE_MAX]);
/* For people: lines with the parts of a step, the largest first; without advice, and without a
 * newline at the end. */
void rg_causes_write(const struct rg_causes *causes, char out[static RG_CAUSES_TEXT_MAX]);

#endif
