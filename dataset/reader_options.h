/* The options of a reader: read from the caller's struct, with defaults in place, and checked. */
#ifndef RG_DATASET_READER_OPTIONS_H
#define RG_DATASET_READER_OPTIONS_H

#include "dataset/sampler.h"

#include <ringest/dataset.h>

/* A copy of what the caller has given, of whichever size, with the defaults in place of zeros. 0,
 * or -EINVAL with a line in `error` (may be NULL) that names the option. */
int rg_reader_options_read(struct rg_reader_options *own, const struct rg_reader_options *given,
                           char *error, size_t error_size);
/* Checks a list of samples against the object_count, which must be known. The same errors. */
int rg_reader_options_check_indices(const struct rg_reader_options *own, char *error,
                                    size_t error_size);

/* How these options assign an epoch to ranks and workers. */
struct rg_sampler_options rg_reader_options_assignment(const struct rg_reader_options *own);
/* Says why the sampler refused the assignment. Returns -EINVAL. */
int rg_reader_options_refuse_assignment(const struct rg_reader_options *own, char *error,
                                        size_t error_size);

#endif
