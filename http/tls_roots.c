/* Trusted certificates: see tls_roots.h.
 *
 * A bundle is read in a quick way, which takes only what bundles are made of: certificates in
 * unencrypted PEM, with nothing odd about their lines. Where it finds anything else BoringSSL
 * parses the whole file instead, and says what is wrong with it. */
#include "http/tls_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bytestring.h>
#include <openssl/err.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* BoringSSL cuts longer lines. */
#define LINE_MAX_SIZE 253
#define ROOTS_AT_FIRST 256

static const char begin_any[] = "-----BEGIN ", end_any[] = "-----END ";
static const char begin_certificate[] = "-----BEGIN CERTIFICATE-----";
static const char end_certificate[] = "-----END CERTIFICATE-----";

struct root {
    uint32_t at, size; /* in `der` */
    uint32_t subject_at, subject_size;
    atomic_bool added; /* it is in the store, or cannot be parsed */
};

struct rg_tls_roots {
    X509_STORE *store;
    uint8_t *der;
    struct root *roots;
    size_t count, room;
    atomic_bool complete;
    atomic_size_t broken;
};

struct text {
    const char *at, *end;
};

struct line {
    const char *at;
    size_t size;
};

/* Takes a line without what is white at its end. False at the end of the text. */
static bool line_next(struct text *text, struct line *line)
{
    if (text->at == text->end) {
        return false;
    }
    const char *end = memchr(text->at, '\n', (size_t)(text->end - text->at));
    line->at = text->at;
    text->at = end == NULL ? text->end : end + 1;
    end = end == NULL ? text->end : end;
    while (end > line->at && (unsigned char)end[-1] <= ' ') {
        end--;
    }
    line->size = (size_t)(end - line->at);
    return true;
}

static bool line_begins(struct line line, const char *with, size_t size)
{
    return line.size >= size && memcmp(line.at, with, size) == 0;
}

static bool line_is(struct line line, const char *text, size_t size)
{
    return line.size == size && memcmp(line.at, text, size) == 0;
}

#define LINE_BEGINS(line, literal) line_begins(line, literal, sizeof(literal) - 1)
#define LINE_IS(line, literal) line_is(line, literal, sizeof(literal) - 1)

#define NO_DIGIT 0xff

/* What each byte stands for in base64 (RFC 4648 section 4). BoringSSL's decoder takes the same time
 * for all inputs, as keys need it, and for a bundle a millisecond. */
static void digits_init(uint8_t digits[256])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    memset(digits, NO_DIGIT, 256);
    for (uint8_t i = 0; i < 64; i++) {
        digits[(uint8_t)alphabet[i]] = i;
    }
}

/* Decodes `size` digits, a multiple of four, without padding. False if one is none. `out` may lie
 * before `in` in the same memory. */
static bool quads_decode(const uint8_t digits[256], const char *in, size_t size, uint8_t *out)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < size; i += 4, out += 3) {
        uint8_t a = digits[(uint8_t)in[i]], b = digits[(uint8_t)in[i + 1]];
        uint8_t c = digits[(uint8_t)in[i + 2]], d = digits[(uint8_t)in[i + 3]];
        seen |= a | b | c | d;
        out[0] = (uint8_t)(a << 2 | b >> 4);
        out[1] = (uint8_t)(b << 4 | c >> 2);
        out[2] = (uint8_t)(c << 6 | d);
    }
    return (seen & 0xc0) == 0;
}

/* Decodes one line; `padded` is set at the padding, which only ends a certificate. Returns the
 * bytes written, or -1. */
static ssize_t line_decode(const uint8_t digits[256], struct line line, uint8_t *out, bool *padded)
{
    if (line.size == 0 || line.size % 4 != 0 || *padded) {
        return -1;
    }
    size_t padding = 0;
    while (padding < 2 && line.at[line.size - 1 - padding] == '=') {
        padding++;
    }
    size_t whole = line.size - (padding > 0 ? 4 : 0);
    if (!quads_decode(digits, line.at, whole, out)) {
        return -1;
    }
    size_t size = whole / 4 * 3;
    if (padding > 0) {
        char last[4] = {'A', 'A', 'A', 'A'};
        uint8_t bytes[3];
        memcpy(last, line.at + whole, 4 - padding);
        /* The bits that padding leaves over have to be 0. */
        if (!quads_decode(digits, last, 4, bytes) || bytes[3 - padding] != 0) {
            return -1;
        }
        memcpy(out + size, bytes, 3 - padding);
        size += 3 - padding;
        *padded = true;
    }
    return (ssize_t)size;
}

