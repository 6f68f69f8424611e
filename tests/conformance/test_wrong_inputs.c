/* What a program in C is told when it gives something wrong: the message names the object, the
 * cause and, where there is one, the remedy. */
#include "emulator/emulator.h"
#include "tests/support/test.h"

#include <ringest/ringest.h>

#include <unistd.h>

static struct rg_runtime *runtime_open(void)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 1;
    options.memory_max = RG_MIB(64);
    options.numa_policy = RG_NUMA_NONE;
    struct rg_runtime *runtime;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    return runtime;
}

static void check_words(const char *message, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strstr(message, *words) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", message, *words);
        }
    }
    RG_CHECK(strchr(message, '\n') == NULL);
}

static void test_clients_with_wrong_options(void)
{
    static const struct {
        struct rg_client_options options;
        int error;
        const char *words[4];
    } cases[] = {
        {{.endpoint = "ftp://storage"}, -EINVAL, {"endpoint", "https://HOST[:PORT]"}},
        {{.endpoint = "https://localhost", .ca_file = "no-such-file.pem"},
         -ENOENT,
         {"CA bundle no-such-file.pem", "No such file"}},
        {{.endpoint = "https://localhost", .client_cert_file = "client.pem"},
         -EINVAL,
         {"a client certificate needs", "key"}},
        {{.endpoint = "http://localhost", .credentials = "no-such-key.json"},
         -ENOENT,
         {"no-such-key.json", "No such file"}},
        {{.endpoint = "https://localhost", .proxy = "socks5://proxy:1080"},
         -EINVAL,
         {"proxy", "http://[USER:PASSWORD@]HOST[:PORT]"}},
        {{.endpoint = "http://localhost", .headers = "Accept"}, -EINVAL, {"line 1", "headers"}},
        {{.endpoint = "http://localhost", .attempts_max = 1000000},
         -EINVAL,
         {"attempts_max is 1000000", "limit"}},
    };
    unsetenv("STORAGE_EMULATOR_HOST");
    struct rg_runtime *runtime = runtime_open();
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_client_options options = cases[i].options;
        options.struct_size = sizeof(options);
        struct rg_client *client = NULL;
        char error[256] = "";
        int rc = rg_client_open_explained(&client, runtime, &options, error, sizeof(error));
        printf("  %s\n", error);
        RG_CHECK_EQ(rc, cases[i].error);
        RG_CHECK(client == NULL);
        check_words(error, cases[i].words);
    }
    rg_runtime_close(runtime);
}

static void test_files_that_are_something_else(void)
{
    char path[] = "/tmp/ringest-wrong-XXXXXX", error[256] = "";
    int fd = mkstemp(path);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(write(fd, "hello\n", 6), 6);
    struct rg_manifest *manifest;
    RG_CHECK_EQ(rg_manifest_open(&manifest, path, error, sizeof(error)), -EBADMSG);
    printf("  %s\n", error);
    check_words(error, (const char *const[]){path, "not a manifest", NULL});
    struct rg_tar_index *index;
    RG_CHECK_EQ(rg_tar_index_open(&index, path, error, sizeof(error)), -EBADMSG);
    printf("  %s\n", error);
    check_words(error, (const char *const[]){path, "not a tar index", NULL});
    close(fd);
    unlink(path);
    RG_CHECK_EQ(rg_manifest_open(&manifest, path, error, sizeof(error)), -ENOENT);
    printf("  %s\n", error);
    check_words(error, (const char *const[]){path, "No such file", NULL});
}

/* An emulator, and a client of it. */
struct place {
    struct rg_emulator *emulator;
    struct rg_runtime *runtime;
    struct rg_client *client;
    struct rg_cq *cq;
};

