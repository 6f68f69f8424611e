/* See versions.h. */
#include "emulator/store/disk/versions.h"

#include "emulator/store/model/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* How often a version may be replaced between opening it and reading its record. */
#define OPEN_ATTEMPTS_MAX 100

static int64_t generation_of(const struct stat *status)
{
    int64_t generation = (int64_t)status->st_mtim.tv_sec * 1000000 + status->st_mtim.tv_nsec / 1000;
    return RG_MAX(generation, INT64_C(1)); /* 0 would mean that there is no object. */
}

void rg_disk_version_path(char out[RG_DISK_PATH_MAX], const char *path, int64_t generation)
{
    int size =
        snprintf(out, RG_DISK_PATH_MAX, RG_FILE_NAME_PRIVATE "/%s%%v%" PRId64, path, generation);
    RG_ASSERT(size > 0 && size < RG_DISK_PATH_MAX);
}

int rg_disk_version_open(const struct rg_disk_tree *tree, const char *path, int64_t generation,
                         struct rg_store_object_info *out_info)
{
    struct stat status = {0}, before = {0};
    char noncurrent[RG_DISK_PATH_MAX];
    rg_disk_version_path(noncurrent, path, generation);
    /* The record of a version that is being replaced may be gone a moment before we look: then the
     * file is another one, too. */
    for (int attempt = 0; attempt < OPEN_ATTEMPTS_MAX; attempt++) {
        int fd = generation != 0 ? rg_disk_open_regular(tree, noncurrent, &status)
                                 : rg_disk_open_file(tree, path, &status);
        if (fd < 0) {
            return fd;
        }
        *out_info = (struct rg_store_object_info){
            .size = (uint64_t)status.st_size,
            .generation = generation_of(&status),
            .metageneration = 1,
            .updated_us = generation_of(&status),
            .content_type = "application/octet-stream",
        };
        bool same = attempt > 0 && before.st_ino == status.st_ino &&
                    before.st_dev == status.st_dev &&
                    generation_of(&before) == out_info->generation;
        if (rg_disk_record_read(tree, path, out_info) == 0 || same) {
            if (generation == 0) { /* Its record may already say that it is noncurrent: it is
                                      written before the change. */
                out_info->deleted_us = out_info->soft_deleted_us = out_info->hard_delete_us = 0;
            }
            return fd;
        }
        before = status;
        close(fd);
    }
    return -EBUSY;
}

struct rg_attributes *rg_disk_owned_attributes(const struct rg_store_object_info *info)
{
    return (struct rg_attributes *)(uintptr_t)info->attributes;
}

bool rg_disk_is_of_kind(const struct rg_store_object_info *info, bool soft)
{
    return soft ? info->hard_delete_us > rg_store_now_us() : info->hard_delete_us == 0;
}

int rg_disk_generation_open(const struct rg_disk_tree *tree, const char *path, int64_t generation,
                            bool soft, struct rg_store_object_info *out_info)
{
    int fd = rg_disk_version_open(tree, path, 0, out_info);
    if (generation == 0 || (fd >= 0 && out_info->generation == generation && !soft)) {
        return fd;
    }
    bool live = fd >= 0 && out_info->generation == generation;
    if (fd >= 0) {
        rg_attributes_unref(rg_disk_owned_attributes(out_info));
        close(fd);
    }
    fd = live ? -ENOENT : rg_disk_version_open(tree, path, generation, out_info);
    if (fd >= 0 && !rg_disk_is_of_kind(out_info, soft)) {
        rg_attributes_unref(rg_disk_owned_attributes(out_info));
        close(fd);
        return -ENOENT;
    }
    return fd;
}

/* The generation of what is there; 0 for nothing. */
int64_t rg_disk_current_generation(const struct rg_disk_tree *tree, const char *path)
{
    struct stat status;
    int fd = rg_disk_open_file(tree, path, &status);
    if (fd < 0) {
        return 0;
    }
    close(fd);
    return generation_of(&status);
}

int rg_disk_set_generation(int fd, struct rg_store_object_info *info)
{
    struct timespec time = {.tv_sec = (time_t)(info->generation / 1000000),
                            .tv_nsec = info->generation % 1000000 * 1000};
    struct timespec times[2] = {time, time};
    struct stat status;
    if (futimens(fd, times) < 0 || fstat(fd, &status) < 0) {
        return -errno;
    }
    info->generation = generation_of(&status);
    info->updated_us = info->generation;
    return 0;
}
