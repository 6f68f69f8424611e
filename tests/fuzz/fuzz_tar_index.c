/* Indexes of tar archives. Damage is mostly seen by the checksums, so these are made right first:
 * what then opens gives samples that are whole, or says that they are not. */
#include "dataset/tar_index.h"
#include "gcs/listing/manifest_code.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Samples that are looked at, from both ends. */
#define SAMPLES_MAX 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void checksums_mend(uint8_t *bytes, size_t size)
{
    uint32_t header_size = rg_manifest_read_u32(bytes + RG_TAR_INDEX_AT_HEADER_SIZE);
    if (header_size < RG_TAR_INDEX_HEADER_SIZE_MIN || header_size > size) {
        return;
    }
    rg_manifest_write_u64(bytes + RG_TAR_INDEX_AT_FILE_SIZE, size);
    rg_manifest_write_u32(bytes + RG_TAR_INDEX_AT_CRC,
                          rg_crc32c(0, bytes + header_size, size - header_size));
    rg_manifest_write_u32(bytes + RG_TAR_INDEX_AT_HEADER_CRC,
                          rg_manifest_header_crc(bytes, header_size));
}

static void check_sample(const struct rg_tar_index *index, uint64_t number)
{
    struct rg_tar_sample sample;
    struct rg_tar_shard shard;
    int rc = rg_tar_index_get(index, number, &sample);
    RG_ASSERT(rc == 0 || rc == -EBADMSG);
    if (rc < 0) {
        return;
    }
    RG_ASSERT(rg_tar_index_shard(index, sample.shard, &shard) == 0);
    RG_ASSERT(number >= shard.first && number - shard.first < shard.count);
    RG_ASSERT(strlen(sample.key) == sample.key_size && sample.key_size > 0);
    RG_ASSERT(sample.part_count > 0 && sample.part_count <= RG_TAR_MEMBERS_MAX);
    const struct rg_tar_part *last = &sample.parts[sample.part_count - 1];
    RG_ASSERT(last->offset + last->size == sample.size);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < sample.part_count; i++) {
        RG_ASSERT(sample.parts[i].offset + sample.parts[i].size <= sample.size);
        sum = rg_crc32c(sum, sample.parts[i].extension, sample.parts[i].extension_size);
    }
    (void)sum;
}

static void open_and_read(const uint8_t *bytes, size_t size)
{
    struct rg_tar_index *index;
    char error[256] = "";
    int rc = rg_tar_index_open_memory(&index, bytes, size, error, sizeof(error));
    RG_ASSERT(rc == 0 || (rc == -EBADMSG && error[0] != '\0'));
    if (rc < 0) {
        return;
    }
    uint64_t count = rg_tar_index_count(index);
    for (uint64_t i = 0; i < RG_MIN(count, (uint64_t)SAMPLES_MAX); i++) {
        check_sample(index, i);
        check_sample(index, count - 1 - i);
    }
    RG_ASSERT(strlen(rg_tar_index_bucket(index)) <= RG_BUCKET_NAME_SIZE_MAX);
    rg_tar_index_close(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    RG_ASSERT(bytes != NULL);
    memcpy(bytes, data, size);
    open_and_read(bytes, size);
    if (size >= RG_TAR_INDEX_HEADER_SIZE_MIN) {
        checksums_mend(bytes, size);
        open_and_read(bytes, size);
    }
    free(bytes);
    return 0;
}
