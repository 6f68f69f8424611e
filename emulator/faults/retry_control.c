/* See retry_control.h. */
#include "emulator/faults/retry_control.h"

#include "emulator/faults/retry_tests.h"
#include "emulator/request/body.h"
#include "emulator/request/reply.h"
#include "http/url.h"

#include <errno.h>
#include <yyjson.h>

#define CONTROL_SIZE_MAX RG_KIB(64)

static struct rg_retry_tests *tests_of(struct rg_server_call *call)
{
    return rg_service_of(call)->retry_tests;
}

void rg_retry_control_unknown(struct rg_server_call *call, struct rg_h1_slice id)
{
    rg_reply_error(call, RG_API_NO_PATH, "There is no retry test %.*s.", (int)id.size, id.data);
}

static void list_tests(struct rg_server_call *call)
{
    struct rg_text *text = &rg_call_of(call)->text;
    rg_text_append_str(text, "{\"retry_test\":[");
    rg_retry_tests_append_all(tests_of(call), text);
    rg_text_append_str(text, "]}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void get_test(struct rg_server_call *call, struct rg_h1_slice id)
{
    if (rg_retry_tests_append(tests_of(call), id, &rg_call_of(call)->text) < 0) {
        rg_retry_control_unknown(call, id);
    } else {
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
}

static void delete_test(struct rg_server_call *call, struct rg_h1_slice id)
{
    if (rg_retry_tests_remove(tests_of(call), id) < 0) {
        rg_retry_control_unknown(call, id);
        return;
    }
    rg_text_printf(&rg_call_of(call)->text, "Deleted %.*s\n", (int)id.size, id.data);
    rg_reply_text(call, 200, "text/plain; charset=UTF-8");
}

/* False with the call answered. */
static bool add_instruction(struct rg_server_call *call, struct rg_retry_test *test,
                            const char *method_name, yyjson_val *value)
{
    const char *text = yyjson_is_str(value) ? yyjson_get_str(value) : "";
    enum rg_method method = rg_method_find(method_name);
    if (method == RG_METHOD_NONE) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The method '%.64s' is not known.", method_name);
        return false;
    }
    int rc = rg_retry_test_add(test, method, text);
    if (rc == -ENOSPC) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "A retry test has at most %d instructions.",
                       RG_RETRY_INSTRUCTIONS_MAX);
    } else if (rc < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The instruction '%.64s' is not known.", text);
    }
    return rc == 0;
}

static bool fill_test(struct rg_server_call *call, struct rg_retry_test *test, yyjson_val *root)
{
    yyjson_val *name, *value, *methods = yyjson_obj_get(root, "instructions");
    size_t i, count, at, size;
    if (!yyjson_is_obj(methods)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A retry test is {\"instructions\":{METHOD:[INSTRUCTION,...]}}.");
        return false;
    }
    yyjson_obj_foreach(methods, i, count, name, value)
    {
        yyjson_val *text;
        yyjson_arr_foreach(value, at, size, text)
        {
            if (!add_instruction(call, test, yyjson_get_str(name), text)) {
                return false;
            }
        }
    }
    return true;
}

static void make_test(struct rg_server_call *call, const struct rg_api_request *request,
                      struct rg_h1_slice body)
{
    (void)request;
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    struct rg_retry_test *test = rg_retry_test_create();
    if (test == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else if (fill_test(call, test, yyjson_doc_get_root(document))) {
        if (rg_retry_tests_keep(tests_of(call), test, &rg_call_of(call)->text) == 0) {
            test = NULL;
            rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
        } else {
            rg_reply_error(call, RG_API_TOO_LARGE,
                           "There are %d retry tests already; delete what is done.",
                           RG_RETRY_TESTS_MAX);
        }
    }
    rg_retry_test_destroy(test);
    yyjson_doc_free(document);
}

bool rg_retry_control(struct rg_server_call *call, const struct rg_api_request *request)
{
    static const char tests_path[] = "/retry_tests", test_path[] = "/retry_test";
    struct rg_h1_slice path, query, prefix = {test_path, sizeof(test_path) - 1};
    rg_url_target_split(request->head->target, &path, &query);
    if (!rg_text_starts_with(path, prefix)) {
        return false;
    }
    struct rg_h1_slice id = {path.data + prefix.size, path.size - prefix.size};
    bool named = id.size > 1 && id.data[0] == '/';
    bool listed = rg_text_equals(path, tests_path);
    if (!named && !listed && id.size > 0) {
        return false;
    }
    id.data += named;
    id.size -= named;
    rg_call_of(call)->json = true;
    if (listed && rg_api_request_is(request, "GET")) {
        list_tests(call);
    } else if (named && rg_api_request_is(request, "GET")) {
        get_test(call, id);
    } else if (named && rg_api_request_is(request, "DELETE")) {
        delete_test(call, id);
    } else if (!named && !listed && rg_api_request_is(request, "POST")) {
        rg_body_collect(call, request, CONTROL_SIZE_MAX, make_test);
    } else {
        rg_reply_error(call, RG_API_METHOD,
                       "Retry tests know POST /retry_test, GET /retry_tests, "
                       "and GET and DELETE of /retry_test/ID.");
    }
    return true;
}
