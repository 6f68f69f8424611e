/* `ringest tar`: makes the index of tar shards that readers of their samples need, and shows what
 * one says. */
#include "cli/cli.h"
#include "cli/lister.h"
#include "cli/local.h"
#include "cli/progress.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_SIZE 512
#define SUFFIX ".tar"
/* How often progress is drawn, and an interruption noticed. */
#define SLICE_NS (100 * RG_NS_PER_MS)

/* The shards that were named or listed. */
struct shards {
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    struct rg_object *list; /* owned, with their names */
    size_t count, room;
};

static void shards_free(struct shards *shards)
{
    for (size_t i = 0; i < shards->count; i++) {
        free((char *)(uintptr_t)shards->list[i].name);
    }
    free(shards->list);
}

static int shards_add(struct shards *shards, const char *name, int64_t generation)
{
    if (shards->count == shards->room) {
        size_t room = 2 * shards->room + 64;
        struct rg_object *list = realloc(shards->list, room * sizeof(*list));
        if (list == NULL) {
            return cli_fail("no memory");
        }
        shards->list = list;
        shards->room = room;
    }
    char *copy = strdup(name);
    if (copy == NULL) {
        return cli_fail("no memory");
    }
    shards->list[shards->count++] = (struct rg_object){.name = copy, .generation = generation};
    return CLI_DONE;
}

static bool is_tar(const char *name)
{
    size_t size = strlen(name), suffix = strlen(SUFFIX);
    return size > suffix && strcmp(name + size - suffix, SUFFIX) == 0;
}

static int shards_list(struct cli_session *session, const struct cli_uri *uri,
                       struct shards *shards)
{
    struct rg_listing_options options = {
        .bucket = uri->bucket, .prefix = uri->name, .ordered = true};
    struct lister lister;
    const struct rg_list_page *page = NULL;
    size_t before = shards->count;
    int status = lister_open(&lister, session, &options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        for (size_t i = 0; i < page->object_count && status == CLI_DONE; i++) {
            const struct rg_object *object = &page->objects[i];
            status = is_tar(object->name) ? shards_add(shards, object->name, object->generation)
                                          : CLI_DONE;
        }
    }
    lister_close(&lister);
    if (status == CLI_DONE && shards->count == before) {
        return cli_fail("gs://%s/%s: no object whose name ends in " SUFFIX, uri->bucket, uri->name);
    }
    return status;
}

/* All of one bucket, which is stored. */
static int uris_check(char **uris, int count, struct shards *shards)
{
    for (int i = 0; i < count; i++) {
        struct cli_uri uri;
        if (!cli_parse_uri(uris[i], &uri)) {
            return CLI_USAGE;
        }
        if (i > 0 && strcmp(uri.bucket, shards->bucket) != 0) {
            return cli_usage("all shards must be in one bucket, got %s and %s", shards->bucket,
                             uri.bucket);
        }
        strcpy(shards->bucket, uri.bucket);
    }
    return CLI_DONE;
}

/* A name that ends in .tar is a shard, any other a prefix of some. */
static int shards_find(struct cli_session *session, char **uris, int count, struct shards *shards)
{
    int status = CLI_DONE;
    for (int i = 0; i < count && status == CLI_DONE; i++) {
        struct cli_uri uri;
        (void)cli_parse_uri(uris[i], &uri);
        status =
            is_tar(uri.name) ? shards_add(shards, uri.name, 0) : shards_list(session, &uri, shards);
    }
    return status;
}

static int scan_run(struct rg_tar_scan *scan, const struct shards *shards, bool quiet)
{
    struct progress progress;
    progress_open(&progress, "shards", quiet);
    int rc;
    do {
        progress_draw(&progress,
                      &(struct progress_state){.done = rg_tar_scan_done(scan, &(uint64_t){0}),
                                               .total = shards->count});
        rc = rg_tar_scan_run(scan, rg_now_ns() + SLICE_NS);
    } while ((rc == -ETIME || rc == -EINTR) && !cli_interrupted());
    progress_close(&progress);
    if (rc == 0) {
        return CLI_DONE;
    }
    if (rc == -ETIME || rc == -EINTR) {
        return cli_fail("interrupted");
    }
    const char *shard;
    struct rg_completion completion;
    const char *text = rg_tar_scan_failure(scan, &shard, &completion);
    return cli_fail("%s", text);
}

