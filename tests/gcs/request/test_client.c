/* Clients as a whole: options, certificates, names that do not resolve, limits of the process, many
 * requests and threads at once, fork, and what the counters say of it all. */
#include "gcs/request/client.h"
#include "tests/support/client.h"
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 5000

static const struct rg_step *object_script(void)
{
    static struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE}, RG_AGAIN};
    script[1].text = rg_test_object_fields(SIZE, 7);
    return script;
}

static struct rg_completion get_one(struct rg_test_client *c)
{
    rg_test_get(c, &(struct rg_get){0});
    return rg_test_take(c);
}

static void check_refused_certificate(struct rg_test_client *c, enum rg_status want,
                                      const char *text)
{
    const struct rg_step *const scripts[] = {object_script()};
    c->scripts = scripts;
    c->script_count = 1;
    c->tls = true;
    rg_test_client_open(c);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = get_one(c);
        rg_test_check_status(__FILE__, __LINE__, &done, want);
        RG_CHECK_CONTAINS(done.detail, text);
        RG_CHECK_EQ(done.attempts, 0);
        rg_lease_release(done.lease);
    }
    /* Neither of them was tried again. */
    RG_CHECK_EQ(rg_scripted_server_connections(c->server), 2);
    RG_CHECK_EQ(rg_scripted_server_requests(c->server), 0);
    rg_test_client_close(c);
}

static void test_certificates_that_are_refused(void)
{
    static const struct rg_test_certificate_spec other_host = {.common_name = "x",
                                                               .alt_names = "DNS:other.example"},
                                                 expired = {.common_name = "x",
                                                            .alt_names = "DNS:localhost",
                                                            .not_before = -7200,
                                                            .not_after = -3600},
                                                 early = {.common_name = "x",
                                                          .alt_names = "DNS:localhost",
                                                          .not_before = 3600,
                                                          .not_after = 7200},
                                                 good = {.common_name = "x",
                                                         .alt_names = "DNS:localhost"};
    struct rg_test_client clients[] = {{.leaf = &other_host},
                                       {.leaf = &expired},
                                       {.leaf = &early},
                                       {.leaf = &good, .self_signed = true},
                                       {.leaf = &good, .trust_other = true}};
    static const char *const texts[] = {"certificate is for", "certificate expired",
                                        "certificate is not valid before", "self-signed", "issuer"};
    for (size_t i = 0; i < RG_ARRAY_LEN(clients); i++) {
        check_refused_certificate(&clients[i], RG_STATUS_TLS_CERTIFICATE, texts[i]);
    }
}

static void test_server_with_an_old_tls(void)
{
    struct rg_test_client c = {.tls_version_max = TLS1_1_VERSION};
    check_refused_certificate(&c, RG_STATUS_TLS_PROTOCOL, "TLS 1.2");
}

static void test_tls_1_2(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .tls = true, .tls_version_max = TLS1_2_VERSION};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 3; i++) {
        struct rg_completion done = get_one(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, SIZE);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
    rg_test_client_close(&c);
}

static void test_plain_server_behind_https(void)
{
    const struct rg_step script[] = {
        RG_SEND("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), RG_HOLD};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1, .shake_never = true};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, TLS_PROTOCOL);
    RG_CHECK_CONTAINS(done.detail, "does not speak TLS");
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_scripted_server_connections(c.server), 1);
    rg_test_client_close(&c);
}

/* Servers of which most give up in the handshake, with an alert that says nothing about us: what a
 * good connection can do is done by it, and without one it is tried again. */
static void test_alerts_that_say_nothing_are_tried_again(void)
{
    enum { GETS = 50 };
    static const struct rg_step alert[] = {RG_ALERT(80), RG_CUT};
    const struct rg_step *const rows[][4] = {{object_script(), alert, alert, alert},
                                             {alert, alert, alert, object_script()}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_test_client c = {.scripts = rows[i], .script_count = 4, .tls = true};
        c.options.connections_max = i == 0 ? 8 : 1;
        rg_test_client_open(&c);
        for (unsigned n = 0; n < GETS; n++) {
            rg_test_get(&c, &(struct rg_get){0});
        }
        for (unsigned n = 0; n < GETS; n++) {
            struct rg_completion done = rg_test_take(&c);
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_BYTES(&done, 0, SIZE);
            rg_lease_release(done.lease);
        }
        rg_test_client_close(&c);
    }
}

static void test_tls_server_behind_http(void)
{
    const struct rg_step script[] = {RG_HOLD};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client tls = {.scripts = scripts, .script_count = 1, .tls = true};
    rg_test_client_open(&tls);
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http://localhost:%u",
             rg_scripted_server_port(tls.server));
    struct rg_test_client c = {.no_server = true,
                               .options = {.endpoint = endpoint, .attempts_max = 2}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c);
    RG_CHECK(done.status == RG_STATUS_HTTP_PROTOCOL || done.status == RG_STATUS_CONNECTION_LOST);
    RG_CHECK_EQ(done.attempts, 2);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
    rg_test_client_close(&tls);
}

