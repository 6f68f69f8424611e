/* Defaults that options are compared with while they are read. */
#ifndef RG_RUNTIME_OPTION_H
#define RG_RUNTIME_OPTION_H

#include "runtime/base.h"

#define RG_BACKOFF_MIN_DEFAULT_NS (100 * RG_NS_PER_MS)
#define RG_BACKOFF_MAX_DEFAULT_NS (30 * RG_NS_PER_S)

#endif
