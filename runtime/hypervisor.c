/* What this machine is a guest of: see hypervisor.h. */
#include "runtime/hypervisor.h"

#include "runtime/base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define LINE_SIZE 256

struct known {
    const char *begin, *name;
};

/* Of DMI, what clouds say of their machines, whatever hypervisor they are made by. */
static const struct known clouds[] = {
    {"Amazon EC2", "amazon"},
    {"Google", "google"},
};

/* Of CPUID, leaf 0x40000000. */
static const struct known signatures[] = {
    {"KVMKVMKVM", "kvm"},       {"Linux KVM Hv", "kvm"},  {"Microsoft Hv", "microsoft"},
    {"VMwareVMware", "vmware"}, {"XenVMMXenVMM", "xen"},  {"TCGTCGTCGTCG", "qemu"},
    {"bhyve bhyve", "bhyve"},   {"ACRNACRNACRN", "acrn"},
};

/* Of DMI, where the CPU does not say it. */
static const struct known products[] = {
    {"KVM", "kvm"},
    {"OpenStack", "kvm"},
    {"QEMU", "qemu"},
    {"VMware", "vmware"},
    {"VirtualBox", "oracle"},
    {"innotek GmbH", "oracle"},
    {"Xen", "xen"},
    {"Bochs", "bochs"},
    {"Parallels", "parallels"},
    {"BHYVE", "bhyve"},
    {"Virtual Machine", "microsoft"},
    {"Apple Virtualization", "apple"},
};

static FILE *file_open(const char *root, const char *name)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s%s", root, name);
    return (size_t)size < sizeof(path) ? fopen(path, "re") : NULL;
}

/* The first line of a file; "" where there is none. */
static void line_read(const char *root, const char *name, char out_line[LINE_SIZE])
{
    FILE *file = file_open(root, name);
    out_line[0] = '\0';
    if (file != NULL) {
        if (fgets(out_line, LINE_SIZE, file) == NULL) {
            out_line[0] = '\0';
        }
        fclose(file);
    }
    out_line[strcspn(out_line, "\n")] = '\0';
}

static const char *known_find(const struct known *table, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(text, table[i].begin, strlen(table[i].begin)) == 0) {
            return table[i].name;
        }
    }
    return NULL;
}

/* Takes the line apart. */
static bool has_word(char *line, const char *wanted)
{
    char *rest;
    char *word = strtok_r(line, " \t\n", &rest);
    while (word != NULL && strcmp(word, wanted) != 0) {
        word = strtok_r(NULL, " \t\n", &rest);
    }
    return word != NULL;
}

/* 1 and 0: whether the CPU says that it is a guest's; -1: it is of a kind that does not say it. */
static int flag_read(const char *root)
{
    FILE *file = file_open(root, "/proc/cpuinfo");
    char *line = NULL;
    size_t size = 0;
    int found = -1;
    while (file != NULL && found < 0 && getline(&line, &size, file) > 0) {
        if (strncmp(line, "flags", 5) == 0) {
            found = has_word(line, "hypervisor");
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    free(line);
    return found;
}

const char *rg_hypervisor_name(const char *root, const char *signature)
{
    char type[LINE_SIZE], product[LINE_SIZE], vendor[LINE_SIZE];
    const char *name;
    line_read(root, "/sys/hypervisor/type", type);
    int flag = flag_read(root);
    /* Some makers of what is virtual make machines, too: a CPU that denies it is believed. A guest
     * of Xen may have one that does. */
    if (strcmp(type, "xen") != 0 && flag == 0) {
        return NULL;
    }
    line_read(root, "/sys/class/dmi/id/product_name", product);
    line_read(root, "/sys/class/dmi/id/sys_vendor", vendor);
    if (flag < 0 && strstr(product, ".metal") != NULL) {
        return NULL;
    }
    name = known_find(clouds, RG_ARRAY_LEN(clouds), vendor);
    name = name != NULL ? name : strcmp(type, "xen") == 0 ? "xen" : NULL;
    name = name != NULL ? name : known_find(signatures, RG_ARRAY_LEN(signatures), signature);
    name = name != NULL ? name : known_find(products, RG_ARRAY_LEN(products), product);
    name = name != NULL ? name : known_find(products, RG_ARRAY_LEN(products), vendor);
    return name != NULL ? name : flag > 0 || type[0] != '\0' ? "unknown" : NULL;
}

void rg_hypervisor_signature(char out_signature[RG_HYPERVISOR_SIGNATURE_SIZE])
{
    memset(out_signature, 0, RG_HYPERVISOR_SIGNATURE_SIZE);
#if defined(__x86_64__)
    unsigned int eax, words[3], features;
    /* Bit 31 says that the leaf is a hypervisor's. */
    if (__get_cpuid(1, &eax, &words[0], &features, &words[1]) != 0 && (features >> 31) != 0) {
        __cpuid(0x40000000, eax, words[0], words[1], words[2]);
        memcpy(out_signature, words, sizeof(words));
    }
#endif
}
