/* Devices on the PCI bus: see devices.h. */
#include "runtime/devices.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first bytes of a small sysfs file. False if there is none. */
static bool sysfs_read(int dir_fd, const char *device, const char *name, char out[32])
{
    char path[NAME_MAX + 32], text[32];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", device, name) >= sizeof(path)) {
        return false;
    }
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t size = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (size <= 0) {
        return false;
    }
    RG_ASSERT((size_t)size < sizeof(text));
    text[size] = '\0';
    memcpy(out, text, sizeof(text));
    return true;
}

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Where NVIDIA's driver shows its GPUs; a container has only its own there. NULL: no driver. */
static DIR *driver_open(const char *root)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
    return (size_t)size < sizeof(path) ? opendir(path) : NULL;
}

/* 3D controllers, NVIDIA's display controllers, and accelerators of AMD. */
static bool is_gpu(int dir_fd, const char *device, const char *class, DIR *driver)
{
    char vendor[32] = "";
    bool is_display = begins_with(class, "0x0300"), is_accelerator = begins_with(class, "0x1200");
    if (!is_display && !is_accelerator && !begins_with(class, "0x0302")) {
        return false;
    }
    (void)sysfs_read(dir_fd, device, "vendor", vendor);
    bool is_nvidia = begins_with(vendor, "0x10de"), is_amd = begins_with(vendor, "0x1002");
    if ((is_display && !is_nvidia) || (is_accelerator && !is_amd)) {
        return false;
    }
    return driver == NULL || !is_nvidia || faccessat(dirfd(driver), device, F_OK, 0) == 0;
}

static void device_add(struct rg_device *devices, uint32_t *count, const char *name, int node)
{
    struct rg_device device = {.node = node};
    if (*count == RG_DEVICES_MAX || strlen(name) >= sizeof(device.name)) {
        return;
    }
    strcpy(device.name, name);
    devices[(*count)++] = device;
}

static int device_compare(const void *a, const void *b)
{
    const struct rg_device *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void rg_devices_find(struct rg_devices *out_devices, const char *root)
{
    *out_devices = (struct rg_devices){0};
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", root);
    DIR *dir = (size_t)size < sizeof(path) ? opendir(path) : NULL;
    if (dir == NULL) {
        return;
    }
    DIR *driver = driver_open(root);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        char class[32], node[32] = "-1";
        if (!sysfs_read(dirfd(dir), name, "class", class)) {
            continue;
        }
        /* Interfaces (/sys/class/net) would not do: a container sees only those of its own network
         * namespace, which have no device. */
        if (begins_with(class, "0x02")) {
            (void)sysfs_read(dirfd(dir), name, "numa_node", node);
            device_add(out_devices->nics, &out_devices->nic_count, name, atoi(node));
        } else if (is_gpu(dirfd(dir), name, class, driver)) {
            (void)sysfs_read(dirfd(dir), name, "numa_node", node);
            device_add(out_devices->gpus, &out_devices->gpu_count, name, atoi(node));
        }
    }
    if (driver != NULL) {
        closedir(driver);
    }
    closedir(dir);
    qsort(out_devices->nics, out_devices->nic_count, sizeof(struct rg_device), device_compare);
    qsort(out_devices->gpus, out_devices->gpu_count, sizeof(struct rg_device), device_compare);
}

/* The number at a place of a list "2,3,0"; -1: there is none, or it is no number, as of a GPU that
 * goes by its UUID. */
static int list_entry(const char *list, uint32_t place, uint32_t *out_count)
{
    int entry = -1;
    *out_count = 0;
    while (*list != '\0') {
        char *end = NULL;
        long number = isdigit((unsigned char)*list) ? strtol(list, &end, 10) : -1;
        bool is_number = end != NULL && (*end == ',' || *end == '\0') && number < RG_DEVICES_MAX;
        if ((*out_count)++ == place) {
            entry = is_number ? (int)number : -1;
        }
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return entry;
}

int rg_devices_gpu(const struct rg_devices *devices, const char *visible, uint32_t rank,
                   uint32_t rank_count)
{
    if (devices->gpu_count == 0) {
        return -1;
    }
    uint32_t count = 0;
    int listed = visible != NULL ? list_entry(visible, rank, &count) : -1;
    if (count >= rank_count) {
        return listed < (int)devices->gpu_count ? listed : -1;
    }
    return (int)(rank % devices->gpu_count);
}
