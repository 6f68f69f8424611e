/* Which step of an upload a request is: faults are for one kind of them. */
#ifndef RG_EMULATOR_REQUEST_UPLOAD_STEP_H
#define RG_EMULATOR_REQUEST_UPLOAD_STEP_H

#include "emulator/request/request.h"

/* XX(name, text) */
#define RG_UPLOAD_STEPS(XX)                                                                        \
    XX(NONE, "")         /* it is no step of an upload */                                          \
    XX(SINGLE, "single") /* a whole upload in one request */                                       \
    XX(START, "start")   /* of a resumable upload, as the next three */                            \
    XX(CHUNK, "chunk")   /* it brings bytes */                                                     \
    XX(QUERY, "query")   /* it brings none: "bytes *" and a total */                               \
    XX(CANCEL, "cancel")                                                                           \
    XX(BEGIN, "begin") /* of a multipart upload in the XML API, as the next three */               \
    XX(PART, "part")                                                                               \
    XX(COMPLETE, "complete")                                                                       \
    XX(ABORT, "abort")

enum rg_upload_step {
#define XX(name, text) RG_UPLOAD_STEP_##name,
    RG_UPLOAD_STEPS(XX)
#undef XX
        RG_UPLOAD_STEP_COUNT
};

enum rg_upload_step rg_upload_step_of(const struct rg_api_request *request);
/* The step of a name; RG_UPLOAD_STEP_NONE: there is none. */
enum rg_upload_step rg_upload_step_find(const char *name);

#endif
