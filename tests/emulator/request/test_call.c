/* What a call lets go of when it ends. */
#include "emulator/request/call.h"
#include "tests/support/test.h"

static int destroyed, closed;

static void destroy(void *received)
{
    destroyed += *(int *)received;
}

static void close_object(struct rg_store_object *object)
{
    (void)object;
    closed++;
}

static const struct rg_receiver receiver = {.destroy = destroy};
static const struct rg_store_object_type type = {.close = close_object};

static void test_a_call_lets_go_of_everything_once(void)
{
    static struct rg_server_call call;
    struct rg_call *state = rg_call_of(&call);
    int received = 1;
    destroyed = closed = 0;
    state->receiver = &receiver;
    state->received = &received;
    state->object.type = &type;
    rg_text_append_str(&state->text, "an answer");
    rg_call_release(&call);
    rg_call_release(&call);
    RG_CHECK_EQ(destroyed, 1);
    RG_CHECK_EQ(closed, 1);
    RG_CHECK(state->text.data == NULL);
}

static void test_a_call_that_has_nothing(void)
{
    static struct rg_server_call call;
    rg_call_release(&call);
    RG_CHECK(rg_call_of(&call)->receiver == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_call_lets_go_of_everything_once),
        RG_TEST(test_a_call_that_has_nothing),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
