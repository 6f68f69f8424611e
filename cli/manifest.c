/* `ringest manifest`: saves what a prefix holds to a file that many processes can share, and shows
 * what such a file says. */
#include "cli/cli.h"
#include "cli/lister.h"
#include "cli/local.h"
#include "cli/object_text.h"
#include "cli/progress.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_SIZE 512

enum { OPTION_MARKERS = CLI_OPTION_FIRST };

struct manifest {
    struct cli_connection connection;
    bool json, is_long, has_markers;
};

static int page_add(const struct rg_list_page *page, const struct manifest *options,
                    const char *path, struct rg_manifest_writer *writer, uint64_t *out_count)
{
    for (size_t i = 0; i < page->object_count; i++) {
        const struct rg_object *object = &page->objects[i];
        if (!options->has_markers && rg_object_is_folder_marker(object)) {
            continue;
        }
        int rc = rg_manifest_writer_add(writer, object);
        if (rc < 0) {
            return cli_fail("%s: %s", path, strerror(-rc));
        }
        ++*out_count;
    }
    return CLI_DONE;
}

static int pages_add(struct cli_session *session, const struct cli_uri *uri,
                     const struct manifest *manifest, const char *path,
                     struct rg_manifest_writer *writer, uint64_t *out_count)
{
    struct rg_listing_options options = {
        .bucket = uri->bucket, .prefix = uri->name, .ordered = true};
    struct lister lister;
    const struct rg_list_page *page = NULL;
    struct progress progress;
    progress_open(&progress, "objects", manifest->json);
    int status = lister_open(&lister, session, &options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        status = page_add(page, manifest, path, writer, out_count);
        progress_draw(&progress, &(struct progress_state){.done = *out_count});
    }
    progress_close(&progress);
    lister_close(&lister);
    return status;
}

static int save(const struct manifest *manifest, const struct cli_uri *uri, const char *path)
{
    struct rg_manifest_writer *writer;
    int rc = rg_manifest_writer_open(&writer, path, uri->bucket);
    if (rc < 0) {
        return cli_fail("%s: %s", path, local_error_text(rc));
    }
    struct cli_session session;
    uint64_t count = 0;
    int status = cli_session_open(&session, &manifest->connection, 4);
    if (status == CLI_DONE) {
        cli_interrupt_catch();
        status = pages_add(&session, uri, manifest, path, writer, &count);
        cli_session_close(&session);
    }
    rc = rg_manifest_writer_close(writer, status != CLI_DONE);
    if (rc < 0 && status == CLI_DONE) {
        status = cli_fail("%s: %s", path, local_error_text(rc));
    }
    if (status == CLI_DONE && manifest->json) {
        printf("{\"objects\":%" PRIu64 "}\n", count);
    } else if (status == CLI_DONE) {
        cli_summary("%" PRIu64 " object%s saved to %s", count, count == 1 ? "" : "s", path);
    }
    return cli_output_end(status);
}

static int show_all(const struct rg_manifest *manifest, const char *path, bool json, bool is_long)
{
    uint64_t count = rg_manifest_count(manifest);
    const char *bucket = rg_manifest_bucket(manifest);
    object_text_begin();
    if (json) {
        printf("{\"bucket\":");
        cli_json_string(bucket);
        printf(",\"objects\":[");
    }
    for (uint64_t i = 0; i < count && !ferror(stdout); i++) {
        struct rg_object object;
        char name[RG_OBJECT_NAME_SIZE_MAX + 1];
        int rc = rg_manifest_get(manifest, i, &object, name);
        if (rc < 0) {
            return cli_fail("%s: entry %" PRIu64 ": %s", path, i, strerror(-rc));
        }
        if (json) {
            fputs_unlocked(i > 0 ? "," : "", stdout);
            object_print_json(&object, false);
        } else {
            object_print_line(bucket, &object, is_long ? OBJECT_LONG : OBJECT_NAME, false);
        }
    }
    if (json) {
        printf("]}\n");
    }
    return CLI_DONE;
}

static int show(const char *path, bool json, bool is_long)
{
    struct rg_manifest *manifest;
    char error[ERROR_SIZE] = "";
    int rc = rg_manifest_open(&manifest, path, error, sizeof(error));
    if (rc < 0) {
        return error[0] != '\0' ? cli_fail("%s", error) : cli_fail("%s: %s", path, strerror(-rc));
    }
    int status = show_all(manifest, path, json, is_long);
    rg_manifest_close(manifest);
    return cli_output_end(status);
}

/* False: *out_status is the command's. */
static bool options_take(int argc, char **argv, struct manifest *manifest, int *out_status)
{
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"long", no_argument, NULL, 'l'},
                                            {"folder-markers", no_argument, NULL, OPTION_MARKERS},
                                            {0}};
    bool ok;
    int option;
    while ((option = cli_getopt(argc, argv, ":l", options)) != -1) {
        if (cli_connection_option(&manifest->connection, option, optarg, &ok)) {
            if (!ok) {
                *out_status = CLI_USAGE;
                return false;
            }
        } else if (option == CLI_OPTION_JSON) {
            manifest->json = true;
        } else if (option == 'l') {
            manifest->is_long = true;
        } else if (option == OPTION_MARKERS) {
            manifest->has_markers = true;
        } else {
            *out_status = option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
            return false;
        }
    }
    return true;
}

static int manifest_run(int argc, char **argv)
{
    struct manifest manifest = {.connection = {.connections = LISTER_REQUESTS}};
    int status;
    if (!options_take(argc, argv, &manifest, &status)) {
        return status;
    }
    char **arguments = &argv[optind];
    int count = argc - optind;
    struct cli_uri uri;
    if (count == 2 && strcmp(arguments[0], "show") == 0) {
        return show(arguments[1], manifest.json, manifest.is_long);
    }
    if (count == 3 && strcmp(arguments[0], "save") == 0) {
        bool ok = cli_parse_uri(arguments[1], &uri) && cli_file_check(arguments[2]);
        return ok ? save(&manifest, &uri, arguments[2]) : CLI_USAGE;
    }
    return cli_usage("needs save gs://BUCKET/PREFIX FILE, or show FILE");
}

const struct cli_command cli_manifest = {
    .name = "manifest",
    .arguments = "save gs://BUCKET/PREFIX FILE | show FILE [OPTIONS]",
    .summary = "save a listing to a file, or show one",
    .help =
        "Options:\n"
        "  -l, --long         show: size, time of change and generation\n"
        "  --folder-markers   save: include empty objects whose names end in \"/\"\n"
        "  --json             show: one JSON object; save: how many objects\n" CLI_CONNECTION_HELP
        "\nA manifest has names, sizes, generations and checksums of objects, in the order of\n"
        "names. FILE is created when it is complete. A prefix is literal: gs://b/a saves "
        "everything\n"
        "that begins with \"a\". End it with \"/\" to save a folder.\n"
        "\nExamples:\n"
        "  ringest manifest save gs://bucket/train/ train.manifest\n"
        "  ringest manifest show train.manifest | wc -l\n",
    .run = manifest_run,
};
