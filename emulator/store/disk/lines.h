/* The form of our own files: lines of a key, a space and a value. */
#ifndef RG_EMULATOR_STORE_DISK_LINES_H
#define RG_EMULATOR_STORE_DISK_LINES_H

#include "runtime/base.h"

/* Takes the line at *text apart, in place, and goes on to the next. 1; 0 at the end; -EBADMSG when
 * it is not such a line. */
int rg_disk_line_next(char **text, const char **out_key, char **out_value);
/* Copies a value that could be one of a header field, with a NUL. False: it could not, or is too
 * long. */
bool rg_disk_line_take_text(char *out, size_t size_max, const char *value);

#endif