/* Finds the subject in the outline of a certificate (RFC 5280 section 4.1), of which each field is
 * there and in its place. What is in the fields is looked at when it is needed. */
static bool outline_read(const uint8_t *der, size_t size, CBS *subject)
{
    CBS whole, certificate, body;
    CBS_init(&whole, der, size);
    return CBS_get_asn1(&whole, &certificate, CBS_ASN1_SEQUENCE) && CBS_len(&whole) == 0 &&
           CBS_get_asn1(&certificate, &body, CBS_ASN1_SEQUENCE) &&
           CBS_get_asn1(&certificate, NULL, CBS_ASN1_SEQUENCE) &&  /* signatureAlgorithm */
           CBS_get_asn1(&certificate, NULL, CBS_ASN1_BITSTRING) && /* signatureValue */
           CBS_len(&certificate) == 0 &&
           CBS_get_optional_asn1(&body, NULL, NULL,
                                 CBS_ASN1_CONTEXT_SPECIFIC | CBS_ASN1_CONSTRUCTED | 0) &&
           CBS_get_asn1(&body, NULL, CBS_ASN1_INTEGER) &&  /* serialNumber */
           CBS_get_asn1(&body, NULL, CBS_ASN1_SEQUENCE) && /* signature */
           CBS_get_asn1(&body, NULL, CBS_ASN1_SEQUENCE) && /* issuer */
           CBS_get_asn1(&body, NULL, CBS_ASN1_SEQUENCE) && /* validity */
           CBS_get_asn1_element(&body, subject, CBS_ASN1_SEQUENCE) &&
           CBS_get_asn1(&body, NULL, CBS_ASN1_SEQUENCE) && /* subjectPublicKeyInfo */
           CBS_get_optional_asn1(&body, NULL, NULL, CBS_ASN1_CONTEXT_SPECIFIC | 1) &&
           CBS_get_optional_asn1(&body, NULL, NULL, CBS_ASN1_CONTEXT_SPECIFIC | 2) &&
           CBS_get_optional_asn1(&body, NULL, NULL,
                                 CBS_ASN1_CONTEXT_SPECIFIC | CBS_ASN1_CONSTRUCTED | 3) &&
           CBS_len(&body) == 0;
}

static bool roots_append(struct rg_tls_roots *roots, size_t at, size_t size)
{
    CBS subject;
    if (!outline_read(roots->der + at, size, &subject)) {
        return false;
    }
    if (roots->count == roots->room) {
        size_t room = roots->room == 0 ? ROOTS_AT_FIRST : 2 * roots->room;
        struct root *grown = reallocarray(roots->roots, room, sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        roots->roots = grown;
        roots->room = room;
    }
    struct root *root = &roots->roots[roots->count++];
    root->at = (uint32_t)at;
    root->size = (uint32_t)size;
    root->subject_at = (uint32_t)(CBS_data(&subject) - roots->der);
    root->subject_size = (uint32_t)CBS_len(&subject);
    atomic_init(&root->added, false);
    return true;
}

/* Decodes the PEM in roots->der where it lies: what is decoded is shorter. False if the text has
 * anything but certificates in it. */
static bool bundle_index(struct rg_tls_roots *roots, size_t text_size)
{
    uint8_t digits[256];
    const char *begin = (const char *)roots->der;
    struct text text = {begin, begin + text_size};
    struct line line;
    size_t used = 0;
    digits_init(digits);
    while (line_next(&text, &line)) {
        if (line.size > LINE_MAX_SIZE) {
            return false;
        }
        if (!LINE_BEGINS(line, begin_any)) {
            continue;
        }
        if (!LINE_IS(line, begin_certificate)) {
            return false;
        }
        size_t at = used;
        bool padded = false;
        for (;;) {
            if (!line_next(&text, &line) || line.size > LINE_MAX_SIZE) {
                return false;
            }
            if (LINE_BEGINS(line, end_any)) {
                break;
            }
            ssize_t size = line_decode(digits, line, roots->der + used, &padded);
            if (size < 0) {
                return false;
            }
            used += (size_t)size;
        }
        if (!LINE_IS(line, end_certificate) || !roots_append(roots, at, used - at)) {
            return false;
        }
    }
    uint8_t *shrunk = realloc(roots->der, used + 1);
    roots->der = shrunk == NULL ? roots->der : shrunk;
    return roots->count > 0;
}

/* Reads a regular file into owned memory. Returns its size, or -1. */
static ssize_t bundle_read(const char *path, uint8_t **out_text)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    uint8_t *text = NULL;
    ssize_t size = -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        info.st_size <= (off_t)RG_TLS_BUNDLE_MAX && (text = malloc((size_t)info.st_size)) != NULL) {
        /* One read: a file that changes meanwhile is read by BoringSSL if it does not fit. */
        size = read(fd, text, (size_t)info.st_size);
        if (size != info.st_size) {
            free(text);
            text = NULL;
            size = -1;
        }
    }
    close(fd);
    *out_text = text;
    return size;
}

