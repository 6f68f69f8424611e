/* See rule_control.h. */
#include "emulator/faults/rule_control.h"

#include "emulator/faults/rules.h"
#include "emulator/request/body.h"
#include "emulator/request/reply.h"
#include "http/url.h"

#include <stdlib.h>
#include <yyjson.h>

#define CONTROL_PATH "/fault_rule"
#define CONTROL_SIZE_MAX RG_KIB(8)
#define ERROR_SIZE_MAX 256

static void make(struct rg_server_call *call, const struct rg_api_request *request,
                 struct rg_h1_slice body)
{
    (void)request;
    char error[ERROR_SIZE_MAX];
    struct rg_rule *rule = malloc(sizeof(*rule));
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    if (rule == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else if (!rg_rule_parse(rule, yyjson_doc_get_root(document), error, sizeof(error))) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "%s", error);
    } else if (rg_rules_add(rg_service_of(call)->rules, rule, &rg_call_of(call)->text) < 0) {
        rg_reply_error(call, RG_API_TOO_LARGE,
                       "There are %d fault rules already; delete what is done.", RG_RULES_MAX);
    } else {
        rule = NULL;
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    free(rule);
    yyjson_doc_free(document);
}

/* Holds the answer, which is made when the call is resumed. */
static void hold(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    rg_text_fini(&state->text);
    rg_reply_start(call, 200);
    rg_reply_finish(call, 0);
    state->response.held = true;
}

bool rg_rule_control(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice path, query, prefix = rg_text_slice(CONTROL_PATH);
    rg_url_target_split(request->head->target, &path, &query);
    if (!rg_text_starts_with(path, prefix) ||
        (path.size > prefix.size && path.data[prefix.size] != '/')) {
        return false;
    }
    int64_t id = 0;
    rg_call_of(call)->json = true;
    bool named = path.size > prefix.size + 1 &&
                 rg_text_parse_int64(
                     (struct rg_h1_slice){path.data + prefix.size + 1, path.size - prefix.size - 1},
                     &id) == 0;
    if (named && rg_api_request_is(request, "GET")) {
        if (!rg_rules_tell(call, (uint64_t)id, rg_text_equals(query, "wait"))) {
            hold(call);
            rg_call_of(call)->awaited_rule = (uint64_t)id;
        }
    } else if (named && rg_api_request_is(request, "DELETE")) {
        rg_rules_end(call, (uint64_t)id);
    } else if (path.size == prefix.size && rg_api_request_is(request, "POST")) {
        rg_body_collect(call, request, CONTROL_SIZE_MAX, make);
    } else {
        rg_reply_error(call, RG_API_METHOD,
                       "Fault rules know POST " CONTROL_PATH ", and GET and DELETE of " CONTROL_PATH
                       "/ID.");
    }
    return true;
}
