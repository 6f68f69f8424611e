/* From the command line to items.
 *
 * Where a source goes depends on the command line only, and not on what is there already, so that
 * an interrupted run can be repeated: a destination that ends in "/", a bucket, "." and ".." are
 * places to put things into under their own names; anything else is the new name. The one exception
 * is a single file that goes to a folder that exists on this machine. What wildcards match is put
 * into the destination, like several sources.
 *
 * Trees are walked in the order of the names of their objects, so that what is in the bucket
 * already can be had page by page, however much else it holds. */
#include "cli/cp_plan.h"

#include "cli/expand.h"
#include "cli/lister.h"
#include "cli/wildcard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_stream(const char *place)
{
    return strcmp(place, "-") == 0;
}

int cp_plan_no_memory(struct plan *plan)
{
    plan->stopped = true;
    return cli_fail("no memory");
}

char *cp_base_name(const char *place)
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

char *cp_join(const char *a, const char *b)
{
    size_t size = strlen(a);
    bool slash = size > 0 && a[size - 1] != '/' && *b != '\0';
    char *joined;
    return asprintf(&joined, "%s%s%s", a, slash ? "/" : "", b) < 0 ? NULL : joined;
}

char *cp_target(const struct plan *plan, const char *base, const char *relative)
{
    const char *root = plan->to_bucket ? plan->uri.name : plan->folder;
    char *below = plan->into ? cp_join(base, relative) : strdup(relative);
    char *joined = below != NULL ? cp_join(root, below) : NULL;
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
void cp_merge_tell(struct plan *plan, const char *base)
{
    bool exists = false;
    if (plan->merge_is_told || plan->into || plan->options->json || *base == '\0') {
        return;
    }
    plan->merge_is_told = true;
    const char *root = plan->to_bucket ? plan->uri.name : plan->folder;
    char *root_base = cp_base_name(root);
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

/* Whether a sync would leave it alone. */
static bool is_same(const struct plan *plan, struct cp_item *item)
{
    return plan->options->syncs &&
           ((item->kind == CP_UPLOAD && cp_upload_is_there(plan->options, item)) ||
            (item->kind == CP_DOWNLOAD && cp_download_is_there(item)));
}

static void would_print(struct plan *plan, const struct cp_item *item)
{
    const char *verb = plan->options->moves ? "move" : "copy";
    pthread_mutex_lock(&plan->run->lock); /* workers print, too */
    if (item->kind == CP_UPLOAD) {
        printf("would %s %s to gs://%s/%s\n", verb, cli_shown(item->path), item->bucket,
               cli_shown(item->name));
    } else if (item->kind == CP_DOWNLOAD) {
        printf("would %s gs://%s/%s to %s\n", verb, item->bucket, cli_shown(item->name),
               cli_shown(item->path));
    } else {
        printf("would %s gs://%s/%s to gs://%s/%s\n", verb, item->from_bucket,
               cli_shown(item->from_name), item->bucket, cli_shown(item->name));
    }
    plan->run->counts.planned++;
    plan->run->counts.bytes_planned += item->size;
    pthread_mutex_unlock(&plan->run->lock);
}

/* Takes the item: prints it, or hands it over. */
static void item_submit(struct plan *plan, struct cp_item *item)
{
    if (!plan->options->dry_run) {
        item_add(plan, item);
        return;
    }
    item->is_same = item->is_same || is_same(plan, item);
    if (item->is_same && cp_retypes(plan->options)) {
        item_add(plan, item); /* A worker asks what is said of the object. */
        return;
    }
    if (item->is_same) {
        cp_run_skip(plan->run);
    } else {
        would_print(plan, item);
    }
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
        if (plan->options->moves) {
            /* Copied all the same: the source may only go when there is a copy of which nobody else
             * knows. Who moves the other way at the same time does not find what it has seen. */
            return item;
        }
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
    if ((plan->may_meet || plan->options->deletes) &&
        places_take(&plan->run->places, place, &is_free) < 0) {
        cp_plan_no_memory(plan);
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

void cp_upload_plan(struct plan *plan, const char *path, char *name, const struct stat *stat)
{
    struct cp_item *item = cp_item_create(CP_UPLOAD);
    if (item == NULL || name == NULL) {
        free(name);
        cp_item_destroy(item);
        cp_plan_no_memory(plan);
        return;
    }
    item->name = name;
    item->path = strdup(path);
    item->bucket = strdup(plan->uri.bucket);
    item->size = (uint64_t)stat->st_size;
    item->is_size_known = true;
    if (item->path == NULL || item->bucket == NULL) {
        cp_item_destroy(item);
        cp_plan_no_memory(plan);
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

/* What cannot be moved, after saying why: to its own place, or below the tree that it comes from,
 * where it could replace what has not been moved yet. */
static bool stays(struct plan *plan, const struct cp_item *item)
{
    if (!plan->options->moves || item->kind != CP_COPY ||
        strcmp(item->bucket, item->from_bucket) != 0) {
        return false;
    }
    size_t size = plan->tree != NULL ? strlen(plan->tree) : 0;
    if (strcmp(item->name, item->from_name) != 0 &&
        (plan->tree == NULL || strncmp(item->name, plan->tree, size) != 0)) {
        return false;
    }
    cp_run_refuse(plan->run, "gs://%s/%s: cannot be moved to itself, or below its own folder",
                  item->from_bucket, item->from_name);
    return true;
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
        cp_plan_no_memory(plan);
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
    if (!place_take(plan, item) || stays(plan, item)) {
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
    char *destination = cp_target(plan, base, relative);
    if (checked == NULL || destination == NULL) {
        free(destination);
        cp_plan_no_memory(plan);
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
    char *root = cp_target(plan, base, ""), *within = NULL;
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
        cp_plan_no_memory(plan);
        return;
    }
    char *within = place_within(plan, uri, base, prefix);
    if (within == NULL) {
        free(prefix);
        cp_plan_no_memory(plan);
        return;
    }
    uint64_t left_out = 0, temporary = 0;
    plan->tree = prefix;
    struct rg_listing_options options = {
        .bucket = uri->bucket,
        .prefix = prefix,
        .delimiter = plan->options->syncs && !plan->options->recursive ? "/" : NULL,
        .ordered = plan->to_bucket};
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, plan->run->session, &options);
    while (status == CLI_DONE && !plan->stopped &&
           (status = lister_next(&lister, &page)) == CLI_DONE && page != NULL) {
        *out_count += page->object_count + page->prefix_count;
        for (size_t i = 0; i < page->object_count && !plan->stopped; i++) {
            const char *relative = page->objects[i].name + strlen(prefix);
            cp_merge_tell(plan, base);
            if (*within != '\0' && strncmp(page->objects[i].name, within, strlen(within)) == 0) {
                left_out++;
            } else if (cp_is_temporary(page->objects[i].name, prefix)) {
                temporary++;
            } else if ((*relative != '\0' || (plan->to_bucket && !plan->options->syncs)) &&
                       filter_takes(&plan->options->filter, relative)) {
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
    if (temporary > 0) {
        cli_note("gs://%s: %" PRIu64 " temporary object%s of uploads skipped", uri->bucket,
                 temporary, temporary == 1 ? "" : "s");
    }
    plan->tree = NULL;
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

/* An object that wildcards match: put into the destination. */
static void plan_match(struct plan *plan, const char *bucket, const char *base,
                       const struct rg_object *object)
{
    const char *problem = plan->to_bucket ? NULL : local_name_problem(base);
    size_t size = strlen(object->name);
    if (problem == NULL && size > 0 && object->name[size - 1] == '/' && !plan->to_bucket) {
        problem = "its name ends in \"/\"";
    }
    if (problem != NULL) {
        cp_run_refuse(plan->run, "gs://%s/%s: cannot be a file in %s: %s", bucket, object->name,
                      plan->folder, problem);
        return;
    }
    char *destination = cp_target(plan, base, "");
    if (destination == NULL) {
        cp_plan_no_memory(plan);
    } else {
        object_plan(plan, bucket, object->name, object, destination);
    }
}

static void plan_object(struct plan *plan, const struct cli_uri *uri, const char *base, bool known)
{
    if (!filter_takes(&plan->options->filter, base)) {
        return;
    }
    /* As mv does. A tree would go elsewhere when an interrupted command is repeated. */
    bool into = plan->into || (plan->options->moves && !plan->to_bucket && is_folder(plan->folder));
    char *destination = plan->into        ? cp_target(plan, base, "")
                        : into            ? cp_join(plan->folder, base)
                        : plan->to_bucket ? strdup(plan->uri.name)
                                          : strdup(plan->folder);
    if (destination == NULL) {
        cp_plan_no_memory(plan);
        return;
    }
    if (!plan->to_bucket && into && local_name_problem(base) != NULL) {
        cp_run_refuse(plan->run, "gs://%s/%s: cannot be a file in %s: %s", uri->bucket, uri->name,
                      plan->folder, local_name_problem(base));
        free(destination);
        return;
    }
    /* Whether it is the same as what is here can only be told when it is known; otherwise it is
     * read with one request, and nothing is asked before. */
    struct there there = {0};
    known = known || plan->to_bucket || plan->options->moves || access(destination, F_OK) == 0;
    bool exists = known && object_find(plan, uri, &there);
    struct rg_object object = {
        .name = uri->name,
        .size = there.size,
        .generation = there.generation,
        .crc32c = there.crc32c,
        .has_crc32c = there.has_crc32c,
    };
    if (!plan->stopped && plan->options->moves && !exists) {
        cp_run_refuse(plan->run, "gs://%s/%s: %s", uri->bucket, uri->name,
                      there.is_known ? "no such object" : "only what may be listed can be moved");
    }
    if (plan->stopped || (plan->options->moves && !exists)) {
        free(destination);
        return;
    }
    object_plan(plan, uri->bucket, uri->name, exists ? &object : NULL, destination);
}

struct match {
    struct plan *plan;
    const char *bucket, *pattern;
    size_t above;     /* of a name: what lies above the first wildcard of the pattern */
    uint64_t folders; /* left out */
};

static int match_take(void *context, const char *name, const struct rg_object *object)
{
    struct match *match = context;
    struct plan *plan = match->plan;
    char *base = cp_base_name(name);
    struct cli_uri uri = {0};
    snprintf(uri.bucket, sizeof(uri.bucket), "%s", match->bucket);
    snprintf(uri.name, sizeof(uri.name), "%s", name);
    uint64_t count = 0;
    if (base == NULL) {
        cp_plan_no_memory(plan);
    } else if (cp_is_temporary(name, match->pattern)) {
        /* Left out. */
    } else if (object == NULL && !plan->options->recursive) {
        match->folders++;
    } else if (object == NULL && *base == '\0') {
        cp_run_refuse(plan->run, "gs://%s/%s: a folder without a name of its own; skipped",
                      match->bucket, name);
    } else if (object == NULL) {
        plan_prefix(plan, &uri, base, &count);
    } else if (filter_takes(&plan->options->filter, name + match->above)) {
        plan_match(plan, match->bucket, base, object);
    }
    free(base);
    return plan->stopped ? CLI_FAILED : CLI_DONE;
}

static void plan_matches(struct plan *plan, const struct cli_uri *uri)
{
    size_t above = wildcard_literal_size(uri->name);
    while (above > 0 && uri->name[above - 1] != '/') {
        above--;
    }
    struct match match = {plan, uri->bucket, uri->name, above, 0};
    struct expand expand = {.session = plan->run->session,
                            .bucket = uri->bucket,
                            .folders = true,
                            .ordered = plan->to_bucket,
                            .context = &match,
                            .take = match_take};
    int status = expand_pattern(&expand, uri->name);
    plan->stopped = plan->stopped || status != CLI_DONE;
    if (plan->stopped) {
        return;
    }
    if (expand.count == 0) {
        cp_run_refuse(plan->run,
                      "nothing in gs://%s is matched by \"%s\"; --literal takes it as a name",
                      uri->bucket, uri->name);
    } else if (match.folders == expand.count) {
        cp_run_refuse(plan->run, "gs://%s/%s: only folders match; copy them with -r", uri->bucket,
                      uri->name);
    } else if (match.folders > 0) {
        cli_note("%" PRIu64 " folder%s skipped; -r copies what is in them", match.folders,
                 match.folders == 1 ? "" : "s");
    }
}

static void plan_remote(struct plan *plan, const char *source)
{
    struct cli_uri uri;
    if (!cli_parse_uri(source, &uri)) {
        plan->stopped = true;
        return;
    }
    if (expand_is_pattern(source, plan->options->literal)) {
        plan_matches(plan, &uri);
        return;
    }
    char *base = cp_base_name(uri.name[0] != '\0' ? uri.name : uri.bucket);
    size_t size = strlen(uri.name);
    bool may_be_object = size > 0 && uri.name[size - 1] != '/';
    if (base == NULL) {
        cp_plan_no_memory(plan);
    } else if (!plan->options->recursive && !may_be_object) {
        cp_run_refuse(plan->run, "%s: is a %s; copy it with -r", source,
                      size == 0 ? "bucket" : "folder");
    } else if (!plan->options->recursive) {
        plan_object(plan, &uri, base, false);
    } else {
        /* Both "a" and "a/..." may exist; -r means all of it. To move, nobody asked for all. */
        struct there there = {0};
        uint64_t count = 0;
        bool exists = may_be_object && object_find(plan, &uri, &there);
        if (exists) {
            plan_object(plan, &uri, base, true);
        }
        if (!plan->stopped && !(exists && plan->options->moves)) {
            plan_prefix(plan, &uri, base, &count);
        }
        if (!plan->stopped && count == 0 && !exists) {
            cp_run_refuse(plan->run, "%s: no such object, and nothing below it", source);
        }
    }
    free(base);
}

/* The contents of a folder in a bucket, for a sync. */
static void plan_contents(struct plan *plan, const char *source)
{
    struct cli_uri uri;
    uint64_t count = 0;
    RG_ASSERT(cli_parse_uri(source, &uri));
    plan_prefix(plan, &uri, "", &count);
    if (!plan->stopped && count == 0) {
        cp_run_refuse(plan->run, "%s: there is nothing below it", source);
    }
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

/* Folders of one bucket of which one is in the other, or both are the same. */
static bool places_overlap(const char *a, const char *b)
{
    struct cli_uri left, right;
    if (!cli_is_uri(a) || !cli_is_uri(b) || !cli_parse_uri(a, &left) || !cli_parse_uri(b, &right) ||
        strcmp(left.bucket, right.bucket) != 0) {
        return false;
    }
    size_t left_size = strlen(left.name), right_size = strlen(right.name);
    left_size -= left_size > 0 && left.name[left_size - 1] == '/';
    right_size -= right_size > 0 && right.name[right_size - 1] == '/';
    size_t size = RG_MIN(left_size, right_size);
    const char *longer = left_size > right_size ? left.name : right.name;
    bool ends = size == 0 || left_size == right_size || longer[size] == '/';
    return ends && strncmp(left.name, right.name, size) == 0;
}

/* The destination is a file or a folder of this machine. */
static int files_check(const struct cp_options *options, const char *destination)
{
    if (options->content_type != NULL) {
        return cli_usage("--content-type is for objects that are written; \"%s\" is a file",
                         destination);
    }
    if (cp_retypes(options)) {
        return cli_usage("metadata and storage classes are for objects that are written; \"%s\" is "
                         "a file",
                         destination);
    }
    if (options->if_generation_match != 0) {
        return cli_usage("--if-generation-match is for objects that are written; \"%s\" is a file",
                         destination);
    }
    return CLI_DONE;
}

int cp_plan_check(const struct cp_options *options, char *const *sources, size_t source_count,
                  const char *destination)
{
    struct cli_uri uri;
    bool to_bucket = cli_is_uri(destination), has_pattern = false;
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
        if (*sources[i] == '\0' || *destination == '\0') {
            return cli_usage("a source or the destination is empty: got \"%s\" and \"%s\"",
                             sources[i], destination);
        }
        if ((options->moves || options->syncs) &&
            (is_stream(sources[i]) || is_stream(destination))) {
            return cli_usage("standard input and output are for cp only");
        }
        bool is_pattern = expand_is_pattern(sources[i], options->literal);
        if ((is_stream(sources[i]) || is_stream(destination)) &&
            (source_count > 1 || options->recursive || is_pattern)) {
            return cli_usage("with \"-\" there must be one source, and neither -r nor wildcards");
        }
        has_pattern = has_pattern || is_pattern;
        if (is_stream(sources[i]) && (uri = (struct cli_uri){0}, true) &&
            (!cli_parse_uri(destination, &uri) || uri.name[0] == '\0' ||
             names_a_place(destination))) {
            return cli_usage("the destination of standard input must be an object, "
                             "gs://BUCKET/OBJECT, got \"%s\"",
                             destination);
        }
    }
    if (options->syncs && source_count != 1) {
        return cli_usage("needs one source and one destination, got %zu sources", source_count);
    }
    if (options->syncs && places_overlap(sources[0], destination)) {
        return cli_usage("one of \"%s\" and \"%s\" lies within the other", sources[0], destination);
    }
    if (!to_bucket && files_check(options, destination) != CLI_DONE) {
        return CLI_USAGE;
    }
    if (options->if_generation_match != 0 && options->no_clobber) {
        return cli_usage("--no-clobber and --if-generation-match exclude each other");
    }
    if (options->if_generation_match > 0 &&
        (source_count > 1 || options->recursive || has_pattern)) {
        return cli_usage("--if-generation-match with a generation is for one source without -r and "
                         "wildcards");
    }
    bool conditional = options->if_generation_match != 0 || options->no_clobber;
    if (conditional && options->method == RG_UPLOAD_MULTIPART) {
        return cli_usage("--method multipart cannot have a condition; use compose or resumable");
    }
    return CLI_DONE;
}

/* `many`: of sources, or of what one stands for. */
static int destination_open(struct plan *plan, const char *const destination, bool many)
{
    plan->to_bucket = cli_is_uri(destination);
    plan->into = many || names_a_place(destination);
    if (!plan->to_bucket) {
        plan->folder = destination;
        plan->into = !plan->options->syncs &&
                     (plan->into || (!plan->options->recursive && is_folder(destination)));
        return CLI_DONE;
    }
    RG_ASSERT(cli_parse_uri(destination, &plan->uri));
    plan->into = !plan->options->syncs && (plan->into || plan->uri.name[0] == '\0');
    many = many || plan->options->recursive || plan->options->syncs;
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
        names[i] = cp_base_name(is_bucket ? uri.bucket : sources[i]);
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
    bool has_pattern = false;
    for (size_t i = 0; i < source_count; i++) {
        has_pattern = has_pattern || expand_is_pattern(sources[i], run->options->literal);
    }
    int status = destination_open(&plan, destination, source_count > 1 || has_pattern);
    plan.stopped = status != CLI_DONE;
    plan.may_meet = has_pattern || (source_count > 1 && may_meet(sources, source_count));
    for (size_t i = 0; i < source_count && !plan.stopped; i++) {
        if (cli_is_uri(sources[i]) && run->options->syncs) {
            plan_contents(&plan, sources[i]);
        } else if (cli_is_uri(sources[i])) {
            plan_remote(&plan, sources[i]);
        } else {
            cp_plan_local(&plan, sources[i]);
        }
    }
    if (plan.links > 0) {
        cli_note("%" PRIu64 " symbolic link%s skipped; --follow-symlinks copies the targets",
                 plan.links, plan.links == 1 ? "" : "s");
    }
    lookup_close(&plan.lookup);
    return plan.stopped && !cli_interrupted() ? CLI_FAILED : CLI_DONE;
}
