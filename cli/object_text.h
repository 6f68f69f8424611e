/* How listed objects are printed, by `ls` and by `manifest show`. */
#ifndef RG_CLI_OBJECT_TEXT_H
#define RG_CLI_OBJECT_TEXT_H

#include "cli/cli.h"

/* Standard output is written in large pieces from here on. */
void object_text_begin(void);
/* {"name":...,"size":...,"generation":...,"crc32c":...,"updated":...} */
void object_print_json(const struct rg_object *object);
/* gs://BUCKET/NAME; with `is_long` behind size, time of change and generation; with `version`
 * before
 * "#" and the generation. */
void object_print_line(const char *bucket, const struct rg_object *object, bool is_long,
                       bool version);
/* The same for what has only a name. */
void object_print_prefix(const char *bucket, const char *prefix, bool is_long);

#endif
