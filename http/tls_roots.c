/* Trusted certificates: see tls_roots.h.
 *
 * A bundle is read in a quick way, which takes only what bundles are made of: certificates in
 * unencrypted PEM, with nothing odd about their lines. Where it finds anything else BoringSSL
 * parses the whole file instead, and says what is wrong with it.
 *
 * Why the store of some accepts nothing that the store of all refuses: it holds what bears an
 * issuer's name only where one certificate of the bundle alone bears it. So BoringSSL, which looks
 * an issuer up by its name and takes the first that fits, finds the same one in both stores, or in
 * this one none. Then the chain ends early, and is not accepted. */
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

/* With its end. BoringSSL cuts longer lines. */
#define LINE_MAX_SIZE 253
#define ROOTS_AT_FIRST 256

static const char begin_any[] = "-----BEGIN ", end_any[] = "-----END ";
static const char begin_certificate[] = "-----BEGIN CERTIFICATE-----";
static const char end_certificate[] = "-----END CERTIFICATE-----";

struct root {
    uint32_t at, size; /* in `der` */
    uint64_t subject;  /* name_hash */
    atomic_bool added; /* to the store of some */
};

struct rg_tls_roots {
    X509_STORE *some;
    _Atomic(X509_STORE *) all; /* NULL until it is made */
    uint8_t *der;
    struct root *roots;
    size_t count, room;
    atomic_size_t broken;
};

struct text {
    const char *at, *end;
};

