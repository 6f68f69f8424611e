/* `ringest doctor`: what the machine offers, what was set, and whether the endpoint answers. Every
 * check adds one finding; they are printed together at the end.
 *
 * It opens the runtime the way any program does and reports what came of it, so that it cannot say
 * something else than what happens. Nothing is sent to anything but the endpoint, and nothing at
 * all to the default one unless --online asks for it: the command must not hang where there is no
 * network. */
#include "cli/cli.h"
#include "cli/session.h"
#include "gcs/host/account.h"
#include "runtime/uri.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FINDINGS_MAX 96
#define TEXT_SIZE_MAX 512
#define ENDPOINT_TIMEOUT_NS (5 * RG_NS_PER_S)
/* Behind the request's own deadline: for a completion that never comes. */
#define ENDPOINT_PATIENCE_NS (8 * RG_NS_PER_S)
#define ENDPOINT_DEFAULT "https://storage.googleapis.com"
/* Asked for when no bucket was named: any answer at all is what is wanted. */
#define ABSENT_BUCKET "ringest-doctor-asks-for-nothing"
/* Connections of a client by default, and as much again for the program around it. */
#define DESCRIPTORS_WANTED 512
#define PERMISSION_COUNT 4
#define MEMORY_WANTED RG_MIB(512)
/* Of those that are in use now. */
#define BUCKETS_MAX 16

enum mark { MARK_OK, MARK_SKIP, MARK_WARN, MARK_FAIL };
static const char *const mark_names[] = {"ok", "skip", "warn", "FAIL"};

struct finding {
    enum mark mark;
    char name[48];
    char fact[TEXT_SIZE_MAX];
    char advice[TEXT_SIZE_MAX]; /* empty: there is nothing to do */
};

struct doctor {
    struct cli_connection connection;
    const char *bucket;
    bool online, json;
    /* Where requests go, and whether somebody chose it. */
    const char *endpoint;
    bool endpoint_is_chosen;
    char *wanted_backend; /* RINGEST_BACKEND, owned; NULL: not set */
    struct rg_runtime *runtime;
    struct finding findings[FINDINGS_MAX];
    size_t count;
};

static struct finding *find(struct doctor *doctor, enum mark mark, const char *name,
                            const char *format, ...) RG_PRINTF(4, 5);
static void advise(struct finding *finding, const char *format, ...) RG_PRINTF(2, 3);

static struct finding *find(struct doctor *doctor, enum mark mark, const char *name,
                            const char *format, ...)
{
    RG_ASSERT(doctor->count < FINDINGS_MAX);
    struct finding *finding = &doctor->findings[doctor->count++];
    finding->mark = mark;
    snprintf(finding->name, sizeof(finding->name), "%s", name);
    va_list args;
    va_start(args, format);
    vsnprintf(finding->fact, sizeof(finding->fact), format, args);
    va_end(args);
    return finding;
}

static void advise(struct finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->advice, sizeof(finding->advice), format, args);
    va_end(args);
}

