/* The receiving record layer of TLS 1.3. See tls_record.h for its life.
 *
 * Vocabulary: a *record* is header and body as on the wire; its body is ciphertext and tag; opened
 * it is content, one byte of content type, zeros (padding). The type byte and the padding are
 * written behind the content, so a destination needs room for them unless the record goes through
 * the scratch. */
#include "http/tls_record.h"

#include <assert.h>
#include <errno.h>
#include <openssl/aead.h>
#include <openssl/digest.h>
#include <openssl/err.h>
#include <openssl/hkdf.h>
#include <openssl/mem.h>
#include <string.h>
#include <sys/mman.h>

/* TLSInnerPlaintext: content, type byte and padding together (RFC 8446 section 5.4). */
#define INNER_MAX (RG_TLS_PLAIN_MAX + 1)
#define LABEL_MAX 32
/* A multiple of the cache line, so that no two buffers share one. */
#define BUFFER_LINES ((RG_TLS_RECORD_MAX + RG_CACHE_LINE - 1) / RG_CACHE_LINE)
#define BUFFER_SIZE ((size_t)BUFFER_LINES * RG_CACHE_LINE)

static_assert(BUFFER_SIZE >= RG_TLS_RECORD_MAX, "a record fits into a buffer");
static_assert(BUFFER_SIZE >= INNER_MAX, "an opened record fits into the scratch");

struct rg_tls_suite {
    const EVP_AEAD *(*aead)(void);
    const EVP_MD *(*digest)(void);
    uint64_t records_max;
    uint64_t records_soft;
    uint16_t number;
    uint8_t key_size;
    uint8_t secret_size;
};

static const struct rg_tls_suite suites[] = {
    {EVP_aead_aes_128_gcm, EVP_sha256, RG_TLS_GCM_RECORDS_MAX, RG_TLS_GCM_RECORDS_SOFT, 0x1301, 16,
     32},
    {EVP_aead_aes_256_gcm, EVP_sha384, RG_TLS_GCM_RECORDS_MAX, RG_TLS_GCM_RECORDS_SOFT, 0x1302, 32,
     48},
    {EVP_aead_chacha20_poly1305, EVP_sha256, UINT64_MAX, UINT64_MAX, 0x1303, 32, 32},
};

static const struct rg_tls_suite *suite_find(uint16_t number)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(suites); i++) {
        if (suites[i].number == number) {
            return &suites[i];
        }
    }
    return NULL;
}

bool rg_tls_record_knows(uint16_t suite)
{
    return suite_find(suite) != NULL;
}

static bool buffers_invariants(const struct rg_tls_buffers *buffers)
{
    uint32_t count = 0;
    for (const uint8_t *at = buffers->returned; at != NULL; memcpy(&at, at, sizeof(uint8_t *))) {
        count++;
    }
    return buffers->fresh <= buffers->count && count + buffers->lent_count == buffers->fresh;
}

int rg_tls_buffers_init(struct rg_tls_buffers *buffers, uint32_t count)
{
    RG_ASSERT(count > 0);
    size_t size = 0;
    if (rg_mul_overflow((size_t)count + 1, BUFFER_SIZE, &size)) {
        return -ENOMEM;
    }
    uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return -ENOMEM;
    }
    *buffers = (struct rg_tls_buffers){
        .memory = memory + BUFFER_SIZE,
        .size = size,
        .scratch = memory,
        .count = count,
    };
    return 0;
}

void rg_tls_buffers_fini(struct rg_tls_buffers *buffers)
{
    RG_ASSERT(buffers->lent_count == 0);
    if (buffers->scratch != NULL) {
        munmap(buffers->scratch, buffers->size);
    }
    *buffers = (struct rg_tls_buffers){0};
}

uint8_t *rg_tls_buffers_borrow(struct rg_tls_buffers *buffers)
{
    RG_ASSERT(buffers->scratch != NULL);
    uint8_t *buffer = buffers->returned;
    if (buffer != NULL) {
        memcpy(&buffers->returned, buffer, sizeof(buffers->returned));
    } else if (buffers->fresh < buffers->count) {
        buffer = buffers->memory + buffers->fresh++ * BUFFER_SIZE;
    } else {
        return NULL;
    }
    buffers->lent_count++;
    RG_ASSERT(buffers->lent_count <= buffers->count);
    RG_VERIFY(buffers_invariants(buffers));
    return buffer;
}

