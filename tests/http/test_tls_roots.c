/* Trusted certificates that are parsed when they are needed, beside BoringSSL's reading of the same
 * bundles: what it takes is taken, what it refuses is refused or not trusted. */
#include "http/tls_roots.h"
#include "tests/support/certificates.h"
#include "tests/support/test.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <unistd.h>

#define CAS 4 /* the last two have one name */
#define BUNDLE_SIZE RG_KIB(16)
#define THREADS 4
#define MUTATIONS 3000

static struct rg_test_certificate cas[CAS], leaf;
static char bundle[BUNDLE_SIZE];

static size_t stored(const struct rg_tls_roots *roots)
{
    return sk_X509_OBJECT_num(X509_STORE_get0_objects(rg_tls_roots_store(roots)));
}

static int open_text(const char *text, struct rg_tls_roots **out_roots)
{
    char path[RG_TEST_PATH_SIZE];
    rg_test_file_make(text, path);
    int ret = rg_tls_roots_open(out_roots, path, NULL);
    unlink(path);
    return ret;
}

/* How many certificates BoringSSL finds in a text, or -1. */
static int reference(const char *text)
{
    char path[RG_TEST_PATH_SIZE];
    X509_STORE *store = X509_STORE_new();
    RG_ASSERT(store != NULL);
    rg_test_file_make(text, path);
    ERR_clear_error();
    int count = X509_STORE_load_locations(store, path, NULL) == 1
                    ? (int)sk_X509_OBJECT_num(X509_STORE_get0_objects(store))
                    : -1;
    X509_STORE_free(store);
    unlink(path);
    return count;
}

/* The text opens, quickly or not, and has `count` certificates. */
static void check_text(const char *text, bool quickly, size_t count)
{
    struct rg_tls_roots *roots = NULL;
    RG_CHECK_EQ(reference(text), (int)count);
    RG_CHECK_EQ(open_text(text, &roots), 0);
    RG_CHECK_EQ(rg_tls_roots_complete(roots), !quickly);
    RG_CHECK_EQ(stored(roots), quickly ? 0 : count);
    RG_CHECK_EQ(rg_tls_roots_add_all(roots), 0);
    RG_CHECK(rg_tls_roots_complete(roots));
    RG_CHECK_EQ(stored(roots), count);
    RG_CHECK_EQ(rg_tls_roots_broken(roots), 0);
    rg_tls_roots_close(roots);
}

static void check_refused(const char *text)
{
    struct rg_tls_roots *roots = NULL;
    RG_CHECK_EQ(reference(text), -1);
    uint32_t want = ERR_peek_last_error();
    RG_CHECK_EQ(open_text(text, &roots), -EINVAL);
    RG_CHECK(roots == NULL);
    RG_CHECK_EQ(ERR_GET_REASON(ERR_peek_last_error()), ERR_GET_REASON(want));
    ERR_clear_error();
}

/* A copy of the bundle in which `from` stands as `to`, each time. Returns owned. */
static char *replaced(const char *text, const char *from, const char *to)
{
    char *out = calloc(1, 4 * BUNDLE_SIZE);
    RG_ASSERT(out != NULL);
    size_t used = 0;
    while (*text != '\0') {
        bool here = strncmp(text, from, strlen(from)) == 0;
        used += (size_t)sprintf(out + used, "%.*s", here ? (int)strlen(to) : 1, here ? to : text);
        text += here ? strlen(from) : 1;
    }
    return out;
}

static void test_only_what_is_named_is_parsed(void)
{
    struct rg_tls_roots *roots = NULL;
    struct rg_test_certificate child;
    RG_CHECK_EQ(open_text(bundle, &roots), 0);
    RG_CHECK_EQ(stored(roots), 0);
    RG_CHECK_EQ(rg_tls_roots_add_issuers(roots, leaf.x509), 0);
    RG_CHECK_EQ(stored(roots), 1);
    RG_CHECK_EQ(rg_tls_roots_add_issuers(roots, leaf.x509), 0);
    RG_CHECK_EQ(stored(roots), 1);

    /* Nobody of the bundle issued this one. */
    rg_test_certificate_make(&child, &(struct rg_test_certificate_spec){.common_name = "stranger"});
    RG_CHECK_EQ(rg_tls_roots_add_issuers(roots, child.x509), 0);
    rg_test_certificate_free(&child);
    RG_CHECK_EQ(stored(roots), 1);

    /* Two have the name of this one's issuer. */
    rg_test_certificate_make(&child, &(struct rg_test_certificate_spec){.common_name = "child",
                                                                        .issuer = &cas[CAS - 1]});
    RG_CHECK_EQ(rg_tls_roots_add_issuers(roots, child.x509), 0);
    rg_test_certificate_free(&child);
    RG_CHECK_EQ(stored(roots), 3);
    RG_CHECK(!rg_tls_roots_complete(roots));
    rg_tls_roots_close(roots);
}

