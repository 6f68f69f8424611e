/* From the command line to items.
 *
 * Where a source goes depends on the command line only, and not on what is there already, so that
 * an interrupted run can be repeated: a destination that ends in "/", a bucket, "." and ".." are
 * places to put things into under their own names; anything else is the new name. The one exception
 * is a single file that goes to a folder that exists on this machine.
 *
 * Trees are walked in the order of the names of their objects, so that what is in the bucket
 * already can be had page by page, however much else it holds. */
#include "cli/cp.h"
#include "cli/lister.h"
#include "cli/lookup.h"
#include "cli/places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Deeper folders than this are refused; a path of the system has at most 4096 bytes. */
#define PATH_SIZE_MAX 4096

struct plan {
    struct cp_run *run;
    const struct cp_options *options;
    bool to_bucket, into; /* the destination is a place to put things into */
    struct cli_uri uri;   /* to_bucket */
    const char *folder;   /* otherwise */
    struct lookup lookup;
    uint64_t links; /* symbolic links left out */
    /* Where things go, if sources may meet: several that have one name, or whose contents are
     * meant. */
    bool may_meet;
    struct places places;
    bool stopped; /* nothing more is to be planned */
    bool merge_is_told;
};

static bool is_stream(const char *place)
{
    return strcmp(place, "-") == 0;
}

static int no_memory(struct plan *plan)
{
    plan->stopped = true;
    return cli_fail("no memory");
}

/* The last part of a path or a name: "c" of "a/b/c" and of "a/b/c/". Empty for ".", "..", and what
 * ends in them: the contents are meant. */
static char *base_name(const char *place)
{
    size_t end = strlen(place);
    while (end > 0 && place[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && place[start - 1] != '/') {
        start--;
    }
    char *base = strndup(place + start, end - start);
    if (base != NULL && (strcmp(base, ".") == 0 || strcmp(base, "..") == 0)) {
        base[0] = '\0';
    }
    return base;
}

/* a, a/b, or b where the other is empty. Owned. */
static char *join(const char *a, const char *b)
{
    size_t size = strlen(a);
    bool slash = size > 0 && a[size - 1] != '/' && *b != '\0';
    char *joined;
    return asprintf(&joined, "%s%s%s", a, slash ? "/" : "", b) < 0 ? NULL : joined;
}

/* Where something goes that is called `relative` below the source, whose own name is `base`. */
static char *target(const struct plan *plan, const char *base, const char *relative)
{
    const char *root = plan->to_bucket ? plan->uri.name : plan->folder;
    char *below = plan->into ? join(base, relative) : strdup(relative);
    char *joined = below != NULL ? join(root, below) : NULL;
    free(below);
    return joined;
}

static bool is_folder(const char *path)
{
    struct stat stat_;
    return stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode);
}

/* gcloud copies a folder into a destination that exists, and to a destination that does not; here
 * it becomes the destination in either case. Whoever expects the other hears of it before anything
 * is copied. */
static void merge_tell(struct plan *plan, const char *base)
{
    bool exists = false;
    if (plan->merge_is_told || plan->into || plan->options->json || *base == '\0') {
        return;
    }
    plan->merge_is_told = true;
    const char *root = plan->to_bucket ? plan->uri.name : plan->folder;
    char *root_base = base_name(root);
    if (root_base == NULL || strcmp(root_base, base) == 0) {
        free(root_base);
        return;
    }
    free(root_base);
    if (plan->to_bucket) {
        char prefix[RG_OBJECT_NAME_SIZE_MAX + 2];
        snprintf(prefix, sizeof(prefix), "%s/", root);
        plan->stopped = lookup_prefix(&plan->lookup, prefix, &exists) != CLI_DONE;
    } else {
        exists = is_folder(root);
    }
    if (exists) {
        cli_note("%s%s%s%s exists, and gets the contents of \"%s\"; with \"/\" at the end it gets "
                 "the folder \"%s\" itself",
                 plan->to_bucket ? "gs://" : "", plan->to_bucket ? plan->uri.bucket : "",
                 plan->to_bucket ? "/" : "", root, base, base);
    }
}

static bool item_add(struct plan *plan, struct cp_item *item)
{
    if (!cp_run_add(plan->run, item)) {
        plan->stopped = true;
    }
    return !plan->stopped;
}

