/* Nothing is allocated between the submit of a GET and the release of its body, on connections that
 * are there: the sentence of docs/internals/memory.md, with every function that allocates in a
 * wrapper that counts. The emulator is another process, so that what is counted is the client's. */
#include "emulator/emulator.h"
#include "tests/support/allocation.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH_MAX 512
#define ROUNDS 8

static _Atomic bool counting;
static _Atomic uint64_t allocation_count, allocation_bytes;

static bool allocation_note(void)
{
    if (counting) {
        allocation_count++;
        allocation_bytes += rg_test_allocation_size;
    }
    return false;
}

/* An emulator in a process of its own, which ends with the pipe to it. */
struct emulator {
    pid_t pid;
    int alive; /* the pipe's end */
    char endpoint[128], ca_path[512];
};

__attribute__((noreturn)) static void emulator_serve(bool plain, int told, int alive)
{
    static const char *const synthetic[] = {"bucket/a-:4:1", "bucket/b-:4:4096",
                                            "bucket/c-:4:100KiB", "bucket/d-:4:3MiB"};
    struct rg_emulator *emulator;
    struct rg_emulator_options options = {.threads = 1,
                                          .plain = plain,
                                          .synthetic = synthetic,
                                          .synthetic_count = RG_ARRAY_LEN(synthetic),
                                          .strict_buckets = true};
    char error[256], ready[1024];
    RG_ASSERT(rg_emulator_open(&emulator, &options, error, sizeof(error)) == 0);
    const char *ca_path = rg_emulator_ca_path(emulator);
    int size = snprintf(ready, sizeof(ready), "%s\n%s\n", rg_emulator_endpoint(emulator),
                        ca_path != NULL ? ca_path : "-");
    RG_ASSERT(write(told, ready, (size_t)size) == size);
    close(told);
    RG_ASSERT(read(alive, ready, 1) == 0);
    rg_emulator_close(emulator);
    _exit(0);
}

static void line_read(FILE *lines, char *out, size_t size)
{
    RG_CHECK(fgets(out, (int)size, lines) != NULL);
    size_t end = strcspn(out, "\n");
    RG_CHECK(out[end] == '\n');
    out[end] = '\0';
}

static void emulator_start(struct emulator *emulator, bool plain)
{
    int told[2], alive[2];
    RG_CHECK_EQ(pipe2(told, O_CLOEXEC), 0);
    RG_CHECK_EQ(pipe2(alive, O_CLOEXEC), 0);
    emulator->pid = fork();
    RG_CHECK(emulator->pid >= 0);
    if (emulator->pid == 0) {
        close(alive[1]);
        emulator_serve(plain, told[1], alive[0]);
    }
    close(told[1]);
    close(alive[0]);
    emulator->alive = alive[1];
    FILE *lines = fdopen(told[0], "r");
    line_read(lines, emulator->endpoint, sizeof(emulator->endpoint));
    line_read(lines, emulator->ca_path, sizeof(emulator->ca_path));
    fclose(lines);
}

static void emulator_stop(struct emulator *emulator)
{
    int status;
    close(emulator->alive);
    RG_CHECK_EQ(waitpid(emulator->pid, &status, 0), emulator->pid);
    RG_CHECK_EQ(status, 0);
}

/* So many GETs of one size at once, each into a lease or, where `buf` is given, into memory of the
 * caller's. */
struct load {
    char set; /* of objects: 'a' to 'd' */
    uint64_t size;
    uint32_t count;
    bool into;
};

static uint8_t memory[RG_MIB(32)];