void rg_tls_buffers_return(struct rg_tls_buffers *buffers, uint8_t *buffer)
{
    RG_ASSERT(buffers->lent_count > 0);
    RG_ASSERT(buffer >= buffers->memory);
    RG_ASSERT((size_t)(buffer - buffers->memory) % BUFFER_SIZE == 0);
    memcpy(buffer, &buffers->returned, sizeof(buffers->returned));
    buffers->returned = buffer;
    buffers->lent_count--;
    RG_VERIFY(buffers_invariants(buffers));
}

/* HKDF-Expand-Label with an empty context (RFC 8446 section 7.1). */
static bool expand_label(const struct rg_tls_suite *suite, const uint8_t *secret, const char *label,
                         uint8_t *out, size_t out_size)
{
    static const char prefix[] = "tls13 ";
    uint8_t info[2 + 1 + LABEL_MAX + 1];
    size_t label_size = strlen(prefix) + strlen(label);
    RG_ASSERT(label_size <= LABEL_MAX);
    RG_ASSERT(out_size <= UINT8_MAX);
    info[0] = 0;
    info[1] = (uint8_t)out_size;
    info[2] = (uint8_t)label_size;
    memcpy(info + 3, prefix, strlen(prefix));
    memcpy(info + 3 + strlen(prefix), label, strlen(label));
    info[3 + label_size] = 0;
    return HKDF_expand(out, out_size, suite->digest(), secret, suite->secret_size, info,
                       4 + label_size) == 1;
}

/* Key and nonce base from record->secret (RFC 8446 section 7.3). The cipher state is set up in
 * place: a key update allocates nothing. */
static int record_set_keys(struct rg_tls_record *record)
{
    RG_ASSERT(record->aead != NULL);
    uint8_t key[EVP_AEAD_MAX_KEY_LENGTH];
    const struct rg_tls_suite *suite = record->suite;
    RG_ASSERT(EVP_AEAD_key_length(suite->aead()) == suite->key_size);
    EVP_AEAD_CTX_cleanup(record->aead);
    bool ok = expand_label(suite, record->secret, "key", key, suite->key_size) &&
              expand_label(suite, record->secret, "iv", record->iv, sizeof(record->iv)) &&
              EVP_AEAD_CTX_init(record->aead, suite->aead(), key, suite->key_size, RG_TLS_TAG_SIZE,
                                NULL) == 1;
    OPENSSL_cleanse(key, sizeof(key));
    if (!ok) {
        ERR_clear_error();
        return -ENOMEM;
    }
    return 0;
}

int rg_tls_record_init(struct rg_tls_record *record, const struct rg_tls_record_keys *keys,
                       struct rg_tls_buffers *buffers)
{
    RG_ASSERT(record->aead == NULL);
    RG_ASSERT(buffers->scratch != NULL);
    const struct rg_tls_suite *suite = suite_find(keys->suite);
    if (suite == NULL || keys->secret_size != suite->secret_size) {
        return -ENOTSUP;
    }
    EVP_AEAD_CTX *aead = OPENSSL_malloc(sizeof(*aead));
    if (aead == NULL) {
        return -ENOMEM;
    }
    EVP_AEAD_CTX_zero(aead);
    *record = (struct rg_tls_record){
        .buffers = buffers,
        .aead = aead,
        .suite = suite,
        .sequence = keys->sequence,
    };
    memcpy(record->secret, keys->secret, suite->secret_size);
    int ret = record_set_keys(record);
    if (ret != 0) {
        rg_tls_record_fini(record);
    }
    return ret;
}

void rg_tls_record_fini(struct rg_tls_record *record)
{
    if (record->staging != NULL) {
        RG_ASSERT(record->buffers != NULL);
        rg_tls_buffers_return(record->buffers, record->staging);
    }
    /* Cleans up and wipes: OPENSSL_free clears what it frees. */
    EVP_AEAD_CTX_free(record->aead);
    OPENSSL_cleanse(record, sizeof(*record));
}

int rg_tls_record_update(struct rg_tls_record *record)
{
    RG_ASSERT(record->aead != NULL);
    uint8_t next[RG_TLS_SECRET_MAX];
    size_t size = record->suite->secret_size;
    if (!expand_label(record->suite, record->secret, "traffic upd", next, size)) {
        ERR_clear_error();
        return -ENOMEM;
    }
    memcpy(record->secret, next, size);
    OPENSSL_cleanse(next, sizeof(next));
    record->sequence = 0;
    return record_set_keys(record);
}

