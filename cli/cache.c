/* `ringest cache`: fills a cache's folder, and shows, checks and empties it. */
#include "cli/cache.h"

#include "cache/folder.h"
#include "cache/memory_table.h"
#include "cli/progress.h"
#include "gcs/host/account.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONCURRENCY 64
#define CONCURRENCY_MAX 4096

enum { OPTION_MANIFEST = CLI_OPTION_FIRST, OPTION_REMOVE, OPTION_TO, OPTION_CONCURRENCY };

struct cache {
    struct cache_warming warming; /* its connection is that of all */
    const char *folder;           /* NULL: RINGEST_CACHE */
    bool json, removes, has_to, has_printed;
    uint64_t to, blocks;
    struct progress progress;
};

/* One of another user, or one that others may write to, is not used by clients either. */
static int folder_refuse(const char *folder)
{
    struct stat status;
    if (stat(folder, &status) == 0 && status.st_uid == geteuid()) {
        return cli_fail(
            "%s has mode %04o: others may write to it, and could put other bytes there; "
            "take that from them (chmod go-w)",
            folder, (unsigned)status.st_mode & 07777);
    }
    return cli_fail(
        "%s is another user's; run this command as the user of the programs that use it", folder);
}

/* Says what is wrong with the folder, and what helps. */
static int folder_fail(const struct cache *cache, int rc)
{
    static const struct {
        int error;
        const char *remedy;
    } remedies[] = {
        {-ENOENT, "give the folder that clients have as --option cache=FOLDER"},
        {-ENOTDIR, "give the folder, and not a file"},
        {-EACCES, "run this command as the user of the programs that use it"},
        {-EROFS, "mount its file system so that it can be written to"},
        {-EIO, "look at the disk; readers go to the bucket meanwhile"},
        {-ESTALE, "the server no longer knows it: mount it again"},
    };
    if (rc == -EPERM) {
        return folder_refuse(cache->folder);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(remedies); i++) {
        if (remedies[i].error == rc) {
            return cli_fail("%s: %s; %s", cache->folder, rg_error_text(-rc), remedies[i].remedy);
        }
    }
    return cli_fail("%s: %s", cache->folder, rg_error_text(-rc));
}

static int entry_print(void *context, const struct rg_cache_entry *entry)
{
    struct cache *cache = context;
    uint64_t first = rg_cache_key_first(&entry->key);
    if (!cache->json) {
        printf("%s%12" PRIu32 " %12" PRIu64 "  gs://%s/%s#%" PRId64 "\n",
               entry->error != 0 ? "damaged " : "", entry->body_size, first,
               cli_shown(entry->key.bucket), cli_shown(entry->key.object), entry->key.generation);
        return ferror(stdout);
    }
    printf("%s{\"bucket\":", cache->has_printed ? "," : "");
    cli_json_string(entry->key.bucket);
    printf(",\"name\":");
    cli_json_string(entry->key.object);
    printf(",\"generation\":%" PRId64 ",\"first\":%" PRIu64 ",\"size\":%" PRIu32
           ",\"object_size\":%" PRIu64 ",\"segment\":",
           entry->key.generation, first, entry->body_size, entry->object_size);
    cli_json_string(entry->segment);
    printf("}");
    cache->has_printed = true;
    return ferror(stdout);
}

/* Prints what is damaged, where the line of progress is. */
static int entry_verified(void *context, const struct rg_cache_entry *entry)
{
    struct cache *cache = context;
    const struct progress_state state = {
        .done = ++cache->blocks,
        .bytes_done = entry->bytes_before,
        .bytes_total = entry->bytes_all,
    };
    if (entry->error == 0) {
        progress_draw(&cache->progress, &state);
        return 0;
    }
    progress_clear(&cache->progress);
    return entry_print(cache, entry);
}

static int entry_pass(void *context, const struct rg_cache_entry *entry)
{
    (void)context, (void)entry;
    return 0;
}

static void totals_print_json(const struct rg_cache_folder_totals *totals)
{
    printf("\"segments\":%" PRIu64 ",\"blocks\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"damaged\":%" PRIu64 ",\"removed_segments\":%" PRIu64 ",\"removed_bytes\":%" PRIu64
           ",\"left_alone\":%" PRIu64 "}\n",
           totals->segments, totals->records, totals->size, totals->damaged_records,
           totals->removed_segments, totals->removed_bytes, totals->left_alone);
}

