/* See format.h. */
#include "cache/format.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <string.h>

#define BYTE_ORDER_MARK 0x01020304
#define RECORD_MAGIC 0x31524752  /* "RGR1" */
#define TRAILER_MAGIC 0x31544752 /* "RGT1" */

static const uint8_t head_magic[8] = "ringestC";

struct head {
    uint8_t magic[8];
    uint32_t version, byte_order;
    struct rg_cache_nonce nonce, host;
    uint32_t zeros[3], crc;
};
static_assert(sizeof(struct head) == RG_CACHE_UNIT, "as the table in the documentation says");

struct header {
    uint32_t magic, crc; /* crc: of the header, with zeros in its place */
    uint16_t header_size, origin_size, bucket_size, name_size;
    uint32_t body_size, piece_size;
    uint32_t object_crc32c, has_object_crc32c;
    int64_t generation;
    uint64_t object_size, block, hash;
};
static_assert(sizeof(struct header) == RG_CACHE_UNIT, "as the table in the documentation says");

struct trailer {
    uint32_t magic, version;
    uint64_t table_offset;
    uint32_t count, table_crc;
    struct rg_cache_nonce nonce;
    uint64_t zeros[2];
    uint32_t zero, crc;
};
static_assert(sizeof(struct trailer) == RG_CACHE_TRAILER_SIZE, "as the table says");
static_assert(sizeof(struct rg_cache_content) == 16, "as the table says");

void rg_cache_head_write(const struct rg_cache_head *head, uint8_t out[RG_CACHE_HEAD_SIZE])
{
    struct head bytes = {
        .version = RG_CACHE_VERSION,
        .byte_order = BYTE_ORDER_MARK,
        .nonce = head->nonce,
        .host = head->host,
    };
    memcpy(bytes.magic, head_magic, sizeof(head_magic));
    bytes.crc = rg_crc32c(0, &bytes, offsetof(struct head, crc));
    memset(out, 0, RG_CACHE_HEAD_SIZE);
    memcpy(out, &bytes, sizeof(bytes));
}

int rg_cache_head_read(const uint8_t *bytes, size_t size, struct rg_cache_head *out_head)
{
    struct head head;
    if (size < sizeof(head)) {
        return -EBADMSG;
    }
    memcpy(&head, bytes, sizeof(head));
    if (memcmp(head.magic, head_magic, sizeof(head_magic)) != 0) {
        return -EBADMSG;
    }
    if (head.version != RG_CACHE_VERSION || head.byte_order != BYTE_ORDER_MARK) {
        return -EPROTONOSUPPORT;
    }
    if (head.crc != rg_crc32c(0, &head, offsetof(struct head, crc))) {
        return -EBADMSG;
    }
    *out_head = (struct rg_cache_head){.nonce = head.nonce, .host = head.host};
    return 0;
}

/* How a body of that size is cut for its CRC32Cs. */
static uint32_t piece_size_of(size_t body_size)
{
    return body_size <= RG_CACHE_WHOLE_SIZE_MAX ? RG_CACHE_WHOLE_SIZE_MAX : RG_CACHE_PIECE_SIZE;
}

static size_t piece_count(size_t body_size, uint32_t piece_size)
{
    return (body_size + piece_size - 1) / piece_size;
}

/* Where the CRC32Cs begin. */
static size_t crcs_offset(size_t origin_size, size_t bucket_size, size_t name_size)
{
    size_t end = sizeof(struct header) + origin_size + bucket_size + name_size + 3;
    return rg_cache_round_up(end, sizeof(uint32_t));
}

size_t rg_cache_header_size(const struct rg_cache_key_sizes *sizes, size_t body_size)
{
    size_t pieces = piece_count(body_size, piece_size_of(body_size));
    size_t end = crcs_offset(sizes->origin, sizes->bucket, sizes->object) + 4 * pieces;
    return rg_cache_round_up(end, RG_CACHE_UNIT);
}

static void crcs_write(const struct rg_cache_key *key, const struct rg_cache_record *record,
                       const uint8_t *body, size_t body_size, uint8_t *out)
{
    uint32_t piece_size = piece_size_of(body_size);
    bool known = record->has_object_crc32c && key->block == 0 && body_size == record->object_size &&
                 body_size <= piece_size;
    for (size_t at = 0; at < body_size; at += piece_size, out += sizeof(uint32_t)) {
        uint32_t crc = known ? record->object_crc32c
                             : rg_crc32c(0, body + at, RG_MIN(piece_size, body_size - at));
        memcpy(out, &crc, sizeof(crc));
    }
}