bool rg_tls_record_worn(const struct rg_tls_record *record)
{
    RG_ASSERT(record->suite != NULL);
    return record->sequence >= record->suite->records_soft;
}

static int record_fail(struct rg_tls_record *record, enum rg_tls_alert alert, const char *error)
{
    RG_ASSERT(record->error == NULL);
    record->alert = (uint8_t)alert;
    record->error = error;
    return alert == RG_TLS_ALERT_BAD_RECORD_MAC ? -EBADMSG : -EPROTO;
}

static size_t header_length(const uint8_t *header)
{
    return (size_t)header[3] << 8 | header[4];
}

/* After the handshake every record claims to be TLS 1.2 application data; a change_cipher_spec may
 * only come earlier, and alerts are encrypted (RFC 8446 sections 5 and 5.2). */
static int record_check_header(struct rg_tls_record *record, const uint8_t *header)
{
    if (header[0] != RG_TLS_CONTENT_DATA) {
        return record_fail(record, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                           "a record that is not encrypted came after the handshake");
    }
    if (header[1] != 3 || header[2] != 3) {
        return record_fail(record, RG_TLS_ALERT_PROTOCOL_VERSION, "a record of a wrong version");
    }
    size_t length = header_length(header);
    if (length > RG_TLS_CIPHER_MAX || length > INNER_MAX + RG_TLS_TAG_SIZE) {
        return record_fail(record, RG_TLS_ALERT_RECORD_OVERFLOW, "a record longer than 16 KiB");
    }
    return 0;
}

/* Moves input to the staging buffer until it holds `size` bytes. True if it does. */
static bool record_stage(struct rg_tls_record *record, struct rg_tls_in *in, size_t size)
{
    RG_ASSERT(record->staging != NULL);
    RG_ASSERT(size <= RG_TLS_RECORD_MAX);
    if (record->staged < size) {
        size_t part = RG_MIN(size - record->staged, in->size);
        memcpy(record->staging + record->staged, in->data, part);
        record->staged += (uint32_t)part;
        in->data += part;
        in->size -= part;
    }
    return record->staged >= size;
}

/* Finds the next whole record: in the input if it begins and ends there, otherwise in the staging
 * buffer. 0, -EAGAIN, or a failure. */
static int record_find(struct rg_tls_record *record, struct rg_tls_in *in,
                       const uint8_t **out_whole)
{
    if (record->staging == NULL && in->size >= RG_TLS_HEADER_SIZE) {
        int ret = record_check_header(record, in->data);
        if (ret != 0) {
            return ret;
        }
        if (in->size >= RG_TLS_HEADER_SIZE + header_length(in->data)) {
            *out_whole = in->data;
            return 0;
        }
    }
    if (record->staging == NULL) {
        if (in->size == 0) {
            return -EAGAIN;
        }
        record->staging = rg_tls_buffers_borrow(record->buffers);
        if (record->staging == NULL) {
            return -ENOMEM;
        }
        record->staged = 0;
    }
    if (!record_stage(record, in, RG_TLS_HEADER_SIZE)) {
        return -EAGAIN;
    }
    int ret = record_check_header(record, record->staging);
    if (ret != 0) {
        return ret;
    }
    if (!record_stage(record, in, RG_TLS_HEADER_SIZE + header_length(record->staging))) {
        return -EAGAIN;
    }
    *out_whole = record->staging;
    return 0;
}

static void record_consume(struct rg_tls_record *record, struct rg_tls_in *in, const uint8_t *whole)
{
    RG_ASSERT(record->sequence < UINT64_MAX);
    record->sequence++;
    if (whole == record->staging) {
        RG_ASSERT(record->staged == RG_TLS_HEADER_SIZE + header_length(whole));
        rg_tls_buffers_return(record->buffers, record->staging);
        record->staging = NULL;
        record->staged = 0;
        return;
    }
    RG_ASSERT(whole == in->data);
    size_t size = RG_TLS_HEADER_SIZE + header_length(whole);
    RG_ASSERT(size <= in->size);
    in->data += size;
    in->size -= size;
}