static void test_connect_to_another_host(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    static const struct rg_test_certificate_spec leaf = {.common_name = "x",
                                                         .alt_names = "DNS:storage.example"};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1, .tls = true, .leaf = &leaf};
    /* The port is known only when the server runs. */
    c.options.endpoint = "https://storage.example";
    rg_test_client_open(&c);
    rg_client_close(c.client);
    char connect_to[64];
    snprintf(connect_to, sizeof(connect_to), "127.0.0.1:%u", rg_scripted_server_port(c.server));
    c.options.connect_to = connect_to;
    RG_CHECK_EQ(rg_client_open(&c.client, c.runtime, &c.options), 0);
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0), "\r\nHost: storage.example\r\n");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_name_that_does_not_exist(void)
{
    /* .invalid never resolves (RFC 2606). That prewarming does not ask for it without end is in the
     * pool's test. */
    struct rg_test_client c = {
        .no_server = true,
        .options = {.endpoint = "http://nowhere.invalid:1", .attempts_max = 2, .prewarm = 4}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, RESOLVE);
    RG_CHECK_CONTAINS(done.detail, "nowhere.invalid");
    RG_CHECK_EQ(done.attempts, 0);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_clock_of_the_server(void)
{
    char fields[512];
    struct rg_step script[] = {RG_READ,
                               {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = fields},
                               RG_READ,
                               {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = fields},
                               RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    int64_t seconds = 5;
    snprintf(fields, sizeof(fields), "%sDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
             rg_test_object_fields(SIZE, 7));
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_client_server_time(c.client, &seconds), -ENODATA);
    RG_CHECK_EQ(seconds, 5);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = get_one(&c);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
        RG_CHECK_EQ(rg_client_server_time(c.client, &seconds), 0);
        RG_CHECK(seconds >= 784111777 && seconds < 784111777 + 3600);
    }
    rg_test_client_close(&c);
}

static void test_fields_of_every_request(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .options = {.token = "secret",
                                           .user_project = "payer",
                                           .headers = "x-audit: a b\nx-more: 1",
                                           .user_agent = "trainer/1.0"}};
    rg_test_client_open(&c);
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, OK);
    const char *head = rg_scripted_server_head(c.server, 0);
    char host[64];
    snprintf(host, sizeof(host), "\r\nHost: 127.0.0.1:%u\r\n", rg_scripted_server_port(c.server));
    RG_CHECK_CONTAINS(head, host);
    RG_CHECK_CONTAINS(head, "\r\nAuthorization: Bearer secret\r\n");
    RG_CHECK_CONTAINS(head, "\r\nx-goog-user-project: payer\r\n");
    RG_CHECK_CONTAINS(head, "\r\nx-audit: a b\r\nx-more: 1\r\n");
    RG_CHECK_CONTAINS(head, "\r\nUser-Agent: trainer/1.0 ringest/");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void check_refused_options(struct rg_runtime *runtime,
                                  const struct rg_client_options *options, int want)
{
    struct rg_client *client = NULL;
    char error[256] = "";
    RG_CHECK_EQ(rg_client_open_explained(&client, runtime, options, error, sizeof(error)), want);
    RG_CHECK(client == NULL);
    RG_CHECK(error[0] != '\0');
    /* Without a place for the text it is the same. */
    RG_CHECK_EQ(rg_client_open(&client, runtime, options), want);
}

