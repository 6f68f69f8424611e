/* Wildcards in a bucket: see expand.h. */
#include "cli/expand.h"

#include "cli/lister.h"
#include "cli/wildcard.h"

#include <stdlib.h>
#include <string.h>

/* Folders of a level, whose contents are looked at when the level has been read. */
struct folders {
    char **names; /* owned */
    size_t count;
};

static int no_memory(void)
{
    return cli_fail("no memory");
}

static int folder_keep(struct folders *folders, const char *name)
{
    char **grown = reallocarray(folders->names, folders->count + 1, sizeof(*grown));
    if (grown == NULL) {
        return no_memory();
    }
    folders->names = grown;
    grown[folders->count] = strdup(name);
    return grown[folders->count] != NULL && ++folders->count > 0 ? CLI_DONE : no_memory();
}

static void folders_free(struct folders *folders)
{
    for (size_t i = 0; i < folders->count; i++) {
        free(folders->names[i]);
    }
    free(folders->names);
}

static int take(struct expand *expand, const char *name, const struct rg_object *object)
{
    expand->count++;
    return expand->take(expand->context, name, object);
}

/* One level: the part of the pattern up to the next "/", below a folder or at the top. */
struct level {
    struct wildcard *wildcard; /* for what comes behind `above` */
    size_t above_size;
    bool is_last;            /* no "/" ends the part */
    struct folders *folders; /* that match, where more of the pattern follows or they are wanted */
};

static int page_take(struct expand *expand, const struct level *level,
                     const struct rg_list_page *page)
{
    int status = CLI_DONE;
    for (size_t i = 0; i < page->object_count && status == CLI_DONE && level->is_last; i++) {
        const struct rg_object *object = &page->objects[i];
        if (wildcard_matches(level->wildcard, object->name + level->above_size)) {
            status = take(expand, object->name, object);
        }
    }
    bool wanted = expand->folders || !level->is_last;
    for (size_t i = 0; i < page->prefix_count && status == CLI_DONE && wanted; i++) {
        char name[RG_OBJECT_NAME_SIZE_MAX + 1];
        snprintf(name, sizeof(name), "%s", page->prefixes[i] + level->above_size);
        size_t size = strlen(name);
        /* The part of a pattern does not have the "/" that ends the folder. */
        if (size > 0) {
            name[size - 1] = '\0';
        }
        if (wildcard_matches(level->wildcard, name)) {
            status = folder_keep(level->folders, page->prefixes[i]);
        }
    }
    return status;
}

static int level_list(struct expand *expand, const struct level *level,
                      const struct rg_listing_options *options)
{
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, expand->session, options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        status = page_take(expand, level, page);
    }
    lister_close(&lister);
    return status;
}

/* `prefix` up to where `above` ends is of folders that are known; `part` is the pattern behind
 * that. */
static int level_read(struct expand *expand, const char *above, const char *part, bool is_last,
                      bool cuts, struct folders *out_folders)
{
    char *prefix;
    if (asprintf(&prefix, "%s%.*s", above, (int)wildcard_literal_size(part), part) < 0) {
        return no_memory();
    }
    struct wildcard *wildcard = wildcard_make(part);
    struct level level = {wildcard, strlen(above), is_last, out_folders};
    struct rg_listing_options options = {
        .bucket = expand->bucket,
        .prefix = prefix,
        .delimiter = cuts ? "/" : NULL,
        .versions = expand->versions,
        .folders_as_prefixes = cuts && expand->folders,
        .ordered = expand->ordered,
    };
    int status = wildcard != NULL ? level_list(expand, &level, &options) : no_memory();
    wildcard_free(wildcard);
    free(prefix);
    return status;
}

/* Of a page about a name: the object, and the folder `below` it. */
static int name_take(struct expand *expand, const char *name, const char *below,
                     const struct rg_list_page *page)
{
    int status = CLI_DONE;
    for (size_t i = 0; i < page->object_count && status == CLI_DONE; i++) {
        if (strcmp(page->objects[i].name, name) == 0) {
            status = take(expand, name, &page->objects[i]);
        }
    }
    for (size_t i = 0; i < page->prefix_count && status == CLI_DONE && expand->folders; i++) {
        if (strcmp(page->prefixes[i], below) == 0) {
            status = take(expand, below, NULL);
        }
    }
    return status;
}

/* A name without wildcards, below a folder that was found. Between the name and its folder lie few
 * others, if any. */
static int name_look(struct expand *expand, const char *name)
{
    char *end = NULL, *below = NULL;
    if (asprintf(&end, "%s%c", name, '/' + 1) < 0 || asprintf(&below, "%s/", name) < 0) {
        free(end);
        return no_memory();
    }
    struct rg_listing_options options = {.bucket = expand->bucket,
                                         .prefix = name,
                                         .delimiter = "/",
                                         .start_offset = name,
                                         .end_offset = end,
                                         .versions = expand->versions};
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, expand->session, &options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        status = name_take(expand, name, below, page);
    }
    lister_close(&lister);
    free(end);
    free(below);
    return status;
}