static void place_open(struct place *place)
{
    static const char *const synthetic[] = {"bucket/a-:4:100"};
    struct rg_emulator_options emulator = {.plain = true,
                                           .threads = 1,
                                           .synthetic = synthetic,
                                           .synthetic_count = 1,
                                           .strict_buckets = true};
    char error[256];
    RG_CHECK_EQ(rg_emulator_open(&place->emulator, &emulator, error, sizeof(error)), 0);
    place->runtime = runtime_open();
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = rg_emulator_endpoint(place->emulator);
    RG_CHECK_EQ(rg_client_open(&place->client, place->runtime, &options), 0);
    RG_CHECK_EQ(rg_cq_open(&place->cq, place->runtime, 16), 0);
}

static void place_close(struct place *place)
{
    rg_client_close(place->client);
    rg_cq_close(place->cq);
    rg_runtime_close(place->runtime);
    rg_emulator_close(place->emulator);
}

static void test_requests_that_the_service_refuses(void)
{
    static const struct {
        struct rg_get get;
        enum rg_status status;
        const char *words[4];
    } cases[] = {
        {{.bucket = "bucket", .object = "missing"}, RG_STATUS_NOT_FOUND, {"bucket/missing", "404"}},
        {{.bucket = "bucket", .object = "a-00000000", .offset = 1000},
         RG_STATUS_RANGE,
         {"bucket/a-00000000", "range"}},
        {{.bucket = "bucket", .object = "a-00000000", .conditions.if_generation_match = 7},
         RG_STATUS_PRECONDITION,
         {"bucket/a-00000000", "precondition failed"}},
    };
    struct place place;
    place_open(&place);
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_completion done;
        RG_CHECK_EQ(rg_submit_get(place.client, place.cq, &cases[i].get), 0);
        RG_CHECK_EQ(rg_cq_wait(place.cq, &done, 1, 1, RG_FOREVER), 1);
        printf("  %s\n", done.detail);
        RG_CHECK_EQ(done.status, cases[i].status);
        check_words(done.detail, cases[i].words);
        rg_lease_release(done.lease);
    }
    place_close(&place);
}

static void test_requests_that_are_not_sent(void)
{
    struct place place;
    place_open(&place);
    static char long_name[RG_OBJECT_NAME_SIZE_MAX + 2];
    memset(long_name, 'a', sizeof(long_name) - 1);
    const struct rg_get gets[] = {{.bucket = "bucket"},
                                  {.object = "object"},
                                  {.bucket = "", .object = "object"},
                                  {.bucket = "bucket", .object = long_name},
                                  {.bucket = "bucket", .object = "\xff"},
                                  {.bucket = "bucket", .object = "object", .generation = -5}};
    for (size_t i = 0; i < RG_ARRAY_LEN(gets); i++) {
        RG_CHECK_EQ(rg_submit_get(place.client, place.cq, &gets[i]), -EINVAL);
    }
    struct rg_completion done;
    RG_CHECK_EQ(rg_cq_poll(place.cq, &done, 1), 0);
    place_close(&place);
}

static void test_readers_with_wrong_options(void)
{
    static const struct rg_object objects[] = {{.name = "a-00000000", .size = 100}};
    static const struct {
        struct rg_reader_options options;
        const char *words[4];
    } cases[] = {
        {{.rank = 2, .world_size = 2}, {"rank", "world_size"}},
        {{.worker = 3, .worker_count = 1}, {"worker"}},
        {{.state = "nonsense", .state_size = 8}, {"state"}},
    };
    struct place place;
    place_open(&place);
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_reader_options options = cases[i].options;
        options.struct_size = sizeof(options);
        options.bucket = "bucket";
        options.objects = objects;
        options.object_count = RG_ARRAY_LEN(objects);
        struct rg_reader *reader = NULL;
        char error[256] = "";
        int rc = rg_reader_open(&reader, place.client, &options, error, sizeof(error));
        printf("  %s\n", error);
        RG_CHECK_EQ(rc, -EINVAL);
        check_words(error, cases[i].words);
    }
    place_close(&place);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_clients_with_wrong_options),
        RG_TEST(test_files_that_are_something_else),
        RG_TEST(test_requests_that_the_service_refuses),
        RG_TEST(test_requests_that_are_not_sent),
        RG_TEST(test_readers_with_wrong_options),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
