/* Manifests. Damage is mostly seen by the checksums, so these are made right first: what then opens
 * gives entries that are whole, or says that they are not. */
#include "gcs/listing/manifest.h"
#include "gcs/listing/manifest_code.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Entries that are looked at, from both ends. */
#define ENTRIES_MAX 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void checksums_mend(uint8_t *bytes, size_t size)
{
    uint64_t index = rg_manifest_read_u64(bytes + RG_MANIFEST_AT_INDEX);
    uint32_t blocks = rg_manifest_read_u32(bytes + RG_MANIFEST_AT_BLOCK_COUNT);
    for (uint32_t i = 0; i < blocks && i < size; i++) {
        uint64_t at = index + (uint64_t)i * RG_MANIFEST_INDEX_ENTRY_SIZE;
        if (at > size || size - at < RG_MANIFEST_INDEX_ENTRY_SIZE) {
            break;
        }
        uint64_t offset = rg_manifest_read_u64(bytes + at);
        uint32_t block_size = rg_manifest_read_u32(bytes + at + 8);
        if (offset <= size && block_size <= size - offset) {
            rg_manifest_write_u32(bytes + at + 12, rg_crc32c(0, bytes + offset, block_size));
        }
    }
    uint32_t header_size = rg_manifest_read_u32(bytes + RG_MANIFEST_AT_HEADER_SIZE);
    if (header_size >= RG_MANIFEST_HEADER_SIZE_MIN && header_size <= size) {
        rg_manifest_write_u32(bytes + RG_MANIFEST_AT_CRC,
                              rg_crc32c(0, bytes + header_size, size - header_size));
        rg_manifest_write_u32(bytes + RG_MANIFEST_AT_HEADER_CRC,
                              rg_manifest_header_crc(bytes, header_size));
    }
}

static void check_entry(const struct rg_manifest *manifest, uint64_t index)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    struct rg_object object;
    int rc = rg_manifest_get(manifest, index, &object, name);
    RG_ASSERT(rc == 0 || rc == -EBADMSG);
    if (rc == 0) {
        size_t size = strlen(name);
        RG_ASSERT(object.name == name && size > 0 && size < sizeof(name));
        RG_ASSERT(object.generation >= 0);
    }
}

static void open_and_read(const uint8_t *bytes, size_t size)
{
    struct rg_manifest *manifest;
    char error[256] = "";
    int rc = rg_manifest_open_memory(&manifest, bytes, size, error, sizeof(error));
    RG_ASSERT(rc == 0 || (rc == -EBADMSG && error[0] != '\0'));
    if (rc < 0) {
        return;
    }
    uint64_t count = rg_manifest_count(manifest);
    for (uint64_t i = 0; i < RG_MIN(count, (uint64_t)ENTRIES_MAX); i++) {
        check_entry(manifest, i);
        check_entry(manifest, count - 1 - i);
    }
    RG_ASSERT(strlen(rg_manifest_bucket(manifest)) <= RG_BUCKET_NAME_SIZE_MAX);
    rg_manifest_close(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    RG_ASSERT(bytes != NULL);
    memcpy(bytes, data, size);
    open_and_read(bytes, size);
    if (size >= RG_MANIFEST_HEADER_SIZE_MIN) {
        checksums_mend(bytes, size);
        open_and_read(bytes, size);
    }
    free(bytes);
    return 0;
}
