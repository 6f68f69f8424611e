/* The receiving record layer of TLS 1.3 (RFC 8446 section 5), without I/O, clock or BoringSSL's SSL
 * object: ciphertext spans in, plaintext out.
 *
 * Life of a record layer: rg_tls_record_init with the traffic secret once the handshake is done;
 * rg_tls_record_next for every record; rg_tls_record_update when the peer changes its key;
 * rg_tls_record_fini wipes the keys. Whole records are opened straight from the received span to
 * their destination; a record that a span cuts is completed in a staging buffer, borrowed from the
 * event loop's rg_tls_buffers for exactly that time, so an idle connection holds none. */
#ifndef RG_HTTP_TLS_RECORD_H
#define RG_HTTP_TLS_RECORD_H

#include "runtime/base.h"

#define RG_TLS_HEADER_SIZE 5
/* Plaintext of one record, and TLSCiphertext.length (RFC 8446 sections 5.1 and 5.2). */
#define RG_TLS_PLAIN_MAX 16384
#define RG_TLS_CIPHER_MAX (RG_TLS_PLAIN_MAX + 256)
#define RG_TLS_RECORD_MAX (RG_TLS_HEADER_SIZE + RG_TLS_CIPHER_MAX)
#define RG_TLS_SECRET_MAX 48
#define RG_TLS_NONCE_SIZE 12
#define RG_TLS_TAG_SIZE 16

/* AES-GCM keeps its guarantees for 2^24.5 full records under one key (RFC 8446 section 5.5). A new
 * key is asked for early enough that the answer can cross a long queue of records. */
#define RG_TLS_GCM_RECORDS_MAX UINT64_C(23726566)
#define RG_TLS_GCM_RECORDS_SOFT (UINT64_C(1) << 23)

/* Content types and alerts that both the record layer and its owner name. */
enum rg_tls_content {
    RG_TLS_CONTENT_CHANGE_CIPHER_SPEC = 20,
    RG_TLS_CONTENT_ALERT = 21,
    RG_TLS_CONTENT_HANDSHAKE = 22,
    RG_TLS_CONTENT_DATA = 23,
};
enum rg_tls_alert {
    RG_TLS_ALERT_CLOSE_NOTIFY = 0,
    RG_TLS_ALERT_UNEXPECTED_MESSAGE = 10,
    RG_TLS_ALERT_BAD_RECORD_MAC = 20,
    RG_TLS_ALERT_RECORD_OVERFLOW = 22,
    RG_TLS_ALERT_DECODE_ERROR = 50,
    RG_TLS_ALERT_PROTOCOL_VERSION = 70,
    RG_TLS_ALERT_INTERNAL_ERROR = 80,
    RG_TLS_ALERT_USER_CANCELED = 90,
};

/* Received ciphertext. Advanced as it is consumed. */
struct rg_tls_in {
    const uint8_t *data;
    size_t size;
};

/* One event loop's buffers of one record each: staging for cut records and for handshake messages,
 * and a scratch for plaintext that may not go to its destination. Address space is reserved for all
 * of them when the loop opens; memory exists for those that were ever in use at once. The one that
 * was returned last is lent first, because it is still in the cache.
 *
 * Invariant: each of the first `fresh` buffers is either lent or in the list `returned`. */
struct rg_tls_buffers {
    uint8_t *memory;
    size_t size;
    uint8_t *scratch;
    void *returned;      /* linked through the buffers' first bytes */
    uint32_t count;      /* excluding the scratch */
    uint32_t fresh;      /* buffers [fresh, count) were never lent */
    uint32_t lent_count; /* for metrics and leak checks */
};

/* 0 or -ENOMEM. `count` is how many buffers can be lent at once. */
int rg_tls_buffers_init(struct rg_tls_buffers *buffers, uint32_t count);
void rg_tls_buffers_fini(struct rg_tls_buffers *buffers);
/* NULL when `count` are lent. */
uint8_t *rg_tls_buffers_borrow(struct rg_tls_buffers *buffers);
void rg_tls_buffers_return(struct rg_tls_buffers *buffers, uint8_t *buffer);

/* What a traffic secret opens. `suite` is the TLS number: 0x1301 AES-128-GCM-SHA256, 0x1302
 * AES-256-GCM-SHA384, 0x1303 CHACHA20-POLY1305-SHA256. */
struct rg_tls_record_keys {
    uint16_t suite;
    uint8_t secret[RG_TLS_SECRET_MAX];
    size_t secret_size;
    uint64_t sequence; /* of the next record */
};

/* The zero state is valid for fini. Invariant: the staging buffer is borrowed exactly while it
 * holds bytes, and never holds more than one record. */
struct rg_tls_record {
    struct rg_tls_buffers *buffers; /* borrowed from the event loop */
    struct evp_aead_ctx_st *aead;   /* owned; NULL before init */
    const struct rg_tls_suite *suite;
    uint64_t sequence;
    uint8_t *staging;  /* the cut record; NULL: there is none */
    uint32_t staged;   /* bytes in it, at most RG_TLS_RECORD_MAX */
    uint8_t alert;     /* enum rg_tls_alert: what to tell the peer after -EPROTO or -EBADMSG */
    const char *error; /* the same for the user; a constant string */
    uint8_t iv[RG_TLS_NONCE_SIZE];
    uint8_t secret[RG_TLS_SECRET_MAX];
};

/* An opened record without its content type and padding. */
struct rg_tls_plain {
    enum rg_tls_content content;
    const uint8_t *data; /* valid until the next call; the destination for application data */
    size_t size;
};

/* True for a suite that rg_tls_record_init takes. */
bool rg_tls_record_knows(uint16_t suite);

/* 0, -ENOTSUP for an unknown suite or a secret of the wrong size, -ENOMEM. Copies the keys: the
 * caller wipes its own. Borrows `buffers` for the life of the record layer. */
int rg_tls_record_init(struct rg_tls_record *record, const struct rg_tls_record_keys *keys,
                       struct rg_tls_buffers *buffers);

/* Wipes the keys and returns the staging buffer. */
void rg_tls_record_fini(struct rg_tls_record *record);

/* Opens the next record of `in`. The whole of dest[0..room) may be overwritten; it must not overlap
 * the input.
 *   0        one record was opened: `out_plain`
 *   -EAGAIN  the input is consumed and holds no whole record
 *   -ENOSPC  application data larger than `room`; it is not consumed: call again with more room, if
 *            the input is empty, too
 *   -EBADMSG the record was tampered with or sealed with another key
 *   -EPROTO  the peer breaks the protocol; -ENOMEM no staging buffer
 * After the last three the record layer must not be used any more. */
int rg_tls_record_next(struct rg_tls_record *record, struct rg_tls_in *in, uint8_t *dest,
                       size_t room, struct rg_tls_plain *out_plain);

/* The least room with which the next record of `in` is opened without a copy, 0 if that is not yet
 * known. */
size_t rg_tls_record_room(const struct rg_tls_record *record, const struct rg_tls_in *in);

/* The next generation of the traffic secret (RFC 8446 section 7.2). 0 or -ENOMEM. */
int rg_tls_record_update(struct rg_tls_record *record);

/* True when the peer should be asked for a new key. */
bool rg_tls_record_worn(const struct rg_tls_record *record);

#endif