static void batch_run(struct rg_test_client *c, const struct load *load)
{
    static struct rg_get gets[BATCH_MAX];
    char names[4][16];
    RG_CHECK(load->count <= BATCH_MAX);
    for (uint32_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        snprintf(names[i], sizeof(names[i]), "%c-%08u", load->set, i);
    }
    for (uint32_t i = 0; i < load->count; i++) {
        gets[i] = (struct rg_get){
            .bucket = "bucket", .object = names[i % RG_ARRAY_LEN(names)], .user_data = i};
        if (load->into) {
            RG_CHECK((i + 1) * load->size <= sizeof(memory));
            gets[i].buf = memory + i * load->size;
            gets[i].buf_size = load->size;
        }
    }
    RG_CHECK_EQ(rg_submit_gets(c->client, c->cq, gets, load->count), load->count);
    for (uint32_t i = 0; i < load->count; i++) {
        struct rg_completion done = rg_test_take(c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_EQ(done.size, load->size);
        rg_lease_release(done.lease);
    }
}

/* Afterwards every connection is open and has carried requests of each kind: a batch begins on all
 * of them at once. The tickets that the server sends with its first answer have come, too. */
static void warm_up(struct rg_test_client *c, const struct load *loads, size_t load_count)
{
    do {
        for (size_t i = 0; i < load_count; i++) {
            batch_run(c, &loads[i]);
        }
    } while (rg_test_stats(c).connections < c->options.connections_max);
    for (size_t i = 0; i < load_count; i++) {
        batch_run(c, &loads[i]);
    }
}

static void check_loads(bool tls, uint32_t connections_max, const struct load *loads,
                        size_t load_count)
{
    struct emulator emulator;
    char connect_to[32];
    emulator_start(&emulator, !tls);
    /* An address, as a name is looked up again once a minute, which a slow machine takes for this.
     */
    snprintf(connect_to, sizeof(connect_to), "127.0.0.1%s", strrchr(emulator.endpoint, ':'));
    struct rg_test_client c = {
        .no_server = true,
        .memory_max = RG_MIB(256),
        .options = {.endpoint = emulator.endpoint,
                    .connect_to = connect_to,
                    .ca_file = tls ? emulator.ca_path : NULL,
                    .connections_max = connections_max,
                    /* What a busy machine is slow with is not given up for a new connection. */
                    .adapting = RG_SWITCH_OFF},
    };
    allocation_count = 0;
    counting = true;
    rg_test_client_open(&c);
    warm_up(&c, loads, load_count);
    counting = false;
    RG_CHECK(allocation_count > connections_max); /* Opening allocates, and is counted. */
    for (size_t i = 0; i < load_count; i++) {
        allocation_count = allocation_bytes = 0;
        counting = true;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            batch_run(&c, &loads[i]);
        }
        counting = false;
        printf("  %u GETs of %llu bytes%s: %llu allocations, %llu bytes\n", ROUNDS * loads[i].count,
               (unsigned long long)loads[i].size,
               loads[i].into ? " into memory of the caller's" : "",
               (unsigned long long)allocation_count, (unsigned long long)allocation_bytes);
        RG_CHECK_EQ(allocation_count, 0);
    }
    rg_test_client_close(&c);
    emulator_stop(&emulator);
}

static const struct load few[] = {
    {'a', 1, 8, false},           {'b', 4096, 8, false},
    {'b', 4096, 64, false},       {'c', RG_KIB(100), 32, false},
    {'d', RG_MIB(3), 8, false},   {'b', 4096, 64, true},
    {'c', RG_KIB(100), 32, true}, {'d', RG_MIB(3), 8, true},
};

static void test_warm_connections_allocate_nothing_over_tls(void)
{
    check_loads(true, 8, few, RG_ARRAY_LEN(few));
}

static void test_warm_connections_allocate_nothing_over_plain_http(void)
{
    check_loads(false, 8, few, RG_ARRAY_LEN(few));
}

/* All connections begin to send at once, each from a buffer of its own. */
static const struct load many[] = {{'b', 4096, BATCH_MAX, false}, {'b', 4096, BATCH_MAX, true}};

static void test_many_connections_allocate_nothing_either(void)
{
    check_loads(true, 256, many, RG_ARRAY_LEN(many));
    check_loads(false, 256, many, RG_ARRAY_LEN(many));
}

int main(int argc, char **argv)
{
    rg_test_allocation_fails = allocation_note;
    static const struct rg_test tests[] = {
        RG_TEST(test_warm_connections_allocate_nothing_over_tls),
        RG_TEST(test_warm_connections_allocate_nothing_over_plain_http),
        RG_TEST(test_many_connections_allocate_nothing_either),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
