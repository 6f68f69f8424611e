/* See tar_code.h. */
#include "dataset/tar_code.h"

#include "dataset/tar_parser.h"
#include "gcs/listing/manifest_code.h"

#include <string.h>

uint64_t rg_tar_blocks_end(uint64_t offset, uint64_t size)
{
    return (offset + size + RG_TAR_BLOCK_SIZE - 1) / RG_TAR_BLOCK_SIZE * RG_TAR_BLOCK_SIZE;
}

/* What the next sample is told against is what a sample can be, and its place is a block's end. */
static bool encoder_invariants(const struct rg_tar_encoder *encoder)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < encoder->part_count && at < encoder->extensions_size; i++) {
        at += 1u + encoder->extensions[at];
    }
    return encoder->end % RG_TAR_BLOCK_SIZE == 0 && encoder->key_size <= RG_TAR_KEY_SIZE_MAX &&
           encoder->part_count <= RG_TAR_MEMBERS_MAX && at == encoder->extensions_size;
}

/* A decoder stays within its bytes. A sample's parts begin at blocks, one behind the other, the
 * first at its beginning, and the last ends it. */
static bool decoder_invariants(const struct rg_tar_decoder *decoder,
                               const struct rg_tar_sample *sample)
{
    uint64_t end = 0;
    bool holds = decoder->at <= decoder->limit && decoder->end % RG_TAR_BLOCK_SIZE == 0 &&
                 sample->offset % RG_TAR_BLOCK_SIZE == 0 && sample->parts[0].offset == 0;
    for (uint32_t i = 0; i < sample->part_count && holds; i++) {
        const struct rg_tar_part *part = &sample->parts[i];
        holds = part->offset >= end && part->offset % RG_TAR_BLOCK_SIZE == 0;
        end = part->offset + part->size;
    }
    return holds && end == sample->size;
}

static bool read_varint(struct rg_tar_decoder *decoder, uint64_t *out_number)
{
    return rg_manifest_read_varint(&decoder->at, decoder->limit, out_number);
}

static uint32_t extensions_write(const struct rg_tar_sample *sample, uint8_t *out)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < sample->part_count; i++) {
        const struct rg_tar_part *part = &sample->parts[i];
        RG_ASSERT(part->extension_size <= RG_TAR_EXTENSION_SIZE_MAX);
        out[size++] = (uint8_t)part->extension_size;
        if (part->extension_size > 0) {
            memcpy(out + size, part->extension, part->extension_size);
        }
        size += part->extension_size;
    }
    return size;
}

static size_t key_encode(struct rg_tar_encoder *encoder, const struct rg_tar_sample *sample,
                         uint8_t *out)
{
    uint32_t shared = 0;
    uint32_t most = RG_MIN(encoder->key_size, sample->key_size);
    while (shared < most && encoder->key[shared] == sample->key[shared]) {
        shared++;
    }
    uint32_t rest = sample->key_size - shared;
    size_t size = rg_manifest_write_varint(out, shared);
    size += rg_manifest_write_varint(out + size, rest);
    memcpy(out + size, sample->key + shared, rest);
    memcpy(encoder->key + shared, sample->key + shared, rest);
    encoder->key_size = sample->key_size;
    return size + rest;
}

static size_t extensions_encode(struct rg_tar_encoder *encoder, const struct rg_tar_sample *sample,
                                uint8_t *out)
{
    uint8_t extensions[sizeof(encoder->extensions)];
    uint32_t extensions_size = extensions_write(sample, extensions);
    if (encoder->part_count == sample->part_count && encoder->extensions_size == extensions_size &&
        memcmp(encoder->extensions, extensions, extensions_size) == 0) {
        return rg_manifest_write_varint(out, 0);
    }
    size_t size = rg_manifest_write_varint(out, sample->part_count);
    memcpy(out + size, extensions, extensions_size);
    memcpy(encoder->extensions, extensions, extensions_size);
    encoder->extensions_size = extensions_size;
    encoder->part_count = sample->part_count;
    return size + extensions_size;
}

