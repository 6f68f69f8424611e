/* See manifest_code.h. */
#include "gcs/listing/manifest_code.h"

#include "gcs/wire/checksum.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t rg_manifest_read_u32(const uint8_t *data)
{
    uint32_t number;
    memcpy(&number, data, sizeof(number));
    return le32toh(number);
}

uint64_t rg_manifest_read_u64(const uint8_t *data)
{
    uint64_t number;
    memcpy(&number, data, sizeof(number));
    return le64toh(number);
}

void rg_manifest_write_u32(uint8_t *out, uint32_t number)
{
    number = htole32(number);
    memcpy(out, &number, sizeof(number));
}

void rg_manifest_write_u64(uint8_t *out, uint64_t number)
{
    number = htole64(number);
    memcpy(out, &number, sizeof(number));
}

uint32_t rg_manifest_header_size(uint32_t bucket_size)
{
    uint32_t size = RG_MANIFEST_HEADER_SIZE_MIN + bucket_size;
    return (size + RG_MANIFEST_ALIGNMENT - 1) / RG_MANIFEST_ALIGNMENT * RG_MANIFEST_ALIGNMENT;
}

uint32_t rg_manifest_header_crc(const uint8_t *header, uint32_t size)
{
    static const uint8_t zeros[4];
    uint32_t crc = rg_crc32c(0, header, RG_MANIFEST_AT_HEADER_CRC);
    crc = rg_crc32c(crc, zeros, sizeof(zeros));
    return rg_crc32c(crc, header + RG_MANIFEST_HEADER_SIZE_MIN, size - RG_MANIFEST_HEADER_SIZE_MIN);
}

int rg_manifest_damaged(const struct rg_manifest_damage *damage, uint64_t at, const char *format,
                        ...)
{
    if (damage->text == NULL || damage->size == 0) {
        return -EBADMSG;
    }
    int used = snprintf(damage->text, damage->size, "at byte %" PRIu64 ": ", at);
    if ((size_t)used < damage->size) {
        va_list args;
        va_start(args, format);
        vsnprintf(damage->text + used, damage->size - (size_t)used, format, args);
        va_end(args);
    }
    return -EBADMSG;
}

int rg_manifest_header_check(const struct rg_manifest_format *format, const uint8_t *data,
                             uint64_t size, char *out_bucket,
                             const struct rg_manifest_damage *damage)
{
    if (size < RG_MANIFEST_HEADER_SIZE_MIN ||
        memcmp(data, format->magic, RG_MANIFEST_MAGIC_SIZE) != 0) {
        return rg_manifest_damaged(damage, 0, "%s", format->is_another);
    }
    uint32_t version = rg_manifest_read_u32(data + RG_MANIFEST_AT_VERSION);
    if (version != format->version) {
        return rg_manifest_damaged(damage, RG_MANIFEST_AT_VERSION,
                                   "version %" PRIu32 " is not one that this program reads",
                                   version);
    }
    uint32_t header_size = rg_manifest_read_u32(data + RG_MANIFEST_AT_HEADER_SIZE);
    uint32_t bucket_size = rg_manifest_read_u32(data + RG_MANIFEST_AT_BUCKET_SIZE);
    if (bucket_size > RG_BUCKET_NAME_SIZE_MAX ||
        header_size != rg_manifest_header_size(bucket_size) || header_size > size) {
        return rg_manifest_damaged(damage, RG_MANIFEST_AT_HEADER_SIZE,
                                   "the header's sizes do not fit");
    }
    if (rg_manifest_header_crc(data, header_size) !=
        rg_manifest_read_u32(data + RG_MANIFEST_AT_HEADER_CRC)) {
        return rg_manifest_damaged(damage, RG_MANIFEST_AT_HEADER_CRC,
                                   "the header does not have the CRC32C that it states");
    }
    uint64_t stated = rg_manifest_read_u64(data + RG_MANIFEST_AT_FILE_SIZE);
    if (stated != size) {
        return rg_manifest_damaged(damage, RG_MIN(size, stated),
                                   "the file has %" PRIu64 " bytes and should have %" PRIu64, size,
                                   stated);
    }
    memcpy(out_bucket, data + RG_MANIFEST_HEADER_SIZE_MIN, bucket_size);
    out_bucket[bucket_size] = '\0';
    return (int)header_size;
}