static void totals_print(const struct cache *cache, const struct rg_cache_folder_totals *totals)
{
    char size[CLI_QUANTITY_SIZE];
    if (cache->json) {
        printf("{");
        totals_print_json(totals);
        return;
    }
    printf("%" PRIu64 " files, %" PRIu64 " blocks, %s\n", totals->segments, totals->records,
           cli_format_size(totals->size, size));
    if (totals->removed_segments > 0) {
        printf("%" PRIu64 " files, %s, removed\n", totals->removed_segments,
               cli_format_size(totals->removed_bytes, size));
    }
    if (totals->left_alone > 0) {
        printf("%" PRIu64 " other files, left alone\n", totals->left_alone);
    }
}

/* Whoever gives another folder by mistake shall not take "nothing damaged" for an answer. */
static void empty_note(const struct cache *cache, const struct rg_cache_folder_totals *totals)
{
    if (totals->segments == 0) {
        cli_note("%s has no files of a cache; it is to be the folder that clients have as --option "
                 "cache=FOLDER",
                 cache->folder);
    }
}

static int ls(struct cache *cache)
{
    struct rg_cache_folder_totals totals;
    if (cache->json) {
        printf("{\"blocks\":[");
    }
    int rc = rg_cache_list(cache->folder, entry_print, cache, &totals);
    if (rc < 0) {
        return folder_fail(cache, rc);
    }
    if (cache->json) {
        printf("]}\n");
    }
    empty_note(cache, &totals);
    return CLI_DONE;
}

/* What processes of this user have in memory, whatever their folder. */
static int memory_print(const struct cache *cache)
{
    char why[512], size[CLI_QUANTITY_SIZE];
    uint64_t segments = 0, bytes = 0;
    const char *share = rg_host_folder(getenv("RINGEST_SHARING"));
    int rc =
        share == NULL ? 0 : rg_memory_table_measure(share, &segments, &bytes, why, sizeof(why));
    if (rc < 0) {
        return cli_fail("%s", why);
    }
    if (cache->json) {
        printf("{\"memory_segments\":%" PRIu64 ",\"memory_bytes\":%" PRIu64 ",", segments, bytes);
    } else if (segments > 0 || cache->folder == NULL) {
        printf("in memory: %" PRIu64 " segments, %s\n", segments, cli_format_size(bytes, size));
    }
    return CLI_DONE;
}

static int stats(struct cache *cache)
{
    struct rg_cache_folder_totals totals = {.segments = 0};
    int rc = cache->folder != NULL ? rg_cache_list(cache->folder, entry_pass, NULL, &totals) : 0;
    if (rc < 0) {
        return folder_fail(cache, rc);
    }
    rc = memory_print(cache);
    if (rc == CLI_DONE && cache->json) {
        totals_print_json(&totals);
    } else if (rc == CLI_DONE && cache->folder != NULL) {
        totals_print(cache, &totals);
        empty_note(cache, &totals);
    }
    return rc;
}

static int verify(struct cache *cache)
{
    struct rg_cache_folder_totals totals;
    if (cache->json) {
        printf("{\"damaged_blocks\":[");
    }
    progress_open(&cache->progress, "blocks", cache->json);
    int rc = rg_cache_verify(cache->folder, cache->removes, entry_verified, cache, &totals);
    progress_close(&cache->progress);
    if (rc < 0) {
        return folder_fail(cache, rc);
    }
    if (cache->json) {
        printf("],");
        totals_print_json(&totals);
    } else {
        totals_print(cache, &totals);
    }
    if (totals.damaged_records == 0) {
        empty_note(cache, &totals);
        return CLI_DONE;
    }
    return cli_fail("%s: %" PRIu64 " damaged blocks%s", cache->folder, totals.damaged_records,
                    cache->removes ? "; their files were removed"
                                   : "; --remove removes them (readers go to the bucket anyway)");
}

static int prune(struct cache *cache)
{
    struct rg_cache_folder_totals totals;
    if (!cache->has_to) {
        return cli_usage("prune needs --to SIZE; --to 0 removes everything");
    }
    int rc = rg_cache_prune(cache->folder, cache->to, &totals);
    if (rc < 0) {
        return folder_fail(cache, rc);
    }
    totals_print(cache, &totals);
    return CLI_DONE;
}

