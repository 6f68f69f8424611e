/* Options by name: what is taken, what is refused and how, and which of several places counts. */
#include "runtime/base.h"
#include "tests/support/test.h"

#include <ringest/gcs.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static struct rg_runtime_options runtime;
static struct rg_client_options client;
static char error[256];

static void begin(void)
{
    runtime = (struct rg_runtime_options){.struct_size = sizeof(runtime)};
    client = (struct rg_client_options){.struct_size = sizeof(client)};
    *error = '\0';
}

static int set(const char *name, const char *text)
{
    return rg_option_set(&runtime, &client, name, text, error, sizeof(error));
}

static void test_each_kind_is_read(void)
{
    begin();
    RG_CHECK_EQ(set("proxy", "http://p:1"), 0);
    RG_CHECK_STR(client.proxy, "http://p:1");
    RG_CHECK_EQ(set("attempts", "1000"), 0);
    RG_CHECK_EQ(client.attempts_max, 1000);
    RG_CHECK_EQ(set("memory", "64MiB"), 0);
    RG_CHECK_EQ(runtime.memory_max, 64 << 20);
    RG_CHECK_EQ(set("hedge_size", "1K"), 0);
    RG_CHECK_EQ(client.hedge_size_max, 1024);
    RG_CHECK_EQ(set("hedge_size", "7B"), 0);
    RG_CHECK_EQ(client.hedge_size_max, 7);
    RG_CHECK_EQ(set("stall_timeout", "2.5"), 0);
    RG_CHECK_EQ(client.stall_timeout_ns, 2500 * RG_NS_PER_MS);
    RG_CHECK_EQ(set("backoff_min", "0.0000000019"), 0);
    RG_CHECK_EQ(client.backoff_min_ns, 1);
    RG_CHECK_EQ(set("idle_timeout", "inf"), 0);
    RG_CHECK(client.idle_timeout_ns == RG_FOREVER);
    RG_CHECK_EQ(set("hedging", "off"), 0);
    RG_CHECK_EQ(client.hedging, RG_SWITCH_OFF);
    RG_CHECK_EQ(set("hedging", "True"), 0);
    RG_CHECK_EQ(client.hedging, RG_SWITCH_ON);
    RG_CHECK_EQ(set("ramp", "gcs"), 0);
    RG_CHECK_EQ(client.ramp, RG_RAMP_GCS);
    RG_CHECK_EQ(set("numa", "none"), 0);
    RG_CHECK_EQ(runtime.numa_policy, RG_NUMA_NONE);
    RG_CHECK_EQ(set("backend", "epoll"), 0);
    RG_CHECK_EQ(runtime.backend, RG_BACKEND_EPOLL);
}

static void test_what_is_wrong_is_explained(void)
{
    static const struct {
        const char *name, *text, *error;
    } rows[] = {
        {"colour", "red", "there is no option \"colour\""},
        {"attempts", "0", "attempts must be 1 to 1000, got 0"},
        {"attempts", "1001", "attempts must be 1 to 1000, got 1001"},
        {"attempts", "", "attempts must be 1 to 1000, got \"\""},
        {"attempts", "-1", "attempts must be 1 to 1000, got \"-1\""},
        {"attempts", "8 ", "attempts must be 1 to 1000, got 8 "},
        {"memory", "much",
         "memory must be at least 8 MiB, such as 100000000 or 64MiB, got \"much\""},
        {"memory", "4", "memory must be at least 8 MiB, such as 100000000 or 64MiB, got 4"},
        {"cache_size", "0",
         "cache_size must be a number of bytes above 0, such as 100000 or 64MiB, got 0"},
        {"memory", "0", NULL},
        {"memory", "1X", NULL},
        {"memory", "1Mi", NULL},
        {"memory", "99999999999T", NULL},
        {"stall_timeout", "0",
         "stall_timeout must be a number of seconds above 0, such as 2.5, or "
         "inf for no limit, got 0"},
        {"stall_timeout", "0.0000000001", NULL},
        {"stall_timeout", "1e3", NULL},
        {"stall_timeout", "-1", NULL},
        {"stall_timeout", "1000000001", NULL},
        {"stall_timeout", "5s", NULL},
        {"stall_timeout", "1,5", NULL},
        {"hedging", "maybe", "hedging must be true or false, got \"maybe\""},
        {"ramp", "google", "ramp must be one of none, gcs, got \"google\""},
        {"ramp", "", NULL},
        {"backend", "kqueue", "backend must be one of auto, uring, epoll, got \"kqueue\""},
    };
    begin();
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        *error = '\0';
        RG_CHECK_EQ(set(rows[i].name, rows[i].text), -EINVAL);
        if (rows[i].error != NULL) {
            RG_CHECK_STR(error, rows[i].error);
        }
        RG_CHECK(*error != '\0');
    }
    RG_CHECK_EQ(rg_option_set(&runtime, &client, "attempts", "0", NULL, 0), -EINVAL);
    RG_CHECK_EQ(client.attempts_max, 0);
}

