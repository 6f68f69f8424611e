/* `ringest cp` and `ringest mv`: the command line and the summary; cp.h tells where the rest is. */
#include "cli/cp.h"

#include "cli/cat.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CONCURRENCY_DEFAULT 64
#define CONCURRENCY_MAX 4096
/* Parts of the XML API have at least 5 MiB and at most 5 GiB. */
#define PART_SIZE_MIN RG_MIB(5)
#define PART_SIZE_MAX (UINT64_C(5) << 30)
/* Of one text of metadata; the service takes 8 KiB in all. */
#define FIELD_SIZE_MAX 8192
/* Keys become names of header fields. */
#define KEY_CHARACTERS                                                                             \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!#$%&'*+^`|~"
/* Beside those of the items: listings. */
#define REQUESTS_BESIDE 64

static bool method_parse(const char *text, enum rg_upload_method *out_method)
{
    static const struct {
        const char *name;
        enum rg_upload_method method;
    } methods[] = {{"auto", RG_UPLOAD_AUTO},
                   {"single", RG_UPLOAD_SINGLE},
                   {"resumable", RG_UPLOAD_RESUMABLE},
                   {"multipart", RG_UPLOAD_MULTIPART},
                   {"compose", RG_UPLOAD_COMPOSE}};
    for (size_t i = 0; i < RG_ARRAY_LEN(methods); i++) {
        if (strcmp(text, methods[i].name) == 0) {
            *out_method = methods[i].method;
            return true;
        }
    }
    cli_usage("--method must be auto, single, resumable, multipart or compose, got \"%s\"", text);
    return false;
}

/* It becomes a header field, which the name of the object must not be blamed for. */
static bool field_set(const char **field, const char *option, const char *text)
{
    size_t size = strlen(text);
    *field = text;
    for (const char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c)) {
            cli_usage("%s must not have control characters, got \"%s\"", option, text);
            return false;
        }
    }
    if (size > 0 && (text[0] == ' ' || text[size - 1] == ' ')) {
        cli_usage("%s must not begin or end with a space, got \"%s\"", option, text);
        return false;
    }
    if (size > FIELD_SIZE_MAX) {
        cli_usage("%s has at most %d bytes, got %zu", option, FIELD_SIZE_MAX, size);
        return false;
    }
    return true;
}

/* "" would be left out of a request, and the bucket's would be taken. The service's documents write
 * classes small, and it answers with large letters. */
static bool class_set(const char **class, char *text)
{
    if (*text == '\0') {
        cli_usage("--storage-class needs a class, such as NEARLINE");
        return false;
    }
    for (char *c = text; *c != '\0'; c++) {
        if (*c == ' ') {
            cli_usage("--storage-class is one word, such as NEARLINE, got \"%s\"", text);
            return false;
        }
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    }
    return field_set(class, "--storage-class", text);
}

