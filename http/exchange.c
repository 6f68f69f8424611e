/* The body of a request, which lies in pieces: see exchange.h. */
#include "http/exchange.h"

#include <string.h>

/* The bytes from `at` on of a body in pieces, as far as they lie in one. */
static const uint8_t *piece_at(const struct rg_exchange *x, uint64_t at, uint64_t *out_left)
{
    uint32_t low = 0, high = x->piece_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (x->pieces[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    uint64_t begin = low > 0 ? x->pieces[low - 1].end : 0;
    RG_ASSERT(at >= begin && at < x->pieces[low].end);
    *out_left = x->pieces[low].end - at;
    return x->pieces[low].data + (at - begin);
}

const uint8_t *rg_exchange_body_at(const struct rg_exchange *x, uint64_t sent, uint64_t *out_left)
{
    if (sent < x->lead_size) {
        *out_left = x->lead_size - sent;
        return x->lead + sent;
    }
    sent -= x->lead_size;
    if (sent < x->upload_size && x->pieces != NULL) {
        const uint8_t *data = piece_at(x, x->upload_skip + sent, out_left);
        *out_left = RG_MIN(*out_left, x->upload_size - sent);
        return data;
    }
    if (sent < x->upload_size) {
        *out_left = x->upload_size - sent;
        return x->upload + sent;
    }
    sent -= x->upload_size;
    *out_left = x->trail_size - sent;
    return x->trail + sent;
}

uint64_t rg_exchange_body_gather(const struct rg_exchange *x, uint64_t sent, uint8_t *dest,
                                 uint64_t size_max)
{
    uint64_t size = 0, total = rg_exchange_body_size(x), left;
    while (size < size_max && sent + size < total) {
        const uint8_t *data = rg_exchange_body_at(x, sent + size, &left);
        left = RG_MIN(left, size_max - size);
        memcpy(dest + size, data, (size_t)left);
        size += left;
    }
    return size;
}
