/* What `ringest rsync --delete` removes: see cp.h. */
#include "cli/cp.h"
#include "cli/lister.h"
#include "cli/rm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file {
    char *path; /* owned; as places of files are written */
    struct stat stat;
};

struct cp_sync {
    struct cli_session *session;
    const struct cp_options *options;
    bool is_bucket;
    struct cli_uri uri; /* of the destination, whose name is "" or ends in "/" */
    struct listed *objects;
    size_t object_count;
    struct file *files;
    size_t file_count;
};

bool cp_is_temporary(const char *name, const char *above)
{
    static const char uploads[] = ".ringest-parts/";
    return strncmp(name, uploads, strlen(uploads)) == 0 &&
           strncmp(above, uploads, strlen(uploads)) != 0;
}

static bool is_meant(const struct cp_sync *sync, const char *relative)
{
    return filter_takes(&sync->options->filter, relative) &&
           (sync->options->recursive || strchr(relative, '/') == NULL);
}

/* Takes `path`. */
static int file_keep(struct cp_sync *sync, char *path, const struct stat *stat)
{
    struct file *grown =
        path != NULL ? reallocarray(sync->files, sync->file_count + 1, sizeof(*grown)) : NULL;
    if (grown == NULL) {
        free(path);
        return cli_fail("no memory");
    }
    sync->files = grown;
    grown[sync->file_count++] = (struct file){.path = path, .stat = *stat};
    return CLI_DONE;
}

static int folder_walk(struct cp_sync *sync, const char *path, const char *relative);

/* Links are not followed, and stay. */
static int entry_walk(struct cp_sync *sync, const char *path, const char *relative,
                      const char *name)
{
    char *below = NULL, *below_relative = NULL;
    const char *slash = path[0] != '\0' && path[strlen(path) - 1] == '/' ? "" : "/";
    if (asprintf(&below, "%s%s%s", path, slash, name) < 0 ||
        asprintf(&below_relative, "%s%s", relative, name) < 0) {
        free(below);
        return cli_fail("no memory");
    }
    struct stat stat;
    int status = CLI_DONE;
    if (lstat(below, &stat) < 0) {
        status = errno == ENOENT ? CLI_DONE : cli_fail("%s: %s", below, local_error_text(-errno));
    } else if (S_ISREG(stat.st_mode) && !local_name_is_part(name) &&
               is_meant(sync, below_relative)) {
        status = file_keep(sync, strdup(below), &stat);
    } else if (S_ISDIR(stat.st_mode) && sync->options->recursive &&
               filter_enters(&sync->options->filter, below_relative)) {
        char *inner = NULL;
        status = asprintf(&inner, "%s/", below_relative) < 0 ? cli_fail("no memory")
                                                             : folder_walk(sync, below, inner);
        free(inner);
    }
    free(below);
    free(below_relative);
    return status;
}

static int folder_walk(struct cp_sync *sync, const char *path, const char *relative)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT && *relative == '\0'
                   ? CLI_DONE
                   : cli_fail("%s: %s", path, local_error_text(-errno));
    }
    int status = CLI_DONE;
    struct dirent *each;
    while (status == CLI_DONE && (errno = 0, each = readdir(folder)) != NULL) {
        if (strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0) {
            status = entry_walk(sync, path, relative, each->d_name);
        }
    }
    if (status == CLI_DONE && errno != 0) {
        status = cli_fail("%s: %s", path, strerror(errno));
    }
    closedir(folder);
    return status;
}

int cp_sync_open(struct cp_sync **out_sync, struct cli_session *session,
                 const struct cp_options *options, const char *destination)
{
    struct cp_sync *sync = calloc(1, sizeof(*sync));
    if (sync == NULL) {
        return cli_fail("no memory");
    }
    sync->session = session;
    sync->options = options;
    sync->is_bucket = cli_is_uri(destination);
    int status;
    if (sync->is_bucket) {
        RG_ASSERT(cli_parse_uri(destination, &sync->uri));
        size_t size = strlen(sync->uri.name);
        if (size > 0 && size < RG_OBJECT_NAME_SIZE_MAX && sync->uri.name[size - 1] != '/') {
            strcpy(sync->uri.name + size, "/");
        }
        status = lister_all(session, sync->uri.bucket, sync->uri.name, &sync->objects,
                            &sync->object_count);
    } else {
        status = folder_walk(sync, destination, "");
    }
    if (status != CLI_DONE) {
        cp_sync_close(sync);
        return status;
    }
    *out_sync = sync;
    return CLI_DONE;
}

/* Whether the place, or a folder above it, is a link of the source, which nobody has looked into.
 */
