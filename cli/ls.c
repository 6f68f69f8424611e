/* `ringest ls`: the names below a prefix, printed as they come. */
#include "cli/cli.h"
#include "cli/expand.h"
#include "cli/lister.h"
#include "cli/object_text.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ls {
    struct cli_session session;
    const char *glob; /* NULL: none */
    bool json, hex, recursive, versions, literal;
    enum object_detail detail;
    uint64_t object_count, byte_count; /* of all places */
    /* The place that is being listed. */
    struct cli_uri uri;
    bool json_is_open; /* something was printed */
    uint64_t found, objects_here;
    /* With --json, prefixes are printed after the objects, so they are kept. */
    char **prefixes;
    size_t prefixes_kept;
};

static int keep_prefix(struct ls *ls, const char *prefix)
{
    char **grown = realloc(ls->prefixes, (ls->prefixes_kept + 1) * sizeof(*grown));
    if (grown == NULL) {
        return cli_fail("no memory for %zu prefixes", ls->prefixes_kept + 1);
    }
    ls->prefixes = grown;
    ls->prefixes[ls->prefixes_kept] = strdup(prefix);
    return ls->prefixes[ls->prefixes_kept++] != NULL ? CLI_DONE : cli_fail("no memory");
}

static int print_prefix(struct ls *ls, const char *prefix)
{
    ls->found++;
    if (ls->json) {
        return keep_prefix(ls, prefix);
    }
    object_print_prefix(ls->uri.bucket, prefix, ls->detail);
    return CLI_DONE;
}

static void print_object(struct ls *ls, const struct rg_object *object)
{
    if (ls->json) {
        fputs_unlocked(!ls->json_is_open      ? "{\"objects\":["
                       : ls->objects_here > 0 ? ","
                                              : "",
                       stdout);
        ls->json_is_open = true;
        object_print_json(object, ls->hex);
    } else {
        object_print_line(ls->uri.bucket, object, ls->detail, ls->versions);
    }
    ls->found++;
    ls->objects_here++;
    ls->object_count++;
    ls->byte_count += object->size;
}

static int print_page(struct ls *ls, const struct rg_list_page *page)
{
    int status = CLI_DONE;
    for (size_t i = 0; i < page->prefix_count && status == CLI_DONE; i++) {
        status = print_prefix(ls, page->prefixes[i]);
    }
    for (size_t i = 0; i < page->object_count; i++) {
        print_object(ls, &page->objects[i]);
    }
    return status;
}

/* What comes behind the last page. A listing that failed is left open, so that nobody takes a part
 * for the whole. */
static void print_end(const struct ls *ls)
{
    if (!ls->json) {
        return;
    }
    printf("%s],\"prefixes\":[", ls->json_is_open ? "" : "{\"objects\":[");
    for (size_t i = 0; i < ls->prefixes_kept; i++) {
        printf("%s", i > 0 ? "," : "");
        cli_json_string(ls->prefixes[i]);
    }
    printf("]}\n");
}

static void print_sum(const struct ls *ls)
{
    char size[CLI_QUANTITY_SIZE];
    if (!ls->json && ls->detail != OBJECT_NAME) {
        printf("%" PRIu64 " object%s, %s\n", ls->object_count, ls->object_count == 1 ? "" : "s",
               cli_format_size(ls->byte_count, size));
    }
}

static void prefixes_free(struct ls *ls)
{
    for (size_t i = 0; i < ls->prefixes_kept; i++) {
        free(ls->prefixes[i]);
    }
    free(ls->prefixes);
    ls->prefixes = NULL;
    ls->prefixes_kept = 0;
}

static int list_prefix(struct ls *ls, const char *prefix)
{
    bool cuts = !ls->recursive && ls->glob == NULL;
    struct rg_listing_options options = {
        .bucket = ls->uri.bucket,
        .prefix = prefix,
        .delimiter = cuts ? "/" : NULL,
        .glob = ls->glob,
        .versions = ls->versions,
        .folders_as_prefixes = cuts,
        .ordered = true,
    };
    struct lister lister;
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, &ls->session, &options);
    /* Nobody wants the rest when the output is broken. */
    while (status == CLI_DONE && !ferror(stdout) &&
           (status = lister_next(&lister, &page)) == CLI_DONE && page != NULL) {
        status = print_page(ls, page);
    }
    lister_close(&lister);
    return status;
}

/* A folder that is matched is shown as one, or with -r what is below it. */
static int match_take(void *context, const char *name, const struct rg_object *object)
{
    struct ls *ls = context;
    if (ferror(stdout)) {
        return CLI_FAILED;
    }
    if (object == NULL) {
        bool opens = ls->recursive || ls->uri.name[strlen(ls->uri.name) - 1] == '/';
        return opens ? list_prefix(ls, name) : print_prefix(ls, name);
    }
    print_object(ls, object);
    return CLI_DONE;
}

static int list_place(struct ls *ls, const char *place)
{
    ls->json_is_open = false;
    ls->found = ls->objects_here = 0;
    struct expand expand = {.session = &ls->session,
                            .bucket = ls->uri.bucket,
                            .folders = true,
                            .ordered = true,
                            .versions = ls->versions,
                            .context = ls,
                            .take = match_take};
    int status = expand_is_pattern(place, ls->literal || ls->glob != NULL)
                     ? expand_pattern(&expand, ls->uri.name)
                     : list_prefix(ls, ls->uri.name);
    if (status == CLI_DONE) {
        print_end(ls);
    }
    prefixes_free(ls);
    return status;
}