static int warm(struct cache *cache, char **arguments, int count)
{
    bool has_manifest = cache->warming.manifest != NULL;
    if (has_manifest ? count != 0 : count != 1) {
        return cli_usage(has_manifest ? "takes either gs://BUCKET/PREFIX or --manifest FILE"
                                      : "warm needs one gs://BUCKET/PREFIX, or --manifest FILE");
    }
    if (!has_manifest && !cli_parse_uri(arguments[0], &cache->warming.uri)) {
        return CLI_USAGE;
    }
    struct rg_runtime_options runtime;
    struct rg_client_options client;
    if (!cli_options_make(&cache->warming.connection, &runtime, &client)) {
        return CLI_USAGE;
    }
    if (client.cache == NULL || *client.cache == '\0') {
        return cli_usage("warm needs to know the cache: give --option cache=FOLDER, or set "
                         "RINGEST_CACHE");
    }
    cache->warming.json = cache->json;
    return cache_warm(&cache->warming);
}

static bool option_take(struct cache *cache, int option)
{
    switch (option) {
    case CLI_OPTION_JSON:
        cache->json = true;
        return true;
    case OPTION_MANIFEST:
        cache->warming.manifest = optarg;
        return true;
    case OPTION_REMOVE:
        cache->removes = true;
        return true;
    case OPTION_TO:
        cache->has_to = true;
        return cli_parse_size("--to", optarg, 0, INT64_MAX, &cache->to);
    case OPTION_CONCURRENCY:
        return cli_parse_u64("--concurrency", optarg, 1, CONCURRENCY_MAX,
                             &cache->warming.concurrency);
    default:
        return false;
    }
}

static const struct {
    const char *name;
    int (*run)(struct cache *cache);
} actions[] = {{"ls", ls}, {"verify", verify}, {"prune", prune}, {"stats", stats}};

static int action_run(struct cache *cache, char **arguments, int count)
{
    if (count == 0) {
        return cli_usage("needs warm, ls, verify, prune or stats");
    }
    if (strcmp(arguments[0], "warm") == 0) {
        return warm(cache, arguments + 1, count - 1);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(actions); i++) {
        if (strcmp(arguments[0], actions[i].name) != 0) {
            continue;
        }
        cache->folder = count > 1 ? arguments[1] : getenv("RINGEST_CACHE");
        bool has_folder = cache->folder != NULL && *cache->folder != '\0';
        cache->folder = has_folder ? cache->folder : NULL;
        if (count > 2 || (!has_folder && (count > 1 || actions[i].run != stats))) {
            return cli_usage("%s needs one FOLDER, or RINGEST_CACHE", actions[i].name);
        }
        return cli_output_end(actions[i].run(cache));
    }
    return cli_usage("needs warm, ls, verify, prune or stats, got \"%s\"", arguments[0]);
}

static int cache_run(int argc, char **argv)
{
    static const struct option options[] = {
        CLI_CONNECTION_OPTIONS,
        {"manifest", required_argument, NULL, OPTION_MANIFEST},
        {"remove", no_argument, NULL, OPTION_REMOVE},
        {"to", required_argument, NULL, OPTION_TO},
        {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
        {0}};
    struct cache cache = {.warming.concurrency = CONCURRENCY};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&cache.warming.connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (!option_take(&cache, option)) {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    return action_run(&cache, &argv[optind], argc - optind);
}

const struct cli_command cli_cache = {
    .name = "cache",
    .arguments = "warm gs://BUCKET/PREFIX | ls | verify | prune | stats [FOLDER] [OPTIONS]",
    .summary = "fill a cache of objects, show it, check it, empty it",
    .help = "  warm gs://BUCKET/PREFIX   read objects until --option cache=FOLDER has them\n"
            "  ls FOLDER                 blocks that are there: bytes, first byte, object\n"
            "  verify FOLDER             read all, and compare checksums\n"
            "  prune FOLDER --to SIZE    remove what was used longest ago\n"
            "  stats [FOLDER]            how much there is, and how much processes have in memory\n"
            "\nOptions:\n"
            "  --manifest FILE    warm: objects of a manifest, instead of gs://BUCKET/PREFIX\n"
            "  --concurrency N    warm: requests in flight; default: 64\n"
            "  --remove           verify: remove the files that have damaged blocks\n"
            "  --to SIZE          prune: bytes that may stay; 0: none\n"
            "  --json             one JSON object\n" CLI_CONNECTION_HELP
            "\nFOLDER is RINGEST_CACHE if it is not given. Programs may use the cache meanwhile.\n"
            "\nExamples:\n"
            "  ringest cache warm gs://bucket/train/ --option cache=/ssd/kept\n"
            "  ringest cache stats /ssd/kept\n",
    .run = cache_run,
};
