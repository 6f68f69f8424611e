/* See remedy.h. */
#include "gcs/request/remedy.h"

#include <stdio.h>
#include <string.h>

/* What the service wants for a request, if nothing else is special about it. */
static const struct {
    const char *verb, *permission;
} permissions[] = {
    {"get", "storage.objects.get"},
    {"get ranges of", "storage.objects.get"},
    {"stat", "storage.objects.get"},
    {"list", "storage.objects.list"},
    {"put", "storage.objects.create (and storage.objects.delete to replace one)"},
    {"upload", "storage.objects.create (and storage.objects.delete to replace one)"},
    {"compose", "storage.objects.create and storage.objects.get"},
    {"copy", "storage.objects.get there and storage.objects.create here"},
    {"copy to", "storage.objects.get there and storage.objects.create here"},
    {"update", "storage.objects.update"},
    {"delete", "storage.objects.delete"},
    {"list uploads", "storage.multipartUploads.list"},
    {"abort an upload of", "storage.multipartUploads.abort"},
};

static bool says(const struct rg_remedy_facts *facts, const char *part)
{
    return strcasestr(facts->cause, part) != NULL;
}

static const char *permission_of(const char *verb)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(permissions); i++) {
        if (strcmp(permissions[i].verb, verb) == 0) {
            return permissions[i].permission;
        }
    }
    return NULL;
}

/* The service mostly names who asked, and what for; what it leaves out is added. */
static void permission_write(const struct rg_remedy_facts *facts, char *out)
{
    if (says(facts, "cannot be deleted")) {
        return; /* It is held, or retained: no permission changes that. */
    }
    const char *permission = says(facts, "storage.") ? NULL : permission_of(facts->verb);
    bool has_principal = says(facts, "@") || says(facts, "anonymous caller");
    snprintf(out, RG_REMEDY_SIZE, "%s%s%s%s", permission != NULL ? "; it needs " : "",
             permission != NULL ? permission : "", has_principal ? "" : "; sent as ",
             has_principal ? "" : facts->principal);
}

/* One side speaks TLS, and the other does not. */
static const char *scheme_of(const struct rg_remedy_facts *facts)
{
    if (facts->is_tls) {
        return facts->status == RG_STATUS_TLS_PROTOCOL && says(facts, "does not speak TLS")
                   ? "; if it is one, use http:// in the endpoint"
                   : "";
    }
    if (says(facts, "speaks TLS") || says(facts, "HTTPS port") || says(facts, "HTTPS server")) {
        return "; use https:// in the endpoint";
    }
    return facts->status == RG_STATUS_CONNECTION_LOST && says(facts, "before any answer")
               ? "; if this port expects TLS, use https:// in the endpoint"
               : "";
}

/* The service wants to be told something that belongs to no request of ours by itself. */
static const char *parameter_of(const struct rg_remedy_facts *facts)
{
    if (says(facts, "requester pays")) {
        return "; name a project that pays by user_project (--option user_project=PROJECT, "
               "Client(user_project=...)) or RINGEST_USER_PROJECT";
    }
    return says(facts, "is encrypted by a customer-supplied")
               ? "; its key is sent by headers (RINGEST_HEADERS, Client(headers=...)) "
                 "x-goog-encryption-algorithm, -key and -key-sha256, or by `gcloud storage`"
               : scheme_of(facts);
}

const char *rg_remedy(const struct rg_remedy_facts *facts, char out[static RG_REMEDY_SIZE])
{
    *out = '\0';
    switch (facts->status) {
    case RG_STATUS_PERMISSION:
    case RG_STATUS_UNAUTHENTICATED:
        permission_write(facts, out);
        break;
    case RG_STATUS_TLS_CERTIFICATE:
        if (says(facts, "unknown issuer") || says(facts, "self-signed")) {
            snprintf(out, RG_REMEDY_SIZE, "%s",
                     "; to trust it, give the PEM file of its authority by ca_file (--ca, "
                     "Client(ca=...)) or SSL_CERT_FILE");
        }
        break;
    case RG_STATUS_BAD_REQUEST:
        snprintf(out, RG_REMEDY_SIZE, "%s", parameter_of(facts));
        break;
    default:
        snprintf(out, RG_REMEDY_SIZE, "%s", scheme_of(facts));
        break;
    }
    return out;
}
