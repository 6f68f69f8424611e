/* The bodies of answers that say no, for people: the service's JSON and XML, and what proxies and
 * emulators send instead. The HTTP status alone decides what happens; this is only for telling. */
#ifndef RG_GCS_WIRE_ERROR_BODY_H
#define RG_GCS_WIRE_ERROR_BODY_H

#include "runtime/base.h"

#define RG_ERROR_BODY_SCAN_MAX RG_KIB(16) /* what lies behind it is not looked at */
#define RG_ERROR_MESSAGE_SIZE_MAX 512     /* of the service's own message, with the NUL */
#define RG_ERROR_EXCERPT_SIZE_MAX 120     /* of a body that has no message */

/* Writes one line that ends with a NUL: the message of the error, or else how the body begins.
 * Valid UTF-8 without control characters, cut at a character to fit `capacity`, at least 1. Returns
 * its size without the NUL; 0 when there is nothing to say. Never fails. */
size_t rg_error_message(const char *body, size_t body_size, char *out, size_t capacity);

#endif
