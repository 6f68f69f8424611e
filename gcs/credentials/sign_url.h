/* Signed URLs: whoever has one may do one thing with one object for a time (Cloud Storage, "V4
 * signing process with your own program"). A pure function: neither a clock nor a server. */
#ifndef RG_GCS_CREDENTIALS_SIGN_URL_H
#define RG_GCS_CREDENTIALS_SIGN_URL_H

#include "runtime/base.h"

#include <time.h>

#define RG_SIGNED_URL_SECONDS_MAX (7 * 24 * 3600)

/* Texts are borrowed. */
struct rg_signed_url {
    const char *email, *pem; /* of a service account: its name, and its RSA key */
    const char *scheme,
        *host; /* "https", "storage.googleapis.com"; a port only if it is no default */
    const char *bucket, *object;
    const char *method;       /* "GET" */
    const char *content_type; /* that the request must have; NULL: any */
    const char *user_project; /* that pays for it; NULL: the bucket's */
    uint32_t seconds;         /* 1 to RG_SIGNED_URL_SECONDS_MAX, from `now` on */
    time_t now;
};

/* Returns owned. 0, -EINVAL (the key is none), -ERANGE (seconds or time), or -ENOMEM. */
int rg_sign_url(const struct rg_signed_url *url, char **out_text);

#endif