/* Whoever names something wants it to be there. */
static int nothing_found(const struct ls *ls, const char *place)
{
    if (ls->json || (ls->uri.name[0] == '\0' && ls->glob == NULL)) {
        return CLI_DONE;
    }
    if (expand_is_pattern(place, ls->literal || ls->glob != NULL)) {
        return expand_none(&ls->uri);
    }
    return ls->glob != NULL
               ? cli_fail("nothing in gs://%s/%s is matched by \"%s\"", ls->uri.bucket,
                          ls->uri.name, ls->glob)
               : cli_fail("nothing in gs://%s begins with \"%s\"", ls->uri.bucket, ls->uri.name);
}

static int list_all(struct ls *ls, char *const *places, int count)
{
    int status = CLI_DONE;
    object_text_begin();
    for (int i = 0; i < count && !ferror(stdout); i++) {
        RG_ASSERT(cli_parse_uri(places[i], &ls->uri));
        int one = list_place(ls, places[i]);
        /* What was found so far comes before what is said of the rest. */
        if (one == CLI_DONE && ls->found == 0 && (count == 1 || fflush(stdout) == 0)) {
            one = nothing_found(ls, places[i]);
        }
        status = one != CLI_DONE ? one : status;
    }
    if (status == CLI_DONE || ls->object_count > 0) {
        print_sum(ls);
    }
    return cli_output_end(status);
}

static int places_check(char *const *places, int count)
{
    struct cli_uri uri;
    bool has_all = count == 0; /* of a project's buckets, as gcloud has them */
    for (int i = 0; i < count; i++) {
        has_all = has_all || strcmp(places[i], "gs://") == 0;
    }
    if (has_all) {
        return cli_usage("needs a bucket to list, gs://BUCKET/PREFIX; `gcloud storage ls` shows "
                         "which buckets a project has");
    }
    for (int i = 0; i < count; i++) {
        if (!cli_parse_uri(places[i], &uri)) {
            return CLI_USAGE;
        }
    }
    return CLI_DONE;
}

enum { OPTION_GLOB = CLI_OPTION_FIRST, OPTION_HEX, OPTION_LITERAL };

static bool ls_option(struct ls *ls, int option)
{
    switch (option) {
    case CLI_OPTION_JSON:
        ls->json = true;
        return true;
    case 'l':
        ls->detail = RG_MAX(ls->detail, OBJECT_LONG);
        return true;
    case 'h':
        ls->detail = OBJECT_LONG_HUMAN;
        return true;
    case 'r':
    case 'R':
        ls->recursive = true;
        return true;
    case 'a':
        ls->versions = true;
        return true;
    case OPTION_GLOB:
        ls->glob = optarg;
        return true;
    case OPTION_HEX:
        ls->hex = true;
        return true;
    case OPTION_LITERAL:
        ls->literal = true;
        return true;
    default:
        return false;
    }
}

static int ls_run(int argc, char **argv)
{
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"long", no_argument, NULL, 'l'},
                                            {"human-readable", no_argument, NULL, 'h'},
                                            {"recursive", no_argument, NULL, 'r'},
                                            {"versions", no_argument, NULL, 'a'},
                                            {"glob", required_argument, NULL, OPTION_GLOB},
                                            {"hex", no_argument, NULL, OPTION_HEX},
                                            {"literal", no_argument, NULL, OPTION_LITERAL},
                                            {0}};
    struct ls ls = {0};
    struct cli_connection connection = {.connections = LISTER_REQUESTS};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":lhrRa", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (!ls_option(&ls, option)) {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    int count = argc - optind;
    if (count == 0 && ls.detail == OBJECT_LONG_HUMAN) {
        return cli_help(); /* `ringest ls -h` */
    }
    int status = places_check(&argv[optind], count);
    if (status == CLI_DONE) {
        status = cli_session_open(&ls.session, &connection, 4);
    }
    if (status == CLI_DONE) {
        status = list_all(&ls, &argv[optind], count);
        cli_session_close(&ls.session);
    }
    return status;
}

const struct cli_command cli_ls = {
    .name = "ls",
    .arguments = "gs://BUCKET/PREFIX... [OPTIONS]",
    .summary = "list objects",
    .help =
        "Options:\n"
        "  -l, --long         print size, time of change and generation, and a sum at the end\n"
        "  -h, --human-readable\n"
        "                     the same with sizes such as 1.5 MiB\n"
        "  -r, --recursive    list all names (-R works too); by default names end at the next "
        "\"/\",\n"
        "                     and empty folders of hierarchical buckets are shown too\n"
        "  -a, --versions     old versions too, each as NAME#GENERATION\n"
        "  --glob PATTERN     only whole names that match, compared by the service: * within a\n"
        "                     part between \"/\", ** across them, ? [a-z] {a,b}; implies -r\n"
        "  --literal          wildcards in PREFIX are characters of names\n"
        "  --json             one JSON object in a line for each argument:\n"
        "                     {\"objects\":[...],\"prefixes\":[...]}\n"
        "  --hex              checksums as hexadecimal digits; default: "
        "base64\n" CLI_CONNECTION_HELP
        "\ngs://b/a lists everything that begins with \"a\". End it with \"/\" to list a folder.\n"
        "With wildcards, names match as a whole: * ? [a-z] within a part between \"/\", ** "
        "across.\n"
        "\nExamples:\n"
        "  ringest ls -lh gs://bucket/folder/\n"
        "  ringest ls 'gs://bucket/**.jpg' | wc -l\n",
    .run = ls_run,
};
