/* What the file system alone takes of a copy: CPU time per file to make COUNT files of SIZE bytes
 * in a folder as `ringest cp` makes them (a temporary name, one write, a rename), and to read them
 * back into one buffer. The floor of `cp -r` is this and what `bench` takes for the requests.
 *
 *     floor_files DIRECTORY COUNT SIZE [fsync]
 *
 * Makes its files in a folder of its own below DIRECTORY, and removes it. */
#include "runtime/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ROUNDS 3
#define PATH_SIZE_MAX 4096

struct setting {
    const char *folder;
    uint32_t count;
    size_t size;
    bool sync;
    uint8_t *data;
};

static void check(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "floor_files: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static double seconds(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(&usage.ru_utime) + seconds(&usage.ru_stime);
}

static void names(const struct setting *setting, uint32_t i, char *path, char *temporary)
{
    snprintf(path, PATH_SIZE_MAX, "%s/%08u", setting->folder, i);
    snprintf(temporary, PATH_SIZE_MAX, "%s/.%08u.part", setting->folder, i);
}

static void files_write(const struct setting *setting)
{
    char path[PATH_SIZE_MAX], temporary[PATH_SIZE_MAX];
    for (uint32_t i = 0; i < setting->count; i++) {
        names(setting, i, path, temporary);
        int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        check(fd >= 0, temporary);
        check(write(fd, setting->data, setting->size) == (ssize_t)setting->size, "writing");
        check(!setting->sync || fsync(fd) == 0, "fsync");
        check(rename(temporary, path) == 0, path);
        close(fd);
    }
}

static void files_read(const struct setting *setting)
{
    char path[PATH_SIZE_MAX], temporary[PATH_SIZE_MAX];
    for (uint32_t i = 0; i < setting->count; i++) {
        names(setting, i, path, temporary);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        check(fd >= 0, path);
        check(read(fd, setting->data, setting->size) == (ssize_t)setting->size, "reading");
        close(fd);
    }
}

static void files_remove(const struct setting *setting)
{
    char path[PATH_SIZE_MAX], temporary[PATH_SIZE_MAX];
    for (uint32_t i = 0; i < setting->count; i++) {
        names(setting, i, path, temporary);
        unlink(path);
    }
}

static double measure(const struct setting *setting, void (*work)(const struct setting *setting))
{
    double before = cpu_seconds();
    work(setting);
    return (cpu_seconds() - before) * 1e6 / setting->count;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5 || (argc == 5 && strcmp(argv[4], "fsync") != 0)) {
        fprintf(stderr, "usage: %s DIRECTORY COUNT SIZE [fsync]\n", argv[0]);
        return 2;
    }
    char folder[PATH_SIZE_MAX / 2];
    snprintf(folder, sizeof(folder), "%s/floor-files-XXXXXX", argv[1]);
    check(mkdtemp(folder) != NULL, folder);
    struct setting setting = {
        .folder = folder,
        .count = (uint32_t)strtoul(argv[2], NULL, 10),
        .size = strtoull(argv[3], NULL, 10),
        .sync = argc == 5,
    };
    setting.data = malloc(setting.size + 1);
    check(setting.data != NULL && setting.count > 0, "COUNT or SIZE");
    memset(setting.data, 'x', setting.size);
    double written = 1e9, read_back = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double us = measure(&setting, files_write);
        written = RG_MIN(written, us);
        us = measure(&setting, files_read);
        read_back = RG_MIN(read_back, us);
        files_remove(&setting);
    }
    printf("write %.1f us, read %.1f us of CPU time per file; the least of %d rounds\n", written,
           read_back, ROUNDS);
    free(setting.data);
    rmdir(folder);
    return 0;
}