/* Scans what is not in `known`, which may be NULL, and saves. */
static int scan_and_save(struct cli_session *session, const struct shards *shards,
                         const struct rg_tar_index *known, const char *path, bool json)
{
    struct rg_tar_scan_options options;
    rg_tar_scan_options_init(&options);
    options.bucket = shards->bucket;
    options.shards = shards->list;
    options.shard_count = shards->count;
    options.known = known;
    struct rg_tar_scan *scan;
    struct rg_tar_index *index;
    char error[ERROR_SIZE] = "";
    int rc = rg_tar_scan_open(&scan, session->client, &options, error, sizeof(error));
    if (rc < 0) {
        return cli_fail("%s", error[0] != '\0' ? error : strerror(-rc));
    }
    uint64_t read = 0;
    int status = scan_run(scan, shards, json);
    (void)rg_tar_scan_done(scan, &read);
    rc = status == CLI_DONE ? rg_tar_scan_finish(scan, &index) : 0;
    rg_tar_scan_close(scan);
    if (status != CLI_DONE || rc < 0) {
        return rc < 0 ? cli_fail("%s", strerror(-rc)) : status;
    }
    if (rg_tar_index_count(index) == 0) {
        cli_note("no samples: the members of one are called KEY.EXTENSION, such as 0001.jpg and "
                 "0001.cls");
    }
    rc = rg_tar_index_save(index, path);
    if (rc < 0) {
        status = cli_fail("%s: %s", path, local_error_text(rc));
    } else if (!json) {
        cli_summary("%" PRIu64 " shards (%" PRIu64 " read), %" PRIu64 " samples saved to %s",
                    rg_tar_index_shard_count(index), read, rg_tar_index_count(index), path);
    } else {
        printf("{\"shards\":%" PRIu64 ",\"read\":%" PRIu64 ",\"samples\":%" PRIu64 "}\n",
               rg_tar_index_shard_count(index), read, rg_tar_index_count(index));
    }
    rg_tar_index_close(index);
    return status;
}

static int index_open(struct rg_tar_index **out_index, const char *path)
{
    char error[ERROR_SIZE] = "";
    int rc = rg_tar_index_open(out_index, path, error, sizeof(error));
    return rc < 0 ? cli_fail("%s", error) : CLI_DONE;
}

static int index_make(const struct cli_connection *connection, char **uris, int count,
                      const char *path, bool json)
{
    struct rg_tar_index *known = NULL;
    struct shards shards = {0};
    int status = uris_check(uris, count, &shards);
    if (status != CLI_DONE) {
        return status;
    }
    /* Some other file that is there is not to be replaced by mistake. */
    FILE *before = fopen(path, "re");
    if (before != NULL) {
        fclose(before);
        if (index_open(&known, path) != CLI_DONE) {
            return CLI_FAILED;
        }
    }
    struct cli_session session;
    status = cli_session_open(&session, connection, 4);
    if (status == CLI_DONE) {
        cli_interrupt_catch();
        status = shards_find(&session, uris, count, &shards);
        if (status == CLI_DONE) {
            status = scan_and_save(&session, &shards, known, path, json);
        }
        cli_session_close(&session);
    }
    shards_free(&shards);
    rg_tar_index_close(known);
    return cli_output_end(status);
}

static void sample_print(const struct rg_tar_sample *sample)
{
    fputs_unlocked(cli_shown(sample->key), stdout);
    for (uint32_t i = 0; i < sample->part_count; i++) {
        const struct rg_tar_part *part = &sample->parts[i];
        char *extension = strndup(part->extension, part->extension_size);
        printf(" %s:%" PRIu64, extension != NULL ? cli_shown(extension) : "?", part->size);
        free(extension);
    }
    putchar_unlocked('\n');
}

static int samples_show(const struct rg_tar_index *index, const struct rg_tar_shard *shard,
                        struct rg_tar_cursor *cursor)
{
    for (uint64_t i = shard->first; i < shard->first + shard->count && !ferror(stdout); i++) {
        const struct rg_tar_sample *sample;
        int rc = rg_tar_cursor_get(cursor, i, &sample);
        if (rc < 0) {
            return cli_fail("sample %" PRIu64 " of gs://%s/%s: %s", i, rg_tar_index_bucket(index),
                            shard->name, strerror(-rc));
        }
        sample_print(sample);
    }
    return CLI_DONE;
}