/* The first line of a small file, without its end; false if there is none. */
static bool file_read(const char *path, char *out, size_t out_size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool ok = fgets(out, (int)out_size, file) != NULL;
    fclose(file);
    if (ok) {
        out[strcspn(out, "\n")] = '\0';
    }
    return ok;
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes RINGEST_BACKEND away, so that the runtime probes and says what it found. */
static void check_backend_wish(struct doctor *doctor)
{
    static const char *const backends[] = {"auto", "uring", "epoll"};
    const char *value = environment("RINGEST_BACKEND");
    if (value == NULL) {
        return;
    }
    bool valid = is_one_of(value, backends, RG_ARRAY_LEN(backends));
    struct finding *finding =
        find(doctor, valid ? MARK_OK : MARK_FAIL, "RINGEST_BACKEND", "%.100s", value);
    if (valid) {
        doctor->wanted_backend = strdup(value);
    } else {
        advise(finding, "ringest does not start with this value: set it to auto, uring or epoll");
    }
    unsetenv("RINGEST_BACKEND");
}

/* What names an option of the client: a wrong one is taken away, so that the rest can be looked at.
 */
static void check_options(struct doctor *doctor)
{
    char error[512], variable[64];
    struct rg_runtime_options runtime;
    struct rg_client_options client;
    rg_runtime_options_init(&runtime);
    rg_client_options_init(&client);
    while (rg_options_from_environment(&runtime, &client, error, sizeof(error)) < 0) {
        snprintf(variable, sizeof(variable), "%.*s", (int)strcspn(error, " "), error);
        advise(find(doctor, MARK_FAIL, variable, "wrong"), "%s", error);
        unsetenv(variable);
    }
    const char *name;
    for (size_t i = 0; (name = rg_option_name(i)) != NULL; i++) {
        size_t size = (size_t)snprintf(variable, sizeof(variable), "RINGEST_%s", name);
        for (size_t c = 0; c < size; c++) {
            variable[c] = (char)toupper((unsigned char)variable[c]);
        }
        const char *value = environment(variable);
        if (value != NULL && rg_option_kind(name) == RG_OPTION_TEXT) {
            find(doctor, MARK_OK, variable, "set; its value is not shown");
        } else if (value != NULL) {
            find(doctor, MARK_OK, variable, "%.100s", value);
        }
    }
}

static void check_environment(struct doctor *doctor)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    static const char *const others[] = {
        "STORAGE_EMULATOR_HOST",          "SSL_CERT_FILE", "SSL_CERT_DIR",
        "GOOGLE_APPLICATION_CREDENTIALS", "NO_PROXY",      "no_proxy"};
    static const char *const secrets[] = {"HTTPS_PROXY", "https_proxy"};
    size_t before = doctor->count;
    check_backend_wish(doctor);
    check_options(doctor);
    const char *value = environment("RINGEST_LOG");
    if (value != NULL) {
        bool valid = is_one_of(value, levels, RG_ARRAY_LEN(levels));
        struct finding *finding =
            find(doctor, valid ? MARK_OK : MARK_FAIL, "RINGEST_LOG", "%.100s", value);
        if (!valid) {
            advise(finding, "set it to error, warn, info or debug, or unset it");
        }
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(secrets); i++) {
        if (environment(secrets[i]) != NULL) {
            find(doctor, MARK_OK, secrets[i], "set; its value is not shown");
        }
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        value = environment(others[i]);
        if (value != NULL) {
            bool secret = strchr(value, '@') != NULL;
            find(doctor, MARK_OK, others[i], "%.300s", secret ? "set; not shown" : value);
        }
    }
    if (doctor->count == before) {
        find(doctor, MARK_OK, "environment", "no variable that ringest reads is set");
    }
}

static void check_kernel(struct doctor *doctor)
{
    struct utsname name;
    if (uname(&name) == 0) {
        find(doctor, MARK_OK, "kernel", "%s %s on %s", name.sysname, name.release, name.machine);
    }
}

/* Says what a container or an administrator would have to change. */
static void advise_uring(struct finding *finding)
{
    char disabled[16];
    if (file_read("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled)) &&
        strcmp(disabled, "0") != 0) {
        advise(finding,
               "everything works over epoll at nearly the same speed; `sysctl "
               "kernel.io_uring_disabled=0` allows io_uring (it is %s)",
               disabled);
        return;
    }
    advise(finding, "everything works over epoll at nearly the same speed; in a container, a "
                    "seccomp profile that allows io_uring_setup, io_uring_enter and "
                    "io_uring_register brings io_uring back");
}

static void check_uring(struct doctor *doctor)
{
    const char *reason = "";
    bool usable = rg_runtime_backend(doctor->runtime, &reason) == RG_BACKEND_URING;
    const char *wanted = doctor->wanted_backend != NULL ? doctor->wanted_backend : "auto";
    if (usable) {
        find(doctor, MARK_OK, "io_uring", "usable");
    } else if (strcmp(wanted, "uring") == 0) {
        struct finding *finding = find(doctor, MARK_FAIL, "io_uring", "%s", reason);
        advise(finding, "RINGEST_BACKEND=uring forbids epoll, so ringest does not start: unset it");
    } else {
        advise_uring(find(doctor, MARK_WARN, "io_uring", "%s", reason));
    }
    bool epoll = !usable || strcmp(wanted, "epoll") == 0;
    find(doctor, MARK_OK, "backend", "%s%s", epoll ? "epoll" : "io_uring",
         epoll && usable ? ", because RINGEST_BACKEND asks for it" : "");
}

/* The runtime, as a program would get it. False: there is none, and that was said. */
static bool check_runtime(struct doctor *doctor)
{
    struct rg_runtime_options options;
    struct rg_client_options client_options;
    if (!cli_options_make(&doctor->connection, &options, &client_options)) {
        find(doctor, MARK_FAIL, "options", "wrong");
        return false;
    }
    int rc = rg_runtime_open(&doctor->runtime, &options);
    if (rc == 0) {
        check_uring(doctor);
        return true;
    }
    struct finding *finding =
        find(doctor, MARK_FAIL, "event loops", "could not be started: %s", strerror(-rc));
    advise(finding, "%s",
           rc == -EPERM    ? "unset RINGEST_BACKEND, and epoll is used instead of io_uring"
           : rc == -EMFILE ? "raise the number of open files (ulimit -n)"
           : rc == -ENOMEM ? "free memory, or raise the limits of the container"
           : rc == -EAGAIN ? "raise the number of threads (ulimit -u)"
           : rc == -EINVAL ? "correct the variable that the line on standard error names"
                           : "try again with --log debug");
    return false;
}

/* The runtime's own words: lines "WHAT<tab>TEXT". */
static void check_placement(struct doctor *doctor)
{
    static char text[4096];
    char *rest = text;
    if (rg_runtime_describe(doctor->runtime, text, sizeof(text)) < 0) {
        return;
    }
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        const char *what = strsep(&line, "\t");
        find(doctor, MARK_OK, what, "%s", line != NULL ? line : "");
    }
}

