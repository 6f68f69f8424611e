/* Files of a cache: heads, records, tables of contents, and whole segments. Damage is mostly seen
 * by the checksums, so these are made right first: what is then read lies within what was given. */
#include "cache/files.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEADER_FIXED 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const uint8_t *bytes, size_t size)
{
    struct rg_cache_key key;
    struct rg_cache_record record;
    uint64_t hash;
    int rc = rg_cache_header_read(bytes, size, &key, &record, &hash);
    RG_ASSERT(rc == 0 || rc == -EBADMSG);
    if (rc < 0) {
        return;
    }
    RG_ASSERT(record.header_size <= size && record.body_size <= RG_CACHE_BLOCK_SIZE);
    RG_ASSERT(strlen(key.origin) > 0 && strlen(key.bucket) > 0 && strlen(key.object) > 0);
    RG_ASSERT((const uint8_t *)key.object + strlen(key.object) < bytes + record.header_size);
    if (record.body_size <= size - record.header_size) {
        rc = rg_cache_body_check(&record, 0, bytes + record.header_size, record.body_size);
        RG_ASSERT(rc == 0 || rc == -EBADMSG);
    }
}

/* Makes the header's own checksum right. */
static void record_mend(uint8_t *bytes, size_t size)
{
    uint16_t header_size;
    memcpy(&header_size, bytes + 8, sizeof(header_size));
    if (header_size < HEADER_FIXED || header_size > size) {
        return;
    }
    memset(bytes + 4, 0, sizeof(uint32_t));
    uint32_t crc = rg_crc32c(0, bytes, header_size);
    memcpy(bytes + 4, &crc, sizeof(crc));
}

static void check_contents(const uint8_t *bytes, size_t size, const struct rg_cache_nonce *nonce)
{
    struct rg_cache_content *contents = NULL;
    uint32_t count = 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    RG_ASSERT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    int rc = rg_cache_file_contents(fd, nonce, &contents, &count);
    RG_ASSERT(rc == 0 || rc == -EBADMSG);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        RG_ASSERT(contents[i].size <= RG_CACHE_RECORD_SIZE_MAX);
    }
    free(contents);
    close(fd);
}

/* Makes the checksums of the trailer and of the table right. */
static void trailer_mend(uint8_t *bytes, size_t size)
{
    uint8_t *trailer = bytes + size - RG_CACHE_TRAILER_SIZE;
    uint64_t table_offset;
    uint32_t count;
    memcpy(&table_offset, trailer + 8, sizeof(table_offset));
    memcpy(&count, trailer + 16, sizeof(count));
    if (table_offset <= size && count <= (size - table_offset) / sizeof(struct rg_cache_content)) {
        uint32_t crc = rg_crc32c(0, bytes + table_offset, count * sizeof(struct rg_cache_content));
        memcpy(trailer + 20, &crc, sizeof(crc));
    }
    uint32_t crc = rg_crc32c(0, trailer, RG_CACHE_TRAILER_SIZE - sizeof(crc));
    memcpy(trailer + RG_CACHE_TRAILER_SIZE - sizeof(crc), &crc, sizeof(crc));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_cache_head head;
    struct rg_cache_nonce nonce = {{0}};
    uint8_t *bytes = malloc(size + 1);
    RG_ASSERT(bytes != NULL);
    memcpy(bytes, data, size);
    int rc = rg_cache_head_read(bytes, size, &head);
    RG_ASSERT(rc == 0 || rc == -EBADMSG || rc == -EPROTONOSUPPORT);
    check_record(bytes, size);
    if (size >= HEADER_FIXED) {
        record_mend(bytes, size);
        check_record(bytes, size);
        memcpy(&nonce, bytes + size - RG_CACHE_TRAILER_SIZE + 24, sizeof(nonce));
        trailer_mend(bytes, size);
    }
    check_contents(bytes, size, &nonce);
    free(bytes);
    return 0;
}
