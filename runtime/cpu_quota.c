/* The CPU limit of control groups: see cpu_quota.h. */
#include "runtime/cpu_quota.h"

#include "runtime/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A whole CPU has this share of each period where the kernel does not say (its default, 100 ms). */
#define PERIOD_DEFAULT_US 100000
#define PATH_SIZE_MAX 4096

/* Reads the first line of a file into `text`; false where there is none. */
static bool line_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool is_read = fgets(text, (int)size, file) != NULL;
    fclose(file);
    return is_read;
}

static uint32_t cpus_of(int64_t quota_us, int64_t period_us)
{
    if (quota_us <= 0 || period_us <= 0) {
        return 0;
    }
    return (uint32_t)RG_MIN((quota_us - 1) / period_us + 1, (int64_t)UINT32_MAX);
}

/* "200000 100000", or "max 100000". */
static uint32_t group_quota_v2(const char *folder)
{
    char path[PATH_SIZE_MAX], text[64];
    int64_t quota_us, period_us = PERIOD_DEFAULT_US;
    int size = snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if ((size_t)size >= sizeof(path) || !line_read(path, text, sizeof(text)) ||
        sscanf(text, "%" SCNd64 " %" SCNd64, &quota_us, &period_us) < 1) {
        return 0;
    }
    return cpus_of(quota_us, period_us);
}

static int64_t number_read(const char *folder, const char *name)
{
    char path[PATH_SIZE_MAX], text[64];
    int64_t number;
    int size = snprintf(path, sizeof(path), "%s/%s", folder, name);
    bool is_read = (size_t)size < sizeof(path) && line_read(path, text, sizeof(text)) &&
                   sscanf(text, "%" SCNd64, &number) == 1;
    return is_read ? number : -1;
}

static uint32_t group_quota_v1(const char *folder)
{
    return cpus_of(number_read(folder, "cpu.cfs_quota_us"),
                   number_read(folder, "cpu.cfs_period_us"));
}

/* The least of a group's quota and those of the groups it is in. */
static uint32_t path_quota(const char *mount, const char *path,
                           uint32_t (*group_quota)(const char *folder))
{
    char folder[PATH_SIZE_MAX];
    int size = snprintf(folder, sizeof(folder), "%s%s", mount, path);
    if ((size_t)size >= sizeof(folder)) {
        return 0;
    }
    uint32_t least = 0;
    while (strlen(folder) >= strlen(mount)) {
        uint32_t quota = group_quota(folder);
        if (quota != 0 && (least == 0 || quota < least)) {
            least = quota;
        }
        *strrchr(folder, '/') = '\0';
    }
    return least;
}

/* Whether a comma-separated list of controllers has this one. */
static bool has_controller(const char *list, size_t size, const char *name)
{
    size_t name_size = strlen(name);
    for (const char *at = list; at < list + size;) {
        const char *comma = memchr(at, ',', (size_t)(list + size - at));
        size_t item_size = comma != NULL ? (size_t)(comma - at) : (size_t)(list + size - at);
        if (item_size == name_size && memcmp(at, name, name_size) == 0) {
            return true;
        }
        at += item_size + 1;
    }
    return false;
}

/* One line of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; version 2 has no controllers. */
static uint32_t line_quota(const char *root, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    const char *controllers = strchr(line, ':');
    const char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    char mount[PATH_SIZE_MAX];
    if (path == NULL || path[1] != '/') {
        return 0;
    }
    controllers++;
    size_t size = (size_t)(path - controllers);
    bool is_v2 = size == 0;
    if (!is_v2 && !has_controller(controllers, size, "cpu")) {
        return 0;
    }
    int mount_size =
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/cpu");
    if ((size_t)mount_size >= sizeof(mount)) {
        return 0;
    }
    return path_quota(mount, path + 1, is_v2 ? group_quota_v2 : group_quota_v1);
}

uint32_t rg_cpu_quota(const char *root)
{
    char path[PATH_SIZE_MAX], line[PATH_SIZE_MAX];
    int size = snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = (size_t)size < sizeof(path) ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return 0;
    }
    uint32_t least = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        uint32_t quota = line_quota(root, line);
        if (quota != 0 && (least == 0 || quota < least)) {
            least = quota;
        }
    }
    fclose(file);
    return least;
}
