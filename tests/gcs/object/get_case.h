/* What the tests of gets share: one get from a client, against servers of one script. */
#ifndef RG_TESTS_GCS_OBJECT_GET_CASE_H
#define RG_TESTS_GCS_OBJECT_GET_CASE_H

#include "runtime/runtime.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#define SIZE 100000
#define GENERATION 1700000000000001

#define OBJECT(size_)                                                                              \
    {                                                                                              \
        .kind = RG_STEP_SEND_OBJECT, .size = (size_),                                              \
        .text = rg_test_object_fields(size_, GENERATION)                                           \
    }

static inline struct rg_completion get_one(struct rg_test_client *c, const struct rg_get *get)
{
    rg_test_get(c, get);
    return rg_test_take(c);
}

/* One get from a server of one script; checks the status and gives the completion's lease back. */
static inline struct rg_completion try_script(const struct rg_step *script,
                                              const struct rg_get *get, enum rg_status want,
                                              uint32_t attempts_max)
{
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts,
        .script_count = 1,
        .options = {.attempts_max = attempts_max},
    };
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c, get);
    rg_test_check_status(__FILE__, __LINE__, &done, want);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    return done;
}

#endif
