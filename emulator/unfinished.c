/* See unfinished.h. */
#include "emulator/unfinished.h"

#include "emulator/api/resumable.h"
#include "emulator/api/xml/multipart.h"
#include "emulator/request/reply.h"

bool rg_unfinished_control(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_sessions *sessions = rg_service_of(call)->sessions;
    if (!rg_text_equals(request->head->target, "/unfinished_uploads")) {
        return false;
    }
    rg_call_of(call)->json = true;
    if (!rg_api_request_is(request, "GET")) {
        rg_reply_error(call, RG_API_METHOD, "Unfinished uploads know GET.");
        return true;
    }
    rg_text_printf(&rg_call_of(call)->text, "{\"resumable\":%u,\"multipart\":%u}",
                   rg_resumable_count(sessions), rg_xml_multipart_count(sessions));
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    return true;
}