/* Takes the item: prints it, or hands it over. */
static void item_submit(struct plan *plan, struct cp_item *item)
{
    if (!plan->options->dry_run) {
        item_add(plan, item);
        return;
    }
    if (item->kind == CP_UPLOAD) {
        printf("would copy %s to gs://%s/%s\n", cli_shown(item->path), item->bucket,
               cli_shown(item->name));
    } else if (item->kind == CP_DOWNLOAD) {
        printf("would copy gs://%s/%s to %s\n", item->bucket, cli_shown(item->name),
               cli_shown(item->path));
    } else {
        printf("would copy gs://%s/%s to gs://%s/%s\n", item->from_bucket,
               cli_shown(item->from_name), item->bucket, cli_shown(item->name));
    }
    plan->run->counts.planned++;
    plan->run->counts.bytes_planned += item->size;
    cp_item_destroy(item);
    plan->stopped = cli_interrupted();
}

/* Looks at the destination of a written object. Takes the item; gives it back, or NULL when there
 * is nothing to do for it. */
static struct cp_item *item_look(struct plan *plan, struct cp_item *item)
{
    if (lookup_find(&plan->lookup, item->name, &item->there) != CLI_DONE) {
        plan->stopped = true;
    } else if (plan->lookup.has_no_bucket) {
        item->has_no_bucket = true;
        return item; /* Writing tells what is to be done about that. */
    } else if (item->there.exists && plan->options->no_clobber) {
        cp_run_skip(plan->run);
    } else if (plan->options->if_generation_match != 0) {
        return item; /* The same bytes are no reason to say that the condition holds. */
    } else if (item->kind == CP_COPY && item->there.exists && item->has_crc32c &&
               item->there.has_crc32c && item->there.size == item->size &&
               item->there.crc32c == item->crc32c) {
        if (cp_retypes(plan->options)) {
            item->is_same = true;
            return item;
        }
        cp_run_skip(plan->run);
    } else {
        return item;
    }
    cp_item_destroy(item);
    return NULL;
}

/* Takes a destination, unless another source has it, which is said. */
static bool place_take(struct plan *plan, const struct cp_item *item)
{
    const char *place = plan->to_bucket ? item->name : item->path;
    bool is_free = true;
    if (plan->may_meet && places_take(&plan->places, place, &is_free) < 0) {
        no_memory(plan);
        return false;
    }
    if (is_free) {
        return true;
    }
    if (plan->options->no_clobber) {
        cp_run_skip(plan->run);
    } else if (item->kind == CP_UPLOAD) {
        cp_run_refuse(plan->run, "%s: gs://%s/%s is taken by another source; skipped", item->path,
                      item->bucket, place);
    } else if (item->kind == CP_COPY) {
        cp_run_refuse(plan->run, "gs://%s/%s: gs://%s/%s is taken by another source; skipped",
                      item->from_bucket, item->from_name, item->bucket, place);
    } else {
        cp_run_refuse(plan->run, "gs://%s/%s: %s is taken by another source; skipped", item->bucket,
                      item->name, place);
    }
    return false;
}

/* Takes `name`. */
static void upload_plan(struct plan *plan, const char *path, char *name, const struct stat *stat)
{
    struct cp_item *item = cp_item_create(CP_UPLOAD);
    if (item == NULL || name == NULL) {
        free(name);
        cp_item_destroy(item);
        no_memory(plan);
        return;
    }
    item->name = name;
    item->path = strdup(path);
    item->bucket = strdup(plan->uri.bucket);
    item->size = (uint64_t)stat->st_size;
    item->is_size_known = true;
    if (item->path == NULL || item->bucket == NULL) {
        cp_item_destroy(item);
        no_memory(plan);
        return;
    }
    if (strlen(name) > RG_OBJECT_NAME_SIZE_MAX) {
        cp_run_refuse(plan->run, "%s: the name of the object would be longer than %d bytes", path,
                      RG_OBJECT_NAME_SIZE_MAX);
        cp_item_destroy(item);
        return;
    }
    if (!place_take(plan, item)) {
        cp_item_destroy(item);
        return;
    }
    item = item_look(plan, item);
    if (item != NULL) {
        item_submit(plan, item);
    }
}

