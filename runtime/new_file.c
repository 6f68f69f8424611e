/* See new_file.h. */
#include "runtime/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names that are tried: another thread of this process may be at the same file, and a process of
 * the same number may have been killed. */
#define NAMES_MAX 100
#define SUFFIX_SIZE 32

static void names_free(struct rg_new_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (struct rg_new_file){.fd = -1};
}

/* Whether a link leads to what one of the standard streams is, as /dev/stdout does: where that is a
 * file, the link would be lost for all programs. */
static bool is_stream(const struct stat *named)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat stream;
        if (fstat(fd, &stream) == 0 && stream.st_dev == named->st_dev &&
            stream.st_ino == named->st_ino) {
            return true;
        }
    }
    return false;
}

int rg_new_file_check(const char *path, struct stat *out_replaced)
{
    struct stat named;
    bool is_there = stat(path, &named) == 0;
    if (is_there && !S_ISREG(named.st_mode)) {
        return S_ISDIR(named.st_mode) ? -EISDIR : -EEXIST;
    }
    if (lstat(path, out_replaced) < 0 || !S_ISREG(out_replaced->st_mode)) {
        bool is_link = is_there && S_ISLNK(out_replaced->st_mode);
        *out_replaced = (struct stat){0};
        return is_link && is_stream(&named) ? -EEXIST : 0;
    }
    return 0;
}

void rg_new_file_keep_mode(int fd, const struct stat *replaced)
{
    struct stat made;
    mode_t mode = replaced->st_mode & 0777;
    if (fstat(fd, &made) < 0) {
        return;
    }
    if (made.st_uid != replaced->st_uid) {
        (void)fchown(fd, replaced->st_uid, (gid_t)-1);
    }
    if (made.st_gid != replaced->st_gid && fchown(fd, (uid_t)-1, replaced->st_gid) < 0) {
        mode = (mode & 0707) | ((mode & 07) << 3);
    }
    (void)fchmod(fd, mode);
}

int rg_new_file_open(struct rg_new_file *out_file, const char *path)
{
    struct stat replaced;
    int rc = rg_new_file_check(path, &replaced);
    if (rc < 0) {
        return rc;
    }
    size_t size = strlen(path) + SUFFIX_SIZE;
    struct rg_new_file file = {.path = strdup(path), .temporary = malloc(size), .fd = -1};
    rc = file.path != NULL && file.temporary != NULL ? -EEXIST : -ENOMEM;
    for (unsigned i = 0; i < NAMES_MAX && rc == -EEXIST; i++) {
        snprintf(file.temporary, size, "%s.%d-%u.tmp", path, (int)getpid(), i);
        file.fd = open(file.temporary, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
        rc = file.fd >= 0 ? 0 : -errno;
    }
    if (rc < 0) {
        names_free(&file);
        return rc;
    }
    if (replaced.st_mode != 0) {
        rg_new_file_keep_mode(file.fd, &replaced);
    }
    *out_file = file;
    return 0;
}

/* A rename lasts when the folder has been written. Where that cannot be asked for, it is so soon.
 */
static void folder_sync(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

int rg_new_file_publish(struct rg_new_file *file)
{
    RG_ASSERT(file->fd >= 0);
    int rc = fsync(file->fd) < 0 ? -errno : 0;
    if (rc == 0 && rename(file->temporary, file->path) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        rg_new_file_abandon(file);
        return rc;
    }
    folder_sync(file->path);
    close(file->fd);
    names_free(file);
    return 0;
}

void rg_new_file_abandon(struct rg_new_file *file)
{
    RG_ASSERT(file->fd >= 0);
    (void)unlink(file->temporary);
    close(file->fd);
    names_free(file);
}
