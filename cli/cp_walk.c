/* Trees of this machine, in the order of the names of their objects. */
#include "cli/cp_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Deeper folders than this are refused; a path of the system has at most 4096 bytes. */
#define PATH_SIZE_MAX 4096

struct entry {
    char *name; /* with "/" at the end of a folder's, as it is in objects' names */
    struct stat stat;
};

struct entries {
    const char *path, *relative; /* borrowed; of the folder, as walk has them */
    struct entry *items;
    size_t count, capacity;
};

static int entry_compare(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static void entries_free(struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        free(entries->items[i].name);
    }
    free(entries->items);
}

/* Takes `name`. */
static int entries_add(struct entries *entries, char *name, const struct stat *stat)
{
    if (entries->count == entries->capacity) {
        size_t capacity = RG_MAX(2 * entries->capacity, (size_t)32);
        struct entry *grown = reallocarray(entries->items, capacity, sizeof(*grown));
        if (grown == NULL) {
            free(name);
            return -ENOMEM;
        }
        entries->items = grown;
        entries->capacity = capacity;
    }
    entries->items[entries->count++] = (struct entry){.name = name, .stat = *stat};
    return 0;
}

/* A link is counted, and its place at the destination remembered. */
static int link_leave(struct plan *plan, const char *relative, const char *name)
{
    plan->links++;
    if (!plan->options->deletes) {
        return 0;
    }
    char *below;
    if (asprintf(&below, "%s%s", relative, name) < 0) {
        return -ENOMEM;
    }
    char *place = cp_target(plan, "", below);
    bool is_new;
    int rc = place != NULL ? places_take(&plan->run->links, place, &is_new) : -ENOMEM;
    free(place);
    free(below);
    return rc;
}

/* One name of a folder. What cannot be copied is said here; links are counted. */
static int entry_read(struct plan *plan, struct entries *entries, int folder, const char *name)
{
    const char *path = entries->path;
    struct stat stat;
    int flags = plan->options->follow_symlinks ? 0 : AT_SYMLINK_NOFOLLOW;
    if (fstatat(folder, name, &stat, flags) < 0) {
        cp_run_refuse(plan->run, "%s/%s: %s", path, name, local_error_text(-errno));
        return 0;
    }
    if (S_ISLNK(stat.st_mode)) {
        return link_leave(plan, entries->relative, name);
    }
    if (!S_ISREG(stat.st_mode) && !S_ISDIR(stat.st_mode)) {
        cp_run_refuse(plan->run, "%s/%s: neither a file nor a folder; skipped", path, name);
        return 0;
    }
    if (S_ISREG(stat.st_mode) && local_name_is_part(name)) {
        return 0;
    }
    char *sorted;
    if (asprintf(&sorted, "%s%s", name, S_ISDIR(stat.st_mode) ? "/" : "") < 0) {
        return -ENOMEM;
    }
    return entries_add(entries, sorted, &stat);
}

static int folder_read(struct plan *plan, struct entries *out_entries)
{
    const char *path = out_entries->path;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        cp_run_refuse(plan->run, "%s: %s", path, local_error_text(-errno));
        return 0;
    }
    int rc = 0;
    struct dirent *each;
    while (rc == 0 && (errno = 0, each = readdir(folder)) != NULL) {
        if (strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0) {
            rc = entry_read(plan, out_entries, dirfd(folder), each->d_name);
        }
    }
    if (rc == 0 && errno != 0) {
        cp_run_refuse(plan->run, "%s: %s", path, strerror(errno));
    }
    closedir(folder);
    if (out_entries->count > 0) {
        qsort(out_entries->items, out_entries->count, sizeof(*out_entries->items), entry_compare);
    }
    return rc;
}

/* The folders that lead to one, for finding links that lead back. */
struct ancestor {
    const struct ancestor *above;
    dev_t device;
    ino_t inode;
};

static bool is_loop(const struct ancestor *above, const struct stat *stat)
{
    for (; above != NULL; above = above->above) {
        if (above->device == stat->st_dev && above->inode == stat->st_ino) {
            return true;
        }
    }
    return false;
}

/* `path` and `relative` are of the folder; `relative` is "" or ends in "/". */
static void walk(struct plan *plan, const char *base, const char *path, const char *relative,
                 const struct ancestor *self)
{
    struct entries entries = {.path = path, .relative = relative};
    if (strlen(path) > PATH_SIZE_MAX) {
        cp_run_refuse(plan->run, "%.60s...: the path is longer than %d bytes", path, PATH_SIZE_MAX);
    } else if (folder_read(plan, &entries) < 0) {
        cp_plan_no_memory(plan);
    }
    for (size_t i = 0; i < entries.count && !plan->stopped; i++) {
        struct entry *entry = &entries.items[i];
        char *below = cp_join(path, entry->name);
        char *name = NULL;
        if (below == NULL || asprintf(&name, "%s%s", relative, entry->name) < 0) {
            free(below);
            cp_plan_no_memory(plan);
            break;
        }
        bool is_file = S_ISREG(entry->stat.st_mode);
        const struct filter *filter = &plan->options->filter;
        bool enters = plan->options->recursive && filter_enters(filter, name);
        if (!(is_file ? filter_takes(filter, name) : enters)) {
            /* Left out. */
        } else if (is_file) {
            cp_upload_plan(plan, below, cp_target(plan, base, name), &entry->stat);
        } else if (is_loop(self, &entry->stat)) {
            cp_run_refuse(plan->run, "%s: a link to a folder above it; skipped", below);
        } else {
            struct ancestor folder = {self, entry->stat.st_dev, entry->stat.st_ino};
            below[strlen(below) - 1] = '\0';
            walk(plan, base, below, name, &folder);
        }
        free(below);
        free(name);
    }
    entries_free(&entries);
}

void cp_plan_local(struct plan *plan, const char *source)
{
    struct stat stat_;
    if (stat(source, &stat_) < 0) {
        cp_run_refuse(plan->run, "%s: %s", source, local_error_text(-errno));
        return;
    }
    char *base = plan->options->syncs ? strdup("") : cp_base_name(source);
    if (base == NULL) {
        cp_plan_no_memory(plan);
    } else if (plan->options->syncs && !S_ISDIR(stat_.st_mode)) {
        cp_run_refuse(plan->run, "%s: is no folder; copy it with cp", source);
    } else if (S_ISREG(stat_.st_mode) && !filter_takes(&plan->options->filter, base)) {
        /* Left out. */
    } else if (S_ISREG(stat_.st_mode)) {
        char *name = plan->into ? cp_target(plan, base, "") : strdup(plan->uri.name);
        cp_upload_plan(plan, source, name, &stat_);
    } else if (!S_ISDIR(stat_.st_mode)) {
        cp_run_refuse(plan->run,
                      "%s: not a regular file; read it as standard input: `cp - ... <%s`", source,
                      source);
    } else if (!plan->options->recursive && !plan->options->syncs) {
        cp_run_refuse(plan->run, "%s: is a folder; copy it with -r", source);
    } else {
        struct ancestor self = {NULL, stat_.st_dev, stat_.st_ino};
        cp_merge_tell(plan, base);
        if (!plan->stopped) {
            walk(plan, base, source, "", &self);
        }
    }
    free(base);
}
