/* Quantities as people read them: see quantity.h. */
#include "cli/quantity.h"

#include "runtime/base.h"

#include <inttypes.h>
#include <stdio.h>

#define SECONDS_MAX 359999.0

const char *cli_format_size(uint64_t bytes, char buffer[static CLI_QUANTITY_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < RG_ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, CLI_QUANTITY_SIZE, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}

const char *cli_format_duration(double seconds, char buffer[static CLI_QUANTITY_SIZE])
{
    uint64_t whole = (uint64_t)RG_MIN(RG_MAX(seconds, 0.0), SECONDS_MAX);
    unsigned minutes = (unsigned)(whole / 60 % 60), rest = (unsigned)(whole % 60);
    if (whole >= 3600) {
        snprintf(buffer, CLI_QUANTITY_SIZE, "%" PRIu64 ":%02u:%02u", whole / 3600, minutes, rest);
    } else {
        snprintf(buffer, CLI_QUANTITY_SIZE, "%02u:%02u", minutes, rest);
    }
    return buffer;
}