size_t rg_manifest_write_varint(uint8_t *out, uint64_t number)
{
    size_t size = 0;
    while (number > 0x7f) {
        out[size++] = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    out[size++] = (uint8_t)number;
    return size;
}

bool rg_manifest_read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out_number)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < RG_MANIFEST_VARINT_SIZE_MAX && *at < end; i++) {
        uint8_t byte = *(*at)++;
        number |= (uint64_t)(byte & 0x7f) << 7 * i;
        if ((byte & 0x80) == 0) {
            *out_number = number;
            /* The tenth byte has room for one bit. */
            return i < RG_MANIFEST_VARINT_SIZE_MAX - 1 || byte <= 1;
        }
    }
    return false;
}

static bool read_varint(struct rg_manifest_decoder *decoder, uint64_t *out_number)
{
    return rg_manifest_read_varint(&decoder->at, decoder->end, out_number);
}

static uint64_t fold(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

static int64_t unfold(uint64_t number)
{
    return (int64_t)(number >> 1 ^ (0 - (number & 1)));
}

size_t rg_manifest_encode(struct rg_manifest_encoder *encoder, const struct rg_object *object,
                          uint8_t *out)
{
    size_t name_size = strlen(object->name), shared = 0, size = 0;
    RG_ASSERT(name_size > 0 && name_size < sizeof(encoder->name));
    while (encoder->name[shared] != '\0' && encoder->name[shared] == object->name[shared]) {
        shared++;
    }
    size += rg_manifest_write_varint(out + size, shared);
    size += rg_manifest_write_varint(out + size, name_size - shared);
    memcpy(out + size, object->name + shared, name_size - shared);
    size += name_size - shared;
    size += rg_manifest_write_varint(out + size, object->size);
    uint64_t step = (uint64_t)object->generation - (uint64_t)encoder->generation;
    size += rg_manifest_write_varint(out + size, fold((int64_t)step));
    out[size++] = object->has_crc32c ? RG_MANIFEST_FLAG_CRC32C : 0;
    if (object->has_crc32c) {
        rg_manifest_write_u32(out + size, object->crc32c);
        size += sizeof(uint32_t);
    }
    memcpy(encoder->name + shared, object->name + shared, name_size - shared + 1);
    encoder->generation = object->generation;
    RG_ASSERT(size <= RG_MANIFEST_ENTRY_SIZE_MAX);
    return size;
}

static bool decode_name(struct rg_manifest_decoder *decoder)
{
    uint64_t shared, rest;
    if (!read_varint(decoder, &shared) || !read_varint(decoder, &rest)) {
        return false;
    }
    if (shared > decoder->name_size || rest > RG_OBJECT_NAME_SIZE_MAX - shared ||
        rest > (uint64_t)(decoder->end - decoder->at) || shared + rest == 0) {
        return false;
    }
    /* Mostly a few bytes, for which a call of memcpy would take longer. */
    for (uint64_t i = 0; i < rest; i++) {
        decoder->name[shared + i] = (char)decoder->at[i];
        if (decoder->at[i] == '\0') {
            return false;
        }
    }
    decoder->at += rest;
    decoder->name_size = (size_t)(shared + rest);
    decoder->name[decoder->name_size] = '\0';
    return true;
}

bool rg_manifest_decode(struct rg_manifest_decoder *decoder)
{
    struct rg_object *object = &decoder->object;
    uint64_t step;
    if (!decode_name(decoder) || !read_varint(decoder, &object->size) ||
        !read_varint(decoder, &step) || decoder->at == decoder->end) {
        return false;
    }
    object->generation = (int64_t)((uint64_t)object->generation + (uint64_t)unfold(step));
    uint8_t flags = *decoder->at++;
    object->has_crc32c = flags == RG_MANIFEST_FLAG_CRC32C;
    object->crc32c = 0;
    if ((flags & ~RG_MANIFEST_FLAG_CRC32C) != 0 || object->generation < 0) {
        return false;
    }
    if (object->has_crc32c) {
        if (decoder->end - decoder->at < (ptrdiff_t)sizeof(uint32_t)) {
            return false;
        }
        object->crc32c = rg_manifest_read_u32(decoder->at);
        decoder->at += sizeof(uint32_t);
    }
    return true;
}