/* `object` is NULL where nothing is known but the name. Takes `destination`. */
static void object_plan(struct plan *plan, const char *bucket, const char *name,
                        const struct rg_object *object, char *destination)
{
    struct cp_item *item = cp_item_create(plan->to_bucket ? CP_COPY : CP_DOWNLOAD);
    char *from_bucket = strdup(bucket), *from_name = strdup(name);
    char *to_bucket = plan->to_bucket ? strdup(plan->uri.bucket) : NULL;
    if (item == NULL || destination == NULL || from_bucket == NULL || from_name == NULL ||
        (plan->to_bucket && to_bucket == NULL)) {
        free(from_bucket);
        free(from_name);
        free(to_bucket);
        free(destination);
        cp_item_destroy(item);
        no_memory(plan);
        return;
    }
    if (plan->to_bucket) {
        item->from_bucket = from_bucket;
        item->from_name = from_name;
        item->bucket = to_bucket;
        item->name = destination;
    } else {
        item->bucket = from_bucket;
        item->name = from_name;
        item->path = destination;
    }
    if (object != NULL) {
        item->size = object->size;
        item->is_size_known = true;
        item->generation = object->generation;
        item->crc32c = object->crc32c;
        item->has_crc32c = object->has_crc32c;
    }
    if (!place_take(plan, item)) {
        cp_item_destroy(item);
        item = NULL;
    } else if (plan->to_bucket) {
        item = item_look(plan, item);
    } else if (plan->options->no_clobber && access(item->path, F_OK) == 0) {
        cp_run_skip(plan->run);
        cp_item_destroy(item);
        item = NULL;
    }
    if (item != NULL) {
        item_submit(plan, item);
    }
}

struct entry {
    char *name; /* with "/" at the end of a folder's, as it is in objects' names */
    struct stat stat;
};

