/* Which texts are instructions, and what they mean. */
#include "emulator/faults/instruction.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

static void test_what_instructions_mean(void)
{
    static const struct {
        const char *text;
        struct rg_fault_action action;
    } rows[] = {
        {"return-503", {.kind = RG_FAULT_STATUS, .status = 503}},
        {"return-300", {.kind = RG_FAULT_STATUS, .status = 300}},
        {"return-408-after-256K",
         {.kind = RG_FAULT_STATUS_AFTER, .status = 408, .after = 256 * 1024}},
        {"return-reset-connection", {.kind = RG_FAULT_RESET}},
        {"return-broken-stream", {.kind = RG_FAULT_BREAK, .after = 4}},
        {"return-broken-stream-after-0K", {.kind = RG_FAULT_BREAK_AFTER}},
        {"return-broken-stream-final-chunk-after-9B", {.kind = RG_FAULT_BREAK_FINAL, .after = 9}},
        {"stall-for-3600s-after-1K",
         {.kind = RG_FAULT_STALL_AFTER, .stall_s = 3600, .after = 1024}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_fault_action action;
        RG_CHECK(rg_instruction_parse(rows[i].text, &action));
        RG_CHECK_EQ(action.kind, rows[i].action.kind);
        RG_CHECK_EQ(action.status, rows[i].action.status);
        RG_CHECK_EQ(action.after, rows[i].action.after);
        RG_CHECK_EQ(action.stall_s, rows[i].action.stall_s);
        RG_CHECK(!action.reset);
    }
}

static void test_what_is_no_instruction(void)
{
    static const char *const texts[] = {
        "",
        "return-",
        "return-200",
        "return-299",
        "return-600",
        "return-503x",
        "return-503-after-K",
        "return-5 03",
        "return-broken-stream-after-99999999999999999999K",
        "stall-for-3601s-after-1K",
        "stall-for-1s-after-1B",
        "stall-always",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        struct rg_fault_action action;
        RG_CHECK(!rg_instruction_parse(texts[i], &action));
    }
}

static void test_a_field_may_mean_something_else_of_an_upload(void)
{
    struct rg_fault_action action;
    struct rg_h1_slice text = rg_text_slice("return-503-after-256K");
    RG_CHECK(rg_instruction_parse_field(text, true, &action));
    RG_CHECK_EQ(action.kind, RG_FAULT_STATUS_AFTER);
    RG_CHECK_EQ(action.status, 503);
    RG_CHECK(rg_instruction_parse_field(text, false, &action));
    RG_CHECK_EQ(action.kind, RG_FAULT_BREAK_AFTER);
    RG_CHECK(action.reset);
    action.kind = RG_FAULT_NONE;
    RG_CHECK(!rg_instruction_parse_field(rg_text_slice("return-503"), false, &action));
    RG_CHECK_EQ(action.kind, RG_FAULT_NONE);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_instructions_mean),
        RG_TEST(test_what_is_no_instruction),
        RG_TEST(test_a_field_may_mean_something_else_of_an_upload),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