/* What processes of this user have learned of the buckets they use: sums over their loops. */
struct limits {
    struct rg_account buckets[BUCKETS_MAX];
    unsigned count;
};

static void limit_found(void *context, const struct rg_account *account)
{
    struct limits *limits = context;
    unsigned i = 0;
    while (i < limits->count && strcmp(limits->buckets[i].bucket, account->bucket) != 0) {
        i++;
    }
    if (i == BUCKETS_MAX) {
        return;
    }
    struct rg_account *sum = &limits->buckets[i];
    if (i == limits->count) {
        limits->count++;
        snprintf(sum->bucket, sizeof(sum->bucket), "%s", account->bucket);
    }
    sum->rate_mhz += account->rate_mhz;
    sum->in_flight += account->in_flight;
    sum->waiting += account->waiting;
    sum->retries += account->retries;
    sum->p50_us = RG_MAX(sum->p50_us, account->p50_us);
    sum->p99_us = RG_MAX(sum->p99_us, account->p99_us);
}

/* In the words of `ringest top`. */
static void limit_report(struct doctor *doctor, struct rg_account *sum)
{
    char limit[48] = "no limit";
    if (sum->rate_mhz > 0) {
        snprintf(limit, sizeof(limit), "limit %.1f requests/s", (double)sum->rate_mhz / 1000);
    }
    cli_make_printable(sum->bucket);
    find(doctor, MARK_OK, "limits",
         "gs://%s: %s; %" PRIu32 " out, %" PRIu32 " waiting; first byte p50 %.1f ms, p99 %.1f ms; "
         "%" PRIu64 " retries",
         sum->bucket, limit, sum->in_flight, sum->waiting, sum->p50_us / 1e3, sum->p99_us / 1e3,
         sum->retries);
}

static void check_limits(struct doctor *doctor)
{
    static struct limits limits;
    char why[RG_HOST_PATH_SIZE_MAX + 100];
    struct rg_host_region region;
    const char *folder = rg_host_folder(getenv("RINGEST_SHARING"));
    if (folder != NULL && rg_host_region_find(&region, folder, why, sizeof(why)) == 0) {
        (void)rg_accounts_read(&region, limit_found, &limits);
        rg_host_region_close(&region);
    }
    for (unsigned i = 0; i < limits.count; i++) {
        limit_report(doctor, &limits.buckets[i]);
    }
    if (limits.count == 0) {
        find(doctor, MARK_OK, "limits", "no process of this user uses a bucket now");
    }
}

