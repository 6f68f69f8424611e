/* Trusted certificates that are parsed when they are needed, beside BoringSSL's reading of the same
 * bundles: what it takes is taken, what it refuses is refused or not trusted. */
#include "http/tls_roots.h"
#include "tests/support/allocation.h"
#include "tests/support/certificates.h"
#include "tests/support/test.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/nid.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAS 4 /* the last two have one name */
#define BUNDLE_SIZE RG_KIB(16)
#define THREADS 4
#define MUTATIONS 3000
#define ROUNDS 500

static struct rg_test_certificate cas[CAS], leaf;
static char bundle[BUNDLE_SIZE];

static size_t stored(X509_STORE *store)
{
    RG_CHECK(store != NULL);
    return sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
}

/* A file in memory. Returns its descriptor. */
static int file_make(const char *text, size_t size, char *out_path)
{
    int fd = memfd_create("bundle", MFD_CLOEXEC);
    RG_ASSERT(fd >= 0 && write(fd, text, size) == (ssize_t)size);
    snprintf(out_path, RG_TEST_PATH_SIZE, "/proc/self/fd/%d", fd);
    return fd;
}

static int open_bytes(const char *text, size_t size, struct rg_tls_roots **out_roots)
{
    char path[RG_TEST_PATH_SIZE];
    int fd = file_make(text, size, path);
    int ret = rg_tls_roots_open(out_roots, path, NULL);
    close(fd);
    return ret;
}

static int open_text(const char *text, struct rg_tls_roots **out_roots)
{
    return open_bytes(text, strlen(text), out_roots);
}

/* What BoringSSL makes of a text: owned, or NULL, and its error queue says why. */
static X509_STORE *reference_store(const char *text, size_t size)
{
    char path[RG_TEST_PATH_SIZE];
    X509_STORE *store = X509_STORE_new();
    RG_ASSERT(store != NULL);
    int fd = file_make(text, size, path);
    ERR_clear_error();
    if (X509_STORE_load_locations(store, path, NULL) != 1) {
        X509_STORE_free(store);
        store = NULL;
    }
    close(fd);
    return store;
}

/* How many certificates BoringSSL finds in a text, or -1. */
static int reference(const char *text, size_t size)
{
    X509_STORE *store = reference_store(text, size);
    int count = store == NULL ? -1 : (int)stored(store);
    X509_STORE_free(store);
    return count;
}

/* The text opens, quickly or not, and has `count` certificates. */
static void check_bytes(const char *text, size_t size, bool quickly, size_t count)
{
    struct rg_tls_roots *roots = NULL;
    RG_CHECK_EQ(reference(text, size), (int)count);
    RG_CHECK_EQ(open_bytes(text, size, &roots), 0);
    RG_CHECK_EQ(rg_tls_roots_some(roots, leaf.x509, NULL) != NULL, quickly);
    RG_CHECK_EQ(stored(rg_tls_roots_all(roots)), count);
    RG_CHECK(rg_tls_roots_some(roots, leaf.x509, NULL) == NULL);
    RG_CHECK_EQ(rg_tls_roots_broken(roots), 0);
    rg_tls_roots_close(roots);
}

static void check_text(const char *text, bool quickly, size_t count)
{
    check_bytes(text, strlen(text), quickly, count);
}

