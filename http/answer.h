/* What the status code of an answer means: one table, for the service, for token servers and for
 * proxies. Pure.
 *
 * Whether a request may be sent again is decided by the status alone: rg_status_retryable of
 * <ringest/error.h>. */
#ifndef RG_HTTP_ANSWER_H
#define RG_HTTP_ANSWER_H

#include "runtime/base.h"

#include <ringest/error.h>

/* OK for 2xx. Codes that none of our requests asks for, such as 1xx and redirections, are
 * RG_STATUS_BAD_RESPONSE. */
enum rg_status rg_answer_status(unsigned code);
/* True where the server asks for fewer requests. */
bool rg_answer_throttles(unsigned code);

/* True where the same request may be answered otherwise later. */
static inline bool rg_answer_may_mend(unsigned code)
{
    return rg_status_retryable(rg_answer_status(code));
}
/* True where the server itself refuses the request, and would again. What is neither may come from
 * something on the way: a redirection to a page on which to log in, say. */
static inline bool rg_answer_refuses(unsigned code)
{
    return code >= 400 && code < 500 && !rg_answer_may_mend(code);
}

#endif
