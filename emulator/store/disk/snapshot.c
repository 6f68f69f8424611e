/* See snapshot.h. */
#include "emulator/store/disk/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * RG_NS_PER_S + (uint64_t)now.tv_nsec;
}

void rg_disk_snapshot_init(struct rg_disk_snapshot *snapshot, bool noncurrent)
{
    *snapshot = (struct rg_disk_snapshot){.noncurrent = noncurrent};
    pthread_mutex_init(&snapshot->lock, NULL);
}

static void drop(struct rg_disk_snapshot *snapshot)
{
    rg_text_fini(&snapshot->names);
    free(snapshot->sorted);
    snapshot->sorted = NULL;
    snapshot->count = snapshot->capacity = 0;
    snapshot->taken = false;
}

void rg_disk_snapshot_fini(struct rg_disk_snapshot *snapshot)
{
    drop(snapshot);
    pthread_mutex_destroy(&snapshot->lock);
}

static struct rg_h1_slice name_at(const struct rg_text *names, const struct rg_disk_place *place)
{
    return (struct rg_h1_slice){names->data + place->offset, place->size};
}

/* Divides ".ringest/PATH%vGENERATION" and returns the path, NULL for any other file. */
static const char *split_version_path(char *file, int64_t *out_generation)
{
    char *mark = NULL;
    for (char *at = strstr(file, "%v"); at != NULL; at = strstr(at + 1, "%v")) {
        mark = at;
    }
    if (mark == NULL || rg_text_parse_int64(rg_text_slice(mark + 2), out_generation) < 0) {
        return NULL;
    }
    *mark = '\0';
    return file + strlen(RG_FILE_NAME_PRIVATE "/");
}

static int snapshot_add(struct rg_disk_snapshot *snapshot, char *file)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    int64_t generation = 0;
    const char *path = snapshot->noncurrent ? split_version_path(file, &generation) : file;
    int size = path != NULL ? rg_file_name_decode(path, name) : -EINVAL;
    if (size < 0) {
        return 0;
    }
    if (snapshot->count == snapshot->capacity) {
        size_t capacity = RG_MAX(snapshot->capacity * 2, (size_t)1024);
        struct rg_disk_place *sorted =
            reallocarray(snapshot->sorted, capacity, sizeof(*snapshot->sorted));
        if (sorted == NULL) {
            return -ENOMEM;
        }
        snapshot->sorted = sorted;
        snapshot->capacity = capacity;
    }
    snapshot->sorted[snapshot->count++] =
        (struct rg_disk_place){snapshot->names.size, (uint32_t)size, generation};
    rg_text_append(&snapshot->names, name, (size_t)size);
    return snapshot->names.failed ? -ENOMEM : 0;
}

