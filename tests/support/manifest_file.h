/* A folder for one test's manifests. */
#ifndef RG_TESTS_SUPPORT_MANIFEST_FILE_H
#define RG_TESTS_SUPPORT_MANIFEST_FILE_H

#include <ringest/listing.h>

struct rg_test_manifest {
    char folder[64];
    char path[128];
};

/* Makes the folder and the path of a manifest in it that is not there yet. */
void rg_test_manifest_init(struct rg_test_manifest *manifest);
/* Removes both; nothing else may be in the folder. */
void rg_test_manifest_fini(struct rg_test_manifest *manifest);

/* Object `index` of any test: its name is written to `name`. */
struct rg_object rg_test_manifest_object(uint64_t index,
                                         char name[static RG_OBJECT_NAME_SIZE_MAX + 1]);
/* Writes `count` of them. */
void rg_test_manifest_write(const struct rg_test_manifest *manifest, uint64_t count);

#endif