/* A folder that is named as one, below another. */
static int folder_look(struct expand *expand, const char *name)
{
    struct rg_listing_options options = {
        .bucket = expand->bucket, .prefix = name, .results_max = 1, .requests_max = 1};
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, expand->session, &options);
    status = status == CLI_DONE ? lister_next(&lister, &page) : status;
    if (status == CLI_DONE && page != NULL) {
        status = take(expand, name, NULL);
    }
    lister_close(&lister);
    return status;
}

static int literal_look(struct expand *expand, const char *name)
{
    size_t size = strlen(name);
    if (size > 0 && name[size - 1] != '/') {
        return name_look(expand, name);
    }
    return expand->folders ? folder_look(expand, name) : CLI_DONE;
}

static int descend(struct expand *expand, const char *above, const char *pattern);

/* The folders that matched the part before: they are what is looked for, or lead to it. */
static int folders_take(struct expand *expand, const struct folders *folders, const char *rest)
{
    int status = CLI_DONE;
    for (size_t i = 0; i < folders->count && status == CLI_DONE; i++) {
        if (*rest != '\0') {
            status = descend(expand, folders->names[i], rest);
        } else if (expand->folders) {
            status = take(expand, folders->names[i], NULL);
        }
    }
    return status;
}

static int descend(struct expand *expand, const char *above, const char *pattern)
{
    size_t literal = wildcard_literal_size(pattern), begin = literal;
    char *head = NULL, *part = NULL;
    if (pattern[literal] == '\0') {
        if (asprintf(&head, "%s%s", above, pattern) < 0) {
            return no_memory();
        }
        int status = literal_look(expand, head);
        free(head);
        return status;
    }
    while (begin > 0 && pattern[begin - 1] != '/') {
        begin--;
    }
    size_t size = strcspn(pattern + begin, "/");
    const char *rest = pattern + begin + size;
    bool crosses = memmem(pattern + begin, size, "**", 2) != NULL;
    bool is_last = crosses || *rest == '\0';
    if (asprintf(&head, "%s%.*s", above, (int)begin, pattern) < 0) {
        return no_memory();
    }
    part = crosses ? strdup(pattern + begin) : strndup(pattern + begin, size);
    struct folders folders = {0};
    int status =
        part != NULL ? level_read(expand, head, part, is_last, !crosses, &folders) : no_memory();
    if (status == CLI_DONE) {
        status = folders_take(expand, &folders, is_last ? "" : rest + 1);
    }
    folders_free(&folders);
    free(head);
    free(part);
    return status;
}

int expand_pattern(struct expand *expand, const char *pattern)
{
    return descend(expand, "", pattern);
}

bool expand_is_pattern(const char *argument, bool literal)
{
    struct cli_uri uri;
    return !literal && cli_is_uri(argument) && cli_parse_uri(argument, &uri) &&
           wildcard_is(uri.name);
}

int expand_none(const struct cli_uri *uri)
{
    return cli_fail("nothing in gs://%s is matched by \"%s\"; --literal takes it as a name",
                    uri->bucket, uri->name);
}

struct collect {
    struct expanded *expanded;
    const char *bucket;
};

static int place_add(struct expanded *expanded, char *place)
{
    char **grown = place != NULL
                       ? reallocarray(expanded->places, (size_t)expanded->count + 1, sizeof(*grown))
                       : NULL;
    if (grown == NULL) {
        free(place);
        return no_memory();
    }
    expanded->places = grown;
    grown[expanded->count++] = place;
    return CLI_DONE;
}

static int collect_take(void *context, const char *name, const struct rg_object *object)
{
    struct collect *collect = context;
    char *place;
    RG_ASSERT(object != NULL);
    if (asprintf(&place, "gs://%s/%s", collect->bucket, name) < 0) {
        place = NULL;
    }
    return place_add(collect->expanded, place);
}

int expand_places(struct cli_session *session, char *const *arguments, int count, bool literal,
                  struct expanded *out_expanded)
{
    *out_expanded = (struct expanded){0};
    int status = CLI_DONE;
    for (int i = 0; i < count && status == CLI_DONE; i++) {
        struct cli_uri uri;
        if (!expand_is_pattern(arguments[i], literal)) {
            status = place_add(out_expanded, strdup(arguments[i]));
            continue;
        }
        RG_ASSERT(cli_parse_uri(arguments[i], &uri));
        struct collect collect = {out_expanded, uri.bucket};
        struct expand expand = {.session = session,
                                .bucket = uri.bucket,
                                .ordered = true,
                                .context = &collect,
                                .take = collect_take};
        status = expand_pattern(&expand, uri.name);
        if (status == CLI_DONE && expand.count == 0) {
            status = expand_none(&uri);
        }
    }
    return status;
}

void expanded_free(struct expanded *expanded)
{
    for (int i = 0; i < expanded->count; i++) {
        free(expanded->places[i]);
    }
    free(expanded->places);
    *expanded = (struct expanded){0};
}
