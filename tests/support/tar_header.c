/* See tar_header.h. */
#include "tests/support/tar_header.h"

#include <string.h>

static void octal_write(uint8_t *field, int digits, uint64_t number)
{
    for (int i = digits - 1; i >= 0; i--, number /= 8) {
        field[i] = (uint8_t)('0' + number % 8);
    }
}

void rg_test_tar_checksum(uint8_t *block, int is_signed)
{
    int64_t sum = 0;
    memset(block + 148, ' ', 8);
    for (int i = 0; i < RG_TEST_TAR_BLOCK; i++) {
        sum += is_signed ? (int8_t)block[i] : block[i];
    }
    octal_write(block + 148, 6, (uint64_t)sum);
    block[154] = '\0';
}

void rg_test_tar_header(uint8_t *block, const char *name, char type, uint64_t size)
{
    memset(block, 0, RG_TEST_TAR_BLOCK);
    memcpy(block, name, strnlen(name, 100));
    octal_write(block + 124, 11, size);
    block[156] = (uint8_t)type;
    memcpy(block + 257, "ustar", 6);
    memcpy(block + 263, "00", 2);
    rg_test_tar_checksum(block, 0);
}
