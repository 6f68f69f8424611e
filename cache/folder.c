/* See folder.h. */
#include "cache/folder.h"

#include "cache/files.h"
#include "runtime/descriptor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What one walk over a folder has in hand. */
struct walk {
    int folder;
    rg_cache_entry_fn *each;
    void *context;
    bool verify;
    bool is_open; /* the segment: its last records may be on their way to it */
    struct rg_cache_folder_totals totals;
    struct rg_cache_files files;
    uint8_t *record;       /* memory for a whole one */
    uint64_t bytes_before; /* of files that have been walked */
};

static int walk_open(struct walk *walk, const char *folder)
{
    char why[256];
    walk->folder = rg_cache_folder_open(folder, false, why, sizeof(why));
    if (walk->folder < 0) {
        return walk->folder;
    }
    walk->record = malloc(RG_CACHE_RECORD_SIZE_MAX);
    return walk->record != NULL ? rg_cache_files_list(walk->folder, &walk->files) : -ENOMEM;
}

static void walk_close(struct walk *walk)
{
    rg_cache_files_fini(&walk->files);
    free(walk->record);
    rg_fd_drop(walk->folder);
}

/* Reads a record, or its header, into walk->record. 0 or -EBADMSG, or a negative errno. */
static int record_read(struct walk *walk, int fd, const struct rg_cache_content *content,
                       struct rg_cache_entry *out_entry)
{
    struct rg_cache_record record;
    uint64_t hash;
    size_t size =
        walk->verify ? content->size : RG_MIN(content->size, (uint32_t)RG_CACHE_HEADER_SIZE_MAX);
    ssize_t got = pread(fd, walk->record, size, (off_t)((uint64_t)content->place * RG_CACHE_UNIT));
    if (got < 0) {
        return -errno;
    }
    if ((size_t)got != size ||
        rg_cache_header_read(walk->record, size, &out_entry->key, &record, &hash) < 0) {
        return -EBADMSG;
    }
    out_entry->object_size = record.object_size;
    out_entry->body_size = record.body_size;
    if (hash != content->hash || record.header_size + record.body_size != content->size) {
        return -EBADMSG;
    }
    return walk->verify ? rg_cache_body_check(&record, 0, walk->record + record.header_size,
                                              record.body_size)
                        : 0;
}

static int record_walk(struct walk *walk, const char *name, int fd,
                       const struct rg_cache_content *content)
{
    /* Without a header that can be read there is no key to tell. */
    struct rg_cache_entry entry = {
        .segment = name,
        .key = {"", "", "", 0, 0},
        .bytes_before = walk->bytes_before + (uint64_t)content->place * RG_CACHE_UNIT,
        .bytes_all = walk->files.size,
    };
    entry.error = record_read(walk, fd, content, &entry);
    if (entry.error < 0 && walk->is_open) {
        return 0;
    }
    walk->totals.records++;
    walk->totals.damaged_records += entry.error < 0;
    bool wanted = walk->each != NULL && (walk->verify || entry.error == 0);
    return wanted ? walk->each(walk->context, &entry) : 0;
}

static int segment_walk(struct walk *walk, const struct rg_cache_file *file)
{
    char name[RG_CACHE_NAME_SIZE];
    struct rg_cache_content *contents = NULL;
    uint32_t count = 0;
    int fd = rg_cache_file_open(walk->folder, &file->nonce, 0);
    if (fd < 0) {
        walk->totals.left_alone += fd != -ENOENT;
        return 0;
    }
    rg_cache_name_write(&file->nonce, file->is_open, name);
    int rc = rg_cache_file_contents(fd, &file->nonce, &contents, &count);
    walk->totals.segments++;
    walk->is_open = file->is_open;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = rg_cache_content_is_note(&contents[i]) ? 0 : record_walk(walk, name, fd, &contents[i]);
    }
    free(contents);
    rg_fd_drop(fd);
    return rc;
}

static int file_remove(struct walk *walk, const struct rg_cache_file *file)
{
    int rc = rg_cache_file_remove(walk->folder, file);
    if (rc == 0) {
        walk->totals.removed_segments++;
        walk->totals.removed_bytes += file->size;
    }
    walk->totals.left_alone += rc == -EPERM;
    return rc == -ENOENT || rc == -EPERM ? 0 : rc;
}

static int folder_walk(struct walk *walk, const char *folder, bool remove)
{
    int rc = walk_open(walk, folder);
    for (size_t i = 0; rc == 0 && i < walk->files.count; i++) {
        const struct rg_cache_file *file = &walk->files.files[i];
        uint64_t damaged = walk->totals.damaged_records;
        rc = segment_walk(walk, file);
        walk->bytes_before += file->size;
        if (rc == 0 && remove && !file->is_open && walk->totals.damaged_records > damaged) {
            rc = file_remove(walk, file);
        }
    }
    walk->totals.size = walk->files.size - walk->totals.removed_bytes;
    walk_close(walk);
    return rc;
}

int rg_cache_list(const char *folder, rg_cache_entry_fn *each, void *context,
                  struct rg_cache_folder_totals *out_totals)
{
    struct walk walk = {.each = each, .context = context};
    int rc = folder_walk(&walk, folder, false);
    *out_totals = walk.totals;
    return rc;
}

int rg_cache_verify(const char *folder, bool remove, rg_cache_entry_fn *each, void *context,
                    struct rg_cache_folder_totals *out_totals)
{
    struct walk walk = {.each = each, .context = context, .verify = true};
    int rc = folder_walk(&walk, folder, remove);
    *out_totals = walk.totals;
    return rc;
}

/* Oldest first. */
static int file_compare(const void *a, const void *b)
{
    const struct rg_cache_file *left = a, *right = b;
    int64_t left_s = RG_MAX(left->used_s, left->written_s);
    int64_t right_s = RG_MAX(right->used_s, right->written_s);
    return left_s < right_s ? -1 : left_s > right_s;
}

static int walk_prune(struct walk *walk, uint64_t size_max)
{
    struct rg_cache_nonce host;
    rg_cache_host(&host);
    for (size_t i = 0; i < walk->files.count; i++) {
        if (walk->files.files[i].is_open) {
            (void)rg_cache_file_adopt(walk->folder, &walk->files.files[i], &host);
        }
    }
    int rc = rg_cache_files_list(walk->folder, &walk->files);
    if (rc == 0 && walk->files.count > 0) {
        qsort(walk->files.files, walk->files.count, sizeof(*walk->files.files), file_compare);
    }
    for (size_t i = 0; rc == 0 && i < walk->files.count; i++) {
        /* An open one is somebody's. */
        if (!walk->files.files[i].is_open &&
            walk->files.size - walk->totals.removed_bytes > size_max) {
            rc = file_remove(walk, &walk->files.files[i]);
        }
    }
    walk->totals.segments = walk->files.count - walk->totals.removed_segments;
    walk->totals.size = walk->files.size - walk->totals.removed_bytes;
    return rc;
}

int rg_cache_prune(const char *folder, uint64_t size_max, struct rg_cache_folder_totals *out_totals)
{
    struct walk walk = {.folder = -1};
    int rc = walk_open(&walk, folder);
    rc = rc == 0 ? walk_prune(&walk, size_max) : rc;
    walk_close(&walk);
    *out_totals = walk.totals;
    return rc;
}