struct line {
    const char *at;
    size_t size;
    size_t size_with_end;
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
    line->size_with_end = (size_t)(text->at - line->at);
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

#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t hash_byte(uint64_t hash, uint8_t byte)
{
    return (hash ^ byte) * FNV_PRIME;
}

/* Adds what every way to write a string has in common (RFC 5280 section 7.1): the letters and
 * digits of ASCII, in lower case. Their bytes stand for others where characters are wider. */
static uint64_t hash_string(uint64_t hash, CBS_ASN1_TAG tag, CBS value)
{
    size_t width = tag == CBS_ASN1_BMPSTRING ? 2 : tag == CBS_ASN1_UNIVERSALSTRING ? 4 : 1;
    const uint8_t *data = CBS_data(&value);
    for (size_t i = 0; i + width <= CBS_len(&value); i += width) {
        uint32_t character = 0;
        for (size_t j = 0; j < width; j++) {
            character = character << 8 | data[i + j];
        }
        uint32_t lower = character | ('a' - 'A');
        if (character - '0' < 10 || lower - 'a' < 26) {
            hash = hash_byte(hash, (uint8_t)lower);
        }
    }
    return hash;
}

/* Names that BoringSSL takes for the same (X509_NAME_cmp) have one hash; others may share it. The
 * parts of a name are added up, as the order of those in a set does not count. False if the bytes
 * are no name. */
static bool name_hash(CBS element, uint64_t *out_hash)
{
    CBS name, set, part, type, value;
    CBS_ASN1_TAG tag;
    *out_hash = 0;
    if (!CBS_get_asn1(&element, &name, CBS_ASN1_SEQUENCE)) {
        return false;
    }
    while (CBS_len(&name) > 0) {
        if (!CBS_get_asn1(&name, &set, CBS_ASN1_SET) || CBS_len(&set) == 0) {
            return false;
        }
        while (CBS_len(&set) > 0) {
            if (!CBS_get_asn1(&set, &part, CBS_ASN1_SEQUENCE) ||
                !CBS_get_asn1(&part, &type, CBS_ASN1_OBJECT) ||
                !CBS_get_any_asn1(&part, &value, &tag) || CBS_len(&part) != 0) {
                return false;
            }
            uint64_t hash = FNV_BASIS;
            for (size_t i = 0; i < CBS_len(&type); i++) {
                hash = hash_byte(hash, CBS_data(&type)[i]);
            }
            *out_hash += hash_string(hash_byte(hash, ' '), tag, value);
        }
    }
    return true;
}

static bool roots_append(struct rg_tls_roots *roots, size_t at, size_t size)
{
    CBS subject;
    uint64_t hash;
    if (!outline_read(roots->der + at, size, &subject) || !name_hash(subject, &hash)) {
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
    root->subject = hash;
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
    if (memchr(begin, '\0', text_size) != NULL) {
        return false; /* BoringSSL takes one for the end of a line, or of the file */
    }
    digits_init(digits);
    while (line_next(&text, &line)) {
        if (line.size_with_end > LINE_MAX_SIZE) {
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
            if (!line_next(&text, &line) || line.size_with_end > LINE_MAX_SIZE) {
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

/* Reads a regular file into owned memory. Returns its size, or -1. Nothing else is opened: who
 * writes into a named pipe would see its reader leave. */
static ssize_t bundle_read(const char *path, uint8_t **out_text)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return -1;
    }
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

/* Reads the bundle in the quick way. False, and nothing is kept, if that does not do. */
static bool bundle_open(struct rg_tls_roots *roots, const char *file)
{
    ssize_t size = bundle_read(file, &roots->der);
    if (size > 0 && (roots->some = X509_STORE_new()) != NULL && bundle_index(roots, (size_t)size)) {
        return true;
    }
    X509_STORE_free(roots->some);
    free(roots->der);
    free(roots->roots);
    *roots = (struct rg_tls_roots){0};
    return false;
}

int rg_tls_roots_open(struct rg_tls_roots **out_roots, const char *file, const char *directory)
{
    RG_ASSERT(file != NULL || directory != NULL);
    struct rg_tls_roots *roots = calloc(1, sizeof(*roots));
    X509_STORE *all = NULL;
    int ret = 0;
    ERR_clear_error();
    if (roots == NULL) {
        return -ENOMEM;
    }
    /* BoringSSL looks into a directory for what the bundle does not have: it has to know all of it.
     */
    if (directory != NULL || !bundle_open(roots, file)) {
        all = X509_STORE_new();
        ret = all == NULL                                            ? -ENOMEM
              : X509_STORE_load_locations(all, file, directory) == 1 ? 0
                                                                     : -EINVAL;
    }
    atomic_init(&roots->all, all);
    if (ret != 0) {
        rg_tls_roots_close(roots);
        return ret;
    }
    *out_roots = roots;
    return 0;
}

void rg_tls_roots_close(struct rg_tls_roots *roots)
{
    if (roots == NULL) {
        return;
    }
    X509_STORE_free(roots->some);
    X509_STORE_free(atomic_load(&roots->all));
    free(roots->roots);
    free(roots->der);
    free(roots);
}

/* Whether one of the queued errors, which it takes, says so: others lie above it. Without memory
 * for the queue there are none. */
static bool memory_was_short(void)
{
    bool was_short = ERR_peek_error() == 0;
    for (uint32_t error; (error = ERR_get_error()) != 0;) {
        was_short = was_short || ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
    }
    return was_short;
}

static X509 *root_parse(const struct rg_tls_roots *roots, const struct root *root)
{
    const uint8_t *der = roots->der + root->at;
    ERR_clear_error();
    return d2i_X509(NULL, &der, (long)root->size);
}

/* 0, -EINVAL if it cannot be parsed, or -ENOMEM. The store keeps it once. */
static int root_add(const struct rg_tls_roots *roots, const struct root *root, X509_STORE *store)
{
    X509 *certificate = root_parse(roots, root);
    if (certificate != NULL && X509_get0_pubkey(certificate) == NULL) {
        /* Its key is of a kind that BoringSSL does not know, or there was no memory for it. */
        X509_free(certificate);
        certificate = root_parse(roots, root);
    }
    if (certificate == NULL) {
        return memory_was_short() ? -ENOMEM : -EINVAL;
    }
    bool added = X509_STORE_add_cert(store, certificate) == 1;
    X509_free(certificate);
    ERR_clear_error();
    return added ? 0 : -ENOMEM;
}

/* Puts into the store of some what bears the name of the certificate's issuer. False if that is not
 * one, or cannot be done. */
static bool issuer_add(struct rg_tls_roots *roots, const X509 *certificate)
{
    const uint8_t *der = NULL;
    size_t size = 0;
    CBS name;
    uint64_t hash;
    if (X509_NAME_get0_der(X509_get_issuer_name(certificate), &der, &size) != 1) {
        ERR_clear_error();
        return false;
    }
    CBS_init(&name, der, size);
    if (!name_hash(name, &hash)) {
        return false;
    }
    struct root *only = NULL;
    for (size_t i = 0; i < roots->count; i++) {
        struct root *root = &roots->roots[i];
        if (root->subject != hash) {
            continue;
        }
        if (only == NULL) {
            only = root;
        } else if (root->size != only->size ||
                   memcmp(roots->der + root->at, roots->der + only->at, root->size) != 0) {
            return false;
        }
    }
    if (only == NULL || atomic_load_explicit(&only->added, memory_order_acquire)) {
        return true;
    }
    bool added = root_add(roots, only, roots->some) == 0;
    if (added) {
        atomic_store_explicit(&only->added, true, memory_order_release);
    }
    return added;
}

X509_STORE *rg_tls_roots_some(struct rg_tls_roots *roots, const X509 *leaf,
                              const STACK_OF(X509) * untrusted)
{
    if (atomic_load_explicit(&roots->all, memory_order_acquire) != NULL) {
        return NULL;
    }
    bool added = issuer_add(roots, leaf);
    for (size_t i = 0; added && i < sk_X509_num(untrusted); i++) {
        added = issuer_add(roots, sk_X509_value(untrusted, i));
    }
    return added ? roots->some : NULL;
}

/* In the order of the file, as BoringSSL does: it decides which of two of one name comes first. */
static X509_STORE *store_of_all(const struct rg_tls_roots *roots, size_t *out_broken)
{
    X509_STORE *store = X509_STORE_new();
    int ret = store == NULL ? -ENOMEM : 0;
    *out_broken = 0;
    for (size_t i = 0; i < roots->count && ret != -ENOMEM; i++) {
        ret = root_add(roots, &roots->roots[i], store);
        *out_broken += ret == -EINVAL ? 1 : 0;
    }
    if (ret == -ENOMEM) {
        X509_STORE_free(store);
        store = NULL;
    }
    return store;
}

X509_STORE *rg_tls_roots_all(struct rg_tls_roots *roots)
{
    X509_STORE *all = atomic_load_explicit(&roots->all, memory_order_acquire);
    size_t broken;
    if (all != NULL) {
        return all;
    }
    X509_STORE *made = store_of_all(roots, &broken);
    if (made == NULL) {
        return NULL;
    }
    atomic_store_explicit(&roots->broken, broken, memory_order_relaxed);
    if (atomic_compare_exchange_strong(&roots->all, &all, made)) {
        return made;
    }
    X509_STORE_free(made); /* another thread was faster */
    return all;
}

size_t rg_tls_roots_broken(const struct rg_tls_roots *roots)
{
    return atomic_load_explicit(&roots->broken, memory_order_relaxed);
}
