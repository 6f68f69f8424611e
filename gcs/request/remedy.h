/* What can be done about a failure, where it can be told from what is known of it: the end of the
 * line that people read. Pure. */
#ifndef RG_GCS_REQUEST_REMEDY_H
#define RG_GCS_REQUEST_REMEDY_H

#include "runtime/base.h"

#include <ringest/error.h>

#define RG_REMEDY_SIZE 512

struct rg_remedy_facts {
    enum rg_status status;
    const char *cause;     /* the failure's text, "" where there is none */
    const char *verb;      /* of the request: "get" */
    const char *principal; /* in whose name it was sent */
    bool is_tls;           /* the endpoint is https */
};

/* "; ..." into `out`, or "". Returns `out`. */
const char *rg_remedy(const struct rg_remedy_facts *facts, char out[static RG_REMEDY_SIZE]);

#endif
