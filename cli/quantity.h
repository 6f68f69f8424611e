/* Quantities as people read them. */
#ifndef RG_CLI_QUANTITY_H
#define RG_CLI_QUANTITY_H

#include <stdint.h>

#define CLI_QUANTITY_SIZE 32

/* "12.3 MiB" */
const char *cli_format_size(uint64_t bytes, char buffer[static CLI_QUANTITY_SIZE]);
/* "02:07", "1:00:00"; at most 99:59:59. */
const char *cli_format_duration(double seconds, char buffer[static CLI_QUANTITY_SIZE]);

#endif