/* Cuts the text at its "=". */
static bool metadata_add(struct cp_options *options, char *text)
{
    struct rg_metadata *added = &options->metadata[options->metadata_count];
    char *value = strchr(text, '=');
    if (value == NULL || value == text) {
        cli_usage("--custom-metadata needs KEY=VALUE, got \"%s\"", text);
        return false;
    }
    if (options->metadata_count == CP_METADATA_MAX) {
        cli_usage("there are more than %d of --custom-metadata", CP_METADATA_MAX);
        return false;
    }
    if (!field_set(&added->key, "--custom-metadata", text)) {
        return false;
    }
    *value = '\0';
    if (text[strspn(text, KEY_CHARACTERS)] != '\0') {
        cli_usage(
            "keys of --custom-metadata have letters, digits, \"-\", \"_\" and \".\", got \"%s\"",
            text);
        return false;
    }
    if (!field_set(&added->value, "--custom-metadata", value + 1)) {
        return false;
    }
    options->metadata_count++;
    const char *comma = strchr(added->value, ',');
    if (comma != NULL && strchr(comma, '=') != NULL) {
        cli_note("--custom-metadata: \"%s\" gets the value \"%s\"; give the option once for each "
                 "key if several are meant",
                 added->key, added->value);
    }
    return true;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void summary(const struct cp_options *options, const struct cp_counts *counts,
                    uint64_t started_ns)
{
    const char *done = options->moves ? "moved" : "copied";
    double seconds = (double)(rg_now_ns() - started_ns) * 1e-9;
    char size[32], rate[32], updated[48] = "", removed[48] = "", removed_json[48] = "";
    if (counts->updated > 0) {
        snprintf(updated, sizeof(updated), "%" PRIu64 " updated, ", counts->updated);
    }
    if (options->syncs) {
        snprintf(removed_json, sizeof(removed_json), "\"removed\":%" PRIu64 ",", counts->removed);
    }
    if (counts->removed > 0) {
        snprintf(removed, sizeof(removed), "%" PRIu64 " removed, ", counts->removed);
    }
    if (options->json) {
        printf("{\"copied\":%" PRIu64 ",\"updated\":%" PRIu64 ",%s\"skipped\":%" PRIu64
               ",\"failed\":%" PRIu64 ",\"planned\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"seconds\":%.6f,\"gb_per_s\":%.6f,\"cpu_seconds\":%.6f,\"dry_run\":%s}\n",
               counts->copied, counts->updated, removed_json, counts->skipped, counts->failed,
               counts->planned, counts->bytes, seconds, (double)counts->bytes / 1e9 / seconds,
               cpu_seconds(), options->dry_run ? "true" : "false");
    } else if (cli_interrupted()) {
        return; /* Said already, with what is to be done. */
    } else if (options->dry_run) {
        cli_summary("dry run: %" PRIu64 " would be %s (%s), %s%s%" PRIu64 " skipped, %" PRIu64
                    " failed",
                    counts->planned, done, cli_format_size(counts->bytes_planned, size), updated,
                    removed, counts->skipped, counts->failed);
    } else if (counts->copied > 0) {
        cli_summary("%" PRIu64 " %s, %s%s%" PRIu64 " skipped, %" PRIu64
                    " failed; %s in %.1f s, %s/s",
                    counts->copied, done, updated, removed, counts->skipped, counts->failed,
                    cli_format_size(counts->bytes, size), seconds,
                    cli_format_size((uint64_t)((double)counts->bytes / seconds), rate));
    } else if (counts->updated + counts->skipped + counts->removed > 0 || counts->failed > 1) {
        cli_summary("0 %s, %s%s%" PRIu64 " skipped, %" PRIu64 " failed in %.1f s", done, updated,
                    removed, counts->skipped, counts->failed, seconds);
    }
}

static void interrupted_line(const struct cp_options *options, const struct cp_counts *counts)
{
    char kept[96] = "";
    if (counts->kept > 0) {
        snprintf(kept, sizeof(kept), "; %" PRIu64 " partial file%s kept (.NAME.ringest-part)",
                 counts->kept, counts->kept > 1 ? "s" : "");
    }
    cli_fail("interrupted: %" PRIu64 " %s, %" PRIu64 " skipped%s; run it again to resume",
             counts->copied, options->moves ? "moved" : "copied", counts->skipped, kept);
}

static int copy_streams(struct cli_session *session, const struct cp_options *options,
                        const char *source, const char *destination, struct cp_counts *counts)
{
    struct cli_uri uri;
    if (strcmp(source, "-") == 0) {
        RG_ASSERT(cli_parse_uri(destination, &uri));
        return cp_from_stdin(session, options, &uri, counts);
    }
    RG_ASSERT(cli_parse_uri(source, &uri));
    counts->planned = 1;
    int status = cat_whole(session, &uri, &counts->bytes);
    *(status == CLI_DONE ? &counts->copied : &counts->failed) = 1;
    return status;
}

/* What only the destination of a sync has, when all else is as it should be. */
static int rest_delete(struct cp_run *run, struct cp_sync *sync)
{
    if (cli_interrupted()) {
        return CLI_FAILED;
    }
    if (run->counts.failed > 0) {
        cli_note("nothing is removed, because not everything could be copied");
        return CLI_FAILED;
    }
    if (run->places.taken == NULL) {
        return cli_fail("the source has nothing, so nothing is removed; use `ringest rm -r`");
    }
    return cp_sync_delete(sync, &run->places, &run->links, &run->counts.removed);
}

/* Others undo the compression. What is compared with a CRC32C, and resumed, is what is stored. */
static void gzip_tell(uint64_t count)
{
    if (count > 0) {
        cli_note("%" PRIu64 " object%s stored with Content-Encoding gzip: %s the compressed bytes, "
                 "which gunzip unpacks",
                 count, count == 1 ? " is" : "s are",
                 count == 1 ? "its file holds" : "their files hold");
    }
}

static int copy_all(struct cli_session *session, const struct cp_options *options,
                    uint64_t bytes_out_max, char *const *sources, size_t source_count,
                    const char *destination, struct cp_counts *out_counts)
{
    struct cp_run run;
    int status = cp_run_open(&run, session, options, bytes_out_max);
    if (status != CLI_DONE) {
        return status;
    }
    struct cp_sync *sync = NULL;
    if (options->deletes) {
        status = cp_sync_open(&sync, session, options, destination);
    }
    if (status == CLI_DONE) {
        status = cp_plan(&run, sources, source_count, destination);
    }
    cp_run_finish(&run);
    if (sync != NULL && status == CLI_DONE) {
        status = rest_delete(&run, sync);
    }
    cp_sync_close(sync);
    cp_run_close(&run);
    *out_counts = run.counts;
    gzip_tell(out_counts->gzipped);
    if (cli_interrupted()) {
        interrupted_line(options, out_counts);
        return CLI_FAILED;
    }
    return out_counts->failed > 0 ? CLI_FAILED : status;
}

static int copy(const struct cp_options *options, const struct cli_connection *connection,
                char *const *sources, size_t source_count, const char *destination)
{
    uint64_t started_ns = rg_now_ns();
    struct cp_counts counts = {0};
    struct cli_session session;
    int status = cli_session_open(&session, connection, options->concurrency + REQUESTS_BESIDE);
    if (status != CLI_DONE) {
        return status;
    }
    uint64_t bytes_out_max =
        session.memory_max != 0 ? session.memory_max / 2 : (uint64_t)CP_BYTES_OUT_MAX;
    cli_interrupt_catch();
    /* A file that grows beyond `ulimit -f` is an error of write, not the end of the program. */
    signal(SIGXFSZ, SIG_IGN);
    bool is_stream = strcmp(sources[0], "-") == 0 || strcmp(destination, "-") == 0;
    if (is_stream && !options->dry_run) {
        status = copy_streams(&session, options, sources[0], destination, &counts);
    } else if (is_stream) {
        printf("would copy %s to %s\n", cli_shown(sources[0]), cli_shown(destination));
        counts.planned = 1;
    } else {
        status =
            copy_all(&session, options, bytes_out_max, sources, source_count, destination, &counts);
    }
    cli_session_close(&session);
    summary(options, &counts, started_ns);
    return cli_output_end(status);
}

enum {
    OPTION_DRY_RUN = CLI_OPTION_FIRST,
    OPTION_MATCH,
    OPTION_CONTENT_TYPE,
    OPTION_METHOD,
    OPTION_PART_SIZE,
    OPTION_CONCURRENCY,
    OPTION_FOLLOW,
    OPTION_LITERAL,
    OPTION_INCLUDE,
    OPTION_EXCLUDE,
    OPTION_DELETE,
    OPTION_CACHE_CONTROL,
    OPTION_CONTENT_ENCODING,
    OPTION_METADATA,
};

static const struct option cp_option_table[] = {
    CLI_CONNECTION_OPTIONS,
    {"recursive", no_argument, NULL, 'r'},
    {"no-clobber", no_argument, NULL, 'n'},
    {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
    {"if-generation-match", required_argument, NULL, OPTION_MATCH},
    {"content-type", required_argument, NULL, OPTION_CONTENT_TYPE},
    {"method", required_argument, NULL, OPTION_METHOD},
    {"part-size", required_argument, NULL, OPTION_PART_SIZE},
    {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
    {"follow-symlinks", no_argument, NULL, OPTION_FOLLOW},
    {"literal", no_argument, NULL, OPTION_LITERAL},
    {"include", required_argument, NULL, OPTION_INCLUDE},
    {"exclude", required_argument, NULL, OPTION_EXCLUDE},
    {"cache-control", required_argument, NULL, OPTION_CACHE_CONTROL},
    {"content-encoding", required_argument, NULL, OPTION_CONTENT_ENCODING},
    {"custom-metadata", required_argument, NULL, OPTION_METADATA},
    {"storage-class", required_argument, NULL, 's'},
    {0}};

static bool filter_option(struct filter *filter, const char *name, enum filter_kind kind)
{
    int rc = filter_add(filter, kind, optarg);
    if (rc < 0) {
        cli_usage("%s needs a pattern, got \"%s\"%s", name, optarg,
                  rc == -ENOMEM ? " and no memory" : "");
    }
    return rc == 0;
}

static bool cp_option(struct cp_options *options, int option)
{
    uint64_t value;
    switch (option) {
    case 'r':
    case 'R':
        options->recursive = true;
        return true;
    case 'n':
        if (options->syncs) {
            /* Whoever means the one must not get the other. */
            cli_usage(
                "-n is --dry-run of rsync and gsutil, and --no-clobber of gcloud; write --dry-run, "
                "or copy with `cp -r -n`");
            return false;
        }
        options->no_clobber = true;
        return true;
    case OPTION_DRY_RUN:
        options->dry_run = true;
        return true;
    case OPTION_FOLLOW:
        options->follow_symlinks = true;
        return true;
    case OPTION_LITERAL:
        options->literal = true;
        return true;
    case OPTION_DELETE:
        options->deletes = true;
        return true;
    case OPTION_INCLUDE:
        return filter_option(&options->filter, "--include", FILTER_INCLUDE);
    case OPTION_EXCLUDE:
        return filter_option(&options->filter, "--exclude", FILTER_EXCLUDE);
    case OPTION_CONTENT_TYPE:
        return field_set(&options->content_type, "--content-type", optarg);
    case OPTION_CACHE_CONTROL:
        return field_set(&options->cache_control, "--cache-control", optarg);
    case OPTION_CONTENT_ENCODING:
        return field_set(&options->content_encoding, "--content-encoding", optarg);
    case OPTION_METADATA:
        return metadata_add(options, optarg);
    case 's':
        return class_set(&options->storage_class, optarg);
    case OPTION_METHOD:
        return method_parse(optarg, &options->method);
    case OPTION_MATCH:
        return cli_parse_match(optarg, &options->if_generation_match);
    case OPTION_PART_SIZE:
        return cli_parse_size("--part-size", optarg, PART_SIZE_MIN, PART_SIZE_MAX,
                              &options->part_size);
    case OPTION_CONCURRENCY:
        if (!cli_parse_u64("--concurrency", optarg, 1, CONCURRENCY_MAX, &value)) {
            return false;
        }
        options->concurrency = (uint32_t)value;
        return true;
    case CLI_OPTION_JSON:
        options->json = true;
        return true;
    default:
        return false;
    }
}

static int command_run(struct cp_options *options, const struct option *table, int argc,
                       char **argv)
{
    struct cli_connection connection = {0};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":rRns:", table)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_HELP) {
            return cli_help();
        } else if (!cp_option(options, option)) {
            return CLI_USAGE;
        }
    }
    if (argc - optind < 2) {
        return cli_usage("needs a source and a destination");
    }
    connection.connections = options->concurrency;
    size_t source_count = (size_t)(argc - optind - 1);
    char *const *sources = &argv[optind];
    const char *destination = argv[argc - 1];
    int status = cp_plan_check(options, sources, source_count, destination);
    return status != CLI_DONE ? status
                              : copy(options, &connection, sources, source_count, destination);
}

