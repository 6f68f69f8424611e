/* See manifest_file.h. */
#include "tests/support/manifest_file.h"

#include "tests/support/test.h"

#include <inttypes.h>
#include <unistd.h>

void rg_test_manifest_init(struct rg_test_manifest *manifest)
{
    strcpy(manifest->folder, "/tmp/ringest-manifest-XXXXXX");
    RG_CHECK(mkdtemp(manifest->folder) != NULL);
    snprintf(manifest->path, sizeof(manifest->path), "%s/a.manifest", manifest->folder);
}

void rg_test_manifest_fini(struct rg_test_manifest *manifest)
{
    (void)unlink(manifest->path);
    RG_CHECK_EQ(rmdir(manifest->folder), 0);
}

struct rg_object rg_test_manifest_object(uint64_t index,
                                         char name[static RG_OBJECT_NAME_SIZE_MAX + 1])
{
    snprintf(name, RG_OBJECT_NAME_SIZE_MAX + 1, "train/%04" PRIu64 "/img-%08" PRIu64 ".jpg",
             index / 1000, index);
    return (struct rg_object){
        .name = name,
        .size = index * 7919 % 1000003,
        .generation = INT64_C(1700000000000000) + (int64_t)(index * 104729 % 1000000007),
        .crc32c = (uint32_t)(index * 2654435761u),
        .has_crc32c = index % 5 != 4,
    };
}

void rg_test_manifest_write(const struct rg_test_manifest *manifest, uint64_t count)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    struct rg_manifest_writer *writer;
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, manifest->path, "some-bucket"), 0);
    for (uint64_t i = 0; i < count; i++) {
        struct rg_object object = rg_test_manifest_object(i, name);
        RG_CHECK_EQ(rg_manifest_writer_add(writer, &object), 0);
    }
    RG_CHECK_EQ(rg_manifest_writer_close(writer, false), 0);
}
