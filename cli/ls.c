/* `ringest ls`: the names below a prefix, printed as they come. */
#include "cli/cli.h"
#include "cli/lister.h"
#include "cli/object_text.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ls {
    struct cli_session session;
    struct cli_uri uri;
    const char *glob; /* NULL: none */
    bool json, is_long, recursive, versions;
    bool json_is_open; /* something was printed */
    uint64_t object_count, prefix_count, byte_count;
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

static int print_page(struct ls *ls, const struct rg_list_page *page)
{
    if (ls->json && !ls->json_is_open) {
        printf("{\"objects\":[");
        ls->json_is_open = true;
    }
    for (size_t i = 0; i < page->prefix_count; i++) {
        ls->prefix_count++;
        if (!ls->json) {
            object_print_prefix(ls->uri.bucket, page->prefixes[i], ls->is_long);
        } else if (keep_prefix(ls, page->prefixes[i]) != CLI_DONE) {
            return CLI_FAILED;
        }
    }
    for (size_t i = 0; i < page->object_count; i++) {
        const struct rg_object *object = &page->objects[i];
        if (ls->json) {
            fputs_unlocked(ls->object_count > 0 ? "," : "", stdout);
            object_print_json(object);
        } else {
            object_print_line(ls->uri.bucket, object, ls->is_long, ls->versions);
        }
        ls->object_count++;
        ls->byte_count += page->objects[i].size;
    }
    return CLI_DONE;
}

/* What comes behind the last page. A listing that failed is left open, so that nobody takes a part
 * for the whole. */
static void print_end(const struct ls *ls)
{
    char size[32];
    if (ls->json) {
        printf("%s],\"prefixes\":[", ls->json_is_open ? "" : "{\"objects\":[");
        for (size_t i = 0; i < ls->prefixes_kept; i++) {
            printf("%s", i > 0 ? "," : "");
            cli_json_string(ls->prefixes[i]);
        }
        printf("]}\n");
    } else if (ls->is_long) {
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
}

static int list_all(struct ls *ls)
{
    bool cuts = !ls->recursive && ls->glob == NULL;
    struct rg_listing_options options = {
        .bucket = ls->uri.bucket,
        .prefix = ls->uri.name,
        .delimiter = cuts ? "/" : NULL,
        .glob = ls->glob,
        .versions = ls->versions,
        .folders_as_prefixes = cuts,
        .ordered = true,
    };
    struct lister lister;
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, &ls->session, &options);
    object_text_begin();
    /* Nobody wants the rest when the output is broken. */
    while (status == CLI_DONE && !ferror(stdout) &&
           (status = lister_next(&lister, &page)) == CLI_DONE && page != NULL) {
        status = print_page(ls, page);
    }
    lister_close(&lister);
    if (status == CLI_DONE) {
        print_end(ls);
    }
    prefixes_free(ls);
    status = cli_output_end(status);
    if (status == CLI_DONE && ls->object_count + ls->prefix_count == 0 &&
        (ls->uri.name[0] != '\0' || ls->glob != NULL) && !ls->json) {
        status = ls->glob != NULL ? cli_fail("nothing in gs://%s/%s is matched by \"%s\"",
                                             ls->uri.bucket, ls->uri.name, ls->glob)
                                  : cli_fail("nothing in gs://%s begins with \"%s\"",
                                             ls->uri.bucket, ls->uri.name);
    }
    return status;
}

static int ls_run(int argc, char **argv)
{
    enum { OPTION_GLOB = CLI_OPTION_FIRST };
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"long", no_argument, NULL, 'l'},
                                            {"recursive", no_argument, NULL, 'r'},
                                            {"versions", no_argument, NULL, 'a'},
                                            {"glob", required_argument, NULL, OPTION_GLOB},
                                            {0}};
    struct ls ls = {0};
    struct cli_connection connection = {.connections = LISTER_REQUESTS};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":lra", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            ls.json = true;
        } else if (option == 'l') {
            ls.is_long = true;
        } else if (option == 'r') {
            ls.recursive = true;
        } else if (option == 'a') {
            ls.versions = true;
        } else if (option == OPTION_GLOB) {
            ls.glob = optarg;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    if (argc - optind != 1) {
        return cli_usage("one argument is needed, gs://BUCKET/PREFIX");
    }
    if (!cli_parse_uri(argv[optind], &ls.uri)) {
        return CLI_USAGE;
    }
    int status = cli_session_open(&ls.session, &connection, 4);
    if (status == CLI_DONE) {
        status = list_all(&ls);
        cli_session_close(&ls.session);
    }
    return status;
}

const struct cli_command cli_ls = {
    .name = "ls",
    .arguments = "gs://BUCKET/PREFIX [OPTIONS]",
    .summary = "list objects",
    .help =
        "Options:\n"
        "  -l, --long         print size, time of change and generation, and a sum at the end\n"
        "  -r, --recursive    list all names; by default names end at the next \"/\", and empty\n"
        "                     folders of hierarchical buckets are shown too\n"
        "  -a, --versions     old versions too, each as NAME#GENERATION\n"
        "  --glob PATTERN     only whole names that match: * within a part between \"/\", **\n"
        "                     across them, ? [a-z] {a,b}; implies -r\n"
        "  --json             one JSON object: "
        "{\"objects\":[...],\"prefixes\":[...]}\n" CLI_CONNECTION_HELP
        "\nA prefix is literal: gs://b/a lists everything that begins with \"a\".\n"
        "\nExamples:\n"
        "  ringest ls -l gs://bucket/folder/\n"
        "  ringest ls gs://bucket --glob '**.jpg' | wc -l\n",
    .run = ls_run,
};
