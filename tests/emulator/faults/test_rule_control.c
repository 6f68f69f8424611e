/* Rules are made, waited for and ended; what is none is refused. */
#include "emulator/faults/rule_control.h"
#include "emulator/faults/rules.h"
#include "tests/emulator/faults/rule_case.h"

static void test_a_client_that_waits_for_a_rule_that_ends(void)
{
    char target[128];
    begin("\"nth\":0");
    snprintf(target, sizeof(target), "/fault_rule/%s?wait", rule.id);
    struct client client = {"GET", target, "", {0}, 0};
    client_start(&client);
    end(0, 0);
    client_join(&client);
    RG_CHECK_EQ(client.talk.status, 404);
}

static void test_what_is_no_rule(void)
{
    static const char *const bodies[] = {
        "",
        "[]",
        "{\"nth\":-1}",
        "{\"nth\":\"1\"}",
        "{\"times\":0}",
        "{\"effect\":\"thrice\"}",
        "{\"effect\":\"none\"}",
        "{\"effect\":\"later\",\"answer\":\"given\"}",
        "{\"answer\":3}",
        "{\"status\":201}",
        "{\"method\":\"storage.objects.eat\"}",
        "{\"field\":\"x\"}",
        "{\"writes\":1}",
        "{\"delay_ms\":3600001}",
        "{\"bukket\":\"x\"}",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        unsigned status = ask("POST", "/fault_rule", bodies[i]).status;
        if (status != 400) {
            rg_test_fail(__FILE__, __LINE__, "%s: %u", bodies[i], status);
        }
    }
    RG_CHECK_EQ(status_of("GET", "/fault_rule/77777"), 404);
    RG_CHECK_EQ(status_of("DELETE", "/fault_rule/77777"), 404);
    RG_CHECK_EQ(status_of("GET", "/fault_rule/x"), 405);
    RG_CHECK_EQ(status_of("PUT", "/fault_rule"), 405);
    static struct rg_talk_rule rules[RG_RULES_MAX];
    for (size_t i = 0; i < RG_ARRAY_LEN(rules); i++) {
        rg_talk_rule_begin(port, "\"nth\":0", &rules[i]);
    }
    RG_CHECK_EQ(ask("POST", "/fault_rule", "{\"nth\":0}").status, 413);
    for (size_t i = 0; i < RG_ARRAY_LEN(rules); i++) {
        rg_talk_rule_end(port, &rules[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_client_that_waits_for_a_rule_that_ends),
        RG_TEST(test_what_is_no_rule),
    };
    return rule_case_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