/* Decrypts into `target`, which has room for body less tag. The cipher never writes beyond that. */
static bool record_decrypt(const struct rg_tls_record *record, const uint8_t *whole,
                           uint8_t *target)
{
    size_t length = header_length(whole);
    const uint8_t *body = whole + RG_TLS_HEADER_SIZE;
    RG_ASSERT(length >= RG_TLS_TAG_SIZE);
    size_t inner = length - RG_TLS_TAG_SIZE;
    RG_ASSERT(target + inner <= whole || body + length <= target);
    uint8_t nonce[RG_TLS_NONCE_SIZE];
    memcpy(nonce, record->iv, sizeof(nonce));
    for (size_t i = 0; i < sizeof(record->sequence); i++) {
        nonce[RG_TLS_NONCE_SIZE - 1 - i] ^= (uint8_t)(record->sequence >> (8 * i));
    }
    bool ok =
        EVP_AEAD_CTX_open_gather(record->aead, target, nonce, sizeof(nonce), body, inner,
                                 body + inner, RG_TLS_TAG_SIZE, whole, RG_TLS_HEADER_SIZE) == 1;
    if (!ok) {
        ERR_clear_error();
    }
    return ok;
}

/* Takes padding and type from the end of a decrypted record. */
static int record_unwrap(struct rg_tls_record *record, const uint8_t *inner, size_t size,
                         struct rg_tls_plain *out_plain)
{
    while (size > 0 && inner[size - 1] == 0) {
        size--;
    }
    if (size == 0) {
        return record_fail(record, RG_TLS_ALERT_UNEXPECTED_MESSAGE, "a record of zeros only");
    }
    size--;
    uint8_t content = inner[size];
    if (content != RG_TLS_CONTENT_DATA && content != RG_TLS_CONTENT_HANDSHAKE &&
        content != RG_TLS_CONTENT_ALERT) {
        return record_fail(record, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                           "a record of an unknown content type");
    }
    if (content != RG_TLS_CONTENT_DATA && size == 0) {
        return record_fail(record, RG_TLS_ALERT_UNEXPECTED_MESSAGE,
                           "an empty handshake or alert record");
    }
    *out_plain = (struct rg_tls_plain){.content = content, .data = inner, .size = size};
    return 0;
}

static bool invariants(const struct rg_tls_record *record)
{
    size_t header = RG_MIN(record->staged, (uint32_t)RG_TLS_HEADER_SIZE);
    size_t whole = header == RG_TLS_HEADER_SIZE && record->staging != NULL
                       ? RG_TLS_HEADER_SIZE + header_length(record->staging)
                       : RG_TLS_HEADER_SIZE;
    return (record->staging != NULL) == (record->staged > 0) && record->staged <= whole &&
           record->sequence <= record->suite->records_max;
}

int rg_tls_record_next(struct rg_tls_record *record, struct rg_tls_in *in, uint8_t *dest,
                       size_t room, struct rg_tls_plain *out_plain)
{
    RG_ASSERT(record->aead != NULL);
    RG_ASSERT(record->error == NULL);
    const uint8_t *whole = NULL;
    int ret = record_find(record, in, &whole);
    RG_VERIFY(ret != 0 || invariants(record));
    if (ret != 0) {
        return ret;
    }
    if (record->sequence >= record->suite->records_max) {
        return record_fail(record, RG_TLS_ALERT_INTERNAL_ERROR, "too many records under one key");
    }
    if (header_length(whole) < RG_TLS_TAG_SIZE) {
        return record_fail(record, RG_TLS_ALERT_BAD_RECORD_MAC, "a record without a tag");
    }
    size_t inner = header_length(whole) - RG_TLS_TAG_SIZE;
    uint8_t *target = inner <= room ? dest : record->buffers->scratch;
    if (RG_UNLIKELY(!record_decrypt(record, whole, target))) {
        return record_fail(record, RG_TLS_ALERT_BAD_RECORD_MAC,
                           "a record was damaged or tampered with on its way");
    }
    struct rg_tls_plain plain;
    ret = record_unwrap(record, target, inner, &plain);
    if (ret != 0) {
        return ret;
    }
    if (plain.content == RG_TLS_CONTENT_DATA && target != dest) {
        if (plain.size > room) {
            return -ENOSPC;
        }
        if (plain.size > 0) {
            memcpy(dest, target, plain.size);
        }
        plain.data = dest;
    }
    record_consume(record, in, whole);
    RG_VERIFY(invariants(record));
    *out_plain = plain;
    return 0;
}

size_t rg_tls_record_room(const struct rg_tls_record *record, const struct rg_tls_in *in)
{
    const uint8_t *header = in->data;
    size_t size = in->size;
    if (record->staging != NULL) {
        header = record->staging;
        size = record->staged;
    }
    if (size < RG_TLS_HEADER_SIZE || header_length(header) < RG_TLS_TAG_SIZE) {
        return 0;
    }
    return header_length(header) - RG_TLS_TAG_SIZE;
}
