/* What is said of the time of steps. */
#include "dataset/causes.h"

#include "tests/support/test.h"

#include <math.h>
#include <string.h>

#define MS (1000 * RG_NS_PER_US)

static const struct rg_told_step none;

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

static double sum_of(const struct rg_causes *causes)
{
    double sum = 0;
    for (unsigned i = 0; i < RG_CAUSE_COUNT; i++) {
        sum += causes->parts[i];
    }
    return sum;
}

static const char *advice_of(const struct rg_causes *causes)
{
    static char text[RG_CAUSES_ADVICE_MAX];
    rg_causes_advise(causes, "requests= (now 4)", text);
    return text;
}

static void test_what_is_no_sleep_is_decoding(void)
{
    struct rg_told_step sum = {.count = 2, .away_ns = 5 * MS, .inside_ns = 100 * MS};
    sum.slept_ns[RG_STAGE_BODY] = 60 * MS;
    sum.slept_ns[RG_STAGE_NONE] = 10 * MS;
    struct rg_causes causes = rg_causes_find(&sum, &none, 0.5);
    RG_CHECK(is_near(causes.consumer, 0.005));
    RG_CHECK(is_near(causes.parts[RG_STAGE_BODY], 0.06));
    RG_CHECK(is_near(causes.parts[RG_CAUSE_OTHER], 0.01));
    RG_CHECK(is_near(causes.parts[RG_CAUSE_DECODE], 0.03));
    RG_CHECK(is_near(sum_of(&causes), causes.wait));
    RG_CHECK(is_near(rg_causes_attributed(&causes), 0.9));
}

static void test_causes_of_earlier_sleeps_are_left_out(void)
{
    struct rg_told_step sum = {.count = 1, .away_ns = 5, .inside_ns = 100};
    sum.slept_ns[RG_STAGE_NONE] = (uint64_t)-30;
    sum.slept_ns[RG_STAGE_FIRST_BYTE] = 90;
    sum.slept_ns[RG_STAGE_BODY] = 30;
    struct rg_causes causes = rg_causes_find(&sum, &none, 0);
    RG_CHECK(is_near(causes.parts[RG_STAGE_FIRST_BYTE] * 1e9, 67.5));
    RG_CHECK(is_near(causes.parts[RG_CAUSE_DECODE] * 1e9, 10));
    RG_CHECK(is_near(sum_of(&causes), causes.wait));
}

static void test_parts_add_up_whatever_was_counted(void)
{
    for (int i = 0; i < 1000; i++) {
        struct rg_told_step sum = {.count = 1, .inside_ns = rg_test_random_below(1000 * MS)};
        for (unsigned stage = 0; stage < RG_STAGE_COUNT; stage++) {
            sum.slept_ns[stage] = rg_test_random_below(100 * MS);
        }
        sum.slept_ns[RG_STAGE_NONE] -= 50 * MS;
        struct rg_causes causes = rg_causes_find(&sum, &none, 0);
        RG_CHECK(fabs(sum_of(&causes) - causes.wait) < 1e-9);
        for (unsigned part = 0; part < RG_CAUSE_COUNT; part++) {
            RG_CHECK(causes.parts[part] >= 0);
        }
    }
}