void rg_cache_header_write(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes,
                           uint64_t hash, const struct rg_cache_record *record, const uint8_t *body,
                           size_t body_size, uint8_t *out)
{
    size_t size = rg_cache_header_size(sizes, body_size);
    struct header header = {
        .magic = RECORD_MAGIC,
        .header_size = (uint16_t)size,
        .origin_size = sizes->origin,
        .bucket_size = sizes->bucket,
        .name_size = sizes->object,
        .body_size = (uint32_t)body_size,
        .piece_size = piece_size_of(body_size),
        .object_crc32c = record->has_object_crc32c ? record->object_crc32c : 0,
        .has_object_crc32c = record->has_object_crc32c,
        .generation = key->generation,
        .object_size = record->object_size,
        .block = key->block,
        .hash = hash,
    };
    RG_ASSERT(size <= RG_CACHE_HEADER_SIZE_MAX && body_size <= RG_CACHE_BLOCK_SIZE);
    /* Put together here, and stored at once: `out` is in no CPU's cache, and to read there what was
     * just written would wait for memory. */
    _Alignas(RG_CACHE_UNIT) uint8_t bytes[RG_CACHE_HEADER_SIZE_MAX];
    memset(bytes, 0, size);
    memcpy(bytes, &header, sizeof(header));
    uint8_t *text = bytes + sizeof(header);
    memcpy(text, key->origin, sizes->origin);
    text += sizes->origin + 1;
    memcpy(text, key->bucket, sizes->bucket);
    text += sizes->bucket + 1;
    memcpy(text, key->object, sizes->object);
    crcs_write(key, record, body, body_size,
               bytes + crcs_offset(sizes->origin, sizes->bucket, sizes->object));
    header.crc = rg_crc32c(0, bytes, size);
    memcpy(bytes + offsetof(struct header, crc), &header.crc, sizeof(header.crc));
    memcpy(out, bytes, size);
}

static uint32_t header_crc(const uint8_t *bytes, struct header header)
{
    size_t size = header.header_size;
    header.crc = 0;
    uint32_t crc = rg_crc32c(0, &header, sizeof(header));
    return rg_crc32c(crc, bytes + sizeof(header), size - sizeof(header));
}

/* Whether what the fixed part says fits itself and the limits, before anything behind it is read.
 */
static bool header_fits(const struct header *header, size_t size)
{
    if (header->magic != RECORD_MAGIC || header->body_size > RG_CACHE_BLOCK_SIZE ||
        header->header_size > size || header->header_size > RG_CACHE_HEADER_SIZE_MAX ||
        header->piece_size != piece_size_of(header->body_size)) {
        return false;
    }
    struct rg_cache_key_sizes sizes = {header->origin_size, header->bucket_size, header->name_size};
    return header->header_size == rg_cache_header_size(&sizes, header->body_size);
}

/* A text of `size` bytes with its NUL, and no other. Moves on. */
static bool text_take(const uint8_t **at, size_t size, const char **out_text)
{
    const char *text = (const char *)*at;
    *at += size + 1;
    *out_text = text;
    return size > 0 && memchr(text, 0, size + 1) == text + size;
}

int rg_cache_header_read(const uint8_t *bytes, size_t size, struct rg_cache_key *out_key,
                         struct rg_cache_record *out_record, uint64_t *out_hash)
{
    struct header header;
    if (size < sizeof(header)) {
        return -EBADMSG;
    }
    memcpy(&header, bytes, sizeof(header));
    if (!header_fits(&header, size) || header.crc != header_crc(bytes, header)) {
        return -EBADMSG;
    }
    struct rg_cache_key key = {.generation = header.generation, .block = header.block};
    const uint8_t *at = bytes + sizeof(header);
    if (!text_take(&at, header.origin_size, &key.origin) ||
        !text_take(&at, header.bucket_size, &key.bucket) ||
        !text_take(&at, header.name_size, &key.object)) {
        return -EBADMSG;
    }
    *out_key = key;
    *out_record = (struct rg_cache_record){
        .object_size = header.object_size,
        .object_crc32c = header.object_crc32c,
        .has_object_crc32c = header.has_object_crc32c != 0,
        .header_size = header.header_size,
        .body_size = header.body_size,
        .piece_size = header.piece_size,
        .crcs = bytes + crcs_offset(header.origin_size, header.bucket_size, header.name_size),
    };
    *out_hash = header.hash;
    return 0;
}

