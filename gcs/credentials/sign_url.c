/* Signed URLs: see sign_url.h. */
#include "gcs/credentials/sign_url.h"

#include "gcs/credentials/sign.h"
#include "gcs/wire/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHM "GOOG4-RSA-SHA256"
#define DATE_SIZE 9  /* 20190201 */
#define TIME_SIZE 17 /* 20190201T090000Z */

/* RFC 3986: all but unreserved characters, and what `safe` has, as %XX. NULL: no memory. */
static char *quote(const char *text, const char *safe)
{
    char *quoted = malloc(3 * strlen(text) + 1), *out = quoted;
    for (; quoted != NULL && *text != '\0'; text++) {
        bool is_plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                        (*text >= '0' && *text <= '9') || strchr("-._~", *text) != NULL ||
                        strchr(safe, *text) != NULL;
        if (is_plain) {
            *out++ = *text;
        } else {
            out += sprintf(out, "%%%02X", (unsigned char)*text);
        }
    }
    if (quoted != NULL) {
        *out = '\0';
    }
    return quoted;
}

/* What a signed URL consists of, but for the signature. */
struct parts {
    char time[TIME_SIZE], date[DATE_SIZE];
    char *path, *email, *payer, *query; /* owned; no payer: "" */
};

static void parts_fini(struct parts *parts)
{
    free(parts->path);
    free(parts->email);
    free(parts->payer);
    free(parts->query);
}

/* Parameters in the order of their names. */
static int parts_init(struct parts *parts, const struct rg_signed_url *url)
{
    struct tm utc;
    if (gmtime_r(&url->now, &utc) == NULL ||
        strftime(parts->time, TIME_SIZE, "%Y%m%dT%H%M%SZ", &utc) != TIME_SIZE - 1) {
        return -ERANGE;
    }
    memcpy(parts->date, parts->time, DATE_SIZE - 1);
    parts->date[DATE_SIZE - 1] = '\0';
    char *object = quote(url->object, "/");
    parts->email = quote(url->email, "");
    parts->payer = quote(url->user_project != NULL ? url->user_project : "", "");
    int size = object == NULL ? -1 : asprintf(&parts->path, "/%s/%s", url->bucket, object);
    free(object);
    if (size < 0 || parts->email == NULL || parts->payer == NULL) {
        parts->path = size < 0 ? NULL : parts->path;
        return -ENOMEM;
    }
    size = asprintf(&parts->query,
                    "X-Goog-Algorithm=" ALGORITHM
                    "&X-Goog-Credential=%s%%2F%s%%2Fauto%%2Fstorage%%2Fgoog4_request&X-Goog-Date=%s"
                    "&X-Goog-Expires=%u&X-Goog-SignedHeaders=%shost%s%s",
                    parts->email, parts->date, parts->time, url->seconds,
                    url->content_type != NULL ? "content-type%3B" : "",
                    url->user_project != NULL ? "&userProject=" : "", parts->payer);
    parts->query = size < 0 ? NULL : parts->query;
    return size < 0 ? -ENOMEM : 0;
}

/* The size of the signature, or a negative errno. */
static int parts_sign(const struct parts *parts, const struct rg_signed_url *url,
                      uint8_t out_signature[RG_RSA_SIGNATURE_SIZE_MAX])
{
    const char *type = url->content_type;
    char *request, *text, digest_text[2 * RG_SHA256_SIZE + 1];
    int size = asprintf(&request, "%s\n%s\n%s\n%s%s%shost:%s\n\n%shost\nUNSIGNED-PAYLOAD",
                        url->method, parts->path, parts->query, type != NULL ? "content-type:" : "",
                        type != NULL ? type : "", type != NULL ? "\n" : "", url->host,
                        type != NULL ? "content-type;" : "");
    if (size < 0) {
        return -ENOMEM;
    }
    uint8_t digest[RG_SHA256_SIZE];
    rg_sha256(request, (size_t)size, digest);
    free(request);
    rg_hex_encode(digest, sizeof(digest), digest_text);
    size = asprintf(&text, ALGORITHM "\n%s\n%s/auto/storage/goog4_request\n%s", parts->time,
                    parts->date, digest_text);
    if (size < 0) {
        return -ENOMEM;
    }
    int rc = rg_rsa_sha256_sign(url->pem, text, (size_t)size, out_signature);
    free(text);
    return rc;
}

int rg_sign_url(const struct rg_signed_url *url, char **out_text)
{
    if (url->seconds < 1 || url->seconds > RG_SIGNED_URL_SECONDS_MAX) {
        return -ERANGE;
    }
    struct parts parts = {0};
    uint8_t signature[RG_RSA_SIGNATURE_SIZE_MAX];
    char signature_text[2 * RG_RSA_SIGNATURE_SIZE_MAX + 1];
    int rc = parts_init(&parts, url);
    rc = rc == 0 ? parts_sign(&parts, url, signature) : rc;
    if (rc > 0) {
        rg_hex_encode(signature, (size_t)rc, signature_text);
        char *text;
        rc = asprintf(&text, "%s://%s%s?%s&X-Goog-Signature=%s", url->scheme, url->host, parts.path,
                      parts.query, signature_text);
        if (rc >= 0) {
            *out_text = text;
        }
        rc = rc < 0 ? -ENOMEM : 0;
    }
    parts_fini(&parts);
    return rc;
}