static void check_cpus(struct doctor *doctor)
{
    char nodes[64] = "";
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (!file_read("/sys/devices/system/node/online", nodes, sizeof(nodes))) {
        strcpy(nodes, "unknown");
    }
    find(doctor, MARK_OK, "machine", "%ld CPUs; NUMA nodes: %s", online, nodes);
    if (doctor->runtime != NULL) {
        find(doctor, MARK_OK, "event loops", "%" PRIu32 "%s", rg_runtime_threads(doctor->runtime),
             doctor->connection.threads != 0          ? ", as --threads says"
             : environment("RINGEST_THREADS") != NULL ? ", as RINGEST_THREADS says"
                                                      : ", by the CPUs");
        check_placement(doctor);
    }
}

static void check_descriptors(struct doctor *doctor)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return;
    }
    uint64_t soft = limit.rlim_cur, hard = limit.rlim_max;
    bool enough = soft >= DESCRIPTORS_WANTED;
    enum mark mark = enough ? MARK_OK : MARK_WARN;
    struct finding *finding =
        soft < hard ? find(doctor, mark, "open files", "%" PRIu64 ", could be raised to %" PRIu64,
                           soft, hard)
                    : find(doctor, mark, "open files", "%" PRIu64 ", the most allowed", soft);
    if (!enough) {
        advise(finding, "each connection takes one; `ulimit -n %d` before the program starts",
               4 * DESCRIPTORS_WANTED);
    }
}

static void check_locked_memory(struct doctor *doctor)
{
    struct rlimit limit;
    char size[32];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        find(doctor, MARK_OK, "locked memory", "%s may be locked; no more is needed",
             limit.rlim_cur == RLIM_INFINITY ? "any amount"
                                             : cli_format_size(limit.rlim_cur, size));
    }
}

/* Bytes that can be had now; 0: unknown. */
static uint64_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && kib == 0 && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "MemAvailable: %llu kB", &kib);
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib * 1024;
}

static void check_memory(struct doctor *doctor)
{
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t available = memory_available();
    char limit_text[32], sizes[3][32];
    /* A cgroup of version 2 with a namespace of its own, as containers have. */
    uint64_t limit = 0;
    if (file_read("/sys/fs/cgroup/memory.max", limit_text, sizeof(limit_text))) {
        limit = strtoull(limit_text, NULL, 10);
    }
    bool limited = limit > 0 && limit < total;
    bool enough = available == 0 || available >= MEMORY_WANTED;
    enough = enough && (!limited || limit >= MEMORY_WANTED);
    struct finding *finding = find(
        doctor, enough ? MARK_OK : MARK_WARN, "memory", "%s, %s available%s%s",
        cli_format_size(total, sizes[0]), cli_format_size(available, sizes[1]),
        limited ? "; the container may use " : "", limited ? cli_format_size(limit, sizes[2]) : "");
    if (!enough) {
        advise(finding, "bodies may take up to 1 GiB or a quarter of the machine's memory, "
                        "whichever is less: set memory_max below what is there");
    }
}