static void test_what_bundles_look_like(void)
{
    static const char *const ends[] = {"\r\n", " \n", "\t \r\n"};
    check_text(bundle, true, CAS);
    for (size_t i = 0; i < RG_ARRAY_LEN(ends); i++) {
        char *text = replaced(bundle, "\n", ends[i]);
        check_text(text, true, CAS);
        free(text);
    }
    char *text = replaced(bundle, "-----BEGIN", "# A comment\n\nIssuer: CN=x\n-----BEGIN");
    check_text(text, true, CAS);
    text[strlen(text) - 1] = '\0'; /* no line end at the end */
    check_text(text, true, CAS);
    free(text);
    text = replaced(bundle, bundle, bundle); /* one text twice: the same certificates */
    strcat(text, bundle);
    check_text(text, true, CAS);
    free(text);
}

static void test_what_is_left_to_boringssl(void)
{
    static const char *const changes[][2] = {
        {" CERTIFICATE", " X509 CERTIFICATE"},
        {" CERTIFICATE", " TRUSTED CERTIFICATE"},
        {"CERTIFICATE-----\nM", "CERTIFICATE-----\n\nM"},
        {"CERTIFICATE-----\nM", "CERTIFICATE-----\nM\n"},
        {"-----BEGIN", "-----BEGIN CERTIFICATE---\n-----BEGIN"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(changes); i++) {
        char *text = replaced(bundle, changes[i][0], changes[i][1]);
        check_text(text, false, CAS);
        free(text);
    }
    char *text = calloc(1, 2 * BUNDLE_SIZE);
    RG_ASSERT(text != NULL);
    memset(text, '#', 300);
    sprintf(text + 300, "\n%s%s", leaf.key_pem, bundle); /* a long line, and a key */
    check_text(text, false, CAS);
    free(text);
}

static void test_broken_bundles_are_refused_as_boringssl_does(void)
{
    static const char *const changes[][2] = {
        {"-----END", "----END"},
        {"\n-----END CERTIFICATE", "\n-----END CERTIFICATES"},
        {"CERTIFICATE-----\nMI", "CERTIFICATE-----\nM!"},
        {"CERTIFICATE-----\nMI", "CERTIFICATE-----\nNI"},
        {"CERTIFICATE-----\nMI", "CERTIFICATE-----\n==MI"},
        {"-----BEGIN CERTIFICATE-----\n", ""},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(changes); i++) {
        char *text = replaced(bundle, changes[i][0], changes[i][1]);
        check_refused(text);
        free(text);
        /* One among good ones. */
        char *last = strstr(bundle, cas[CAS - 1].cert_pem);
        text = calloc(1, 2 * BUNDLE_SIZE);
        RG_ASSERT(text != NULL);
        char *bad = replaced(last, changes[i][0], changes[i][1]);
        sprintf(text, "%.*s%s%s", (int)(last - bundle), bundle, bad, cas[0].cert_pem);
        if (reference(text) < 0) {
            check_refused(text);
        }
        free(bad);
        free(text);
    }
    check_refused("");
    check_refused("no certificate\n");
}

/* One or two bytes of the bundle are others. */
static void test_bundles_with_any_error(void)
{
    int same = 0, refused = 0, later = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        static char text[BUNDLE_SIZE];
        struct rg_tls_roots *roots = NULL;
        memcpy(text, bundle, sizeof(text));
        for (uint64_t n = rg_test_random() % 2; n < 2; n++) {
            static const char bytes[] = "AQgw/+=\n -\r#\x01\xff";
            text[rg_test_random() % strlen(bundle)] = bytes[rg_test_random() % (sizeof(bytes) - 1)];
        }
        int want = reference(text), ret = open_text(text, &roots);
        if (ret != 0) {
            RG_CHECK_EQ(want, -1);
            refused++;
            continue;
        }
        RG_CHECK_EQ(rg_tls_roots_add_all(roots), 0);
        if (want >= 0) {
            RG_CHECK_EQ(stored(roots), (size_t)want);
            RG_CHECK_EQ(rg_tls_roots_broken(roots), 0);
            same++;
        } else {
            RG_CHECK(rg_tls_roots_broken(roots) > 0);
            later++;
        }
        rg_tls_roots_close(roots);
    }
    printf("  %d as before, %d refused, %d found when parsed\n", same, refused, later);
    RG_CHECK(same > 0 && refused > 0 && later > 0);
}

