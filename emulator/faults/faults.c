/* What faults do to calls; see faults.h. */
#include "emulator/faults/faults.h"

#include "emulator/faults/instruction.h"
#include "emulator/faults/retry_control.h"
#include "emulator/faults/retry_tests.h"
#include "emulator/request/method.h"
#include "emulator/request/reply.h"

static struct rg_fault *fault_of(struct rg_server_call *call)
{
    return &rg_call_of(call)->fault;
}

/* Uses up the call's instruction. False: another call was first. */
static bool use_up(struct rg_server_call *call)
{
    return rg_retry_tests_use(rg_service_of(call)->retry_tests, fault_of(call));
}

static void reply_status(struct rg_server_call *call)
{
    unsigned status = fault_of(call)->action.status;
    struct rg_text *text = &rg_call_of(call)->text;
    rg_text_fini(text);
    rg_text_printf(text,
                   "{\"error\":{\"code\":%u,\"message\":\"Retry test: caused a %u.\",\"errors\":"
                   "[{\"message\":\"Retry test: caused a %u.\",\"domain\":\"global\",\"reason\":"
                   "\"retryTest\"}]}}",
                   status, status, status);
    rg_reply_text(call, status, RG_REPLY_JSON_TYPE);
}

/* Carries out at once what does not depend on a body or an answer. */
static void strike(struct rg_server_call *call)
{
    struct rg_fault *fault = fault_of(call);
    bool now = fault->action.kind == RG_FAULT_STATUS || fault->action.kind == RG_FAULT_RESET;
    if (!now || !use_up(call)) {
        return;
    }
    if (fault->action.kind == RG_FAULT_STATUS) {
        reply_status(call);
    } else {
        rg_reply_start(call, 500);
        rg_reply_finish(call, 0);
        rg_call_of(call)->response.cut_head = true;
        rg_call_of(call)->response.reset = true;
    }
    fault->action.kind = RG_FAULT_NONE;
}

void rg_faults_begin(struct rg_server_call *call, const struct rg_api_request *request)
{
    static const char test_field[] = "x-retry-test-id";
    static const char own_field[] = "x-goog-emulator-instructions";
    const struct rg_h1_head *head = request->head;
    bool has_field = false;
    /* Nearly all requests have neither field. Sizes tell that without reading any name. */
    for (uint32_t i = 0; i < head->header_count; i++) {
        uint32_t size = head->headers[i].name.size;
        has_field |= size == sizeof(test_field) - 1 || size == sizeof(own_field) - 1;
    }
    if (rg_retry_control(call, request) || !has_field) {
        return;
    }
    const struct rg_h1_slice *id = rg_h1_find(head, test_field);
    const struct rg_h1_slice *own = rg_h1_find(head, own_field);
    enum rg_method method = rg_method_of(request);
    fault_of(call)->is_upload = method == RG_METHOD_OBJECTS_INSERT;
    if (own != NULL) {
        (void)rg_instruction_parse_field(*own, fault_of(call)->is_upload, &fault_of(call)->action);
    }
    if (id != NULL &&
        rg_retry_tests_find(rg_service_of(call)->retry_tests, *id, method, fault_of(call)) < 0) {
        rg_retry_control_unknown(call, *id);
        return;
    }
    strike(call);
}

/* Whether the call is an upload that passes the limit with this request's bytes. */
static bool crosses(const struct rg_fault *fault)
{
    uint64_t after = fault->action.after;
    return fault->is_upload && (fault->from < after || after == 0) &&
           fault->from + fault->received >= after;
}

size_t rg_faults_take(struct rg_server_call *call, size_t size)
{
    struct rg_fault *fault = fault_of(call);
    uint64_t before = fault->from + fault->received;
    fault->received += size;
    if (fault->action.kind != RG_FAULT_STATUS_AFTER) {
        return size;
    }
    if (!fault->has_struck && crosses(fault)) {
        /* It is used up now, so that another call that may have it goes on with all of its
         * bytes. */
        fault->has_struck = use_up(call);
        fault->action.kind = fault->has_struck ? RG_FAULT_STATUS_AFTER : RG_FAULT_NONE;
    }
    if (!fault->has_struck) {
        return size;
    }
    uint64_t after = fault->action.after;
    return after > before ? (size_t)RG_MIN((uint64_t)size, after - before) : 0;
}

void rg_faults_end(struct rg_server_call *call)
{
    const struct rg_fault *fault = fault_of(call);
    if (fault->action.kind == RG_FAULT_STATUS_AFTER &&
        (fault->has_struck || (crosses(fault) && use_up(call)))) {
        reply_status(call);
    }
}

static void cut(struct rg_server_call *call)
{
    struct rg_server_response *response = &rg_call_of(call)->response;
    response->cut_after = fault_of(call)->action.after;
    response->cut_head = response->cut_after >= response->body_size;
    response->reset = fault_of(call)->action.reset;
}

static void stall(struct rg_server_call *call)
{
    const struct rg_fault *fault = fault_of(call);
    struct rg_server_response *response = &rg_call_of(call)->response;
    uint64_t stall_ns = fault->action.stall_s * RG_NS_PER_S;
    if (fault->is_upload && crosses(fault) && use_up(call)) {
        response->delay_ns += stall_ns;
    } else if (!fault->is_upload && response->body_size > fault->action.after && use_up(call)) {
        response->stall_after = fault->action.after;
        response->stall_ns = stall_ns;
    }
}

void rg_faults_respond(struct rg_server_call *call)
{
    struct rg_fault *fault = fault_of(call);
    uint64_t body_size = rg_call_of(call)->response.body_size;
    switch ((enum rg_fault_kind)fault->action.kind) {
    case RG_FAULT_BREAK:
        if (use_up(call)) {
            cut(call);
        }
        break;
    case RG_FAULT_BREAK_AFTER:
        if (!fault->is_upload && body_size > fault->action.after && use_up(call)) {
            cut(call);
        }
        break;
    case RG_FAULT_BREAK_FINAL:
        if (fault->is_upload && rg_reply_status(call) == 200 && body_size > fault->action.after &&
            use_up(call)) {
            cut(call);
        }
        break;
    case RG_FAULT_STALL_AFTER:
        stall(call);
        break;
    default:
        break;
    }
}

bool rg_faults_corrupt(struct rg_server_call *call, enum rg_fault_kind kind, const uint8_t *data)
{
    struct rg_fault *fault = fault_of(call);
    if (fault->action.kind != kind) {
        return false;
    }
    fault->action.kind = RG_FAULT_NONE;
    fault->corrupted = (uint8_t)~data[0];
    return true;
}
