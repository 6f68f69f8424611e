/* Variables of the environment that are called almost like one of ours: a mistake in writing, which
 * would otherwise have no effect and say nothing. */
#ifndef RG_RUNTIME_VARIABLE_H
#define RG_RUNTIME_VARIABLE_H

#include "runtime/base.h"

#define RG_VARIABLE_SIZE_MAX 40

/* Whether `name` is RINGEST_... and close to a variable that there is, without being one, which is
 * then stored. Names that are like none of ours are others', as those of our own tests. */
bool rg_variable_mistaken(const char *name, char out_meant[RG_VARIABLE_SIZE_MAX]);

#endif