static void test_each_cause_has_its_advice(void)
{
    static const char *const words[RG_CAUSE_COUNT] = {
        [RG_CAUSE_OTHER] = "requests=",
        [RG_STAGE_CACHE] = "cache=",
        [RG_STAGE_TOKEN] = "doctor",
        [RG_STAGE_THROTTLED] = "reads_per_s=",
        [RG_STAGE_RETRY] = "backoff_max=",
        [RG_STAGE_QUEUE] = "connections=",
        [RG_STAGE_DNS] = "prewarm=",
        [RG_STAGE_CONNECT] = "prewarm=",
        [RG_STAGE_TLS] = "prewarm=",
        [RG_STAGE_FIRST_BYTE] = "by a larger requests= (now 4).",
        [RG_STAGE_BODY] = "by a larger requests= (now 4); if",
        [RG_STAGE_MEMORY] = "memory=",
        [RG_CAUSE_DECODE] = "num_workers=",
    };
    for (unsigned i = 0; i < RG_CAUSE_COUNT; i++) {
        struct rg_causes causes = {.steps = 1, .wait = 1};
        causes.parts[i] = 1;
        RG_CHECK(strstr(advice_of(&causes), words[i]) != NULL);
        RG_CHECK(strchr(advice_of(&causes), '%') == NULL);
        char text[RG_CAUSES_TEXT_MAX];
        rg_causes_write(&causes, text);
        RG_CHECK(strstr(text, rg_cause_name(i)) != NULL);
        causes.busy = 0.9;
        RG_CHECK((strstr(advice_of(&causes), "use 90% of a CPU") != NULL) ==
                 (i != RG_CAUSE_DECODE));
        causes.consumer = 99;
        RG_CHECK(strstr(advice_of(&causes), "takes 99% of a step") != NULL);
    }
}

static void test_a_step_that_never_ends_is_no_matter_of_pace(void)
{
    struct rg_told_step open = {.away_ns = 1, .inside_ns = 60 * RG_NS_PER_S}, sum = open;
    open.slept_ns[RG_STAGE_FIRST_BYTE] = open.inside_ns;
    sum.slept_ns[RG_STAGE_FIRST_BYTE] = open.inside_ns;
    sum.away_ns = 1000 * RG_NS_PER_S; /* of steps before */
    sum.count = 3;
    struct rg_causes causes = rg_causes_find(&sum, &open, 0);
    char text[RG_CAUSES_TEXT_MAX];
    rg_causes_write(&causes, text);
    RG_CHECK(strncmp(text, "3 steps and one that goes on, of 265 s each: 250 s in", 53) == 0);
    RG_CHECK(strstr(advice_of(&causes), "not come for 60 s") != NULL);
    RG_CHECK(strstr(advice_of(&causes), "ringest doctor") != NULL);
    causes.open = 1; /* the loop itself */
    RG_CHECK(strstr(advice_of(&causes), "The loop itself takes 94%") != NULL);
    causes.open = 60;
    causes.parts[RG_CAUSE_DECODE] = 100;
    causes.consumer = 0;
    RG_CHECK(strstr(advice_of(&causes), "num_workers=") != NULL);
}

static void test_a_text_has_the_largest_part_first(void)
{
    struct rg_causes causes = {.steps = 10, .consumer = 0.00008, .wait = 0.16};
    char text[RG_CAUSES_TEXT_MAX];
    causes.parts[RG_CAUSE_DECODE] = 0.00052;
    causes.parts[RG_STAGE_FIRST_BYTE] = 0.15948;
    rg_causes_write(&causes, text);
    RG_CHECK_STR(text, "10 steps of 16 ms each: 0.008 ms in the loop, 16 ms waiting for data\n"
                       "   99.7%    15.9 ms  first_byte  until answers began\n"
                       "    0.3%   0.052 ms  decode      transforms, and making batches");
    causes.steps = 0;
    rg_causes_write(&causes, text);
    RG_CHECK(strncmp(text, "a step of 160 ms so far: ", 25) == 0);
    for (unsigned i = 0; i < RG_CAUSE_COUNT; i++) {
        causes.parts[i] = 1e300;
    }
    rg_causes_write(&causes, text); /* is cut */
    RG_CHECK(strlen(text) < sizeof(text));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_no_sleep_is_decoding),
        RG_TEST(test_causes_of_earlier_sleeps_are_left_out),
        RG_TEST(test_parts_add_up_whatever_was_counted),
        RG_TEST(test_each_cause_has_its_advice),
        RG_TEST(test_a_step_that_never_ends_is_no_matter_of_pace),
        RG_TEST(test_a_text_has_the_largest_part_first),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