int rg_tls_roots_open(struct rg_tls_roots **out_roots, const char *file, const char *directory)
{
    RG_ASSERT(file != NULL || directory != NULL);
    struct rg_tls_roots *roots = calloc(1, sizeof(*roots));
    ERR_clear_error();
    if (roots == NULL || (roots->store = X509_STORE_new()) == NULL) {
        free(roots);
        return -ENOMEM;
    }
    ssize_t size = file == NULL ? -1 : bundle_read(file, &roots->der);
    bool indexed = size > 0 && bundle_index(roots, (size_t)size);
    if (!indexed) {
        free(roots->der);
        free(roots->roots);
        roots->der = NULL;
        roots->roots = NULL;
        roots->count = roots->room = 0;
    }
    atomic_init(&roots->complete, !indexed);
    const char *whole = indexed ? NULL : file;
    if ((whole != NULL || directory != NULL) &&
        X509_STORE_load_locations(roots->store, whole, directory) != 1) {
        rg_tls_roots_close(roots);
        return -EINVAL;
    }
    *out_roots = roots;
    return 0;
}

void rg_tls_roots_close(struct rg_tls_roots *roots)
{
    if (roots == NULL) {
        return;
    }
    X509_STORE_free(roots->store);
    free(roots->roots);
    free(roots->der);
    free(roots);
}

X509_STORE *rg_tls_roots_store(const struct rg_tls_roots *roots)
{
    return roots->store;
}

/* Two threads may add the same one: the store keeps it once. */
static int root_add(struct rg_tls_roots *roots, struct root *root)
{
    const uint8_t *der = roots->der + root->at;
    ERR_clear_error();
    X509 *certificate = d2i_X509(NULL, &der, (long)root->size);
    if (certificate == NULL) {
        bool memory = ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE;
        ERR_clear_error();
        if (!memory && !atomic_exchange(&root->added, true)) {
            atomic_fetch_add(&roots->broken, 1);
        }
        return memory ? -ENOMEM : 0;
    }
    bool added = X509_STORE_add_cert(roots->store, certificate) == 1;
    X509_free(certificate);
    if (!added) {
        ERR_clear_error();
        return -ENOMEM;
    }
    atomic_store_explicit(&root->added, true, memory_order_release);
    return 0;
}

int rg_tls_roots_add_issuers(struct rg_tls_roots *roots, const X509 *certificate)
{
    const uint8_t *name = NULL;
    size_t size = 0;
    if (X509_NAME_get0_der(X509_get_issuer_name(certificate), &name, &size) != 1) {
        ERR_clear_error();
        return -ENOMEM;
    }
    int ret = 0;
    for (size_t i = 0; i < roots->count && ret == 0; i++) {
        struct root *root = &roots->roots[i];
        if (root->subject_size == size && memcmp(roots->der + root->subject_at, name, size) == 0 &&
            !atomic_load_explicit(&root->added, memory_order_acquire)) {
            ret = root_add(roots, root);
        }
    }
    return ret;
}

int rg_tls_roots_add_all(struct rg_tls_roots *roots)
{
    int ret = 0;
    for (size_t i = 0; i < roots->count && ret == 0; i++) {
        if (!atomic_load_explicit(&roots->roots[i].added, memory_order_acquire)) {
            ret = root_add(roots, &roots->roots[i]);
        }
    }
    if (ret == 0) {
        atomic_store_explicit(&roots->complete, true, memory_order_release);
    }
    return ret;
}

bool rg_tls_roots_complete(const struct rg_tls_roots *roots)
{
    return atomic_load_explicit(&roots->complete, memory_order_acquire);
}

size_t rg_tls_roots_broken(const struct rg_tls_roots *roots)
{
    return atomic_load_explicit(&roots->broken, memory_order_relaxed);
}