static bool entry_is_folder(int folder_fd, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) {
        return entry->d_type == DT_DIR;
    }
    struct stat status;
    return fstatat(folder_fd, entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

/* Adds what lies in one folder: files to the snapshot, folders to `pending` (paths with a NUL). */
static int scan_folder(struct rg_disk_snapshot *snapshot, const struct rg_disk_tree *tree,
                       const char *folder, struct rg_text *pending)
{
    DIR *dir = rg_disk_open_folder(tree->fd, folder[0] != '\0' ? folder : ".", 0);
    if (dir == NULL) {
        int rc = -errno;
        /* Removed meanwhile, or a loop of links. */
        return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -EACCES ? 0 : rc;
    }
    int rc = 0;
    char path[RG_FILE_PATH_MAX];
    for (struct dirent *entry = readdir(dir); entry != NULL && rc == 0; entry = readdir(dir)) {
        int size = snprintf(path, sizeof(path), "%s%s%s", folder, folder[0] != '\0' ? "/" : "",
                            entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strcmp(path, RG_FILE_NAME_PRIVATE) == 0 || (size_t)size >= sizeof(path)) {
            continue;
        }
        if (entry_is_folder(dirfd(dir), entry)) {
            rg_text_append(pending, path, (size_t)size + 1);
            rc = pending->failed ? -ENOMEM : 0;
        } else {
            rc = snapshot_add(snapshot, path);
        }
    }
    closedir(dir);
    return rc;
}

static int compare_places(const void *a, const void *b, void *names)
{
    const struct rg_disk_place *first = a, *second = b;
    int order = rg_text_compare(name_at(names, first), name_at(names, second));
    return order != 0 ? order
                      : (first->generation > second->generation) -
                            (first->generation < second->generation);
}

/* The places are in their order and lie in the names. */
static bool invariants(const struct rg_disk_snapshot *snapshot)
{
    bool good = snapshot->count <= snapshot->capacity;
    for (size_t i = 0; i < snapshot->count && good; i++) {
        const struct rg_disk_place *place = &snapshot->sorted[i];
        good =
            place->size > 0 && place->offset + place->size <= snapshot->names.size &&
            (snapshot->noncurrent || place->generation == 0) &&
            (i == 0 || compare_places(place - 1, place, (void *)(uintptr_t)&snapshot->names) <= 0);
    }
    return good;
}

static int snapshot_take(struct rg_disk_snapshot *snapshot, struct rg_disk_tree *tree)
{
    drop(snapshot);
    snapshot->change_count = atomic_load(&tree->change_count);
    snapshot->taken_ns = monotonic_ns();
    struct rg_text pending = {0};
    const char *start = snapshot->noncurrent ? RG_FILE_NAME_PRIVATE : "";
    rg_text_append(&pending, start, strlen(start) + 1);
    int rc = pending.failed ? -ENOMEM : 0;
    for (size_t at = 0; at < pending.size && rc == 0;) {
        /* `pending` moves when it grows. */
        char folder[RG_FILE_PATH_MAX];
        size_t size = strlen(pending.data + at) + 1;
        memcpy(folder, pending.data + at, size);
        at += size;
        rc = scan_folder(snapshot, tree, folder, &pending);
    }
    rg_text_fini(&pending);
    if (rc < 0) {
        drop(snapshot);
        return rc;
    }
    if (snapshot->count > 0) {
        qsort_r(snapshot->sorted, snapshot->count, sizeof(*snapshot->sorted), compare_places,
                &snapshot->names);
    }
    snapshot->taken = true;
    RG_VERIFY(invariants(snapshot));
    return 0;
}

/* Copies the first name at or behind `from` into `entry`, with the generation of the place. Of the
 * versions of `from` itself, the first behind `after`. */
static int snapshot_find(const struct rg_disk_snapshot *snapshot, struct rg_h1_slice from,
                         int64_t after, struct rg_store_entry *entry)
{
    size_t low = 0, high = snapshot->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rg_disk_place *place = &snapshot->sorted[middle];
        int order = rg_text_compare(name_at(&snapshot->names, place), from);
        if (order < 0 || (order == 0 && snapshot->noncurrent && place->generation <= after)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == snapshot->count) {
        return -ENOENT;
    }
    struct rg_h1_slice name = name_at(&snapshot->names, &snapshot->sorted[low]);
    memcpy(entry->name, name.data, name.size);
    entry->name_size = name.size;
    entry->info.generation = snapshot->sorted[low].generation;
    return 0;
}

int rg_disk_snapshot_seek(struct rg_disk_snapshot *snapshot, struct rg_disk_tree *tree,
                          struct rg_h1_slice from, int64_t after, struct rg_store_entry *entry)
{
    pthread_mutex_lock(&snapshot->lock);
    int rc = 0;
    if (!snapshot->taken || snapshot->change_count != atomic_load(&tree->change_count) ||
        monotonic_ns() - snapshot->taken_ns > RG_DISK_SNAPSHOT_AGE_MAX_NS) {
        rc = snapshot_take(snapshot, tree);
    }
    rc = rc == 0 ? snapshot_find(snapshot, from, after, entry) : rc;
    pthread_mutex_unlock(&snapshot->lock);
    return rc;
}
