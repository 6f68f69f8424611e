/* `ringest stat`: everything that is stored about an object. */
#include "cli/stat.h"

#include "cli/cli.h"
#include "cli/expand.h"
#include "cli/hash_text.h"
#include "cli/lookup.h"
#include "cli/session.h"

#include <inttypes.h>

/* What is printed, in this order, where the service told it. */
struct field {
    const char *name; /* in JSON */
    const char *text;
};

static void print_json(const struct rg_object_info *info, const struct field *fields, size_t count,
                       const char *crc32c)
{
    printf("{\"name\":");
    cli_json_string(info->object.name);
    printf(",\"bucket\":");
    cli_json_string(info->bucket);
    printf(",\"size\":%" PRIu64 ",\"generation\":\"%" PRId64 "\",\"metageneration\":\"%" PRId64
           "\",\"crc32c\":",
           info->object.size, info->object.generation, info->metageneration);
    cli_json_string_or_null(crc32c);
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

static void print_text(const struct rg_object_info *info, const struct field *fields, size_t count,
                       const char *crc32c)
{
    printf("gs://%s/%s\n", info->bucket, cli_shown(info->object.name));
    printf("  %-18s %" PRIu64 "\n", "size", info->object.size);
    printf("  %-18s %" PRId64 "\n", "generation", info->object.generation);
    printf("  %-18s %" PRId64 "\n", "metageneration", info->metageneration);
    if (crc32c != NULL) {
        printf("  %-18s %s\n", "crc32c", crc32c);
    }
    for (size_t i = 0; i < count; i++) {
        if (fields[i].text != NULL) {
            printf("  %-18s %s\n", fields[i].name, cli_shown(fields[i].text));
        }
    }
    if (info->component_count > 0) {
        printf("  %-18s %" PRIu32 "\n", "component_count", info->component_count);
    }
    for (size_t i = 0; i < info->metadata_count; i++) {
        printf("  metadata %s: %s\n", cli_shown(info->metadata[i].key),
               cli_shown(info->metadata[i].value));
    }
}

static void print(const struct rg_object_info *info, bool json, bool hex)
{
    char md5[HASH_TEXT_SIZE], crc32c[HASH_TEXT_SIZE];
    const char *crc =
        info->object.has_crc32c ? hash_text_crc32c(info->object.crc32c, hex, crc32c) : NULL;
    const struct field fields[] = {
        {"md5", hash_text_md5(info->md5, hex, md5)}, {"etag", info->etag},
        {"content_type", info->content_type},        {"content_encoding", info->content_encoding},
        {"cache_control", info->cache_control},      {"storage_class", info->storage_class},
        {"time_created", info->time_created},        {"updated", info->object.updated},
    };
    if (json) {
        print_json(info, fields, RG_ARRAY_LEN(fields), crc);
    } else {
        print_text(info, fields, RG_ARRAY_LEN(fields), crc);
    }
}

/* Several are asked for at a time, and printed in the order of the arguments. */
struct stats {
    struct cli_session *session; /* borrowed */
    bool json, hex;
    stat_print print;
    struct rg_completion answers[STAT_REQUESTS]; /* by index of the argument */
    bool have[STAT_REQUESTS];
};

static int stat_submit(struct stats *stats, const char *place, int index)
{
    struct cli_uri uri;
    RG_ASSERT(cli_parse_uri(place, &uri));
    struct rg_stat request = {
        .bucket = uri.bucket, .object = uri.name, .user_data = (uint64_t)index};
    int rc = rg_submit_stat(stats->session->client, stats->session->cq, &request);
    return rc < 0 ? cli_fail("gs://%s/%s: %s", uri.bucket, uri.name, cli_submit_text(rc))
                  : CLI_DONE;
}

/* Waits for the answer of this argument. */
static int stat_take(struct stats *stats, const char *place, int index)
{
    int slot = index % STAT_REQUESTS, status = CLI_DONE;
    while (!stats->have[slot]) {
        struct rg_completion answer;
        if (!cli_wait_one(stats->session, &answer)) {
            return cli_fail("interrupted");
        }
        stats->answers[answer.user_data % STAT_REQUESTS] = answer;
        stats->have[answer.user_data % STAT_REQUESTS] = true;
    }
    const struct rg_completion *answer = &stats->answers[slot];
    stats->have[slot] = false;
    if (answer->status == RG_STATUS_OK) {
        stats->print(answer->data, stats->json, stats->hex);
    } else {
        struct cli_uri uri;
        RG_ASSERT(cli_parse_uri(place, &uri));
        status = fflush(stdout) == 0 ? lookup_fail(stats->session, &uri, answer) : CLI_FAILED;
    }
    rg_lease_release(answer->lease);
    return status;
}

int stat_objects(struct cli_session *session, char *const *places, int count, bool json, bool hex,
                 stat_print print_one)
{
    struct stats all = {.session = session, .json = json, .hex = hex, .print = print_one};
    struct stats *stats = &all;
    int status = CLI_DONE, submitted = 0;
    bool refused[STAT_REQUESTS] = {false};
    for (int i = 0; i < count; i++) {
        for (; submitted < count && submitted < i + STAT_REQUESTS; submitted++) {
            refused[submitted % STAT_REQUESTS] =
                stat_submit(stats, places[submitted], submitted) != CLI_DONE;
        }
        int one = refused[i % STAT_REQUESTS] ? CLI_FAILED : stat_take(stats, places[i], i);
        status = one != CLI_DONE ? one : status;
    }
    return status;
}

static int stat_run(int argc, char **argv)
{
    enum { OPTION_HEX = CLI_OPTION_FIRST, OPTION_LITERAL };
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"hex", no_argument, NULL, OPTION_HEX},
                                            {"literal", no_argument, NULL, OPTION_LITERAL},
                                            {0}};
    struct cli_session session;
    bool ok, literal = false, json = false, hex = false;
    int option;
    struct cli_connection connection = {0};
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            json = true;
        } else if (option == OPTION_HEX) {
            hex = true;
        } else if (option == OPTION_LITERAL) {
            literal = true;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    int count = argc - optind;
    int status = cli_objects_check(&argv[optind], count);
    if (status != CLI_DONE) {
        return status;
    }
    bool has_pattern = false;
    for (int i = 0; i < count; i++) {
        has_pattern = has_pattern || expand_is_pattern(argv[optind + i], literal);
    }
    connection.connections = (uint32_t)(has_pattern ? STAT_REQUESTS : RG_MIN(count, STAT_REQUESTS));
    status = cli_session_open(&session, &connection, STAT_REQUESTS);
    if (status == CLI_DONE) {
        struct expanded objects;
        status = expand_places(&session, &argv[optind], count, literal, &objects);
        if (status == CLI_DONE) {
            status = stat_objects(&session, objects.places, objects.count, json, hex, print);
        }
        expanded_free(&objects);
        cli_session_close(&session);
    }
    return cli_output_end(status);
}

const struct cli_command cli_stat = {
    .name = "stat",
    .arguments = "gs://BUCKET/OBJECT... [OPTIONS]",
    .summary = "show the metadata of objects",
    .help =
        "Options:\n"
        "  --json             one JSON object in a line for each argument\n"
        "  --hex              checksums as hexadecimal digits; default: base64\n"
        "  --literal          * ? [ ] are characters of names, not wildcards\n" CLI_CONNECTION_HELP
        "\nExamples:\n"
        "  ringest stat gs://bucket/model.pt\n"
        "  ringest stat gs://bucket/model.pt --json\n",
    .run = stat_run,
};
