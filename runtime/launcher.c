/* The launcher of a rank: see launcher.h. */
#include "runtime/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More ancestors than a process has. */
#define DEPTH_MAX 64

static FILE *process_file(const char *root, pid_t pid, const char *name)
{
    char path[4096];
    int size = snprintf(path, sizeof(path), "%s/proc/%d/%s", root, (int)pid, name);
    return (size_t)size < sizeof(path) ? fopen(path, "re") : NULL;
}

/* What stands behind a name in the process's status, without the end of the line. */
static bool status_read(const char *root, pid_t pid, const char *name, char *out, size_t size)
{
    FILE *file = process_file(root, pid, "status");
    size_t name_size = strlen(name);
    char line[4096];
    bool is_found = false;
    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, name_size) == 0) {
            const char *value = line + name_size + strspn(line + name_size, "\t ");
            int length = snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
            is_found = (size_t)length < size;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

static pid_t parent_of(const char *root, pid_t pid)
{
    char text[32];
    return status_read(root, pid, "PPid:", text, sizeof(text)) ? (pid_t)atoi(text) : 0;
}

enum start {
    START_WITH,    /* "NAME=VALUE" */
    START_WITHOUT, /* it is a launcher */
    START_HIDDEN,  /* another user's, or it has made itself private */
};

static enum start start_of(const char *root, pid_t pid, const char *name, const char *value)
{
    FILE *file = process_file(root, pid, "environ");
    size_t name_size = strlen(name), capacity = 0;
    char *entry = NULL;
    bool is_found = false;
    if (file == NULL) {
        return START_HIDDEN;
    }
    while (!is_found && getdelim(&entry, &capacity, '\0', file) > 0) {
        is_found = strncmp(entry, name, name_size) == 0 && entry[name_size] == '=' &&
                   strcmp(entry + name_size + 1, value) == 0;
    }
    free(entry);
    fclose(file);
    return is_found ? START_WITH : START_WITHOUT;
}

/* The nearest ancestor that can be seen to be a launcher; else the nearest one that may be, because
 * it is hidden and nobody above it was started as the rank was. 0: none. */
static pid_t launcher_of(const char *root, pid_t pid, const char *variable, const char *value)
{
    pid_t hidden = 0;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        pid = parent_of(root, pid);
        if (pid <= 0) {
            return hidden;
        }
        switch (start_of(root, pid, variable, value)) {
        case START_WITHOUT:
            return pid;
        case START_WITH:
            hidden = 0;
            break;
        case START_HIDDEN:
            hidden = hidden != 0 ? hidden : pid;
            break;
        }
    }
    return 0;
}

bool rg_launcher_cpus(const char *root, pid_t pid, const char *variable, char *out, size_t size)
{
    const char *value = getenv(variable);
    pid_t launcher = value != NULL ? launcher_of(root, pid, variable, value) : 0;
    return launcher > 0 && status_read(root, launcher, "Cpus_allowed_list:", out, size);
}
