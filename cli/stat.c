/* `ringest stat`: everything that is stored about an object. */
#include "cli/cli.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* What is printed, in this order, where the service told it. */
struct field {
    const char *name; /* in JSON */
    const char *text;
};

static void print_json(const struct rg_object_info *info, const struct field *fields, size_t count)
{
    printf("{\"name\":");
    cli_json_string(info->object.name);
    printf(",\"bucket\":");
    cli_json_string(info->bucket);
    printf(",\"size\":%" PRIu64 ",\"generation\":\"%" PRId64 "\",\"metageneration\":\"%" PRId64
           "\",\"crc32c\":",
           info->object.size, info->object.generation, info->metageneration);
    if (info->object.has_crc32c) {
        printf("\"%08" PRIx32 "\"", info->object.crc32c);
    } else {
        printf("null");
    }
    for (size_t i = 0; i < count; i++) {
        printf(",\"%s\":", fields[i].name);
        cli_json_string_or_null(fields[i].text);
    }
    printf(",\"component_count\":%" PRIu32 ",\"metadata\":{", info->component_count);
    for (size_t i = 0; i < info->metadata_count; i++) {
        printf("%s", i > 0 ? "," : "");
        cli_json_string(info->metadata[i].key);
        putchar(':');
        cli_json_string_or_null(info->metadata[i].value);
    }
    printf("}}\n");
}

static void print_text(const struct rg_object_info *info, const struct field *fields, size_t count)
{
    printf("gs://%s/%s\n", info->bucket, info->object.name);
    printf("  %-18s %" PRIu64 "\n", "size", info->object.size);
    printf("  %-18s %" PRId64 "\n", "generation", info->object.generation);
    printf("  %-18s %" PRId64 "\n", "metageneration", info->metageneration);
    if (info->object.has_crc32c) {
        printf("  %-18s %08" PRIx32 "\n", "crc32c", info->object.crc32c);
    }
    for (size_t i = 0; i < count; i++) {
        if (fields[i].text != NULL) {
            printf("  %-18s %s\n", fields[i].name, fields[i].text);
        }
    }
    if (info->component_count > 0) {
        printf("  %-18s %" PRIu32 "\n", "component_count", info->component_count);
    }
    for (size_t i = 0; i < info->metadata_count; i++) {
        printf("  metadata %s: %s\n", info->metadata[i].key, info->metadata[i].value);
    }
}

static void print(const struct rg_object_info *info, bool json)
{
    const struct field fields[] = {
        {"md5", info->md5},
        {"etag", info->etag},
        {"content_type", info->content_type},
        {"content_encoding", info->content_encoding},
        {"cache_control", info->cache_control},
        {"storage_class", info->storage_class},
        {"time_created", info->time_created},
        {"updated", info->object.updated},
    };
    if (json) {
        print_json(info, fields, RG_ARRAY_LEN(fields));
    } else {
        print_text(info, fields, RG_ARRAY_LEN(fields));
    }
}

static int stat_object(struct cli_session *session, const struct cli_uri *uri, bool json)
{
    struct rg_stat request = {.bucket = uri->bucket, .object = uri->name};
    int rc = rg_submit_stat(session->client, session->cq, &request);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", uri->bucket, uri->name, cli_submit_text(rc));
    }
    struct rg_completion completion;
    if (!cli_wait_one(session, &completion)) {
        return cli_fail("interrupted");
    }
    int status = CLI_DONE;
    if (completion.status == RG_STATUS_OK) {
        print(completion.data, json);
    } else {
        status = cli_fail("%s", cli_completion_text(&completion));
    }
    rg_lease_release(completion.lease);
    return cli_output_end(status);
}

static int stat_run(int argc, char **argv)
{
    static const struct option options[] = {CLI_CONNECTION_OPTIONS, {0}};
    struct cli_connection connection = {.connections = 1};
    bool json = false, ok;
    int option;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            json = true;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    struct cli_uri uri;
    int status = cli_one_object(argc, argv, &uri);
    struct cli_session session;
    if (status == CLI_DONE) {
        status = cli_session_open(&session, &connection, 1);
    }
    if (status == CLI_DONE) {
        status = stat_object(&session, &uri, json);
        cli_session_close(&session);
    }
    return status;
}

const struct cli_command cli_stat = {
    .name = "stat",
    .arguments = "gs://BUCKET/OBJECT [OPTIONS]",
    .summary = "show what is stored about an object",
    .help = "Options:\n"
            "  --json             one JSON object\n" CLI_CONNECTION_HELP "\nExamples:\n"
            "  ringest stat gs://bucket/model.pt\n"
            "  ringest stat gs://bucket/model.pt --json\n",
    .run = stat_run,
};