static void test_options_that_are_refused(void)
{
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    const struct {
        struct rg_client_options options;
        int want;
    } rows[] = {
        {{.endpoint = "ftp://x"}, -EINVAL},
        {{.endpoint = "https://user:pass@x"}, -EINVAL},
        {{.connect_to = "http://x"}, -EINVAL},
        {{.connections_max = 1000000}, -EINVAL},
        {{.requests_max = 1u << 31}, -EINVAL},
        {{.attempts_max = 100000}, -EINVAL},
        {{.backoff_min_ns = 2, .backoff_max_ns = 1}, -EINVAL},
        {{.ramp = (enum rg_ramp)3}, -EINVAL},
        {{.ramp = RG_RAMP_GCS}, -EINVAL}, /* the variable below is wrong */
        {{.token = "a\r\nb"}, -EINVAL},
        {{.headers = "no colon"}, -EINVAL},
        {{.user_agent = "a\nb"}, -EINVAL},
        {{.ca_file = "/nonexistent/ca.pem"}, -ENOENT},
    };
    setenv("WORLD_SIZE", "many", 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_client_options options = rows[i].options;
        options.struct_size = sizeof(options);
        if (options.endpoint == NULL) {
            options.endpoint = "https://localhost:1";
        }
        check_refused_options(c.runtime, &options, rows[i].want);
    }
    unsetenv("WORLD_SIZE");
    struct rg_client_options good = {.struct_size = sizeof(good),
                                     .endpoint = "https://localhost:1"};
    struct rg_client *client = NULL;
    char error[256];
    setenv("RINGEST_BACKOFF_MIN", "soon", 1);
    RG_CHECK_EQ(rg_client_open_explained(&client, c.runtime, &good, error, sizeof(error)), -EINVAL);
    RG_CHECK_CONTAINS(error, "RINGEST_BACKOFF_MIN must be a number of seconds");
    unsetenv("RINGEST_BACKOFF_MIN");
    rg_test_client_close(&c);
}

/* Takes every completion; checks that each user_data below count comes once. */
static void take_all(struct rg_test_client *c, uint32_t count, enum rg_status want)
{
    uint8_t *seen = calloc(1, count);
    for (uint32_t left = count; left > 0;) {
        struct rg_completion done[64];
        int got = rg_cq_wait(c->cq, done, 64, 1, rg_now_ns() + RG_TEST_PATIENCE_NS);
        RG_CHECK(got > 0);
        for (int i = 0; i < got; i++) {
            rg_test_check_status(__FILE__, __LINE__, &done[i], want);
            RG_CHECK(done[i].user_data < count && !seen[done[i].user_data]);
            seen[done[i].user_data] = 1;
            if (want == RG_STATUS_OK) {
                RG_CHECK_BYTES(&done[i], 0, SIZE);
            }
            rg_lease_release(done[i].lease);
        }
        left -= (uint32_t)got;
    }
    free(seen);
}

static void test_a_thousand_gets_over_eight_connections(void)
{
    enum { COUNT = 1000 };
    const struct rg_step *const scripts[] = {object_script()};
    for (unsigned tls = 0; tls < 2; tls++) {
        struct rg_test_client c = {.scripts = scripts,
                                   .script_count = 1,
                                   .tls = tls == 1,
                                   .threads = 2,
                                   .options = {.connections_max = 8}};
        rg_test_client_open(&c);
        struct rg_get *gets = calloc(COUNT, sizeof(*gets));
        for (unsigned i = 0; i < COUNT; i++) {
            gets[i] = (struct rg_get){.bucket = "bucket", .object = "o", .user_data = i};
        }
        RG_CHECK_EQ(rg_submit_gets(c.client, c.cq, gets, COUNT), COUNT);
        take_all(&c, COUNT, RG_STATUS_OK);
        struct rg_stats stats = rg_test_stats(&c);
        RG_CHECK_EQ(stats.requests, COUNT);
        RG_CHECK_EQ(stats.retries, 0);
        RG_CHECK(stats.connections_opened >= 2 && stats.connections_opened <= 8);
        RG_CHECK_EQ(stats.connections, stats.connections_opened);
        RG_CHECK_EQ(stats.connections_failed, 0);
        RG_CHECK(stats.recv_bytes > (uint64_t)COUNT * SIZE);
        RG_CHECK(stats.sent_bytes > (uint64_t)COUNT * 100);
        RG_CHECK_EQ(stats.total.count, COUNT);
        RG_CHECK_EQ(stats.first_byte.count, COUNT);
        RG_CHECK_EQ(stats.leased_bytes, 0);
        RG_CHECK(stats.total.p50_ns <= stats.total.p99_ns);
        rg_test_client_close(&c);
        free(gets);
    }
}

