/* MD5 in the terms of RFC 1321: four rounds of sixteen steps over a block of sixteen words. */
#include "emulator/md5.h"

#include <string.h>

/* RFC 1321 section 3.4: the integer part of 2^32 |sin(i + 1)|. */
static const uint32_t sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
static const uint8_t shifts[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

/* The function of three words, and which word of the block, in step i. */
static uint32_t mix_words(uint32_t i, uint32_t b, uint32_t c, uint32_t d, uint32_t *out_index)
{
    switch (i / 16) {
    case 0:
        *out_index = i;
        return (b & c) | (~b & d);
    case 1:
        *out_index = (5 * i + 1) % 16;
        return (d & b) | (~d & c);
    case 2:
        *out_index = (3 * i + 5) % 16;
        return b ^ c ^ d;
    default:
        *out_index = 7 * i % 16;
        return c ^ (b | ~d);
    }
}

static void add_block(struct rg_md5 *md5, const uint8_t block[RG_MD5_BLOCK_SIZE])
{
    uint32_t words[16];
    for (size_t i = 0; i < 16; i++) {
        const uint8_t *at = block + 4 * i;
        words[i] = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }
    uint32_t a = md5->state[0], b = md5->state[1], c = md5->state[2], d = md5->state[3];
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t index;
        uint32_t sum = a + mix_words(i, b, c, d, &index) + sines[i];
        uint32_t shift = shifts[i / 16][i % 4];
        sum += words[index];
        a = d;
        d = c;
        c = b;
        b += sum << shift | sum >> (32 - shift);
    }
    md5->state[0] += a;
    md5->state[1] += b;
    md5->state[2] += c;
    md5->state[3] += d;
}

void rg_md5_init(struct rg_md5 *md5)
{
    *md5 = (struct rg_md5){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void rg_md5_update(struct rg_md5 *md5, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        size_t used = md5->size % RG_MD5_BLOCK_SIZE;
        size_t count = RG_MIN(size, RG_MD5_BLOCK_SIZE - used);
        memcpy(md5->block + used, bytes, count);
        md5->size += count;
        bytes += count;
        size -= count;
        if (md5->size % RG_MD5_BLOCK_SIZE == 0) {
            add_block(md5, md5->block);
        }
    }
}

void rg_md5_final(struct rg_md5 *md5, uint8_t out[RG_MD5_SIZE])
{
    static const uint8_t padding[RG_MD5_BLOCK_SIZE] = {0x80};
    uint8_t bits[8];
    for (size_t i = 0; i < sizeof(bits); i++) {
        bits[i] = (uint8_t)(md5->size << 3 >> 8 * i);
    }
    size_t used = md5->size % RG_MD5_BLOCK_SIZE;
    size_t room = RG_MD5_BLOCK_SIZE - sizeof(bits);
    rg_md5_update(md5, padding, used < room ? room - used : RG_MD5_BLOCK_SIZE + room - used);
    rg_md5_update(md5, bits, sizeof(bits));
    RG_ASSERT(md5->size % RG_MD5_BLOCK_SIZE == 0);
    for (size_t i = 0; i < RG_MD5_SIZE; i++) {
        out[i] = (uint8_t)(md5->state[i / 4] >> 8 * (i % 4));
    }
}
