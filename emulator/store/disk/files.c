/* See files.h. */
#include "emulator/store/disk/files.h"

#include "runtime/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Records have attributes, which take up to three bytes for each. */
#define TEXT_SIZE_MAX RG_KIB(64)

int rg_disk_open_regular(const struct rg_disk_tree *tree, const char *path, struct stat *out_status)
{
    /* O_NONBLOCK: a FIFO that somebody put there must not stop the loop. */
    int fd = openat(tree->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return errno == ENOTDIR || errno == ELOOP || errno == ENXIO ? -ENOENT : -errno;
    }
    if (fstat(fd, out_status) < 0 || !S_ISREG(out_status->st_mode)) {
        close(fd);
        return -ENOENT;
    }
    return fd;
}

void rg_disk_aside_path(char out[RG_DISK_PATH_MAX], const char *path, size_t path_size)
{
    int size = snprintf(out, RG_DISK_PATH_MAX, "%.*s%s", (int)path_size, path, RG_FILE_NAME_ASIDE);
    RG_ASSERT(size > 0 && size < RG_DISK_PATH_MAX);
}

int rg_disk_open_file(const struct rg_disk_tree *tree, const char *path, struct stat *out_status)
{
    int fd = rg_disk_open_regular(tree, path, out_status);
    if (fd != -ENOENT) {
        return fd;
    }
    char aside[RG_DISK_PATH_MAX];
    rg_disk_aside_path(aside, path, strlen(path));
    return rg_disk_open_regular(tree, aside, out_status);
}

char *rg_disk_read_text(const struct rg_disk_tree *tree, const char *path)
{
    struct stat status;
    int fd = rg_disk_open_regular(tree, path, &status);
    if (fd < 0) {
        return NULL;
    }
    size_t size_max = (size_t)RG_MIN(status.st_size, (off_t)TEXT_SIZE_MAX);
    char *text = malloc(size_max + 1);
    if (text != NULL) {
        ssize_t size = read(fd, text, size_max);
        text[RG_MAX(size, 0)] = '\0';
    }
    close(fd);
    return text;
}

int rg_disk_make_parents(const struct rg_disk_tree *tree, const char *path)
{
    char folder[RG_DISK_PATH_MAX], aside[RG_DISK_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        if (mkdirat(tree->fd, folder, 0777) == 0) {
            continue;
        }
        struct stat status;
        if (errno != EEXIST || fstatat(tree->fd, folder, &status, 0) < 0) {
            return -errno;
        }
        if (S_ISDIR(status.st_mode)) {
            continue;
        }
        rg_disk_aside_path(aside, path, (size_t)(slash - path));
        if (renameat(tree->fd, folder, tree->fd, aside) < 0 ||
            mkdirat(tree->fd, folder, 0777) < 0) {
            return -errno;
        }
    }
    return 0;
}

void rg_disk_remove_parents(const struct rg_disk_tree *tree, const char *path)
{
    char folder[RG_DISK_PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strrchr(folder, '/'); slash != NULL; slash = strrchr(folder, '/')) {
        *slash = '\0';
        if (strcmp(folder, RG_FILE_NAME_PRIVATE) == 0 ||
            unlinkat(tree->fd, folder, AT_REMOVEDIR) < 0) {
            return;
        }
    }
}

int rg_disk_make_temporary(struct rg_disk_tree *tree, struct rg_disk_temporary *out)
{
    snprintf(out->path, sizeof(out->path), RG_FILE_NAME_PRIVATE "/%%t%" PRIu64,
             atomic_fetch_add(&tree->temporary_count, 1));
    int rc = rg_disk_make_parents(tree, out->path);
    if (rc < 0) {
        return rc;
    }
    out->fd = openat(tree->fd, out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return out->fd < 0 ? -errno : 0;
}

void rg_disk_drop_temporary(struct rg_disk_tree *tree, struct rg_disk_temporary *file)
{
    close(file->fd);
    unlinkat(tree->fd, file->path, 0);
}

int rg_disk_write_text(struct rg_disk_tree *tree, const char *path, const struct rg_text *text)
{
    struct rg_disk_temporary file;
    int rc = text->failed ? -ENOMEM : rg_disk_make_temporary(tree, &file);
    if (rc < 0) {
        return rc;
    }
    rc = rg_write_all(file.fd, text->data, text->size);
    rc = rc == 0 ? rg_disk_make_parents(tree, path) : rc;
    if (rc == 0 && renameat(tree->fd, file.path, tree->fd, path) < 0) {
        rc = -errno;
    }
    if (rc < 0) {
        rg_disk_drop_temporary(tree, &file);
        return rc;
    }
    close(file.fd);
    return 0;
}

int rg_disk_rename_into_place(struct rg_disk_tree *tree, const char *temporary, const char *path)
{
    char aside[RG_DISK_PATH_MAX];
    rg_disk_aside_path(aside, path, strlen(path));
    int rc = rg_disk_make_parents(tree, path);
    if (rc < 0) {
        return rc;
    }
    if (renameat(tree->fd, temporary, tree->fd, path) == 0) {
        /* From a time when there was a folder of the plain name. */
        unlinkat(tree->fd, aside, 0);
        return 0;
    }
    if (errno == EISDIR && renameat(tree->fd, temporary, tree->fd, aside) == 0) {
        return 0;
    }
    return -errno;
}

DIR *rg_disk_open_folder(int parent_fd, const char *name, int flags)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL && fd >= 0) {
        int error = errno;
        close(fd);
        errno = error;
    }
    return dir;
}

void rg_disk_remove_temporaries(const struct rg_disk_tree *tree)
{
    DIR *dir = rg_disk_open_folder(tree->fd, RG_FILE_NAME_PRIVATE, 0);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strncmp(entry->d_name, "%t", 2) == 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
}

void rg_disk_remove_folder(int parent_fd, const char *folder, unsigned depth)
{
    DIR *dir = rg_disk_open_folder(parent_fd, folder, O_NOFOLLOW);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(dirfd(dir), entry->d_name, 0) < 0 && errno == EISDIR && depth > 0) {
            rg_disk_remove_folder(dirfd(dir), entry->d_name, depth - 1);
        }
    }
    closedir(dir);
    unlinkat(parent_fd, folder, AT_REMOVEDIR);
}