size_t rg_tar_encode(struct rg_tar_encoder *encoder, const struct rg_tar_sample *sample,
                     uint8_t *out)
{
    RG_ASSERT(sample->part_count > 0 && sample->part_count <= RG_TAR_MEMBERS_MAX);
    RG_ASSERT(sample->key_size > 0 && sample->key_size <= RG_TAR_KEY_SIZE_MAX);
    size_t size = key_encode(encoder, sample, out);
    size += extensions_encode(encoder, sample, out + size);
    for (uint32_t i = 0; i < sample->part_count; i++) {
        const struct rg_tar_part *part = &sample->parts[i];
        uint64_t offset = sample->offset + part->offset;
        RG_ASSERT(offset % RG_TAR_BLOCK_SIZE == 0 && offset >= encoder->end);
        size += rg_manifest_write_varint(out + size, (offset - encoder->end) / RG_TAR_BLOCK_SIZE);
        size += rg_manifest_write_varint(out + size, part->size);
        encoder->end = rg_tar_blocks_end(offset, part->size);
    }
    RG_ASSERT(size <= RG_TAR_CODE_SIZE_MAX);
    RG_VERIFY(encoder_invariants(encoder));
    return size;
}

static bool key_decode(struct rg_tar_decoder *decoder, struct rg_tar_sample *sample)
{
    uint64_t shared, rest;
    if (!read_varint(decoder, &shared) || !read_varint(decoder, &rest)) {
        return false;
    }
    if (shared > sample->key_size || rest > RG_TAR_KEY_SIZE_MAX - shared ||
        rest > (uint64_t)(decoder->limit - decoder->at) || shared + rest == 0 ||
        memchr(decoder->at, '\0', rest) != NULL) {
        return false;
    }
    memcpy(sample->key + shared, decoder->at, rest);
    decoder->at += rest;
    sample->key_size = (uint32_t)(shared + rest);
    sample->key[sample->key_size] = '\0';
    return true;
}

static bool extensions_decode(struct rg_tar_decoder *decoder, struct rg_tar_sample *sample)
{
    uint64_t count;
    if (!read_varint(decoder, &count) || count > RG_TAR_MEMBERS_MAX) {
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (decoder->at == decoder->limit || *decoder->at >= decoder->limit - decoder->at) {
            return false;
        }
        sample->parts[i].extension_size = *decoder->at++;
        sample->parts[i].extension = (const char *)decoder->at;
        decoder->at += sample->parts[i].extension_size;
    }
    sample->part_count = count > 0 ? (uint32_t)count : sample->part_count;
    return sample->part_count > 0;
}

/* `offset` of the part becomes one in the archive. */
static bool part_decode(struct rg_tar_decoder *decoder, struct rg_tar_part *part)
{
    uint64_t gap;
    if (!read_varint(decoder, &gap) || !read_varint(decoder, &part->size) ||
        gap > RG_TAR_SIZE_MAX / RG_TAR_BLOCK_SIZE || part->size > RG_TAR_SIZE_MAX ||
        decoder->end > RG_TAR_SIZE_MAX) {
        return false;
    }
    part->offset = decoder->end + gap * RG_TAR_BLOCK_SIZE;
    decoder->end = rg_tar_blocks_end(part->offset, part->size);
    return true;
}

bool rg_tar_decode(struct rg_tar_decoder *decoder, struct rg_tar_sample *sample)
{
    if (!key_decode(decoder, sample) || !extensions_decode(decoder, sample)) {
        return false;
    }
    for (uint32_t i = 0; i < sample->part_count; i++) {
        if (!part_decode(decoder, &sample->parts[i])) {
            return false;
        }
    }
    const struct rg_tar_part *last = &sample->parts[sample->part_count - 1];
    sample->offset = sample->parts[0].offset;
    sample->size = last->offset + last->size - sample->offset;
    for (uint32_t i = 0; i < sample->part_count; i++) {
        sample->parts[i].offset -= sample->offset;
    }
    RG_VERIFY(decoder_invariants(decoder, sample));
    return true;
}
