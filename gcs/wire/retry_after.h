/* The Retry-After field (RFC 9110 section 10.2.3): seconds, or a date in any of the three forms
 * that RFC 9110 section 5.6.7 has a recipient accept. */
#ifndef RG_GCS_WIRE_RETRY_AFTER_H
#define RG_GCS_WIRE_RETRY_AFTER_H

#include "http/h1_decoder.h"

/* How long the server asks to be left alone, in nanoseconds; 0 when the value is malformed, or a
 * date that has passed. A date is compared with `date`, the answer's own Date field, so that the
 * clocks need not agree; without that (NULL) it says nothing. The result may be absurdly large:
 * whoever waits for it has a cap. */
uint64_t rg_retry_after_parse(const struct rg_h1_slice *value, const struct rg_h1_slice *date);

/* A date in one of those forms, in seconds since 1970; -EINVAL for anything else. */
int rg_http_date_parse(struct rg_h1_slice value, int64_t *out_seconds);

#endif