struct submitter {
    struct rg_test_client *c;
    pthread_t thread;
    uint32_t first, count;
};

static void *submitter_main(void *context)
{
    struct submitter *submitter = context;
    for (uint32_t i = 0; i < submitter->count;) {
        struct rg_get get = {.bucket = "bucket", .object = "o", .user_data = submitter->first + i};
        int rc = rg_submit_get(submitter->c->client, submitter->c->cq, &get);
        if (rc == 0) {
            i++;
        } else {
            RG_ASSERT(rc == -EAGAIN);
            sched_yield();
        }
    }
    return NULL;
}

static void test_several_threads_submit_at_once(void)
{
    enum { THREADS = 4, EACH = 200 };
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .threads = 2,
                               .capacity = 64,
                               .options = {.connections_max = 8, .requests_max = 50}};
    rg_test_client_open(&c);
    struct submitter submitters[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){.c = &c, .first = i * EACH, .count = EACH};
        RG_CHECK_EQ(pthread_create(&submitters[i].thread, NULL, submitter_main, &submitters[i]), 0);
    }
    take_all(&c, THREADS * EACH, RG_STATUS_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(submitters[i].thread, NULL);
    }
    rg_test_client_close(&c);
}

static void test_full_queue_and_full_client(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_get get = {.bucket = "bucket", .object = "o"};
    struct rg_get gets[20];
    for (unsigned full_client = 0; full_client < 2; full_client++) {
        struct rg_test_client c = {
            .scripts = scripts,
            .script_count = 1,
            .capacity = full_client == 1 ? 64 : 8,
            .options = {.requests_max = full_client == 1 ? 8 : 64, .connections_max = 1}};
        rg_test_client_open(&c);
        for (unsigned i = 0; i < RG_ARRAY_LEN(gets); i++) {
            gets[i] = get;
            gets[i].user_data = i;
        }
        /* A queue stays full until completions are taken off, a client only until they are made. */
        int accepted = rg_submit_gets(c.client, c.cq, gets, RG_ARRAY_LEN(gets));
        RG_CHECK_EQ(accepted, 8);
        if (full_client == 0) {
            RG_CHECK_EQ(rg_submit_get(c.client, c.cq, &get), -EAGAIN);
            RG_CHECK_EQ(rg_submit_gets(c.client, c.cq, gets, 3), -EAGAIN);
        }
        take_all(&c, 8, RG_STATUS_OK);
        RG_CHECK_EQ(rg_submit_gets(c.client, c.cq, gets, 3), 3);
        take_all(&c, 3, RG_STATUS_OK);
        rg_test_client_close(&c);
    }
}

static void test_descriptor_of_the_queue(void)
{
    const struct rg_step script[] = {
        RG_READ, RG_SLEEP(50), {.kind = RG_STEP_SEND_OBJECT, .size = SIZE}, RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.connections_max = 1}};
    rg_test_client_open(&c);
    int fd = rg_cq_fd(c.cq);
    RG_CHECK(fd >= 0);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    RG_CHECK_EQ(poll(&readable, 1, 0), 0);
    for (unsigned i = 0; i < 3; i++) {
        rg_test_get(&c, &(struct rg_get){.user_data = i});
    }
    for (unsigned left = 3; left > 0;) {
        RG_CHECK_EQ(poll(&readable, 1, 10000), 1);
        uint64_t value;
        RG_CHECK_EQ(read(fd, &value, sizeof(value)), sizeof(value));
        struct rg_completion done;
        while (rg_cq_poll(c.cq, &done, 1) == 1) {
            RG_CHECK_STATUS(&done, OK);
            rg_lease_release(done.lease);
            left--;
        }
    }
    RG_CHECK_EQ(poll(&readable, 1, 0), 0);
    rg_test_client_close(&c);
}