static void check_refused(const char *text)
{
    struct rg_tls_roots *roots = NULL;
    RG_CHECK_EQ(reference(text, strlen(text)), -1);
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
    for (int i = 0; i < 2; i++) {
        RG_CHECK_EQ(stored(rg_tls_roots_some(roots, leaf.x509, NULL)), 1);
    }

    /* Nobody of the bundle issued this one. */
    rg_test_certificate_make(&child, &(struct rg_test_certificate_spec){.common_name = "stranger"});
    RG_CHECK_EQ(stored(rg_tls_roots_some(roots, child.x509, NULL)), 1);
    rg_test_certificate_free(&child);

    /* Two have the name of this one's issuer: which of them counts, the whole bundle says. */
    rg_test_certificate_make(&child, &(struct rg_test_certificate_spec){.common_name = "child",
                                                                        .issuer = &cas[CAS - 1]});
    RG_CHECK(rg_tls_roots_some(roots, child.x509, NULL) == NULL);
    STACK_OF(X509) *others = sk_X509_new_null();
    RG_ASSERT(sk_X509_push(others, child.x509) == 1);
    RG_CHECK(rg_tls_roots_some(roots, leaf.x509, others) == NULL);
    RG_CHECK_EQ(stored(rg_tls_roots_some(roots, leaf.x509, NULL)), 1);
    sk_X509_free(others);
    rg_test_certificate_free(&child);
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

/* A line that begins with NUL is the end of the file to BoringSSL. */
static void test_bytes_that_are_zero(void)
{
    char text[2 * BUNDLE_SIZE];
    int size = sprintf(text, "%s%c\n%s", cas[0].cert_pem, '\0', cas[1].cert_pem);
    check_bytes(text, (size_t)size, false, 1);
    size = sprintf(text, "#%c\n%s", '\0', bundle);
    check_bytes(text, (size_t)size, false, CAS);
}

/* The certificate in lines of so many digits, each with an end. Returns owned. */
static char *rewrapped(const char *pem, size_t digits, const char *end)
{
    char *plain = replaced(strchr(pem, '\n'), "\n", ""), *at = plain;
    char *out = calloc(1, 4 * BUNDLE_SIZE);
    RG_ASSERT(out != NULL && strchr(plain, '-') != NULL);
    *strchr(plain, '-') = '\0';
    int used = sprintf(out, "-----BEGIN CERTIFICATE-----\n");
    while (*at != '\0') {
        size_t size = RG_MIN(digits, strlen(at));
        used += sprintf(out + used, "%.*s%s", (int)size, at, end);
        at += size;
    }
    sprintf(out + used, "-----END CERTIFICATE-----\n");
    free(plain);
    return out;
}

/* BoringSSL cuts lines, and takes what is left of a line, if white, for the end of a header. */
static void test_lines_as_long_as_can_be(void)
{
    static const struct {
        size_t digits;
        const char *end;
        bool fits;
    } lines[] = {
        {252, "\n", true}, {248, "   \r\n", true}, {252, "\r\n", false}, {248, "    \r\n", false}};
    for (size_t i = 0; i < RG_ARRAY_LEN(lines); i++) {
        char *text = rewrapped(cas[0].cert_pem, lines[i].digits, lines[i].end);
        if (lines[i].fits) {
            check_text(text, true, 1);
        } else {
            check_refused(text);
        }
        free(text);
    }
}

static void *pipe_write(void *arg)
{
    FILE *file = fopen(arg, "we");
    RG_ASSERT(file != NULL && fputs(bundle, file) >= 0);
    RG_ASSERT(fclose(file) == 0);
    return NULL;
}

static void test_a_bundle_out_of_a_pipe(void)
{
    char path[RG_TEST_PATH_SIZE];
    struct rg_tls_roots *roots = NULL;
    pthread_t writer;
    rg_test_file_make("", path);
    RG_CHECK_EQ(unlink(path), 0);
    RG_CHECK_EQ(mkfifo(path, 0600), 0);
    RG_CHECK_EQ(pthread_create(&writer, NULL, pipe_write, path), 0);
    RG_CHECK_EQ(rg_tls_roots_open(&roots, path, NULL), 0);
    pthread_join(writer, NULL);
    unlink(path);
    RG_CHECK_EQ(stored(rg_tls_roots_all(roots)), CAS);
    rg_tls_roots_close(roots);
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
        if (reference(text, strlen(text)) < 0) {
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
        int want = reference(text, strlen(text)), ret = open_text(text, &roots);
        if (ret != 0) {
            RG_CHECK_EQ(want, -1);
            refused++;
            continue;
        }
        RG_CHECK(rg_tls_roots_all(roots) != NULL);
        if (want >= 0) {
            RG_CHECK_EQ(stored(rg_tls_roots_all(roots)), (size_t)want);
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

/* Authorities that share names, written in several ways, and keys; expired ones, and ones that
 * others of them signed. Of each one a leaf, which says or does not say by which key. */
#define POOL_MAX 64
#define POOL_KEYS 3
#define DRAWN_MAX 40

static struct rg_test_certificate pool[POOL_MAX], leaves[POOL_MAX];
static size_t pool_count;

static void pool_add(const char *name, EVP_PKEY *key, const struct rg_test_certificate *issuer)
{
    struct rg_test_certificate_spec spec = {.common_name = name,
                                            .key = key,
                                            .issuer = issuer,
                                            .authority = true,
                                            .names_key = issuer != NULL};
    for (int i = 0; i < 2; i++) {
        RG_ASSERT(pool_count < POOL_MAX);
        struct rg_test_certificate *made = &pool[pool_count];
        rg_test_certificate_make(made, &spec);
        rg_test_certificate_make(
            &leaves[pool_count],
            &(struct rg_test_certificate_spec){
                .common_name = "leaf", .issuer = made, .names_key = pool_count % 3 == 0});
        pool_count++;
        spec.not_before = -7200; /* the second one has expired */
        spec.not_after = -3600;
    }
}

static void pool_make(void)
{
    static const char *const names[] = {"Root", "ROOT ", "Other"};
    struct rg_test_certificate keys[POOL_KEYS];
    for (size_t i = 0; i < POOL_KEYS; i++) {
        rg_test_certificate_make(&keys[i],
                                 &(struct rg_test_certificate_spec){.common_name = "key"});
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        pool_add(names[i], keys[0].key, NULL);
        pool_add(names[i], keys[1].key, NULL);
    }
    for (size_t i = 0; i < 12; i += 3) {
        pool_add("Middle", keys[2].key, &pool[i]);
        pool_add(i == 3 ? "MIDDLE" : "Root", keys[i % 2].key, &pool[i + 2]);
    }
    static const char *const unique[][2] = {{"a", "of a"}, {"B", "of B"}, {"c", "of c"}};
    for (size_t i = 0; i < RG_ARRAY_LEN(unique); i++) {
        pool_add(unique[i][0], keys[i].key, NULL);
        pool_add(unique[i][1], keys[2 - i].key, &pool[pool_count - 2]);
    }
    for (size_t i = 0; i < POOL_KEYS; i++) {
        rg_test_certificate_free(&keys[i]);
    }
}

static void pool_free(void)
{
    for (size_t i = 0; i < pool_count; i++) {
        rg_test_certificate_free(&pool[i]);
        rg_test_certificate_free(&leaves[i]);
    }
    pool_count = 0;
}

static size_t drawn[DRAWN_MAX], drawn_count;

/* Some of the pool in any order, some twice. Returns the size of the text. */
static size_t bundle_draw(char *out, size_t room)
{
    size_t used = 0;
    drawn_count = 1 + rg_test_random_below(rg_test_random() % 2 ? 6 : DRAWN_MAX);
    for (size_t i = 0; i < drawn_count; i++) {
        drawn[i] = rg_test_random_below(pool_count);
        used += (size_t)snprintf(out + used, room - used, "%s", pool[drawn[i]].cert_pem);
        RG_ASSERT(used < room);
    }
    return used;
}

/* Bytes are others, are missing, or stand twice; lines are cut, or moved elsewhere. */
static size_t text_edit(char *text, size_t size)
{
    static const char bytes[] = "\0AQgw/+=\n -\r#\x01\xff";
    size_t at = rg_test_random_below(size), to = rg_test_random_below(size);
    char *end = memchr(text + at, '\n', size - at);
    size_t line = end == NULL ? size - at : (size_t)(end + 1 - text) - at;
    switch (rg_test_random_below(5)) {
    case 0:
        text[at] = (char)(text[at] ^ (1 << rg_test_random_below(8)));
        break;
    case 1:
        memmove(text + at, text + at + line, size - at - line);
        return size - line;
    case 2: /* room is left for it */
        line = RG_MIN(line, 128);
        memmove(text + at + line, text + at, size - at);
        return size + line;
    case 3:
        for (size_t i = 0; i < line && to + line <= size; i++) {
            char kept = text[at + i];
            text[at + i] = text[to + i];
            text[to + i] = kept;
        }
        break;
    default:
        text[at] = bytes[rg_test_random_below(sizeof(bytes) - 1)];
        break;
    }
    return size;
}

struct verdict {
    int error, depth;
    size_t chain;
};

static struct verdict judge(X509_STORE *store, X509 *subject, STACK_OF(X509) * untrusted)
{
    X509_STORE_CTX *verification = X509_STORE_CTX_new();
    RG_ASSERT(verification != NULL);
    RG_ASSERT(X509_STORE_CTX_init(verification, store, subject, untrusted) == 1);
    RG_ASSERT(X509_STORE_CTX_set_default(verification, "ssl_server") == 1);
    int good = X509_verify_cert(verification);
    struct verdict verdict = {
        .error = X509_STORE_CTX_get_error(verification),
        .depth = X509_STORE_CTX_get_error_depth(verification),
        .chain = sk_X509_num(X509_STORE_CTX_get0_chain(verification)),
    };
    RG_CHECK_EQ(good == 1, verdict.error == X509_V_OK);
    X509_STORE_CTX_free(verification);
    return verdict;
}

/* Any chain has the verdict that it has with BoringSSL's reading of the bundle. Returns it;
 * *out_quickly: without parsing all. */
static int check_chain(struct rg_tls_roots *roots, X509_STORE *want_store, bool *out_quickly)
{
    size_t trusted = drawn[rg_test_random_below(drawn_count)];
    size_t any = rg_test_random_below(pool_count);
    X509 *subject = leaves[rg_test_random() % 4 ? trusted : any].x509;
    STACK_OF(X509) *untrusted = sk_X509_new_null();
    for (uint64_t n = rg_test_random_below(4); n > 0; n--) {
        X509 *other = pool[rg_test_random_below(pool_count)].x509;
        RG_ASSERT(sk_X509_push(untrusted, other) > 0);
    }
    struct verdict want = judge(want_store, subject, untrusted), got = {.error = -1};
    X509_STORE *some = rg_tls_roots_some(roots, subject, untrusted);
    if (some != NULL) {
        got = judge(some, subject, untrusted);
    }
    *out_quickly = some != NULL && got.error == X509_V_OK;
    /* Most are left unparsed, so that much is asked of a store that grows. */
    if (*out_quickly || rg_test_random() % 4 == 0) {
        got = *out_quickly ? got : judge(rg_tls_roots_all(roots), subject, untrusted);
        RG_CHECK_EQ(got.error, want.error);
        RG_CHECK_EQ(got.depth, want.depth);
        RG_CHECK_EQ(got.chain, want.chain);
    }
    sk_X509_free(untrusted);
    return want.error;
}

static void test_any_chain_has_the_verdict_of_the_whole_bundle(void)
{
    static char text[RG_KIB(64)];
    int good = 0, quick = 0, bad = 0, later = 0;
    pool_make();
    for (uint32_t i = rg_test_rounds(ROUNDS); i > 0; i--) {
        struct rg_tls_roots *roots = NULL;
        size_t size = bundle_draw(text, sizeof(text) - RG_KIB(1));
        for (uint64_t edits = rg_test_random() % 3; edits > 0 && size > 0; edits--) {
            size = text_edit(text, size);
        }
        X509_STORE *want = reference_store(text, size);
        int ret = open_bytes(text, size, &roots);
        RG_CHECK(want == NULL ? ret == 0 || ret == -EINVAL : ret == 0);
        if (want == NULL && ret == 0) {
            RG_CHECK(rg_tls_roots_all(roots) != NULL && rg_tls_roots_broken(roots) > 0);
            later++;
        }
        for (int chains = 0; want != NULL && chains < 8; chains++) {
            bool quickly;
            int verdict = check_chain(roots, want, &quickly);
            good += verdict == X509_V_OK;
            bad += verdict != X509_V_OK;
            quick += quickly;
        }
        X509_STORE_free(want);
        rg_tls_roots_close(roots);
    }
    pool_free();
    printf("  %d accepted, %d of them quickly, %d refused; %d found when parsed\n", good, quick,
           bad, later);
    RG_CHECK(quick > 0 && good > quick && bad > 0);
}

/* The certificate with another name, in a bundle of its own. Its issuer's key signs it. Owned. */
static char *renamed(struct rg_test_certificate *certificate, X509_NAME *name)
{
    BIO *bio = BIO_new(BIO_s_mem());
    const uint8_t *data = NULL;
    size_t size = 0;
    RG_ASSERT(X509_set_subject_name(certificate->x509, name) == 1);
    RG_ASSERT(X509_set_issuer_name(certificate->x509, name) == 1);
    RG_ASSERT(X509_sign(certificate->x509, certificate->key, EVP_sha256()) > 0);
    RG_ASSERT(PEM_write_bio_X509(bio, certificate->x509) == 1 && BIO_write(bio, "", 1) == 1);
    RG_ASSERT(BIO_mem_contents(bio, &data, &size) == 1);
    char *text = strdup((const char *)data);
    RG_ASSERT(text != NULL);
    BIO_free(bio);
    return text;
}

/* One name in each kind of string, with other letters and spaces. The characters of the wider ones
 * have bytes that are letters. */
#define NAMES 5
static X509_NAME *name_make(size_t which)
{
    static const struct {
        int type;
        const char *text;
        int size;
    } names[NAMES] = {
        {V_ASN1_UTF8STRING, "A \xe4\x85\x82\xc3\xbc \xc3\xa9", 10},
        {V_ASN1_UTF8STRING, " a  \xe4\x85\x82\xc3\xbc\t\xc3\xa9 ", 12},
        {V_ASN1_BMPSTRING, "\0A\0 \x41\x42\0\xfc\0 \0\xe9", 12},
        {V_ASN1_BMPSTRING, "\0a\0 \0 \x41\x42\0\xfc\0 \0\xe9", 14},
        {V_ASN1_UNIVERSALSTRING, "\0\0\0A\0\0\0 \0\0\x41\x42\0\0\0\xfc\0\0\0 \0\0\0\xe9", 24},
    };
    /* Two in one set, whose order is that of their bytes. */
    static const char *const units[NAMES] = {"x", "X", "x ", " x", "X"};
    X509_NAME *name = X509_NAME_new();
    RG_ASSERT(name != NULL);
    RG_ASSERT(X509_NAME_add_entry_by_NID(name, NID_commonName, names[which].type,
                                         (const uint8_t *)names[which].text, names[which].size, -1,
                                         0) == 1);
    RG_ASSERT(X509_NAME_add_entry_by_NID(name, NID_commonName, V_ASN1_PRINTABLESTRING,
                                         (const uint8_t *)units[which], -1, -1, -1) == 1);
    return name;
}

static void test_one_name_in_many_encodings(void)
{
    struct rg_test_certificate ca, twin, child;
    struct rg_test_certificate_spec spec = {.common_name = "x", .authority = true};
    for (size_t i = 0; i < NAMES * NAMES; i++) {
        struct rg_tls_roots *roots = NULL;
        X509_NAME *name = name_make(i / NAMES), *same = name_make(i % NAMES);
        RG_CHECK_EQ(X509_NAME_cmp(name, same), 0);
        rg_test_certificate_make(&ca, &spec);
        rg_test_certificate_make(&twin, &spec);
        char *text = renamed(&ca, name);
        X509_set_subject_name(ca.x509, same);
        rg_test_certificate_make(
            &child, &(struct rg_test_certificate_spec){.common_name = "child", .issuer = &ca});
        RG_CHECK_EQ(open_text(text, &roots), 0);
        RG_CHECK_EQ(stored(rg_tls_roots_some(roots, child.x509, NULL)), 1);
        RG_CHECK(judge(rg_tls_roots_some(roots, child.x509, NULL), child.x509, NULL).error ==
                 X509_V_OK);
        rg_tls_roots_close(roots);

        char *other = renamed(&twin, same);
        text = realloc(text, strlen(text) + strlen(other) + 1);
        RG_ASSERT(text != NULL);
        strcat(text, other);
        RG_CHECK_EQ(open_text(text, &roots), 0);
        RG_CHECK(rg_tls_roots_some(roots, child.x509, NULL) == NULL);
        RG_CHECK_EQ(stored(rg_tls_roots_all(roots)), 2);
        rg_tls_roots_close(roots);
        free(text);
        free(other);
        X509_NAME_free(name);
        X509_NAME_free(same);
        rg_test_certificate_free(&ca);
        rg_test_certificate_free(&twin);
        rg_test_certificate_free(&child);
    }
}

/* x509_name_get_cache asks for so many, and does not look whether it got them. */
#define UNCHECKED_SIZE 40

static long allocations_left = -1;

static bool allocation_fails(void)
{
    return allocations_left >= 0 && rg_test_allocation_size != UNCHECKED_SIZE &&
           allocations_left-- == 0;
}

/* Each allocation fails once. What could not be done then can be done later: nothing is taken for
 * broken, and no certificate is kept without its key. */
static void test_memory_that_is_short_for_a_while(void)
{
    rg_test_allocation_fails = allocation_fails;
    for (int whole = 0; whole < 2; whole++) {
        bool failed = true;
        for (long n = 0; failed; n++) {
            struct rg_tls_roots *roots = NULL;
            RG_CHECK_EQ(open_text(bundle, &roots), 0);
            allocations_left = n;
            X509_STORE *store =
                whole ? rg_tls_roots_all(roots) : rg_tls_roots_some(roots, leaf.x509, NULL);
            failed = allocations_left < 0;
            allocations_left = -1;
            RG_CHECK(failed || store != NULL);
            store = whole ? rg_tls_roots_all(roots) : rg_tls_roots_some(roots, leaf.x509, NULL);
            RG_CHECK_EQ(stored(store), whole ? CAS : 1);
            RG_CHECK(judge(store, leaf.x509, NULL).error == X509_V_OK);
            RG_CHECK_EQ(rg_tls_roots_broken(roots), 0);
            rg_tls_roots_close(roots);
        }
    }
    rg_test_allocation_fails = NULL;
}

static void test_a_bundle_that_is_replaced_or_gone(void)
{
    char path[RG_TEST_PATH_SIZE];
    struct rg_tls_roots *roots = NULL;
    rg_test_file_make(bundle, path);
    RG_CHECK_EQ(rg_tls_roots_open(&roots, path, NULL), 0);
    RG_CHECK_EQ(truncate(path, 0), 0);
    unlink(path);
    RG_CHECK_EQ(stored(rg_tls_roots_some(roots, leaf.x509, NULL)), 1);
    RG_CHECK_EQ(stored(rg_tls_roots_all(roots)), CAS);
    rg_tls_roots_close(roots);
    roots = NULL;
    RG_CHECK_EQ(rg_tls_roots_open(&roots, path, NULL), -EINVAL);
    RG_CHECK_EQ(rg_tls_roots_open(&roots, NULL, "/tmp"), 0);
    RG_CHECK(rg_tls_roots_some(roots, leaf.x509, NULL) == NULL);
    rg_tls_roots_close(roots);
    /* A directory is looked into for what is not in the bundle. */
    rg_test_file_make(bundle, path);
    RG_CHECK_EQ(rg_tls_roots_open(&roots, path, "/tmp"), 0);
    unlink(path);
    RG_CHECK(rg_tls_roots_some(roots, leaf.x509, NULL) == NULL);
    RG_CHECK_EQ(stored(rg_tls_roots_all(roots)), CAS);
    rg_tls_roots_close(roots);
}

static struct rg_tls_roots *shared;
static pthread_barrier_t start;

static bool verifies(X509_STORE *store)
{
    X509_STORE_CTX *verification = X509_STORE_CTX_new();
    RG_ASSERT(verification != NULL &&
              X509_STORE_CTX_init(verification, store, leaf.x509, NULL) == 1);
    bool good = X509_verify_cert(verification) == 1;
    X509_STORE_CTX_free(verification);
    return good;
}

static void *adder_run(void *arg)
{
    size_t which = (size_t)arg;
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < CAS; i++) {
        X509_STORE *some = rg_tls_roots_some(shared, leaf.x509, NULL);
        RG_CHECK(some == NULL || verifies(some));
        rg_tls_roots_some(shared, cas[(which + i) % CAS].x509, NULL);
    }
    RG_CHECK(which % 2 == 0 || verifies(rg_tls_roots_all(shared)));
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
        RG_CHECK(rg_tls_roots_some(shared, leaf.x509, NULL) == NULL);
        RG_CHECK_EQ(stored(rg_tls_roots_all(shared)), CAS);
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
        RG_TEST(test_bytes_that_are_zero),
        RG_TEST(test_lines_as_long_as_can_be),
        RG_TEST(test_a_bundle_out_of_a_pipe),
        RG_TEST(test_broken_bundles_are_refused_as_boringssl_does),
        RG_TEST(test_bundles_with_any_error),
        RG_TEST(test_any_chain_has_the_verdict_of_the_whole_bundle),
        RG_TEST(test_one_name_in_many_encodings),
        RG_TEST(test_memory_that_is_short_for_a_while),
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