struct entries {
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

/* One name of a folder. What cannot be copied is said here; links are counted. */
static int entry_read(struct plan *plan, struct entries *entries, int folder, const char *path,
                      const char *name)
{
    struct stat stat;
    int flags = plan->options->follow_symlinks ? 0 : AT_SYMLINK_NOFOLLOW;
    if (fstatat(folder, name, &stat, flags) < 0) {
        cp_run_refuse(plan->run, "%s/%s: %s", path, name, local_error_text(-errno));
        return 0;
    }
    if (S_ISLNK(stat.st_mode)) {
        plan->links++;
        return 0;
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

static int folder_read(struct plan *plan, const char *path, struct entries *out_entries)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        cp_run_refuse(plan->run, "%s: %s", path, local_error_text(-errno));
        return 0;
    }
    int rc = 0;
    struct dirent *each;
    while (rc == 0 && (errno = 0, each = readdir(folder)) != NULL) {
        if (strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0) {
            rc = entry_read(plan, out_entries, dirfd(folder), path, each->d_name);
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
    struct entries entries = {0};
    if (strlen(path) > PATH_SIZE_MAX) {
        cp_run_refuse(plan->run, "%.60s...: the path is longer than %d bytes", path, PATH_SIZE_MAX);
    } else if (folder_read(plan, path, &entries) < 0) {
        no_memory(plan);
    }
    for (size_t i = 0; i < entries.count && !plan->stopped; i++) {
        struct entry *entry = &entries.items[i];
        char *below = join(path, entry->name);
        char *name = NULL;
        if (below == NULL || asprintf(&name, "%s%s", relative, entry->name) < 0) {
            free(below);
            no_memory(plan);
            break;
        }
        if (S_ISREG(entry->stat.st_mode)) {
            upload_plan(plan, below, target(plan, base, name), &entry->stat);
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

static void plan_local(struct plan *plan, const char *source)
{
    struct stat stat_;
    if (stat(source, &stat_) < 0) {
        cp_run_refuse(plan->run, "%s: %s", source, local_error_text(-errno));
        return;
    }
    char *base = base_name(source);
    if (base == NULL) {
        no_memory(plan);
    } else if (S_ISREG(stat_.st_mode)) {
        char *name = plan->into ? target(plan, base, "") : strdup(plan->uri.name);
        upload_plan(plan, source, name, &stat_);
    } else if (!S_ISDIR(stat_.st_mode)) {
        cp_run_refuse(plan->run,
                      "%s: not a regular file; read it as standard input: `cp - ... <%s`", source,
                      source);
    } else if (!plan->options->recursive) {
        cp_run_refuse(plan->run, "%s: is a folder; copy it with -r", source);
    } else {
        struct ancestor self = {NULL, stat_.st_dev, stat_.st_ino};
        merge_tell(plan, base);
        if (!plan->stopped) {
            walk(plan, base, source, "", &self);
        }
    }
    free(base);
}

/* An object whose name ends in "/" stands for a folder, as consoles make them: it becomes one here,
 * and is copied like any other between buckets. */
static void plan_marker(struct plan *plan, const char *bucket, const struct rg_object *object,
                        char *path)
{
    if (object->size > 0) {
        cp_run_refuse(plan->run, "gs://%s/%s: cannot be a file: its name ends in \"/\"", bucket,
                      object->name);
    } else if (!plan->options->dry_run && path != NULL) {
        int rc = local_make_parents(path);
        if (rc < 0) {
            cp_run_refuse(plan->run, "%s: %s", path, local_error_text(rc));
        }
    }
    free(path);
}

/* `relative` is the object's name below the source; "" for the source itself. */
static void plan_listed(struct plan *plan, const char *bucket, const char *base,
                        const struct rg_object *object, const char *relative)
{
    size_t size = strlen(relative);
    bool marker = size > 0 && relative[size - 1] == '/';
    char *checked = strndup(relative, size - marker);
    char *destination = target(plan, base, relative);
    if (checked == NULL || destination == NULL) {
        free(destination);
        no_memory(plan);
    } else if (plan->to_bucket) {
        /* The marker of the source's own folder becomes that of the destination's. */
        char *folder = NULL;
        if (size == 0 && asprintf(&folder, "%s/", destination) < 0) {
            folder = NULL;
        }
        object_plan(plan, bucket, object->name, object, folder != NULL ? folder : destination);
        if (folder != NULL) {
            free(destination);
        }
    } else if (size > 0 && local_name_problem(checked) != NULL) {
        cp_run_refuse(plan->run, "gs://%s/%s: cannot be a file below %s: %s", bucket, object->name,
                      plan->folder, local_name_problem(checked));
        free(destination);
    } else if (marker) {
        plan_marker(plan, bucket, object, destination);
    } else {
        object_plan(plan, bucket, object->name, object, destination);
    }
    free(checked);
}

/* What the names begin with that a source in the same bucket gets below itself, "" for none: they
 * are no part of it, or the copy would go on and on. Owned. */
static char *place_within(const struct plan *plan, const struct cli_uri *uri, const char *base,
                          const char *prefix)
{
    char *root = target(plan, base, ""), *within = NULL;
    size_t size = root != NULL ? strlen(root) : 0;
    bool slash = size > 0 && root[size - 1] != '/';
    if (root != NULL && asprintf(&within, "%s%s", root, slash ? "/" : "") < 0) {
        within = NULL;
    }
    free(root);
    bool is_below = within != NULL && plan->to_bucket &&
                    strcmp(plan->uri.bucket, uri->bucket) == 0 &&
                    strncmp(within, prefix, strlen(prefix)) == 0 && strcmp(within, prefix) != 0;
    if (within != NULL && !is_below) {
        within[0] = '\0';
    }
    return within;
}

static void plan_prefix(struct plan *plan, const struct cli_uri *uri, const char *base,
                        uint64_t *out_count)
{
    char *prefix;
    size_t size = strlen(uri->name);
    bool slash = size > 0 && uri->name[size - 1] != '/';
    if (asprintf(&prefix, "%s%s", uri->name, slash ? "/" : "") < 0) {
        no_memory(plan);
        return;
    }
    char *within = place_within(plan, uri, base, prefix);
    if (within == NULL) {
        free(prefix);
        no_memory(plan);
        return;
    }
    uint64_t left_out = 0;
    struct rg_listing_options options = {
        .bucket = uri->bucket, .prefix = prefix, .ordered = plan->to_bucket};
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, plan->run->session, &options);
    while (status == CLI_DONE && !plan->stopped &&
           (status = lister_next(&lister, &page)) == CLI_DONE && page != NULL) {
        *out_count += page->object_count;
        for (size_t i = 0; i < page->object_count && !plan->stopped; i++) {
            const char *relative = page->objects[i].name + strlen(prefix);
            merge_tell(plan, base);
            if (*within != '\0' && strncmp(page->objects[i].name, within, strlen(within)) == 0) {
                left_out++;
            } else if (*relative != '\0' || plan->to_bucket) {
                plan_listed(plan, uri->bucket, base, &page->objects[i], relative);
            }
        }
    }
    plan->stopped = plan->stopped || status != CLI_DONE;
    lister_close(&lister);
    if (left_out > 0) {
        cli_note("gs://%s/%s: %" PRIu64
                 " objects are in the destination already; skipped as sources",
                 uri->bucket, within, left_out);
    }
    free(within);
    free(prefix);
}

/* Asks what is known of one object of a source. False: it is not there, or the plan is stopped. */
static bool object_find(struct plan *plan, const struct cli_uri *uri, struct there *out_there)
{
    if (lookup_one(plan->run->session, uri, out_there) != CLI_DONE) {
        plan->stopped = true;
    }
    return out_there->exists;
}

static void plan_object(struct plan *plan, const struct cli_uri *uri, const char *base, bool known)
{
    char *destination = plan->into ? target(plan, base, "")
                                   : strdup(plan->to_bucket ? plan->uri.name : plan->folder);
    if (destination == NULL) {
        no_memory(plan);
        return;
    }
    if (!plan->to_bucket && plan->into && local_name_problem(base) != NULL) {
        cp_run_refuse(plan->run, "gs://%s/%s: cannot be a file in %s: %s", uri->bucket, uri->name,
                      plan->folder, local_name_problem(base));
        free(destination);
        return;
    }
    /* Whether it is the same as what is here can only be told when it is known; otherwise it is
     * read with one request, and nothing is asked before. */
    struct there there = {0};
    known = known || plan->to_bucket || access(destination, F_OK) == 0;
    bool exists = known && object_find(plan, uri, &there);
    struct rg_object object = {
        .name = uri->name,
        .size = there.size,
        .generation = there.generation,
        .crc32c = there.crc32c,
        .has_crc32c = there.has_crc32c,
    };
    if (plan->stopped) {
        free(destination);
        return;
    }
    object_plan(plan, uri->bucket, uri->name, exists ? &object : NULL, destination);
}

static void plan_remote(struct plan *plan, const char *source)
{
    struct cli_uri uri;
    if (!cli_parse_uri(source, &uri)) {
        plan->stopped = true;
        return;
    }
    char *base = base_name(uri.name[0] != '\0' ? uri.name : uri.bucket);
    size_t size = strlen(uri.name);
    bool may_be_object = size > 0 && uri.name[size - 1] != '/';
    if (base == NULL) {
        no_memory(plan);
    } else if (!plan->options->recursive && !may_be_object) {
        cp_run_refuse(plan->run, "%s: is a %s; copy it with -r", source,
                      size == 0 ? "bucket" : "folder");
    } else if (!plan->options->recursive) {
        plan_object(plan, &uri, base, false);
    } else {
        /* Both "a" and "a/..." may exist; -r means all of it. */
        struct there there = {0};
        uint64_t count = 0;
        bool exists = may_be_object && object_find(plan, &uri, &there);
        if (exists) {
            plan_object(plan, &uri, base, true);
        }
        if (!plan->stopped) {
            plan_prefix(plan, &uri, base, &count);
        }
        if (!plan->stopped && count == 0 && !exists) {
            cp_run_refuse(plan->run, "%s: no such object, and nothing below it", source);
        }
    }
    free(base);
}

static bool names_a_place(const char *destination)
{
    size_t size = strlen(destination);
    if (size > 0 && destination[size - 1] == '/') {
        return true;
    }
    const char *slash = strrchr(destination, '/');
    const char *last = slash != NULL ? slash + 1 : destination;
    return strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
}

int cp_plan_check(const struct cp_options *options, char *const *sources, size_t source_count,
                  const char *destination)
{
    struct cli_uri uri;
    bool to_bucket = cli_is_uri(destination);
    if (to_bucket && !cli_parse_uri(destination, &uri)) {
        return CLI_USAGE;
    }
    for (size_t i = 0; i < source_count; i++) {
        if (cli_is_uri(sources[i]) && !cli_parse_uri(sources[i], &uri)) {
            return CLI_USAGE;
        }
        if (!cli_is_uri(sources[i]) && !to_bucket) {
            return cli_usage(
                "the source or the destination must be gs://BUCKET/NAME, got \"%s\" and "
                "\"%s\"",
                sources[i], destination);
        }
        if ((is_stream(sources[i]) || is_stream(destination)) &&
            (source_count > 1 || options->recursive)) {
            return cli_usage("with \"-\" there must be one source, and no -r");
        }
        if (is_stream(sources[i]) && (uri = (struct cli_uri){0}, true) &&
            (!cli_parse_uri(destination, &uri) || uri.name[0] == '\0' ||
             names_a_place(destination))) {
            return cli_usage("the destination of standard input must be an object, "
                             "gs://BUCKET/OBJECT, got \"%s\"",
                             destination);
        }
    }
    if (options->content_type != NULL && !to_bucket) {
        return cli_usage("--content-type is for objects that are written; \"%s\" is a file",
                         destination);
    }
    if (options->if_generation_match != 0 && !to_bucket) {
        return cli_usage("--if-generation-match is for objects that are written; \"%s\" is a file",
                         destination);
    }
    if (options->if_generation_match != 0 && options->no_clobber) {
        return cli_usage("--no-clobber and --if-generation-match exclude each other");
    }
    if (options->if_generation_match > 0 && (source_count > 1 || options->recursive)) {
        return cli_usage("--if-generation-match with a generation is for one source without -r");
    }
    bool conditional = options->if_generation_match != 0 || options->no_clobber;
    if (conditional && options->method == RG_UPLOAD_MULTIPART) {
        return cli_usage("--method multipart cannot have a condition; use compose or resumable");
    }
    return CLI_DONE;
}

static int destination_open(struct plan *plan, const char *const destination, size_t source_count)
{
    plan->to_bucket = cli_is_uri(destination);
    plan->into = source_count > 1 || names_a_place(destination);
    if (!plan->to_bucket) {
        plan->folder = destination;
        plan->into = plan->into || (!plan->options->recursive && is_folder(destination));
        return CLI_DONE;
    }
    RG_ASSERT(cli_parse_uri(destination, &plan->uri));
    plan->into = plan->into || plan->uri.name[0] == '\0';
    bool many = plan->options->recursive || source_count > 1;
    return lookup_open(&plan->lookup, plan->run->session, plan->uri.bucket, many ? 0 : 1);
}

static int text_pointer_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether sources have one name, or their contents are meant, so that what is in them may meet. */
static bool may_meet(char *const *sources, size_t count)
{
    char **names = calloc(count, sizeof(*names));
    bool may = names == NULL;
    for (size_t i = 0; i < count && !may; i++) {
        struct cli_uri uri = {0};
        bool is_bucket =
            cli_is_uri(sources[i]) && cli_parse_uri(sources[i], &uri) && uri.name[0] == '\0';
        names[i] = base_name(is_bucket ? uri.bucket : sources[i]);
        may = names[i] == NULL || names[i][0] == '\0';
    }
    if (!may) {
        qsort(names, count, sizeof(*names), text_pointer_compare);
    }
    for (size_t i = 1; i < count && !may; i++) {
        may = strcmp(names[i - 1], names[i]) == 0;
    }
    for (size_t i = 0; names != NULL && i < count; i++) {
        free(names[i]);
    }
    free(names);
    return may;
}

int cp_plan(struct cp_run *run, char *const *sources, size_t source_count, const char *destination)
{
    struct plan plan = {.run = run, .options = run->options};
    int status = destination_open(&plan, destination, source_count);
    plan.stopped = status != CLI_DONE;
    plan.may_meet = source_count > 1 && may_meet(sources, source_count);
    for (size_t i = 0; i < source_count && !plan.stopped; i++) {
        if (cli_is_uri(sources[i])) {
            plan_remote(&plan, sources[i]);
        } else {
            plan_local(&plan, sources[i]);
        }
    }
    if (plan.links > 0) {
        cli_note("%" PRIu64 " symbolic link%s skipped; --follow-symlinks copies the targets",
                 plan.links, plan.links == 1 ? "" : "s");
    }
    lookup_close(&plan.lookup);
    places_fini(&plan.places);
    return plan.stopped && !cli_interrupted() ? CLI_FAILED : CLI_DONE;
}