/* A program that was compiled when the struct was shorter. */
static void test_nothing_is_written_behind_an_older_struct(void)
{
    begin();
    client.struct_size = offsetof(struct rg_client_options, ramp);
    RG_CHECK_EQ(set("attempts", "3"), 0);
    RG_CHECK_EQ(set("job_processes", "3"), -EINVAL);
    RG_CHECK(strstr(error, "built before") != NULL);
    RG_CHECK_EQ(client.job_processes, 0);
}

static void variable_of(const char *name, char out[64])
{
    snprintf(out, 64, "RINGEST_%s", name);
    for (char *c = out; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
}

static const char *good_value(enum rg_option_kind kind, const char *name)
{
    static const char *const values[] = {[RG_OPTION_TEXT] = "x",
                                         [RG_OPTION_COUNT] = "3",
                                         [RG_OPTION_SIZE] = "64MiB",
                                         [RG_OPTION_SECONDS] = "1.25",
                                         [RG_OPTION_SWITCH] = "off",
                                         [RG_OPTION_CHOICE] = NULL,
                                         [RG_OPTION_SWITCH_OR_FOLDER] = "/dev/shm"};
    if (kind == RG_OPTION_CHOICE) {
        return strcmp(name, "ramp") == 0      ? "gcs"
               : strcmp(name, "backend") == 0 ? "epoll"
                                              : "compact";
    }
    return values[kind];
}

/* What one variable makes of options that nothing was set in. */
static int set_by(const char *name, const char *text, bool *out_is_set)
{
    char variable[64], was[64] = "";
    struct rg_runtime_options runtime_before;
    struct rg_client_options client_before;
    variable_of(name, variable);
    snprintf(was, sizeof(was), "%s", getenv(variable) != NULL ? getenv(variable) : "");
    unsetenv(variable);
    begin();
    RG_CHECK_EQ(rg_options_from_environment(&runtime, &client, error, sizeof(error)), 0);
    runtime_before = runtime;
    client_before = client;
    setenv(variable, text, 1);
    begin();
    int rc = rg_options_from_environment(&runtime, &client, error, sizeof(error));
    *out_is_set = memcmp(&runtime, &runtime_before, sizeof(runtime)) != 0 ||
                  memcmp(&client, &client_before, sizeof(client)) != 0;
    if (*was != '\0') {
        setenv(variable, was, 1);
    } else {
        unsetenv(variable);
    }
    return rc;
}

/* But who is talked to, and whether bytes are checked; and headers are read where they are used. */
static void test_the_environment_gives_each_of_them(void)
{
    static const char *const refused[] = {"endpoint", "token", "credentials", "checksum"};
    const char *name;
    for (size_t i = 0; (name = rg_option_name(i)) != NULL; i++) {
        bool is_refused = false, is_set;
        for (size_t n = 0; n < RG_ARRAY_LEN(refused); n++) {
            is_refused = is_refused || strcmp(name, refused[n]) == 0;
        }
        int rc = set_by(name, good_value(rg_option_kind(name), name), &is_set);
        if (is_refused) {
            RG_CHECK_EQ(rc, -EINVAL);
            RG_CHECK(strstr(error, "is set, but no such variable decides that; unset it") != NULL);
        } else {
            RG_CHECK_EQ(rc, 0);
            RG_CHECK_EQ(is_set, strcmp(name, "headers") != 0 && strcmp(name, "local_rank") != 0 &&
                                    strcmp(name, "local_world_size") != 0);
        }
    }
    RG_CHECK_EQ(rg_option_kind("RAMP"), RG_OPTION_NONE);
}

static void test_what_is_set_comes_before_the_environment(void)
{
    setenv("RINGEST_ATTEMPTS", "5", 1);
    setenv("RINGEST_HEDGING", "no", 1);
    setenv("RINGEST_STALL_TIMEOUT", "", 1); /* as if it were not there */
    begin();
    client.attempts_max = 7;
    client.hedging = RG_SWITCH_ON;
    RG_CHECK_EQ(rg_options_from_environment(NULL, &client, error, sizeof(error)), 0);
    RG_CHECK_EQ(client.attempts_max, 7);
    RG_CHECK_EQ(client.hedging, RG_SWITCH_ON);
    RG_CHECK_EQ(client.stall_timeout_ns, 0);
    begin();
    RG_CHECK_EQ(rg_options_from_environment(NULL, &client, error, sizeof(error)), 0);
    RG_CHECK_EQ(client.attempts_max, 5);
    RG_CHECK_EQ(client.hedging, RG_SWITCH_OFF);
    unsetenv("RINGEST_ATTEMPTS");
    unsetenv("RINGEST_HEDGING");
    unsetenv("RINGEST_STALL_TIMEOUT");
}

static void backoffs_are(const char *min, const char *max, const char *wanted)
{
    begin();
    RG_CHECK_EQ(min != NULL ? set("backoff_min", min) : 0, 0);
    RG_CHECK_EQ(max != NULL ? set("backoff_max", max) : 0, 0);
    *error = '\0';
    RG_CHECK_EQ(rg_options_from_environment(NULL, &client, error, sizeof(error)),
                *wanted != '\0' ? -EINVAL : 0);
    RG_CHECK_STR(error, wanted);
}

static void test_the_first_backoff_is_not_above_the_last(void)
{
    backoffs_are("31", NULL, "backoff_min is 31 s, above backoff_max, which is 30 s by default");
    backoffs_are(NULL, "0.05",
                 "backoff_max is 0.05 s, below backoff_min, which is 0.1 s by default");
    backoffs_are("2", "1", "backoff_min is 2 s, above backoff_max, which is 1 s");
    backoffs_are("inf", "1", "backoff_min is inf s, above backoff_max, which is 1 s");
    backoffs_are("31", "31", "");
    backoffs_are("inf", "inf", "");
    setenv("RINGEST_BACKOFF_MIN", "40", 1);
    backoffs_are("2", NULL, "");
    backoffs_are(NULL, "1", "RINGEST_BACKOFF_MIN is 40 s, above backoff_max, which is 1 s");
    /* What the variable said is forgotten, and can be taken away and read anew. */
    RG_CHECK_EQ(client.backoff_min_ns, 0);
    setenv("RINGEST_BACKOFF_MAX", "20", 1);
    backoffs_are(NULL, NULL,
                 "RINGEST_BACKOFF_MIN is 40 s, above RINGEST_BACKOFF_MAX, which is 20 s");
    unsetenv("RINGEST_BACKOFF_MIN");
    backoffs_are("21", NULL, "backoff_min is 21 s, above RINGEST_BACKOFF_MAX, which is 20 s");
    unsetenv("RINGEST_BACKOFF_MAX");
}

static void test_a_wrong_variable_is_named(void)
{
    begin();
    setenv("RINGEST_BACKOFF_MIN", "soon", 1);
    RG_CHECK_EQ(rg_options_from_environment(&runtime, NULL, error, sizeof(error)), 0);
    RG_CHECK_EQ(rg_options_from_environment(NULL, &client, error, sizeof(error)), -EINVAL);
    RG_CHECK(strncmp(error, "RINGEST_BACKOFF_MIN must be a number of seconds", 47) == 0);
    unsetenv("RINGEST_BACKOFF_MIN");
    setenv("RINGEST_NUMA", "3", 1);
    struct rg_runtime *opened = NULL;
    RG_CHECK_EQ(rg_runtime_open(&opened, NULL), -EINVAL);
    RG_CHECK(opened == NULL);
    unsetenv("RINGEST_NUMA");
}

static void test_sharing_is_a_switch_or_an_absolute_folder(void)
{
    static const char *const good[] = {"", "1", "true", "ON", "0", "off", "/run/shared"};
    static const char *const wrong[] = {"2", "always", " /dev/shm", "~/x", "shm", "./shm"};
    begin();
    for (size_t i = 0; i < RG_ARRAY_LEN(good); i++) {
        setenv("RINGEST_SHARING", good[i], 1);
        client.sharing = NULL;
        RG_CHECK_EQ(rg_options_from_environment(&runtime, &client, error, sizeof(error)), 0);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        setenv("RINGEST_SHARING", wrong[i], 1);
        client.sharing = NULL;
        RG_CHECK_EQ(rg_options_from_environment(&runtime, &client, error, sizeof(error)), -EINVAL);
        RG_CHECK(strncmp(error, "RINGEST_SHARING must be true or false", 37) == 0);
        RG_CHECK_EQ(rg_options_from_environment(&runtime, NULL, error, sizeof(error)), 0);
    }
    setenv("RINGEST_SHARING", "0", 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_kind_is_read),
        RG_TEST(test_what_is_wrong_is_explained),
        RG_TEST(test_nothing_is_written_behind_an_older_struct),
        RG_TEST(test_the_environment_gives_each_of_them),
        RG_TEST(test_what_is_set_comes_before_the_environment),
        RG_TEST(test_the_first_backoff_is_not_above_the_last),
        RG_TEST(test_a_wrong_variable_is_named),
        RG_TEST(test_sharing_is_a_switch_or_an_absolute_folder),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
