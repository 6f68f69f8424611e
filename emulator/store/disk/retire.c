/* See retire.h. */
#include "emulator/store/disk/retire.h"

#include "emulator/store/disk/object.h"
#include "emulator/store/model/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int rg_disk_version_remove(struct rg_disk_tree *tree, const char *path, int64_t generation)
{
    char noncurrent[RG_DISK_PATH_MAX];
    rg_disk_version_path(noncurrent, path, generation);
    if (unlinkat(tree->fd, noncurrent, 0) < 0) {
        return -errno;
    }
    rg_disk_record_remove(tree, path, generation);
    atomic_fetch_add(&tree->change_count, 1);
    return 0;
}

static void note_fate(struct rg_store_object_info *info, int64_t now_us,
                      const struct rg_store_fate *fate)
{
    if (fate->soft_delete_us != 0) {
        info->soft_deleted_us = now_us;
        info->hard_delete_us = now_us + fate->soft_delete_us;
    } else {
        info->deleted_us = now_us;
    }
}

int rg_disk_version_keep(struct rg_disk_tree *tree, struct rg_h1_slice name, const char *path,
                         int64_t now_us, const struct rg_store_fate *fate)
{
    char noncurrent[RG_DISK_PATH_MAX], aside[RG_DISK_PATH_MAX];
    struct rg_store_object_info info;
    struct rg_store_object object;
    /* Opening gives a file that was put there by hand its record. */
    int rc = rg_disk_object_open(tree, name, 0, false, &object);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    info = object.info;
    rg_disk_version_path(noncurrent, path, info.generation);
    rg_disk_aside_path(aside, path, strlen(path));
    rc = rg_disk_make_parents(tree, noncurrent);
    if (rc == 0 && linkat(tree->fd, path, tree->fd, noncurrent, 0) < 0 && errno != EEXIST) {
        /* A folder of the plain name cannot be linked. */
        rc = linkat(tree->fd, aside, tree->fd, noncurrent, 0) < 0 ? -errno : 0;
    }
    note_fate(&info, now_us, fate);
    rc = rc == 0 ? rg_disk_record_write(tree, path, &info) : rc;
    rg_store_object_close(&object);
    return rc;
}

int rg_disk_version_soften(struct rg_disk_tree *tree, const char *path, int64_t generation,
                           const struct rg_store_fate *fate)
{
    struct rg_store_object_info info;
    int fd = rg_disk_version_open(tree, path, generation, &info);
    if (fd < 0) {
        return fd;
    }
    close(fd);
    bool known = rg_disk_is_of_kind(&info, false) && info.has_crc32c;
    note_fate(&info, rg_store_now_us(), fate);
    int rc = known ? rg_disk_record_write(tree, path, &info) : -ENOENT;
    rg_attributes_unref(rg_disk_owned_attributes(&info));
    if (rc == 0) {
        atomic_fetch_add(&tree->change_count, 1);
    }
    return rc;
}
