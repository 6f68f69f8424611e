/* One character at a time; see utf8.h. */
#include "gcs/wire/utf8.h"

int rg_utf8_decode(const char *text, size_t size, uint32_t *out_code)
{
    static const uint32_t code_min[] = {[2] = 0x80, [3] = 0x800, [4] = 0x10000};
    RG_ASSERT(size > 0);
    uint8_t first = (uint8_t)text[0];
    if (first < 0x80) {
        *out_code = first;
        return 1;
    }
    int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc0 || first > 0xf7 || size < (size_t)length) {
        return -EILSEQ;
    }
    uint32_t code = first & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        uint8_t next = (uint8_t)text[i];
        if ((next & 0xc0) != 0x80) {
            return -EILSEQ;
        }
        code = code << 6 | (next & 0x3f);
    }
    if (code < code_min[length] || !rg_utf8_code_valid(code)) {
        return -EILSEQ;
    }
    *out_code = code;
    return length;
}

int rg_utf8_encode(uint32_t code, char *out)
{
    RG_ASSERT(rg_utf8_code_valid(code));
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(0xf00u >> length | code);
    return length;
}

bool rg_utf8_valid(const char *text, size_t size)
{
    uint32_t code;
    while (size > 0) {
        int taken = rg_utf8_decode(text, size, &code);
        if (taken < 0) {
            return false;
        }
        text += taken;
        size -= (size_t)taken;
    }
    return true;
}