static void check_huge_pages(struct doctor *doctor)
{
    char text[64];
    if (!file_read("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text))) {
        find(doctor, MARK_OK, "huge pages", "not known to this kernel; not needed");
        return;
    }
    /* The chosen word stands in brackets: "always [madvise] never". */
    bool never = strstr(text, "[never]") != NULL;
    struct finding *finding =
        find(doctor, never ? MARK_WARN : MARK_OK, "huge pages", "transparent ones: %s", text);
    if (never) {
        advise(finding, "large bodies cost more page faults; `echo madvise "
                        ">/sys/kernel/mm/transparent_hugepage/enabled` is enough");
    }
}

/* A client of the doctor's runtime. Opening one sends nothing. */
static int client_open(struct doctor *doctor, const struct cli_connection *connection,
                       struct rg_client **out_client, char *error, size_t error_size)
{
    struct rg_client_options options;
    struct rg_runtime_options runtime_options;
    if (!cli_options_make(connection, &runtime_options, &options)) {
        snprintf(error, error_size, "options are wrong");
        return -EINVAL;
    }
    options.connections_max = 1;
    options.requests_max = 1;
    options.attempts_max = 1;
    options.connect_timeout_ns = ENDPOINT_TIMEOUT_NS;
    options.first_byte_timeout_ns = ENDPOINT_TIMEOUT_NS;
    return rg_client_open_explained(out_client, doctor->runtime, &options, error, error_size);
}

/* Certificates are read when a client of an HTTPS endpoint is opened. */
static void check_trust(struct doctor *doctor)
{
    struct rg_client *client = NULL;
    char error[TEXT_SIZE_MAX / 2] = "";
    const char *ca = doctor->connection.ca;
    const struct cli_connection connection = {
        .endpoint = ENDPOINT_DEFAULT, .ca = ca, .credentials = "anonymous", .proxy = ""};
    int rc = client_open(doctor, &connection, &client, error, sizeof(error));
    rg_client_close(client);
    if (rc < 0) {
        struct finding *finding = find(doctor, MARK_FAIL, "trust store", "%s", error);
        advise(finding, "install the package ca-certificates, or name a PEM file in SSL_CERT_FILE "
                        "or --ca");
        return;
    }
    find(doctor, MARK_OK, "trust store", "%.300s",
         ca != NULL                             ? ca
         : environment("SSL_CERT_FILE") != NULL ? "as SSL_CERT_FILE says"
         : environment("SSL_CERT_DIR") != NULL  ? "as SSL_CERT_DIR says"
                                                : "the system's");
}

#define CREDENTIALS_ADVICE                                                                         \
    "run `gcloud auth application-default login`, or name a credential file in "                   \
    "GOOGLE_APPLICATION_CREDENTIALS or --credentials"

static void credentials_report(struct doctor *doctor, struct rg_client *client,
                               enum rg_status answer)
{
    char text[TEXT_SIZE_MAX] = "";
    int rc = rg_credentials_describe(client, text, sizeof(text));
    bool failed = answer == RG_STATUS_CREDENTIALS || answer == RG_STATUS_UNAUTHENTICATED;
    if (rc >= 0 && cli_credentials_are_idle(&doctor->connection)) {
        advise(find(doctor, MARK_WARN, "credentials",
                    "%.200s is not used: STORAGE_EMULATOR_HOST is set, and no token is sent to an "
                    "emulator",
                    doctor->connection.credentials),
               "unset STORAGE_EMULATOR_HOST to use Cloud Storage, or name the server with "
               "--endpoint");
        return;
    }
    struct finding *finding = find(doctor, failed ? MARK_FAIL : MARK_OK, "credentials", "%s",
                                   rc < 0 ? strerror(-rc) : text);
    if (failed) {
        advise(finding, "%s", CREDENTIALS_ADVICE);
    }
}

static void proxy_report(struct doctor *doctor, struct rg_client *client)
{
    char text[TEXT_SIZE_MAX] = "";
    int rc = rg_proxy_describe(client, text, sizeof(text));
    find(doctor, MARK_OK, "proxy", "%s%s", rc < 0 ? strerror(-rc) : text,
         doctor->connection.proxy != NULL ? ", as --proxy says" : "");
}

/* True if a client that takes no proxy can be opened. */
static bool opens_without_proxy(struct doctor *doctor)
{
    struct rg_client *client = NULL;
    char error[TEXT_SIZE_MAX / 2];
    struct cli_connection connection = doctor->connection;
    connection.proxy = "";
    int rc = client_open(doctor, &connection, &client, error, sizeof(error));
    rg_client_close(client);
    return rc == 0;
}

/* What is wrong with the proxy, the endpoint or the credentials shows when a client is opened; an
 * endpoint that somebody chose goes without credentials, unless those were chosen as well. */
static void client_refused(struct doctor *doctor, const char *error)
{
    if (opens_without_proxy(doctor)) {
        advise(find(doctor, MARK_FAIL, "proxy", "%s", error), "it comes from %s",
               doctor->connection.proxy != NULL ? "--proxy" : "the environment");
        return;
    }
    if (!doctor->endpoint_is_chosen || doctor->connection.credentials != NULL) {
        advise(find(doctor, MARK_FAIL, "credentials", "%s", error), "%s", CREDENTIALS_ADVICE);
        return;
    }
    advise(find(doctor, MARK_FAIL, "endpoint", "%s", error), "it comes from %s",
           doctor->connection.endpoint != NULL ? "--endpoint" : "STORAGE_EMULATOR_HOST");
}

static const char *endpoint_advice(enum rg_status status)
{
    switch (status) {
    case RG_STATUS_RESOLVE:
        return "check the name, and the name server in /etc/resolv.conf";
    case RG_STATUS_CONNECT:
        return "check that a server listens there and that no firewall or missing proxy is in the "
               "way";
    case RG_STATUS_DEADLINE:
    case RG_STATUS_STALLED:
        return "nothing answered within 5 s: check the route, firewalls and proxies";
    case RG_STATUS_TLS_CERTIFICATE:
        return "name the right certificates with --ca or SSL_CERT_FILE; do not switch the check "
               "off";
    case RG_STATUS_TLS_PROTOCOL:
    case RG_STATUS_HTTP_PROTOCOL:
    case RG_STATUS_CONNECTION_LOST:
        return "check that https:// and http:// are not mixed up, and that nothing sits in between";
    case RG_STATUS_NOT_FOUND:
        return "check the name of the bucket";
    case RG_STATUS_PERMISSION:
    case RG_STATUS_UNAUTHENTICATED:
        return "the endpoint answers, but these credentials may not list this bucket; whoever owns "
               "it grants that, for example with roles/storage.objectViewer";
    case RG_STATUS_CREDENTIALS:
        return "see the line about credentials, or use --credentials anonymous";
    case RG_STATUS_THROTTLED:
    case RG_STATUS_SERVER:
        return "the endpoint answers; try again later";
    default:
        return "try again with --log debug";
    }
}

/* An answer that means "not for you" or "not there" still came from the endpoint. */
static enum mark endpoint_mark(const struct doctor *doctor, enum rg_status status)
{
    switch (status) {
    case RG_STATUS_OK:
        return MARK_OK;
    case RG_STATUS_NOT_FOUND:
    case RG_STATUS_PERMISSION:
    case RG_STATUS_UNAUTHENTICATED:
        return doctor->bucket == NULL ? MARK_OK : MARK_FAIL;
    case RG_STATUS_THROTTLED:
    case RG_STATUS_SERVER:
        return MARK_WARN;
    default:
        return MARK_FAIL;
    }
}

static int endpoint_submit(const struct doctor *doctor, struct rg_client *client, struct rg_cq *cq)
{
    uint64_t deadline_ns = rg_now_ns() + ENDPOINT_TIMEOUT_NS;
    if (doctor->bucket != NULL) {
        struct rg_list_request list = {
            .bucket = doctor->bucket, .results_max = 1, .deadline_ns = deadline_ns};
        return rg_submit_list(client, cq, &list);
    }
    struct rg_get get = {.bucket = ABSENT_BUCKET, .object = "nothing", .deadline_ns = deadline_ns};
    return rg_submit_get(client, cq, &get);
}

/* What the credentials may do with the objects of the bucket. */
static void permissions_report(struct doctor *doctor, const struct rg_completion *completion)
{
    static const char *const verbs[PERMISSION_COUNT] = {"read", "list", "create", "remove"};
    if (completion->status != RG_STATUS_OK) {
        find(doctor, MARK_SKIP, "permissions", "not known: %s", cli_completion_text(completion));
        return;
    }
    const bool *granted = completion->data;
    char have[64] = "", lack[64] = "";
    for (size_t i = 0; i < PERMISSION_COUNT; i++) {
        char *list = granted[i] ? have : lack;
        size_t used = strlen(list);
        snprintf(list + used, sizeof(have) - used, "%s%s", used > 0 ? ", " : "", verbs[i]);
    }
    struct finding *finding =
        find(doctor, lack[0] != '\0' ? MARK_WARN : MARK_OK, "permissions", "%s objects of gs://%s",
             have[0] != '\0' ? have : "nothing may be done with", doctor->bucket);
    if (lack[0] != '\0') {
        advise(finding,
               "not allowed: %s; whoever owns the bucket grants that, for example with "
               "roles/storage.objectUser",
               lack);
    }
}

static void permissions_ask(struct doctor *doctor, struct rg_client *client, struct rg_cq *cq)
{
    static const char *const permissions[PERMISSION_COUNT] = {
        "storage.objects.get", "storage.objects.list", "storage.objects.create",
        "storage.objects.delete"};
    struct rg_test_permissions test = {
        .bucket = doctor->bucket,
        .permissions = permissions,
        .count = PERMISSION_COUNT,
        .deadline_ns = rg_now_ns() + ENDPOINT_TIMEOUT_NS,
    };
    struct rg_completion completion;
    if (rg_submit_test_permissions(client, cq, &test) == 0 &&
        rg_cq_wait(cq, &completion, 1, 1, rg_now_ns() + ENDPOINT_PATIENCE_NS) == 1) {
        permissions_report(doctor, &completion);
        rg_lease_release(completion.lease);
    }
}

static void endpoint_report(struct doctor *doctor, const struct rg_completion *completion)
{
    enum mark mark = endpoint_mark(doctor, completion->status);
    if (mark != MARK_OK) {
        struct finding *finding =
            find(doctor, mark, "endpoint", "%s", cli_completion_text(completion));
        advise(finding, "%s", endpoint_advice(completion->status));
        return;
    }
    struct rg_stats stats = {0};
    rg_runtime_stats(doctor->runtime, &stats);
    find(doctor, MARK_OK, "endpoint",
         "%.200s answers%s%.100s; connecting took %.1f ms, TLS %.1f ms, the answer %.1f ms",
         doctor->endpoint, doctor->bucket != NULL ? " and lists gs://" : "",
         doctor->bucket != NULL ? doctor->bucket : "", (double)stats.connect.max_ns / 1e6,
         (double)stats.tls.max_ns / 1e6, (double)stats.first_byte.max_ns / 1e6);
}

static void endpoint_ask(struct doctor *doctor, struct rg_client *client, struct rg_cq *cq)
{
    int rc = endpoint_submit(doctor, client, cq);
    if (rc < 0) {
        struct finding *finding = find(doctor, MARK_FAIL, "endpoint",
                                       rc == -EINVAL ? "\"%.300s\" is no name of a bucket"
                                                     : "a request for \"%.300s\": %s",
                                       doctor->bucket != NULL ? doctor->bucket : "", strerror(-rc));
        advise(finding, "--bucket takes the name of a bucket alone, without a prefix");
        return;
    }
    struct rg_completion completion;
    rc = rg_cq_wait(cq, &completion, 1, 1, rg_now_ns() + ENDPOINT_PATIENCE_NS);
    if (rc == 1) {
        credentials_report(doctor, client, completion.status);
        endpoint_report(doctor, &completion);
        enum rg_status status = completion.status;
        rg_lease_release(completion.lease);
        if (doctor->bucket != NULL && (status == RG_STATUS_OK || status == RG_STATUS_PERMISSION)) {
            permissions_ask(doctor, client, cq);
        }
        return;
    }
    struct finding *finding =
        find(doctor, MARK_FAIL, "endpoint", "%.200s: %s", doctor->endpoint, strerror(-rc));
    advise(finding, "%s", endpoint_advice(RG_STATUS_DEADLINE));
}

static void check_endpoint(struct doctor *doctor)
{
    struct rg_client *client = NULL;
    struct rg_cq *cq = NULL;
    char error[TEXT_SIZE_MAX / 2] = "";
    int rc = client_open(doctor, &doctor->connection, &client, error, sizeof(error));
    if (rc == 0) {
        proxy_report(doctor, client);
    }
    if (rc < 0) {
        client_refused(doctor, error);
    } else if (!doctor->endpoint_is_chosen && !doctor->online) {
        credentials_report(doctor, client, RG_STATUS_OK);
        find(doctor, MARK_SKIP, "endpoint", "%s; not tried, --online does", doctor->endpoint);
    } else if ((rc = rg_cq_open(&cq, doctor->runtime, 1)) < 0) {
        struct finding *finding =
            find(doctor, MARK_FAIL, "endpoint", "requests cannot be prepared: %s", strerror(-rc));
        advise(finding, "free memory");
    } else {
        endpoint_ask(doctor, client, cq);
    }
    rg_client_close(client);
    struct rg_completion rest;
    if (cq != NULL && rg_cq_poll(cq, &rest, 1) == 1) {
        rg_lease_release(rest.lease);
    }
    rg_cq_close(cq);
}

static void examine(struct doctor *doctor)
{
    check_environment(doctor);
    check_kernel(doctor);
    check_descriptors(doctor);
    check_locked_memory(doctor);
    check_memory(doctor);
    check_huge_pages(doctor);
    bool has_runtime = check_runtime(doctor);
    check_cpus(doctor);
    if (has_runtime) {
        check_trust(doctor);
        check_limits(doctor);
        check_endpoint(doctor);
    }
    rg_runtime_close(doctor->runtime);
    free(doctor->wanted_backend);
}

static size_t count_marks(const struct doctor *doctor, enum mark mark)
{
    size_t count = 0;
    for (size_t i = 0; i < doctor->count; i++) {
        count += doctor->findings[i].mark == mark;
    }
    return count;
}

static void report_json(const struct doctor *doctor)
{
    printf("{\"ok\":%s,\"checks\":[", count_marks(doctor, MARK_FAIL) == 0 ? "true" : "false");
    for (size_t i = 0; i < doctor->count; i++) {
        const struct finding *finding = &doctor->findings[i];
        printf("%s{\"name\":", i > 0 ? "," : "");
        cli_json_string(finding->name);
        printf(",\"mark\":\"%s\",\"fact\":", mark_names[finding->mark]);
        cli_json_string(finding->fact);
        printf(",\"advice\":");
        if (finding->advice[0] != '\0') {
            cli_json_string(finding->advice);
        } else {
            printf("null");
        }
        putchar('}');
    }
    printf("]}\n");
}

static void report_text(const struct doctor *doctor)
{
    int width = 0;
    for (size_t i = 0; i < doctor->count; i++) {
        width = RG_MAX(width, (int)strlen(doctor->findings[i].name));
    }
    for (size_t i = 0; i < doctor->count; i++) {
        const struct finding *finding = &doctor->findings[i];
        printf("%-4s  %-*s  %s\n", mark_names[finding->mark], width, finding->name, finding->fact);
        if (finding->advice[0] != '\0') {
            printf("%*s  -> %s\n", width + 6, "", finding->advice);
        }
    }
    size_t warnings = count_marks(doctor, MARK_WARN), failures = count_marks(doctor, MARK_FAIL);
    if (failures > 0) {
        printf("\n%zu of %zu checks failed\n", failures, doctor->count);
    } else {
        printf("\nall checks passed%s\n", warnings > 0 ? ", with warnings" : "");
    }
}

static int doctor_go(struct doctor *doctor)
{
    const char *emulator = environment("STORAGE_EMULATOR_HOST");
    const char *chosen =
        doctor->connection.endpoint != NULL ? doctor->connection.endpoint : emulator;
    doctor->endpoint_is_chosen = chosen != NULL;
    doctor->endpoint = chosen != NULL ? chosen : ENDPOINT_DEFAULT;
    examine(doctor);
    if (doctor->json) {
        report_json(doctor);
    } else {
        report_text(doctor);
    }
    int status = cli_output_end(CLI_DONE);
    return status == CLI_DONE && count_marks(doctor, MARK_FAIL) > 0 ? CLI_FAILED : status;
}

static int doctor_run(int argc, char **argv)
{
    enum { OPTION_BUCKET = CLI_OPTION_FIRST, OPTION_ONLINE };
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"bucket", required_argument, NULL, OPTION_BUCKET},
                                            {"online", no_argument, NULL, OPTION_ONLINE},
                                            {0}};
    struct doctor doctor = {0};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&doctor.connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            doctor.json = true;
        } else if (option == OPTION_BUCKET) {
            doctor.bucket = cli_is_uri(optarg) ? optarg + strlen(RG_URI_SCHEME) : optarg;
        } else if (option == OPTION_ONLINE) {
            doctor.online = true;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    if (optind < argc) {
        return cli_usage("unexpected argument \"%s\"", argv[optind]);
    }
    return doctor_go(&doctor);
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .arguments = "[OPTIONS]",
    .summary = "check this machine, the credentials and the server",
    .help =
        "Options:\n"
        "  --bucket NAME      list this bucket, and ask for the permissions on it; gs://NAME "
        "works\n"
        "                     too; without it, any answer of the server counts as success\n"
        "  --online           connect to Cloud Storage itself; a server that --endpoint or\n"
        "                     STORAGE_EMULATOR_HOST names is always connected to\n"
        "  --json             one JSON object: {\"ok\":...,\"checks\":[...]}\n" CLI_CONNECTION_HELP
        "\nEach line begins with ok, skip, warn (it works, but could work better) or FAIL. Below "
        "a\n"
        "warning or failure stands what to do. The exit status is 1 if anything is marked FAIL.\n"
        "\nExamples:\n"
        "  ringest doctor --online --bucket gs://my-bucket\n",
    .run = doctor_run,
};
