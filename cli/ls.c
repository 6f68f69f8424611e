/* `ringest ls`: the names below a prefix, page by page; the next page is asked for while one is
 * printed only in so far as the output is buffered, because pages depend on each other. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ls {
    struct cli_session session;
    struct cli_uri uri;
    bool json, is_long, recursive;
    bool json_is_open; /* something was printed */
    uint64_t object_count, prefix_count, byte_count;
    /* With --json, prefixes are printed after the objects, so they are kept. */
    char **prefixes;
    size_t prefixes_kept;
};

static void print_object_json(const struct ls *ls, const struct rg_object *object)
{
    printf("%s{\"name\":", ls->object_count > 0 ? "," : "");
    cli_json_string(object->name);
    printf(",\"size\":%" PRIu64 ",\"generation\":\"%" PRId64 "\",\"crc32c\":", object->size,
           object->generation);
    if (object->has_crc32c) {
        printf("\"%08" PRIx32 "\"", object->crc32c);
    } else {
        printf("null");
    }
    printf(",\"updated\":");
    if (object->updated != NULL) {
        cli_json_string(object->updated);
    } else {
        printf("null");
    }
    putchar('}');
}

static void print_object(const struct ls *ls, const struct rg_object *object)
{
    if (ls->json) {
        print_object_json(ls, object);
    } else if (ls->is_long) {
        printf("%12" PRIu64 "  %-24s  %" PRId64 "  gs://%s/%s\n", object->size,
               object->updated != NULL ? object->updated : "", object->generation, ls->uri.bucket,
               object->name);
    } else {
        printf("gs://%s/%s\n", ls->uri.bucket, object->name);
    }
}

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
            printf("%*sgs://%s/%s\n", ls->is_long ? 60 : 0, "", ls->uri.bucket, page->prefixes[i]);
        } else if (keep_prefix(ls, page->prefixes[i]) != CLI_DONE) {
            return CLI_FAILED;
        }
    }
    for (size_t i = 0; i < page->object_count; i++) {
        print_object(ls, &page->objects[i]);
        ls->object_count++;
        ls->byte_count += page->objects[i].size;
    }
    return CLI_DONE;
}

/* One page; *token is what the next one is asked for with, NULL at the end. */
static int list_page(struct ls *ls, char **token)
{
    struct rg_list_request request = {
        .bucket = ls->uri.bucket,
        .prefix = ls->uri.name,
        .delimiter = ls->recursive ? NULL : "/",
        .page_token = *token,
    };
    int rc = rg_submit_list(ls->session.client, ls->session.cq, &request);
    free(*token);
    *token = NULL;
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", ls->uri.bucket, ls->uri.name,
                        rc == -EINVAL ? "the service allows no such bucket or prefix"
                                      : strerror(-rc));
    }
    struct rg_completion completion;
    if (!cli_wait_one(&ls->session, &completion)) {
        return cli_fail("interrupted");
    }
    int status;
    if (completion.status != RG_STATUS_OK) {
        status = cli_fail("%s", cli_completion_text(&completion));
    } else {
        const struct rg_list_page *page = completion.data;
        status = print_page(ls, page);
        if (page->next_page_token != NULL && status == CLI_DONE) {
            *token = strdup(page->next_page_token);
            status = *token != NULL ? CLI_DONE : cli_fail("no memory");
        }
    }
    rg_lease_release(completion.lease);
    return status;
}

/* What comes behind the last page. A listing that failed is left open, so that nobody takes a part
 * for the whole. */
static void print_end(const struct ls *ls)
{
    char size[32];
    if (ls->json) {
        printf("],\"prefixes\":[");
        for (size_t i = 0; i < ls->prefixes_kept; i++) {
            printf("%s", i > 0 ? "," : "");
            cli_json_string(ls->prefixes[i]);
        }
        printf("]}\n");
    } else if (ls->is_long) {
        printf("%" PRIu64 " objects, %s\n", ls->object_count,
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
    char *token = NULL;
    int status;
    do {
        status = list_page(ls, &token);
    } while (status == CLI_DONE && token != NULL);
    free(token);
    if (status == CLI_DONE) {
        print_end(ls);
    }
    prefixes_free(ls);
    if (fflush(stdout) != 0 && status == CLI_DONE) {
        status = cli_fail("standard output: %s", strerror(errno));
    }
    if (status == CLI_DONE && ls->object_count + ls->prefix_count == 0 && ls->uri.name[0] != '\0' &&
        !ls->json) {
        status = cli_fail("nothing in gs://%s begins with \"%s\"", ls->uri.bucket, ls->uri.name);
    }
    return status;
}

static int ls_run(int argc, char **argv)
{
    enum { OPTION_LONG = CLI_OPTION_FIRST, OPTION_RECURSIVE };
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"long", no_argument, NULL, OPTION_LONG},
                                            {"recursive", no_argument, NULL, OPTION_RECURSIVE},
                                            {0}};
    struct ls ls = {0};
    struct cli_connection connection = {.connections = 1};
    int option;
    bool ok;
    while ((option = getopt_long(argc, argv, "lr", options, NULL)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            ls.json = true;
        } else if (option == OPTION_LONG || option == 'l') {
            ls.is_long = true;
        } else if (option == OPTION_RECURSIVE || option == 'r') {
            ls.recursive = true;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    if (argc - optind != 1) {
        return cli_usage("one place is needed, gs://BUCKET/PREFIX");
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
    .help = "Options:\n"
            "  -l, --long         size, time of change and generation, and a sum at the end\n"
            "  -r, --recursive    all names; without it names are cut behind the next \"/\"\n"
            "  --json             one JSON object: "
            "{\"objects\":[...],\"prefixes\":[...]}\n" CLI_CONNECTION_HELP
            "\nA prefix is literal: gs://b/a lists everything that begins with \"a\".\n",
    .run = ls_run,
};
