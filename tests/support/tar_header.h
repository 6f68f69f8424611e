/* Headers of tar archives, put together for tests. */
#ifndef RG_TESTS_SUPPORT_TAR_HEADER_H
#define RG_TESTS_SUPPORT_TAR_HEADER_H

#include <stdint.h>

#define RG_TEST_TAR_BLOCK 512

/* Fills a block with a ustar header. The name is cut at 100 bytes, as its field is. */
void rg_test_tar_header(uint8_t *block, const char *name, char type, uint64_t size);
/* Makes the checksum right after a change; sums signed bytes if asked to. */
void rg_test_tar_checksum(uint8_t *block, int is_signed);

#endif