static int cp_run(int argc, char **argv)
{
    struct cp_options options = {
        .part_size = CP_PART_SIZE_DEFAULT,
        .concurrency = CONCURRENCY_DEFAULT,
    };
    int status = command_run(&options, cp_option_table, argc, argv);
    filter_fini(&options.filter);
    return status;
}

static int mv_run(int argc, char **argv)
{
    static const struct option table[] = {
        CLI_CONNECTION_OPTIONS,
        {"recursive", no_argument, NULL, 'r'},
        {"no-clobber", no_argument, NULL, 'n'},
        {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
        {"content-type", required_argument, NULL, OPTION_CONTENT_TYPE},
        {"cache-control", required_argument, NULL, OPTION_CACHE_CONTROL},
        {"content-encoding", required_argument, NULL, OPTION_CONTENT_ENCODING},
        {"custom-metadata", required_argument, NULL, OPTION_METADATA},
        {"storage-class", required_argument, NULL, 's'},
        {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
        {"include", required_argument, NULL, OPTION_INCLUDE},
        {"exclude", required_argument, NULL, OPTION_EXCLUDE},
        {"literal", no_argument, NULL, OPTION_LITERAL},
        {0}};
    struct cp_options options = {
        .part_size = CP_PART_SIZE_DEFAULT,
        .concurrency = CONCURRENCY_DEFAULT,
        .recursive = true,
        .moves = true,
    };
    int status = command_run(&options, table, argc, argv);
    filter_fini(&options.filter);
    return status;
}

static int rsync_run(int argc, char **argv)
{
    static const struct option table[] = {
        CLI_CONNECTION_OPTIONS,
        {"recursive", no_argument, NULL, 'r'},
        {"delete", no_argument, NULL, OPTION_DELETE},
        {"delete-unmatched-destination-objects", no_argument, NULL, OPTION_DELETE},
        {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
        {"content-type", required_argument, NULL, OPTION_CONTENT_TYPE},
        {"cache-control", required_argument, NULL, OPTION_CACHE_CONTROL},
        {"content-encoding", required_argument, NULL, OPTION_CONTENT_ENCODING},
        {"custom-metadata", required_argument, NULL, OPTION_METADATA},
        {"storage-class", required_argument, NULL, 's'},
        {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
        {"follow-symlinks", no_argument, NULL, OPTION_FOLLOW},
        {"include", required_argument, NULL, OPTION_INCLUDE},
        {"exclude", required_argument, NULL, OPTION_EXCLUDE},
        {0}};
    struct cp_options options = {
        .part_size = CP_PART_SIZE_DEFAULT,
        .concurrency = CONCURRENCY_DEFAULT,
        .literal = true,
        .syncs = true,
    };
    int status = command_run(&options, table, argc, argv);
    filter_fini(&options.filter);
    return status;
}

const struct cli_command cli_rsync = {
    .name = "rsync",
    .arguments = "SOURCE DESTINATION [OPTIONS]",
    .summary = "make a folder have what another has",
    .help =
        "Options:\n"
        "  -r, --recursive    folders in it, too\n"
        "  --delete           remove what only the destination has, when all is copied\n"
        "  --dry-run          only say what would be copied and removed\n"
        "  --content-type TYPE\n"
        "                     of the objects, also of those that are there already; default: by\n"
        "                     the file's extension\n"
        "  --cache-control TEXT\n"
        "  --content-encoding TEXT\n"
        "  --custom-metadata KEY=VALUE\n"
        "                     the same of other metadata; the last may be given several times\n"
        "  -s, --storage-class CLASS\n"
        "                     the same; default: the bucket's\n"
        "  --concurrency N    requests at a time; default: 64\n"
        "  --follow-symlinks  copy the targets of symbolic links; by default links are left out,\n"
        "                     and what the destination has in their places stays\n"
        "  --include PATTERN  only names that match; may be given several times\n"
        "  --exclude PATTERN  no names that match, and nothing in folders that do; they are\n"
        "                     neither copied nor removed\n"
        "  --json             a summary as one JSON object\n" CLI_CONNECTION_HELP
        "\nSource and destination are folders: of a bucket, or one of this machine. Files and\n"
        "objects of the same size and CRC32C are not copied.\n"
        "\n--delete removes only what was there before anything was copied, and has not been\n"
        "replaced since. If anything fails, or the source has nothing, nothing is removed.\n"
        "\nExamples:\n"
        "  ringest rsync -r data gs://bucket/data\n"
        "  ringest rsync -r --delete gs://bucket/data /ssd/data --dry-run\n",
    .run = rsync_run,
};

const struct cli_command cli_mv = {
    .name = "mv",
    .arguments = "SOURCE... DESTINATION [OPTIONS]",
    .summary = "move files and objects: copy, then remove what was copied",
    .help =
        "Options:\n"
        "  -n, --no-clobber   never replace anything at the destination; then the source stays\n"
        "  --dry-run          only say what would be moved\n"
        "  --content-type TYPE\n"
        "                     of the objects; default: by the file's extension\n"
        "  --cache-control TEXT\n"
        "  --content-encoding TEXT\n"
        "  --custom-metadata KEY=VALUE\n"
        "                     the same of other metadata; the last may be given several times\n"
        "  -s, --storage-class CLASS\n"
        "                     of the objects; default: the bucket's\n"
        "  --concurrency N    requests at a time; default: 64\n"
        "  --include PATTERN  only names that match; may be given several times\n"
        "  --exclude PATTERN  no names that match, and nothing in folders that do\n"
        "  --literal          * ? [ ] in gs:// sources are characters of names, not wildcards\n"
        "  --json             a summary as one JSON object\n" CLI_CONNECTION_HELP
        "\nFolders are moved with all that is in them. Where things go is as with `ringest cp "
        "-r`,\n"
        "but a single object goes into a folder of this machine that exists.\n"
        "\nA source is removed when the destination has all of its bytes: exactly the generation\n"
        "that was copied, or a file that has not changed. After an interruption both may be "
        "there;\n"
        "repeat the command.\n"
        "\nExamples:\n"
        "  ringest mv gs://bucket/run gs://bucket/old/run\n"
        "  ringest mv 'gs://bucket/*.log' gs://bucket/logs/\n"
        "  ringest mv checkpoint.pt gs://bucket/checkpoints/\n",
    .run = mv_run,
};

const struct cli_command cli_cp = {
    .name = "cp",
    .arguments = "SOURCE... DESTINATION [OPTIONS]",
    .summary = "copy files to objects, objects to files, objects to objects",
    .help =
        "Options:\n"
        "  -r, --recursive    copy folders with all that is below them\n"
        "  -n, --no-clobber   never replace anything at the destination\n"
        "  --dry-run          only say what would be copied\n"
        "  --if-generation-match N\n"
        "                     only if the object at the destination has generation N; 0: only if\n"
        "                     there is none. Success means that this command wrote it\n"
        "  --content-type TYPE\n"
        "                     of the objects, also of those that are there already; default: by\n"
        "                     the file's extension, \"\" for application/octet-stream\n"
        "  --cache-control TEXT\n"
        "  --content-encoding TEXT\n"
        "  --custom-metadata KEY=VALUE\n"
        "                     the same of other metadata; the last may be given several times\n"
        "  -s, --storage-class CLASS\n"
        "                     of the objects, also of those that are there already; default: the\n"
        "                     bucket's. To its own place, an object gets the class alone\n"
        "  --method METHOD    how objects are written: auto, single, resumable, multipart or\n"
        "                     compose; default: auto\n"
        "  --part-size SIZE   size of the parts of large objects; default: 8M to read, 16M to\n"
        "                     write\n"
        "  --concurrency N    requests at a time; default: 64\n"
        "  --follow-symlinks  copy the targets of symbolic links in folders; by default links\n"
        "                     are left out\n"
        "  --include PATTERN  only names that match; may be given several times\n"
        "  --exclude PATTERN  no names that match, and nothing in folders that do\n"
        "  --literal          * ? [ ] in gs:// sources are characters of names, not wildcards\n"
        "  --json             a summary as one JSON object\n" CLI_CONNECTION_HELP
        "\nSources are copied into a destination that is a bucket, \".\", \"..\", or ends in "
        "\"/\".\n"
        "Any other destination is the new name, and a folder that exists gets the contents of the\n"
        "source. \"-\" is standard input or output.\n"
        "\ngs:// sources may have wildcards: * ? [a-z] within a part between \"/\", ** across "
        "them. What\n"
        "matches goes into the destination under its own name, which is what stands behind its\n"
        "last \"/\"; folders that match are copied with -r.\n"
        "\nWhat the destination already has with the same size and CRC32C is not copied again. So\n"
        "repeat an interrupted command to resume it.\n"
        "\nExamples:\n"
        "  ringest cp model.pt gs://bucket/models/\n"
        "  ringest cp -r gs://bucket/dataset /data/dataset\n"
        "  ringest cp 'gs://bucket/**.jpg' photos/\n"
        "  ringest cp -r gs://bucket/a gs://other/b\n"
        "  ringest cp -r -s NEARLINE gs://bucket/old gs://bucket/old\n"
        "  tar c folder | ringest cp - gs://bucket/folder.tar\n",
    .run = cp_run,
};