static void test_too_few_descriptors(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .options = {.connections_max = 16, .attempts_max = 2}};
    rg_test_client_open(&c);
    /* The resolver and the rest get what they need first. */
    struct rg_completion warm = get_one(&c);
    RG_CHECK_STATUS(&warm, OK);
    rg_lease_release(warm.lease);
    struct rlimit before, none;
    RG_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = dup(0);
    close(lowest);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    /* With one connection everything goes on, only slower. */
    for (unsigned i = 0; i < 20; i++) {
        rg_test_get(&c, &(struct rg_get){.user_data = i});
    }
    take_all(&c, 20, RG_STATUS_OK);
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    rg_test_client_close(&c);

    struct rg_test_client poor = {
        .scripts = scripts, .script_count = 1, .options = {.attempts_max = 2}};
    rg_test_client_open(&poor);
    lowest = dup(0);
    close(lowest);
    none.rlim_cur = (rlim_t)lowest;
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct rg_completion done = get_one(&poor);
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    RG_CHECK_STATUS(&done, NO_RESOURCES);
    RG_CHECK_EQ(done.os_error, EMFILE);
    RG_CHECK_CONTAINS(done.detail, "ulimit -n");
    rg_lease_release(done.lease);
    /* And is well again with them. */
    done = get_one(&poor);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
    rg_test_client_close(&poor);
}

static void test_prewarmed_connections(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .tls = true,
                               .options = {.connections_max = 8, .prewarm = 5}};
    rg_test_client_open(&c);
    RG_AWAIT(rg_test_stats(&c).connections == 5);
    for (unsigned i = 0; i < 5; i++) {
        rg_test_get(&c, &(struct rg_get){.user_data = i});
    }
    take_all(&c, 5, RG_STATUS_OK);
    RG_CHECK_EQ(rg_test_stats(&c).connections_opened, 5);
    rg_test_client_close(&c);
}

/* A server that is slow to shake hands is passed over for others, and used when there are none. */
static void test_slow_handshakes_hold_up_nobody_else(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_GATE(0),
        {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, 7)},
        RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .tls = true,
                               .handshake_delay_ms = 350,
                               .options = {.connections_max = 4}};
    rg_test_client_open(&c);
    rg_scripted_server_open(c.server, 0);
    struct rg_completion done = get_one(&c);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
    rg_scripted_server_shut(c.server, 0);
    for (unsigned i = 0; i < 4; i++) {
        rg_test_get(&c, &(struct rg_get){.user_data = i});
    }
    /* None is answered before each has a connection. */
    RG_AWAIT(rg_scripted_server_requests(c.server) == 5);
    rg_scripted_server_open(c.server, 0);
    take_all(&c, 4, RG_STATUS_OK);
    RG_CHECK_EQ(rg_test_stats(&c).connections_opened, 4);
    rg_test_client_close(&c);
}

static void test_idle_connections_are_closed(void)
{
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.idle_timeout_ns = 50 * RG_NS_PER_MS}};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = get_one(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_EQ(done.attempts, 1);
        rg_lease_release(done.lease);
        RG_AWAIT(rg_test_stats(&c).connections == 0);
    }
    RG_CHECK_EQ(rg_scripted_server_connections(c.server), 2);
    rg_test_client_close(&c);
}

/* What a child finds of its parent's client. Its exit status says which check failed. */
static int child_run(struct rg_test_client *c)
{
    struct rg_get get = {.bucket = "bucket", .object = "o"};
    struct rg_put put = {.bucket = "bucket", .object = "o"};
    struct rg_list_request list = {.bucket = "bucket"};
    struct rg_completion done;
    struct rg_client *client = NULL;
    bool owned_by_parent = rg_submit_get(c->client, c->cq, &get) == -EOWNERDEAD &&
                           rg_submit_put(c->client, c->cq, &put) == -EOWNERDEAD &&
                           rg_submit_list(c->client, c->cq, &list) == -EOWNERDEAD &&
                           rg_cancel(c->client, c->cq, 0) == -EOWNERDEAD &&
                           rg_client_open(&client, c->runtime, NULL) == -EOWNERDEAD &&
                           rg_cq_poll(c->cq, &done, 1) == -EOWNERDEAD;
    rg_client_close(c->client);
    rg_cq_close(c->cq);
    rg_runtime_close(c->runtime);
    return owned_by_parent ? 0 : 1;
}