static bool is_linked(const struct places *links, const char *place)
{
    char *copy = strdup(place);
    bool linked = copy == NULL || places_have(links, copy);
    for (char *slash = copy != NULL ? strrchr(copy, '/') : NULL; slash != NULL && !linked;
         slash = strrchr(copy, '/')) {
        *slash = '\0';
        linked = places_have(links, copy);
    }
    free(copy);
    return linked;
}

static bool stays(const struct places *kept, const struct places *links, const char *place)
{
    return places_have(kept, place) || is_linked(links, place);
}

/* Objects that stay are taken out of the list. */
static int objects_delete(struct cp_sync *sync, const struct places *kept,
                          const struct places *links, uint64_t *out_removed)
{
    size_t count = 0, root = strlen(sync->uri.name);
    for (size_t i = 0; i < sync->object_count; i++) {
        struct listed *object = &sync->objects[i];
        size_t size = strlen(object->name);
        bool is_marker = object->size == 0 && object->name[size - 1] == '/';
        if (is_marker || cp_is_temporary(object->name, sync->uri.name) ||
            !is_meant(sync, object->name + root) || stays(kept, links, object->name)) {
            free(object->name);
        } else {
            sync->objects[count++] = *object;
        }
    }
    sync->object_count = count;
    return rm_listed(sync->session, sync->uri.bucket, sync->objects, count, sync->options->dry_run,
                     out_removed);
}

/* Files that have what was kept, as "DEVICE:INODE". */
struct inodes {
    struct places places;
    bool is_read, is_complete;
};

static void inode_text(const struct stat *stat, char out_text[48])
{
    snprintf(out_text, 48, "%ju:%ju", (uintmax_t)stat->st_dev, (uintmax_t)stat->st_ino);
}

static void inode_take(const char *place, void *context)
{
    struct inodes *inodes = context;
    struct stat found;
    char text[48];
    bool is_new;
    if (stat(place, &found) == 0) {
        inode_text(&found, text);
        inodes->is_complete =
            places_take(&inodes->places, text, &is_new) == 0 && inodes->is_complete;
    }
}

/* One file can have several paths: where a folder is a link, or the file system ignores case. */
static bool is_kept_inode(const struct inodes *inodes, const char *path)
{
    struct stat found;
    char text[48];
    if (lstat(path, &found) < 0) {
        return false;
    }
    inode_text(&found, text);
    return places_have(&inodes->places, text);
}

/* Asks for what was kept, once. */
static int inodes_read(struct inodes *inodes, const struct places *kept)
{
    if (!inodes->is_read) {
        inodes->is_read = inodes->is_complete = true;
        places_each(kept, inode_take, inodes);
    }
    return inodes->is_complete ? CLI_DONE : cli_fail("no memory");
}

static int file_delete(const struct file *file, uint64_t *out_removed)
{
    struct stat now;
    if (lstat(file->path, &now) < 0 && errno == ENOENT) {
        return CLI_DONE;
    }
    if (!local_is_unchanged(file->path, &file->stat)) {
        return cli_fail("%s: kept, because it has changed since it was listed", file->path);
    }
    if (unlink(file->path) < 0) {
        return cli_fail("%s: %s", file->path, local_error_text(-errno));
    }
    ++*out_removed;
    return CLI_DONE;
}

static int files_delete(struct cp_sync *sync, const struct places *kept, const struct places *links,
                        uint64_t *out_removed)
{
    int status = CLI_DONE;
    struct inodes inodes = {0};
    uint64_t same = 0;
    for (size_t i = 0; i < sync->file_count && !cli_interrupted(); i++) {
        const struct file *file = &sync->files[i];
        if (stays(kept, links, file->path)) {
            continue;
        }
        if (inodes_read(&inodes, kept) != CLI_DONE) {
            status = CLI_FAILED;
            break;
        }
        if (is_kept_inode(&inodes, file->path)) {
            same++;
        } else if (sync->options->dry_run) {
            printf("would remove %s\n", cli_shown(file->path));
            ++*out_removed;
        } else if (file_delete(file, out_removed) != CLI_DONE) {
            status = CLI_FAILED;
        }
    }
    if (same > 0) {
        cli_note("%" PRIu64 " file%s kept, because the source has %s by another path", same,
                 same == 1 ? "" : "s", same == 1 ? "it" : "them");
    }
    places_fini(&inodes.places);
    return status;
}

int cp_sync_delete(struct cp_sync *sync, const struct places *kept, const struct places *links,
                   uint64_t *out_removed)
{
    return sync->is_bucket ? objects_delete(sync, kept, links, out_removed)
                           : files_delete(sync, kept, links, out_removed);
}

void cp_sync_close(struct cp_sync *sync)
{
    if (sync == NULL) {
        return;
    }
    listed_free(sync->objects, sync->object_count);
    for (size_t i = 0; i < sync->file_count; i++) {
        free(sync->files[i].path);
    }
    free(sync->files);
    free(sync);
}