static void test_a_bundle_that_is_replaced_or_gone(void)
{
    char path[RG_TEST_PATH_SIZE];
    struct rg_tls_roots *roots = NULL;
    rg_test_file_make(bundle, path);
    RG_CHECK_EQ(rg_tls_roots_open(&roots, path, NULL), 0);
    RG_CHECK_EQ(truncate(path, 0), 0);
    unlink(path);
    RG_CHECK_EQ(rg_tls_roots_add_issuers(roots, leaf.x509), 0);
    RG_CHECK_EQ(stored(roots), 1);
    RG_CHECK_EQ(rg_tls_roots_add_all(roots), 0);
    RG_CHECK_EQ(stored(roots), CAS);
    rg_tls_roots_close(roots);
    roots = NULL;
    RG_CHECK_EQ(rg_tls_roots_open(&roots, path, NULL), -EINVAL);
    RG_CHECK_EQ(rg_tls_roots_open(&roots, NULL, "/tmp"), 0);
    RG_CHECK(rg_tls_roots_complete(roots));
    rg_tls_roots_close(roots);
}

static struct rg_tls_roots *shared;
static pthread_barrier_t start;

static void *adder_run(void *arg)
{
    size_t which = (size_t)arg;
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < CAS; i++) {
        RG_CHECK_EQ(rg_tls_roots_add_issuers(shared, cas[(which + i) % CAS].x509), 0);
    }
    if (which == 0) {
        RG_CHECK_EQ(rg_tls_roots_add_all(shared), 0);
    }
    return NULL;
}

static void test_many_threads(void)
{
    RG_CHECK_EQ(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int round = 0; round < 50; round++) {
        pthread_t threads[THREADS];
        RG_CHECK_EQ(open_text(bundle, &shared), 0);
        for (size_t i = 0; i < THREADS; i++) {
            RG_CHECK_EQ(pthread_create(&threads[i], NULL, adder_run, (void *)i), 0);
        }
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        RG_CHECK(rg_tls_roots_complete(shared));
        RG_CHECK_EQ(stored(shared), CAS);
        rg_tls_roots_close(shared);
    }
    pthread_barrier_destroy(&start);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_only_what_is_named_is_parsed),
        RG_TEST(test_what_bundles_look_like),
        RG_TEST(test_what_is_left_to_boringssl),
        RG_TEST(test_broken_bundles_are_refused_as_boringssl_does),
        RG_TEST(test_bundles_with_any_error),
        RG_TEST(test_a_bundle_that_is_replaced_or_gone),
        RG_TEST(test_many_threads),
    };
    static const char *const names[CAS] = {"first CA", "second CA", "a twin", "a twin"};
    for (size_t i = 0; i < CAS; i++) {
        rg_test_certificate_make(&cas[i], &(struct rg_test_certificate_spec){
                                              .common_name = names[i], .authority = true});
        strcat(bundle, cas[i].cert_pem);
    }
    rg_test_certificate_make(
        &leaf, &(struct rg_test_certificate_spec){.common_name = "leaf", .issuer = &cas[0]});
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_test_certificate_free(&leaf);
    for (size_t i = 0; i < CAS; i++) {
        rg_test_certificate_free(&cas[i]);
    }
    return ret;
}
