/* `ringest du`: the bytes below folders.
 *
 * A listing in the order of names gives the objects of a folder one after the other. The folders
 * that lead to the last name are open; one that the next name is not in is complete, is printed,
 * and counts for the one above it. */
#include "cli/cli.h"
#include "cli/expand.h"
#include "cli/lister.h"
#include "cli/object_text.h"
#include "cli/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct folder {
    size_t size; /* of its name, with the "/" */
    uint64_t objects, bytes;
};

struct du {
    struct cli_session session;
    bool json, human, summarize, total, versions, literal;
    uint64_t all_objects, all_bytes;
    /* The argument that is being read. */
    struct cli_uri uri;
    char name[RG_OBJECT_NAME_SIZE_MAX + 1]; /* the last one */
    /* The first is the argument itself. Invariant: each name begins with the one before, and `name`
     * with all of them. */
    struct folder folders[RG_OBJECT_NAME_SIZE_MAX + 2];
    size_t count;
};

static void print_line(const struct du *du, const char *name, int size, uint64_t objects,
                       uint64_t bytes)
{
    char text[CLI_QUANTITY_SIZE], uri[RG_OBJECT_NAME_SIZE_MAX + RG_BUCKET_NAME_SIZE_MAX + 8];
    snprintf(uri, sizeof(uri), "gs://%s/%.*s", du->uri.bucket, size, name);
    if (du->json) {
        printf("{\"url\":");
        cli_json_string(uri);
        printf(",\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n", objects, bytes);
    } else if (du->human) {
        printf("%12s  %s\n", cli_format_size(bytes, text), cli_shown(uri));
    } else {
        printf("%12" PRIu64 "  %s\n", bytes, cli_shown(uri));
    }
}

static void folder_close(struct du *du)
{
    const struct folder *folder = &du->folders[--du->count];
    if (du->count > 0) {
        du->folders[du->count - 1].objects += folder->objects;
        du->folders[du->count - 1].bytes += folder->bytes;
    }
    if (du->count == 0) {
        du->all_objects += folder->objects;
        du->all_bytes += folder->bytes;
        print_line(du, du->uri.name, (int)strlen(du->uri.name), folder->objects, folder->bytes);
    } else if (!du->summarize) {
        print_line(du, du->name, (int)folder->size, folder->objects, folder->bytes);
    }
}

static void object_take(struct du *du, const struct rg_object *object)
{
    RG_ASSERT(du->count > 0);
    while (du->count > 1 && strncmp(object->name, du->name, du->folders[du->count - 1].size) != 0) {
        folder_close(du);
    }
    snprintf(du->name, sizeof(du->name), "%s", object->name);
    const char *name = du->name + RG_MIN(du->folders[du->count - 1].size, strlen(du->name));
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        du->folders[du->count++] = (struct folder){.size = (size_t)(slash - du->name) + 1};
    }
    struct folder *folder = &du->folders[du->count - 1];
    RG_VERIFY(du->count == 1 || du->name[folder->size - 1] == '/');
    folder->objects++;
    folder->bytes += object->size;
}

static int prefix_read(struct du *du, const char *prefix, bool is_name)
{
    char end[RG_OBJECT_NAME_SIZE_MAX + 2];
    snprintf(end, sizeof(end), "%s\x01", prefix);
    struct rg_listing_options options = {.bucket = du->uri.bucket,
                                         .prefix = prefix,
                                         .start_offset = is_name ? prefix : NULL,
                                         .end_offset = is_name ? end : NULL,
                                         .versions = du->versions,
                                         .ordered = true};
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, &du->session, &options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        for (size_t i = 0; i < page->object_count; i++) {
            object_take(du, &page->objects[i]);
        }
    }
    lister_close(&lister);
    return status;
}

/* The object, if there is one, and what is below it. */
static int place_read(struct du *du)
{
    size_t size = strlen(du->uri.name);
    bool is_folder = size == 0 || du->uri.name[size - 1] == '/';
    char prefix[RG_OBJECT_NAME_SIZE_MAX + 2];
    snprintf(prefix, sizeof(prefix), "%s%s", du->uri.name, is_folder ? "" : "/");
    du->folders[0] = (struct folder){.size = strlen(prefix)};
    du->count = 1;
    int status = is_folder ? CLI_DONE : prefix_read(du, du->uri.name, true);
    if (status == CLI_DONE && strlen(prefix) <= RG_OBJECT_NAME_SIZE_MAX) {
        status = prefix_read(du, prefix, false);
    }
    bool found = du->count > 1 || du->folders[0].objects > 0;
    if (status == CLI_DONE && !found && size > 0) {
        return cli_fail("gs://%s/%s: no such object, and nothing below it", du->uri.bucket,
                        du->uri.name);
    }
    while (status == CLI_DONE && du->count > 0) {
        folder_close(du);
    }
    return status;
}

