/* What <ringest/error.h> and <ringest/version.h> declare. No state. */
#include "runtime/base.h"

#include <ringest/error.h>

/* clang-format off */
#define XX(name, value, text, retryable)                                                           \
    static_assert(RG_STATUS_##name >= 0 && RG_STATUS_##name < RG_STATUS_COUNT,                     \
                  "values are dense, and the table is in their order");
RG_STATUS_TABLE(XX)
#undef XX
/* clang-format on */

const char *rg_status_name(enum rg_status status)
{
    switch (status) {
#define XX(name, value, text, retryable)                                                           \
    case RG_STATUS_##name:                                                                         \
        return #name;
        RG_STATUS_TABLE(XX)
#undef XX
    default:
        return "UNKNOWN";
    }
}

const char *rg_status_text(enum rg_status status)
{
    switch (status) {
#define XX(name, value, text, retryable)                                                           \
    case RG_STATUS_##name:                                                                         \
        return text;
        RG_STATUS_TABLE(XX)
#undef XX
    default:
        return "unknown status";
    }
}

bool rg_status_retryable(enum rg_status status)
{
    switch (status) {
#define XX(name, value, text, retryable)                                                           \
    case RG_STATUS_##name:                                                                         \
        return retryable;
        RG_STATUS_TABLE(XX)
#undef XX
    default:
        return false;
    }
}

const char *rg_version(void)
{
    return RG_VERSION_STRING;
}