static void test_fork_with_traffic_going_on(void)
{
    enum { COUNT = 600 };
    const struct rg_step *const scripts[] = {object_script()};
    struct rg_test_client c = {.scripts = scripts,
                               .script_count = 1,
                               .tls = true,
                               .threads = 2,
                               .options = {.connections_max = 8}};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < COUNT; i++) {
        rg_test_get(&c, &(struct rg_get){.user_data = i});
    }
    int released[2];
    RG_CHECK_EQ(pipe(released), 0);
    pid_t child = fork();
    if (child == 0) {
        int status = child_run(&c);
        close(released[1]);
        char byte;
        /* Lives until the parent has closed its client, so that its copies of descriptors would
         * show. */
        (void)!read(released[0], &byte, 1);
        _exit(status);
    }
    take_all(&c, COUNT, RG_STATUS_OK);
    uint32_t connections = rg_scripted_server_connections(c.server);
    rg_client_close(c.client);
    c.client = NULL;
    RG_AWAIT(rg_scripted_server_ended(c.server) == connections);
    close(released[0]);
    close(released[1]);
    int status = -1;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    RG_CHECK_EQ(WEXITSTATUS(status), 0);
    rg_test_client_close(&c);
}

static void test_close_with_everything_in_flight(void)
{
    enum { COUNT = 500 };
    const struct rg_step slow[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .piece = 500, .ms = 1}, RG_AGAIN};
    const struct rg_step broken[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .body_max = 2000}, RG_RESET};
    const struct rg_step *const scripts[] = {slow, broken, broken, slow,   broken,
                                             slow, slow,   broken, broken, slow};
    for (unsigned round = 0; round < 6; round++) {
        struct rg_test_client c = {.scripts = scripts,
                                   .script_count = RG_ARRAY_LEN(scripts),
                                   .threads = 2,
                                   .tls = round % 2 == 1,
                                   .options = {.connections_max = 8}};
        rg_test_client_open(&c);
        for (unsigned i = 0; i < COUNT; i++) {
            rg_test_get(&c, &(struct rg_get){.user_data = i});
        }
        RG_AWAIT(rg_scripted_server_requests(c.server) >= round * 20);
        rg_client_close(c.client);
        c.client = NULL;
        uint8_t seen[COUNT] = {0};
        for (unsigned i = 0; i < COUNT; i++) {
            struct rg_completion done;
            RG_CHECK_EQ(rg_cq_poll(c.cq, &done, 1), 1);
            RG_CHECK(done.user_data < COUNT && !seen[done.user_data]);
            seen[done.user_data] = 1;
            if (done.status == RG_STATUS_OK) {
                RG_CHECK_BYTES(&done, 0, SIZE);
            } else {
                RG_CHECK_STATUS(&done, CLOSED);
            }
            rg_lease_release(done.lease);
        }
        rg_test_client_close(&c);
    }
}

/* So many requests of each kind; all hang, or wait for a connection or for their next attempt. */
#define ENDING_EACH 12
#define ENDING_COUNT (4 * ENDING_EACH + 1)

static void ending_submit(struct rg_upload_scene *scene)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    for (unsigned i = 0; i < ENDING_COUNT - 1; i++) {
        char name[16];
        snprintf(name, sizeof(name), "object%u", i);
        const struct rg_range ranges[] = {{.length = 1}, {.offset = RG_MIB(64), .length = 1}};
        const struct rg_upload upload = {
            .object = name, .method = methods[i % 2], .part_size = RG_MIB(5), .user_data = i};
        const struct rg_get_ranges read = {
            .bucket = "bucket", .object = name, .ranges = ranges, .count = 2, .user_data = i};
        const struct rg_get get = {.object = name, .user_data = i};
        switch (i % 4) {
        case 0:
        case 1:
            rg_upload_scene_submit(scene, &upload, i % 8 < 4);
            break;
        case 2:
            RG_CHECK_EQ(rg_submit_get_ranges(scene->c.client, scene->c.cq, &read), 0);
            break;
        default:
            rg_test_get(&scene->c, &get);
            break;
        }
    }
}

