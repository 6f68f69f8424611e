/* The handler: from the server's events to the parts of the API; see handler.h and request/call.h.
 */
#include "emulator/handler.h"

#include "emulator/api/json/routes.h"
#include "emulator/api/unsupported.h"
#include "emulator/api/xml/routes.h"
#include "emulator/faults/faults.h"
#include "emulator/faults/retry_tests.h"
#include "emulator/faults/rule_control.h"
#include "emulator/faults/rules.h"
#include "emulator/request/call.h"
#include "emulator/request/reply.h"
#include "emulator/request/sessions.h"
#include "emulator/unfinished.h"

#include <errno.h>
#include <stdlib.h>

struct rg_handler {
    struct rg_service service; /* First: the calls' context points at it. */
    struct rg_handler_options options;
    struct rg_rate_limit rate_limit;
};
_Static_assert(offsetof(struct rg_handler, service) == 0, "the context of a call is both");

static struct rg_handler *handler_of(struct rg_server_call *call)
{
    return RG_CONTAINER_OF(rg_service_of(call), struct rg_handler, service);
}

static void route(struct rg_server_call *call, const struct rg_api_request *request)
{
    if (request->route == RG_ROUTE_NONE) {
        rg_reply_error(call, RG_API_NO_PATH, "The emulator serves nothing at this path.");
    } else if (!rg_unsupported_check(call, request)) {
        RG_ASSERT(rg_call_of(call)->replied);
    } else if (rg_api_request_is_json(request)) {
        rg_json_api_start(call, request);
    } else {
        rg_xml_api_start(call, request);
    }
}

/* Hands the answer over as soon as there is one, be it before the request's body: then the server
 * drops the body, and nobody waits for what a refused upload would still send. */
static void respond_if_ready(struct rg_server_call *call)
{
    struct rg_handler *handler = handler_of(call);
    struct rg_call *state = rg_call_of(call);
    if (state->replied) {
        state->response.delay_ns = rg_latency_draw(
            &handler->options.latency, &handler->service.loops[call->loop_index].random);
        state->response.bytes_per_second = handler->options.bytes_per_second;
        rg_rules_respond(call);
        rg_faults_respond(call);
        rg_server_respond(call, &state->response);
    }
}

static int handle_begin(struct rg_server_call *call)
{
    struct rg_handler *handler = handler_of(call);
    struct rg_call *state = rg_call_of(call);
    RG_ASSERT(call->loop_index < handler->options.loop_count);
    struct rg_api_request request;
    int rc = rg_api_request_parse(&request, call->head);
    state->json = rg_api_request_is_json(&request);
    state->keep_alive = call->head->keep_alive;
    state->head_request = rg_api_request_is(&request, "HEAD");
    if (rc == 0 && !rg_rule_control(call, &request) && !rg_unfinished_control(call, &request)) {
        rg_rules_begin(call, &request);
    }
    if (rc == 0 && !state->replied && state->receiver == NULL) {
        rg_faults_begin(call, &request);
    }
    if (state->replied || state->receiver != NULL) {
        respond_if_ready(call);
        return 0;
    }
    if (rc < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The path or the query is not well encoded.");
    } else if (!rg_rate_limit_take(&handler->rate_limit, call->now_ns)) {
        rg_reply_error(call, RG_API_RATE,
                       "The rate of requests exceeds the limit of this emulator.");
    } else {
        route(call, &request);
    }
    respond_if_ready(call);
    return 0;
}

static int handle_body(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_call *state = rg_call_of(call);
    RG_ASSERT(!state->replied);
    RG_ASSERT(state->receiver != NULL);
    size_t kept = rg_faults_take(call, size);
    rg_rules_take(call, data, kept);
    if (kept > 0) {
        state->receiver->receive(call, data, kept);
    }
    respond_if_ready(call);
    return 0;
}

static void handle_end(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    RG_ASSERT(!state->replied);
    RG_ASSERT(state->receiver != NULL);
    rg_faults_end(call);
    if (!state->replied) {
        state->receiver->finish(call);
    }
    RG_ASSERT(state->replied);
    respond_if_ready(call);
}

static size_t handle_produce(struct rg_server_call *call, uint64_t offset, const uint8_t **out_data)
{
    struct rg_call *state = rg_call_of(call);
    RG_ASSERT(offset < state->response.body_size);
    uint64_t left = state->response.body_size - offset;
    if (state->object.type == NULL) {
        *out_data = (const uint8_t *)state->text.data + offset;
        return (size_t)left;
    }
    size_t size = rg_store_object_read(&state->object, state->first + offset, out_data);
    if (rg_faults_corrupt(call, RG_FAULT_CORRUPT_ANSWER, *out_data)) {
        *out_data = &state->fault.corrupted;
        return 1;
    }
    return (size_t)RG_MIN((uint64_t)size, left);
}

static void handle_release(struct rg_server_call *call)
{
    rg_call_release(call);
    rg_rules_release(call);
}

const struct rg_server_handler rg_handler_events = {
    .begin = handle_begin,
    .body = handle_body,
    .end = handle_end,
    .resume = rg_rules_resume,
    .produce = handle_produce,
    .release = handle_release,
};

static void start_loops(struct rg_handler *handler)
{
    for (uint32_t i = 0; i < handler->options.loop_count; i++) {
        handler->service.loops[i] = (struct rg_service_loop){
            .date_seconds = INT64_MIN,
            .random = handler->options.seed + i * UINT64_C(0xd1342543de82ef95),
        };
    }
}

int rg_handler_create(struct rg_handler **out_handler, const struct rg_handler_options *options)
{
    RG_ASSERT(options->loop_count > 0);
    struct rg_handler *handler = calloc(1, sizeof(*handler));
    if (handler == NULL) {
        return -ENOMEM;
    }
    struct rg_service *service = &handler->service;
    handler->options = *options;
    service->store = options->store;
    service->tls = options->tls;
    service->route = route;
    service->loops = aligned_alloc(RG_CACHE_LINE, options->loop_count * sizeof(*service->loops));
    int rc = service->loops != NULL ? rg_retry_tests_create(&service->retry_tests) : -ENOMEM;
    rc = rc == 0 ? rg_rules_create(&service->rules) : rc;
    rc = rc == 0 ? rg_sessions_create(&service->sessions, RG_SESSIONS_MAX) : rc;
    if (rc < 0) {
        rg_handler_destroy(handler);
        return rc;
    }
    start_loops(handler);
    if (options->requests_per_second > 0) {
        rg_rate_limit_init(&handler->rate_limit, options->requests_per_second);
    }
    *out_handler = handler;
    return 0;
}

void rg_handler_destroy(struct rg_handler *handler)
{
    if (handler != NULL) {
        rg_retry_tests_destroy(handler->service.retry_tests);
        rg_rules_destroy(handler->service.rules);
        rg_sessions_destroy(handler->service.sessions);
        free(handler->service.loops);
        free(handler);
    }
}