static int show_samples(const struct rg_tar_index *index)
{
    struct rg_tar_cursor *cursor;
    int rc = rg_tar_cursor_open(&cursor, index, NULL, 0);
    if (rc < 0) {
        return cli_fail("%s", strerror(-rc));
    }
    int status = CLI_DONE;
    struct rg_tar_shard shard;
    for (uint64_t i = 0; status == CLI_DONE && rg_tar_index_shard(index, i, &shard) == 0; i++) {
        printf("gs://%s/%s#%" PRId64 ": %" PRIu64 " samples, %" PRIu64 " bytes\n",
               rg_tar_index_bucket(index), cli_shown(shard.name), shard.generation, shard.count,
               shard.size);
        status = samples_show(index, &shard, cursor);
    }
    rg_tar_cursor_close(cursor);
    return status;
}

static void show_shards(const struct rg_tar_index *index)
{
    struct rg_tar_shard shard;
    uint64_t bytes = 0;
    char size[32];
    for (uint64_t i = 0; rg_tar_index_shard(index, i, &shard) == 0; i++) {
        printf("%10" PRIu64 "  %14" PRIu64 "  gs://%s/%s\n", shard.count, shard.size,
               rg_tar_index_bucket(index), cli_shown(shard.name));
        bytes += shard.size;
    }
    printf("%10" PRIu64 "  %14" PRIu64 "  in %" PRIu64 " shards (%s)\n", rg_tar_index_count(index),
           bytes, rg_tar_index_shard_count(index), cli_format_size(bytes, size));
}

static void show_json(const struct rg_tar_index *index)
{
    struct rg_tar_shard shard;
    printf("{\"bucket\":");
    cli_json_string(rg_tar_index_bucket(index));
    printf(",\"samples\":%" PRIu64 ",\"shards\":[", rg_tar_index_count(index));
    for (uint64_t i = 0; rg_tar_index_shard(index, i, &shard) == 0; i++) {
        printf("%s{\"name\":", i > 0 ? "," : "");
        cli_json_string(shard.name);
        printf(",\"size\":%" PRIu64 ",\"generation\":\"%" PRId64 "\",\"samples\":%" PRIu64 "}",
               shard.size, shard.generation, shard.count);
    }
    printf("]}\n");
}

static int show(const char *path, bool json, bool is_long)
{
    struct rg_tar_index *index;
    int status = index_open(&index, path);
    if (status != CLI_DONE) {
        return status;
    }
    if (json) {
        show_json(index);
    } else if (is_long) {
        status = show_samples(index);
    } else {
        show_shards(index);
    }
    rg_tar_index_close(index);
    return cli_output_end(status);
}

static int tar_run(int argc, char **argv)
{
    struct cli_connection connection = {.connections = RG_TAR_SCAN_SHARDS_DEFAULT};
    bool json = false, is_long = false;
    int status;
    if (!cli_file_options(argc, argv, &connection, &json, &is_long, &status)) {
        return status;
    }
    char **arguments = &argv[optind];
    int count = argc - optind;
    if (count == 2 && strcmp(arguments[0], "show") == 0) {
        return show(arguments[1], json, is_long);
    }
    if (count >= 2 && strcmp(arguments[0], "index") == 0 && !cli_file_check(arguments[count - 1])) {
        return CLI_USAGE;
    }
    if (count >= 3 && strcmp(arguments[0], "index") == 0) {
        return index_make(&connection, arguments + 1, count - 2, arguments[count - 1], json);
    }
    return cli_usage("needs index gs://BUCKET/PREFIX... FILE, or show FILE");
}

const struct cli_command cli_tar = {
    .name = "tar",
    .arguments = "index gs://BUCKET/PREFIX... FILE | show FILE [OPTIONS]",
    .summary = "index the samples of tar shards, or show an index",
    .help =
        "Options:\n"
        "  -l, --long         show: each sample, with the sizes of its members\n"
        "  --json             show: one JSON object; index: how many shards and "
        "samples\n" CLI_CONNECTION_HELP
        "\nAn index says where each sample lies in a list of tar shards. ringest.TarDataset\n"
        "(index=FILE) and readers in C use it. Shards are objects whose names end in .tar: those\n"
        "that are given, or all that begin with a prefix, which is literal. If FILE is already an\n"
        "index, only new and replaced shards are read. FILE is written when it is complete.\n"
        "\nshow prints the samples, bytes and name of each shard, and the sums.\n"
        "\nExamples:\n"
        "  ringest tar index gs://bucket/train- train.index\n"
        "  ringest tar index gs://bucket/train-{000..099}.tar train.index\n"
        "  ringest tar show train.index\n",
    .run = tar_run,
};