/* One more, whose children come right behind it in the list, and wait. */
static void ending_submit_last(struct rg_upload_scene *scene)
{
    const struct rg_upload upload = {.method = RG_UPLOAD_COMPOSE,
                                     .size = 3000,
                                     .part_size = 1000,
                                     .user_data = ENDING_COUNT - 1};
    rg_upload_scene_submit(scene, &upload, false);
    for (unsigned i = 0; i < 8; i++) {
        rg_client_await_completions(&scene->c.client->loops[0]);
    }
}

/* Each completes once. */
static void ending_check(struct rg_upload_scene *scene, enum rg_status want)
{
    uint8_t seen[ENDING_COUNT] = {0};
    for (unsigned i = 0; i < ENDING_COUNT; i++) {
        struct rg_completion done = rg_test_take(&scene->c);
        RG_CHECK(done.user_data < ENDING_COUNT && !seen[done.user_data]);
        seen[done.user_data] = 1;
        rg_test_check_status(__FILE__, __LINE__, &done, want);
        rg_lease_release(done.lease);
    }
}

/* Many operations with children, on few connections: ending one ends its children, lets others have
 * their connections, and may end those. */
static void test_end_with_many_operations_in_flight(void)
{
    for (unsigned round = 0; round < 6; round++) {
        bool closes = round % 2 == 0;
        const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_HANG},
                                                   {RG_EMULATED_SINGLE, 0, RG_EMULATED_503},
                                                   {RG_EMULATED_STAT, 0, RG_EMULATED_HANG},
                                                   {.kind = RG_EMULATED_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = RG_MIB(11),
                                        .faults = faults,
                                        .options = {.connections_max = 1u << (2 * round),
                                                    .backoff_min_ns = 3600 * RG_NS_PER_S,
                                                    .backoff_max_ns = 3600 * RG_NS_PER_S}};
        rg_upload_scene_open(&scene);
        ending_submit(&scene);
        RG_AWAIT(rg_emulated_count(scene.emulated, RG_EMULATED_PART) +
                     rg_emulated_count(scene.emulated, RG_EMULATED_SINGLE) +
                     rg_emulated_count(scene.emulated, RG_EMULATED_STAT) >
                 0);
        ending_submit_last(&scene);
        if (closes) {
            rg_client_close(scene.c.client);
            scene.c.client = NULL;
            ending_check(&scene, RG_STATUS_CLOSED);
        } else {
            RG_CHECK_EQ(rg_client_cancel_all(scene.c.client, scene.c.cq), 0);
            ending_check(&scene, RG_STATUS_CANCELLED);
        }
        RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
        rg_upload_scene_close(&scene);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_certificates_that_are_refused),
        RG_TEST(test_server_with_an_old_tls),
        RG_TEST(test_tls_1_2),
        RG_TEST(test_plain_server_behind_https),
        RG_TEST(test_alerts_that_say_nothing_are_tried_again),
        RG_TEST(test_tls_server_behind_http),
        RG_TEST(test_connect_to_another_host),
        RG_TEST(test_name_that_does_not_exist),
        RG_TEST(test_clock_of_the_server),
        RG_TEST(test_fields_of_every_request),
        RG_TEST(test_options_that_are_refused),
        RG_TEST(test_a_thousand_gets_over_eight_connections),
        RG_TEST(test_several_threads_submit_at_once),
        RG_TEST(test_full_queue_and_full_client),
        RG_TEST(test_descriptor_of_the_queue),
        RG_TEST(test_too_few_descriptors),
        RG_TEST(test_prewarmed_connections),
        RG_TEST(test_slow_handshakes_hold_up_nobody_else),
        RG_TEST(test_idle_connections_are_closed),
        RG_TEST(test_fork_with_traffic_going_on),
        RG_TEST(test_close_with_everything_in_flight),
        RG_TEST(test_end_with_many_operations_in_flight),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