int rg_cache_body_check(const struct rg_cache_record *record, uint32_t first, const uint8_t *data,
                        size_t size)
{
    RG_ASSERT(first % record->piece_size == 0 && first <= record->body_size);
    RG_ASSERT(size <= record->body_size - first);
    RG_ASSERT(size % record->piece_size == 0 || size == record->body_size - first);
    const uint8_t *crcs = record->crcs + first / record->piece_size * sizeof(uint32_t);
    for (size_t at = 0; at < size; at += record->piece_size, crcs += sizeof(uint32_t)) {
        uint32_t want;
        memcpy(&want, crcs, sizeof(want));
        if (rg_crc32c(0, data + at, RG_MIN(record->piece_size, size - at)) != want) {
            return -EBADMSG;
        }
    }
    return 0;
}

void rg_cache_trailer_write(const struct rg_cache_trailer *trailer,
                            const struct rg_cache_nonce *nonce, uint8_t out[RG_CACHE_TRAILER_SIZE])
{
    struct trailer bytes = {
        .magic = TRAILER_MAGIC,
        .version = RG_CACHE_VERSION,
        .table_offset = trailer->table_offset,
        .count = trailer->count,
        .table_crc = trailer->table_crc,
        .nonce = *nonce,
    };
    bytes.crc = rg_crc32c(0, &bytes, offsetof(struct trailer, crc));
    memcpy(out, &bytes, sizeof(bytes));
}

int rg_cache_trailer_read(const uint8_t bytes[RG_CACHE_TRAILER_SIZE],
                          const struct rg_cache_nonce *nonce, uint64_t file_size,
                          struct rg_cache_trailer *out_trailer)
{
    struct trailer trailer;
    memcpy(&trailer, bytes, sizeof(trailer));
    uint64_t room = file_size - RG_CACHE_TRAILER_SIZE;
    if (file_size < RG_CACHE_HEAD_SIZE + RG_CACHE_TRAILER_SIZE || trailer.magic != TRAILER_MAGIC ||
        trailer.version != RG_CACHE_VERSION ||
        trailer.crc != rg_crc32c(0, &trailer, offsetof(struct trailer, crc)) ||
        memcmp(&trailer.nonce, nonce, sizeof(*nonce)) != 0 ||
        trailer.table_offset < RG_CACHE_HEAD_SIZE || trailer.table_offset > room ||
        trailer.count > (room - trailer.table_offset) / sizeof(struct rg_cache_content)) {
        return -EBADMSG;
    }
    *out_trailer = (struct rg_cache_trailer){
        .table_offset = trailer.table_offset,
        .count = trailer.count,
        .table_crc = trailer.table_crc,
    };
    return 0;
}

static bool content_fits(const struct rg_cache_content *content, uint64_t end)
{
    uint64_t offset = (uint64_t)content->place * RG_CACHE_UNIT;
    if (rg_cache_content_is_note(content)) {
        return content->hash != 0 && content->place < RG_CACHE_BLOCK_SIZE &&
               (content->size & ~RG_CACHE_CONTENT_NOTE) <= RG_CACHE_BLOCK_SIZE;
    }
    return content->hash != 0 && offset >= RG_CACHE_HEAD_SIZE &&
           content->size > sizeof(struct header) && content->size <= RG_CACHE_RECORD_SIZE_MAX &&
           offset + content->size <= end;
}

int rg_cache_table_check(const struct rg_cache_trailer *trailer,
                         const struct rg_cache_content *table)
{
    if (rg_crc32c(0, table, trailer->count * sizeof(*table)) != trailer->table_crc) {
        return -EBADMSG;
    }
    for (uint32_t i = 0; i < trailer->count; i++) {
        if (!content_fits(&table[i], trailer->table_offset)) {
            return -EBADMSG;
        }
    }
    return 0;
}
