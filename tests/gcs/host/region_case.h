/* A region of a test's own: in a folder in memory that nobody else has. */
#ifndef RG_TESTS_GCS_REGION_CASE_H
#define RG_TESTS_GCS_REGION_CASE_H

#include "gcs/host/region.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <unistd.h>

struct region_case {
    char folder[64], path[RG_HOST_PATH_SIZE_MAX];
    char why[256];
};

static inline void region_case_open(struct region_case *c)
{
    *c = (struct region_case){.folder = "/dev/shm/ringest-test-XXXXXX"};
    if (mkdtemp(c->folder) == NULL) {
        rg_test_skip("there is no /dev/shm to write to");
    }
    rg_host_path_write(c->folder, c->path, sizeof(c->path));
}

static inline void region_case_close(struct region_case *c)
{
    unlink(c->path);
    RG_CHECK_EQ(rmdir(c->folder), 0);
}

static inline int region_case_try(struct region_case *c, struct rg_host_region *out_region)
{
    c->why[0] = '\0';
    return rg_host_region_open(out_region, c->folder, c->why, sizeof(c->why));
}

static inline struct rg_host_region region_case_get(struct region_case *c)
{
    struct rg_host_region region = {-1};
    if (region_case_try(c, &region) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->why);
    }
    return region;
}

#endif
