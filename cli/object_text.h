/* How listed objects are printed, by `ls` and by `manifest show`. */
#ifndef RG_CLI_OBJECT_TEXT_H
#define RG_CLI_OBJECT_TEXT_H

#include "cli/cli.h"

/* What stands before a name: nothing; size, time of change and generation; the same with sizes such
 * as "1.5 MiB". */
enum object_detail { OBJECT_NAME, OBJECT_LONG, OBJECT_LONG_HUMAN };

/* Standard output is written in large pieces from here on. */
void object_text_begin(void);
/* {"name":...,"size":...,"generation":...,"crc32c":...,"updated":...}; checksums in base64, or
 * `hex`. */
void object_print_json(const struct rg_object *object, bool hex);
/* gs://BUCKET/NAME in a line; with `version` and "#GENERATION". */
void object_print_line(const char *bucket, const struct rg_object *object,
                       enum object_detail detail, bool version);
/* The same for what has only a name. */
void object_print_prefix(const char *bucket, const char *prefix, enum object_detail detail);

#endif
