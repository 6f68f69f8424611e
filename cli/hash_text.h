/* Checksums as text: in base64, as the service writes them, or in hexadecimal digits. */
#ifndef RG_CLI_HASH_TEXT_H
#define RG_CLI_HASH_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#define HASH_TEXT_SIZE 40

/* A CRC32C: "4waSgw==", or "e3069283". */
const char *hash_text_crc32c(uint32_t crc32c, bool hex, char buffer[static HASH_TEXT_SIZE]);
/* The same for messages, in base64; lives as long as the block. */
#define CRC32C_TEXT(crc32c) hash_text_crc32c(crc32c, false, (char[HASH_TEXT_SIZE]){0})
/* An MD5 of 16 bytes. */
const char *hash_text_digest(const uint8_t md5[static 16], bool hex,
                             char buffer[static HASH_TEXT_SIZE]);
/* An MD5 that the service wrote, in base64: as it is, or in hexadecimal digits. What is no MD5 is
 * given back as it is, as is NULL. */
const char *hash_text_md5(const char *md5, bool hex, char buffer[static HASH_TEXT_SIZE]);

#endif
