/* See upload_step.h. */
#include "emulator/request/upload_step.h"

#include "emulator/wire/text.h"

static const char *const names[] = {
#define XX(name, text) text,
    RG_UPLOAD_STEPS(XX)
#undef XX
};
_Static_assert(RG_ARRAY_LEN(names) == RG_UPLOAD_STEP_COUNT, "a name for each step");

/* Of a request that names the session of a resumable upload. */
static enum rg_upload_step step_of_session(const struct rg_api_request *request)
{
    const struct rg_h1_slice *range = rg_h1_find(request->head, "content-range");
    if (rg_api_request_is(request, "DELETE")) {
        return RG_UPLOAD_STEP_CANCEL;
    }
    if (!rg_api_request_is(request, "PUT") && !rg_api_request_is(request, "POST")) {
        return RG_UPLOAD_STEP_NONE;
    }
    bool asks = range != NULL && rg_text_starts_with(*range, rg_text_slice("bytes */"));
    return asks ? RG_UPLOAD_STEP_QUERY : RG_UPLOAD_STEP_CHUNK;
}

/* Of a request that names a multipart upload. */
static enum rg_upload_step step_of_parts(const struct rg_api_request *request)
{
    return rg_api_request_is(request, "PUT")      ? RG_UPLOAD_STEP_PART
           : rg_api_request_is(request, "POST")   ? RG_UPLOAD_STEP_COMPLETE
           : rg_api_request_is(request, "DELETE") ? RG_UPLOAD_STEP_ABORT
                                                  : RG_UPLOAD_STEP_NONE;
}

static enum rg_upload_step step_of_xml(const struct rg_api_request *request)
{
    const struct rg_h1_slice *resumable = rg_h1_find(request->head, "x-goog-resumable");
    bool posts = rg_api_request_is(request, "POST"), puts = rg_api_request_is(request, "PUT");
    if (rg_api_request_has(request, RG_PARAM_XML_UPLOAD_ID)) {
        return step_of_parts(request);
    }
    if (rg_api_request_has(request, RG_PARAM_XML_UPLOADS)) {
        return posts ? RG_UPLOAD_STEP_BEGIN : RG_UPLOAD_STEP_NONE;
    }
    if ((posts || puts) && resumable != NULL && rg_text_equals(*resumable, "start")) {
        return RG_UPLOAD_STEP_START;
    }
    return puts && rg_h1_find(request->head, "x-goog-copy-source") == NULL ? RG_UPLOAD_STEP_SINGLE
                                                                           : RG_UPLOAD_STEP_NONE;
}

enum rg_upload_step rg_upload_step_of(const struct rg_api_request *request)
{
    bool json = request->route == RG_ROUTE_JSON_UPLOAD;
    if (!json && request->route != RG_ROUTE_XML_OBJECT) {
        return RG_UPLOAD_STEP_NONE;
    }
    if (rg_api_request_has(request, RG_PARAM_UPLOAD_ID)) {
        return step_of_session(request);
    }
    if (!json) {
        return step_of_xml(request);
    }
    if (!rg_api_request_is(request, "POST") && !rg_api_request_is(request, "PUT")) {
        return RG_UPLOAD_STEP_NONE;
    }
    return rg_text_equals(request->params[RG_PARAM_UPLOAD_TYPE], "resumable")
               ? RG_UPLOAD_STEP_START
               : RG_UPLOAD_STEP_SINGLE;
}

enum rg_upload_step rg_upload_step_find(const char *name)
{
    unsigned step = RG_UPLOAD_STEP_COUNT - 1;
    while (step != RG_UPLOAD_STEP_NONE && strcmp(name, names[step]) != 0) {
        step--;
    }
    return (enum rg_upload_step)step;
}