static int match_take(void *context, const char *name, const struct rg_object *object)
{
    struct du *du = context;
    struct cli_uri pattern = du->uri;
    int status = CLI_DONE;
    snprintf(du->uri.name, sizeof(du->uri.name), "%s", name);
    if (object == NULL) {
        status = place_read(du);
    } else {
        du->all_objects++;
        du->all_bytes += object->size;
        print_line(du, name, (int)strlen(name), 1, object->size);
    }
    du->uri = pattern;
    return ferror(stdout) ? CLI_FAILED : status;
}

static int argument_read(struct du *du, const char *argument)
{
    RG_ASSERT(cli_parse_uri(argument, &du->uri));
    if (!expand_is_pattern(argument, du->literal)) {
        return place_read(du);
    }
    struct expand expand = {.session = &du->session,
                            .bucket = du->uri.bucket,
                            .folders = true,
                            .ordered = true,
                            .versions = du->versions,
                            .context = du,
                            .take = match_take};
    int status = expand_pattern(&expand, du->uri.name);
    return status == CLI_DONE && expand.count == 0 ? expand_none(&du->uri) : status;
}

static int read_all(struct du *du, char *const *places, int count)
{
    char text[CLI_QUANTITY_SIZE];
    int status = CLI_DONE;
    object_text_begin();
    for (int i = 0; i < count && !ferror(stdout); i++) {
        int one = argument_read(du, places[i]);
        status = one != CLI_DONE ? one : status;
    }
    if (du->total && du->json) {
        printf("{\"url\":null,\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n", du->all_objects,
               du->all_bytes);
    } else if (du->total && du->human) {
        printf("%12s  total\n", cli_format_size(du->all_bytes, text));
    } else if (du->total) {
        printf("%12" PRIu64 "  total\n", du->all_bytes);
    }
    return status;
}

enum { OPTION_LITERAL = CLI_OPTION_FIRST };

static bool du_option(struct du *du, int option)
{
    switch (option) {
    case CLI_OPTION_JSON:
        du->json = true;
        return true;
    case 'h':
        du->human = true;
        return true;
    case 's':
        du->summarize = true;
        return true;
    case 'c':
        du->total = true;
        return true;
    case 'a':
        du->versions = true;
        return true;
    case OPTION_LITERAL:
        du->literal = true;
        return true;
    default:
        return false;
    }
}

static int du_run(int argc, char **argv)
{
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"summarize", no_argument, NULL, 's'},
                                            {"human-readable", no_argument, NULL, 'h'},
                                            {"total", no_argument, NULL, 'c'},
                                            {"versions", no_argument, NULL, 'a'},
                                            {"literal", no_argument, NULL, OPTION_LITERAL},
                                            {0}};
    static struct du du;
    struct cli_connection connection = {.connections = LISTER_REQUESTS};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":shca", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (!du_option(&du, option)) {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    int count = argc - optind;
    if (count == 0 && du.human) {
        return cli_help(); /* `ringest du -h` */
    }
    if (count == 0) {
        return cli_usage("needs a place, gs://BUCKET/PREFIX");
    }
    for (int i = 0; i < count; i++) {
        if (!cli_parse_uri(argv[optind + i], &du.uri)) {
            return CLI_USAGE;
        }
    }
    int status = cli_session_open(&du.session, &connection, 4);
    if (status == CLI_DONE) {
        status = read_all(&du, &argv[optind], count);
        cli_session_close(&du.session);
    }
    return cli_output_end(status);
}

const struct cli_command cli_du = {
    .name = "du",
    .arguments = "gs://BUCKET/PREFIX... [OPTIONS]",
    .summary = "sum up the bytes below folders",
    .help = "Options:\n"
            "  -s, --summarize    only a line for each argument, not for each folder below it\n"
            "  -h, --human-readable\n"
            "                     sizes such as 1.5 MiB\n"
            "  -c, --total        a line with the sum of all arguments at the end\n"
            "  -a, --versions     old versions too\n"
            "  --literal          * ? [ ] are characters of names, not wildcards\n"
            "  --json             a JSON object in a line for each: url, objects, "
            "bytes\n" CLI_CONNECTION_HELP
            "\ngs://b/a is the object \"a\" and everything below \"a/\". Every name is listed.\n"
            "\nExamples:\n"
            "  ringest du -sh gs://bucket\n"
            "  ringest du -sch 'gs://bucket/runs/*'\n",
    .run = du_run,
};
