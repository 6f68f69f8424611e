/* `ringest rm`: removes objects, a hundred by one request, several requests at a time.
 *
 * What a listing found is removed only if it is still the generation that was listed, which lets
 * the library try again when an answer was lost, and keeps what somebody wrote meanwhile.
 * Generations are never named themselves: that would remove the history that a bucket with versions
 * keeps. A name that was given without a condition is asked for once only. */
#include "cli/rm.h"

#include "cli/cli.h"
#include "cli/expand.h"
#include "cli/lookup.h"
#include "cli/places.h"
#include "cli/progress.h"
#include "cli/rm_unfinished.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES_INFLIGHT 16
/* The age from which unfinished uploads are removed: longer than an upload takes. */
#define OLDER_THAN_S_DEFAULT (24 * 3600.0)

struct batch {
    char *bucket; /* owned, as are the names in deletes */
    struct rg_delete deletes[RG_DELETES_MAX];
    size_t count;
    bool is_listed; /* what is gone already is no failure */
    bool is_again;  /* it was sent before, and nobody knows what became of it */
};

struct rm {
    struct cli_session session;
    bool recursive, unfinished, dry_run, json, literal, has_age;
    double older_than_s; /* of what is unfinished */
    int64_t if_generation_match;
    struct batch batches[BATCHES_INFLIGHT]; /* by user_data; those with a bucket are out */
    struct batch *filling;
    uint32_t out;
    uint64_t seen, found, removed, failed; /* seen: also what was found before */
    bool stopped;                          /* nothing more is to be asked for */
    bool all_found;                        /* `found` will not grow */
    struct progress progress;
    /* What was added, if several arguments may stand for the same. */
    bool may_meet;
    struct places places;
};

static void batch_clear(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        free((char *)(uintptr_t)batch->deletes[i].object);
    }
    free(batch->bucket);
    batch->bucket = NULL;
    batch->count = 0;
}

/* CLI_DONE and what is there now. */
static int look_again(struct rm *rm, const struct batch *batch, size_t index,
                      struct there *out_there)
{
    struct cli_uri uri;
    snprintf(uri.bucket, sizeof(uri.bucket), "%s", batch->bucket);
    snprintf(uri.name, sizeof(uri.name), "%s", batch->deletes[index].object);
    return lookup_one(&rm->session, &uri, out_there);
}

/* A condition also fails where nothing is left: somebody has removed it, or what lies between has
 * sent the request twice. */
static bool is_absent(struct rm *rm, const struct batch *batch, size_t index)
{
    struct there there;
    return look_again(rm, batch, index, &there) == CLI_DONE && there.is_known && !there.exists;
}

/* Names below it are all that makes a folder. */
static bool is_folder(struct rm *rm, const struct batch *batch, size_t index)
{
    bool any;
    return lookup_folder(&rm->session, batch->bucket, batch->deletes[index].object, &any) ==
               CLI_DONE &&
           any;
}

static void result_take(struct rm *rm, const struct batch *batch, size_t index,
                        enum rg_status status, const char *text)
{
    bool gone = status == RG_STATUS_OK || (status == RG_STATUS_NOT_FOUND && batch->is_listed);
    if (status == RG_STATUS_PRECONDITION && batch->is_listed && !rm->stopped) {
        gone = is_absent(rm, batch, index);
    }
    rm->removed += gone;
    rm->failed += !gone;
    if (gone || status == RG_STATUS_CANCELLED) {
        return;
    }
    if (status == RG_STATUS_PRECONDITION && batch->is_listed) {
        text = "replaced since it was listed; run it again to remove the new one";
    }
    if (status == RG_STATUS_NOT_FOUND && !rm->stopped && is_folder(rm, batch, index)) {
        text = "no such object, but a folder; -r removes what is in it";
    }
    const char *name = batch->deletes[index].object;
    cli_fail("gs://%s/%s: %s%s", batch->bucket, name, text,
             status == RG_STATUS_NOT_FOUND ? lookup_version_hint(name) : "");
}

static int batch_send(struct rm *rm, struct batch *batch)
{
    struct rg_delete_many many = {
        .deletes = batch->deletes,
        .count = batch->count,
        .user_data = (uint64_t)(batch - rm->batches),
    };
    int rc = rg_submit_delete_many(rm->session.client, rm->session.cq, &many);
    if (rc == 0) {
        rm->out++;
        return CLI_DONE;
    }
    rm->failed += batch->count;
    int status =
        cli_fail("gs://%s/%s: %s", batch->bucket, batch->deletes[0].object, cli_submit_text(rc));
    batch_clear(batch);
    return status;
}

/* What was to go in any generation, and the answer does not tell its fate: removing it again might
 * take what somebody wrote meanwhile. */
static void unnamed_take(struct rm *rm, const struct batch *batch, size_t index)
{
    const char *name = batch->deletes[index].object;
    struct there there;
    if (look_again(rm, batch, index, &there) != CLI_DONE) {
        rm->failed++;
    } else if (there.is_known && !there.exists) {
        rm->removed++;
    } else {
        rm->failed++;
        cli_fail("gs://%s/%s: the server's answer cannot be read, and %s; remove it with "
                 "--if-generation-match GENERATION",
                 batch->bucket, name,
                 there.is_known ? "the object exists now" : "listing is not permitted");
    }
}

static void cancel_all(struct rm *rm)
{
    rm->stopped = true;
    for (size_t i = 0; i < BATCHES_INFLIGHT; i++) {
        rg_cancel(rm->session.client, rm->session.cq, i);
    }
}

/* The batch failed for a reason that all others share: it is said once, and nothing more is asked
 * for.
 */
static void everything_fails(struct rm *rm, struct batch *batch,
                             const struct rg_completion *completion)
{
    rm->failed += batch->count;
    if (!rm->stopped) {
        cli_fail("%s", cli_completion_text(completion));
        cancel_all(rm);
    }
    batch_clear(batch);
}

/* Keeps in the batch what the server's answer does not tell the fate of, the first time. */
static void results_take(struct rm *rm, struct batch *batch, const struct rg_completion *completion)
{
    bool has_results = completion->status == RG_STATUS_OK;
    const struct rg_delete_result *results = completion->data;
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct rg_delete *del = &batch->deletes[i];
        enum rg_status status = has_results ? results[i].status : completion->status;
        bool unknown = status == RG_STATUS_BAD_RESPONSE && !batch->is_again && !rm->stopped;
        if (unknown && del->conditions.if_generation_match != 0) {
            batch->deletes[kept++] = *del;
            continue;
        }
        if (unknown) {
            unnamed_take(rm, batch, i);
        } else {
            result_take(rm, batch, i, status,
                        !has_results                ? cli_completion_text(completion)
                        : results[i].detail != NULL ? results[i].detail
                                                    : rg_status_text(status));
        }
        free((char *)(uintptr_t)del->object);
    }
    batch->count = kept;
}

static void batch_take(struct rm *rm, const struct rg_completion *completion)
{
    struct batch *batch = &rm->batches[completion->user_data];
    rm->out--;
    if (cli_is_everybodys(completion->status)) {
        everything_fails(rm, batch, completion);
    } else {
        results_take(rm, batch, completion);
    }
    rg_lease_release(completion->lease);
    if (batch->count == 0) {
        batch_clear(batch);
    } else {
        /* The library sends that server no more batches, so each gets an answer of its own; what
         * the batch has removed is not there any more. */
        batch->is_again = batch->is_listed = true;
        (void)batch_send(rm, batch);
    }
    struct progress_state state = {
        .done = rm->removed + rm->failed, .total = rm->found, .may_grow = !rm->all_found};
    progress_draw(&rm->progress, &state);
}

static void wait_for_one(struct rm *rm)
{
    struct rg_completion completion;
    if (cli_wait_one(&rm->session, &completion)) {
        batch_take(rm, &completion);
    }
    if (cli_interrupted() && !rm->stopped) {
        cancel_all(rm);
    }
}

static int batch_submit(struct rm *rm)
{
    struct batch *batch = rm->filling;
    if (batch == NULL) {
        return CLI_DONE;
    }
    rm->filling = NULL;
    if (rm->stopped) {
        batch_clear(batch);
        return CLI_FAILED;
    }
    return batch_send(rm, batch);
}

static struct batch *batch_open(struct rm *rm, const char *bucket, bool is_listed)
{
    while (rm->out == BATCHES_INFLIGHT) {
        wait_for_one(rm);
    }
    struct batch *batch = rm->batches;
    while (batch->bucket != NULL) {
        batch++;
    }
    batch->bucket = strdup(bucket);
    batch->is_listed = is_listed;
    batch->is_again = false;
    return batch->bucket != NULL ? batch : NULL;
}

/* An object to be removed, if it is of this generation where that is not 0. */
static int add(struct rm *rm, const char *bucket, const char *name, int64_t generation,
               bool is_listed)
{
    rm->seen++;
    if (rm->may_meet) {
        char place[RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX + 2];
        bool is_new = true;
        snprintf(place, sizeof(place), "%s/%s", bucket, name);
        if (places_take(&rm->places, place, &is_new) < 0) {
            return cli_fail("no memory");
        }
        if (!is_new) {
            return CLI_DONE;
        }
    }
    rm->found++;
    if (rm->dry_run) {
        return printf("would remove gs://%s/%s\n", bucket, cli_shown(name)) < 0
                   ? cli_output_fail(errno)
                   : CLI_DONE;
    }
    int status = CLI_DONE;
    struct batch *batch = rm->filling;
    if (batch != NULL && (batch->count == RG_DELETES_MAX || batch->is_listed != is_listed ||
                          strcmp(batch->bucket, bucket) != 0)) {
        status = batch_submit(rm);
    }
    if (rm->filling == NULL && status == CLI_DONE) {
        rm->filling = batch_open(rm, bucket, is_listed);
    }
    batch = rm->filling;
    char *copy = strdup(name);
    if (status != CLI_DONE || batch == NULL || copy == NULL) {
        free(copy);
        return status != CLI_DONE ? status : cli_fail("no memory");
    }
    batch->deletes[batch->count++] = (struct rg_delete){
        .bucket = batch->bucket,
        .object = copy,
        .conditions = {.if_generation_match = generation},
    };
    return CLI_DONE;
}

static int add_listed(struct rm *rm, const char *bucket, const char *prefix)
{
    struct rg_listing_options options = {.bucket = bucket, .prefix = prefix};
    struct lister lister = {0};
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, &rm->session, &options);
    while (status == CLI_DONE && !rm->stopped &&
           (status = lister_next(&lister, &page)) == CLI_DONE && page != NULL) {
        for (size_t i = 0; i < page->object_count && status == CLI_DONE; i++) {
            status = add(rm, bucket, page->objects[i].name, page->objects[i].generation, true);
        }
    }
    lister_close(&lister);
    return status;
}

/* The object itself, if there is one, with what is below it. */
static int add_tree(struct rm *rm, const struct cli_uri *uri)
{
    uint64_t seen_before = rm->seen;
    size_t size = strlen(uri->name);
    bool is_folder = size == 0 || uri->name[size - 1] == '/';
    char prefix[RG_OBJECT_NAME_SIZE_MAX + 2];
    snprintf(prefix, sizeof(prefix), "%s%s", uri->name, is_folder ? "" : "/");
    int status = CLI_DONE;
    if (!is_folder) {
        struct there there;
        status = lookup_one(&rm->session, uri, &there);
        if (status == CLI_DONE && there.exists) {
            status = add(rm, uri->bucket, uri->name, there.generation, true);
        }
    }
    if (status == CLI_DONE) {
        status = add_listed(rm, uri->bucket, prefix);
    }
    if (status == CLI_DONE && !rm->stopped && rm->seen == seen_before) {
        rm->failed++;
        return cli_fail("gs://%s/%s: no such object, and nothing below it", uri->bucket, uri->name);
    }
    return status;
}

struct match {
    struct rm *rm;
    const char *bucket;
    uint64_t folders; /* left out */
};

static int match_take(void *context, const char *name, const struct rg_object *object)
{
    struct match *match = context;
    struct rm *rm = match->rm;
    if (rm->stopped) {
        return CLI_FAILED;
    }
    if (object != NULL) {
        return add(rm, match->bucket, name, object->generation, true);
    }
    match->folders++;
    return rm->recursive ? add_listed(rm, match->bucket, name) : CLI_DONE;
}

/* What matches now, and of folders that match, with -r, what is below them. */
static int add_matches(struct rm *rm, const struct cli_uri *uri)
{
    struct match match = {rm, uri->bucket, 0};
    struct expand expand = {.session = &rm->session,
                            .bucket = uri->bucket,
                            .folders = true,
                            .context = &match,
                            .take = match_take};
    int status = expand_pattern(&expand, uri->name);
    if (rm->stopped || status != CLI_DONE) {
        return status;
    }
    if (expand.count == 0) {
        rm->failed++;
        return expand_none(uri);
    }
    if (!rm->recursive && match.folders == expand.count) {
        rm->failed++;
        return cli_fail("gs://%s/%s: only folders match; -r removes what is in them", uri->bucket,
                        uri->name);
    }
    if (!rm->recursive && match.folders > 0) {
        cli_note("%" PRIu64 " folder%s skipped; -r removes what is in them", match.folders,
                 match.folders == 1 ? "" : "s");
    }
    return CLI_DONE;
}

/* Temporary objects of uploads that have written nothing for long enough. */
static int add_parts(struct rm *rm, const struct cli_uri *uri)
{
    struct listed *objects = NULL;
    size_t count = 0;
    int status = unfinished_parts(&rm->session, uri->bucket, rm->older_than_s, &objects, &count);
    for (size_t i = 0; i < count && status == CLI_DONE && !rm->stopped; i++) {
        status = add(rm, uri->bucket, objects[i].name, objects[i].generation, true);
    }
    listed_free(objects, count);
    return status;
}

/* Uploads in parts; and of a whole bucket temporary objects, whose names do not tell of what. */
static int remove_unfinished(struct rm *rm, const struct cli_uri *uri)
{
    const struct unfinished_options options = {.older_than_s = rm->older_than_s,
                                               .dry_run = rm->dry_run};
    struct unfinished_counts counts = {0};
    /* The queue is shared. */
    int status = batch_submit(rm);
    while (rm->out > 0) {
        wait_for_one(rm);
    }
    int aborted = unfinished_abort(&rm->session, uri, &options, &counts);
    rm->found += counts.found;
    rm->removed += counts.removed;
    rm->failed += counts.failed;
    if (uri->name[0] == '\0' && aborted == CLI_DONE && !cli_interrupted()) {
        aborted = add_parts(rm, uri);
    }
    return status != CLI_DONE ? status : aborted;
}

static int remove_place(struct rm *rm, const struct cli_uri *uri, bool is_pattern)
{
    if (rm->unfinished) {
        return remove_unfinished(rm, uri);
    }
    if (is_pattern) {
        return add_matches(rm, uri);
    }
    return rm->recursive ? add_tree(rm, uri)
                         : add(rm, uri->bucket, uri->name, rm->if_generation_match, false);
}

/* Whether what is to be removed for `inner` is so for `outer`, too. */
static bool covers(const struct rm *rm, const char *outer, const char *inner)
{
    size_t size = strlen(outer);
    if (!rm->recursive || strncmp(outer, inner, size) != 0) {
        return strcmp(outer, inner) == 0;
    }
    return inner[size] == '\0' || inner[size] == '/' || outer[size - 1] == '/';
}

static bool is_pattern(const struct rm *rm, const char *place)
{
    return expand_is_pattern(place, rm->literal || rm->unfinished);
}

/* What is named twice is removed once. */
static bool is_repeated(const struct rm *rm, char *const *places, int count, int index)
{
    for (int i = 0; i < count; i++) {
        if (i != index && !is_pattern(rm, places[i]) && covers(rm, places[i], places[index]) &&
            (i < index || !covers(rm, places[index], places[i]))) {
            return true;
        }
    }
    return false;
}

static int remove_all(struct rm *rm, char *const *places, int count)
{
    int status = CLI_DONE;
    progress_open(&rm->progress, "objects", rm->json || rm->dry_run);
    for (int i = 0; i < count; i++) {
        rm->may_meet = rm->may_meet || (count > 1 && is_pattern(rm, places[i]));
    }
    for (int i = 0; i < count && !rm->stopped; i++) {
        struct cli_uri uri;
        int one = CLI_USAGE;
        if (is_repeated(rm, places, count, i)) {
            continue;
        }
        if (cli_parse_uri(places[i], &uri)) {
            one = remove_place(rm, &uri, is_pattern(rm, places[i]));
        }
        status = one != CLI_DONE ? one : status;
        if (cli_interrupted() && !rm->stopped) {
            cancel_all(rm);
        }
    }
    rm->all_found = true;
    if (batch_submit(rm) != CLI_DONE) {
        status = CLI_FAILED;
    }
    while (rm->out > 0) {
        wait_for_one(rm);
    }
    progress_close(&rm->progress);
    places_fini(&rm->places);
    if (cli_interrupted()) {
        return cli_fail("interrupted: %" PRIu64 " removed", rm->removed);
    }
    return rm->failed > 0 ? CLI_FAILED : status;
}

int rm_listed(struct cli_session *session, const char *bucket, const struct listed *objects,
              size_t count, bool dry_run, uint64_t *out_removed)
{
    struct rm *rm = calloc(1, sizeof(*rm));
    if (rm == NULL) {
        return cli_fail("no memory");
    }
    rm->session = *session; /* borrowed */
    rm->dry_run = dry_run;
    rm->all_found = true;
    progress_open(&rm->progress, "objects", dry_run);
    int status = CLI_DONE;
    for (size_t i = 0; i < count && status == CLI_DONE && !rm->stopped; i++) {
        status = add(rm, bucket, objects[i].name, objects[i].generation, true);
    }
    if (batch_submit(rm) != CLI_DONE) {
        status = CLI_FAILED;
    }
    while (rm->out > 0) {
        wait_for_one(rm);
    }
    progress_close(&rm->progress);
    *out_removed = dry_run ? rm->found : rm->removed;
    status = rm->failed > 0 || cli_interrupted() ? CLI_FAILED : status;
    free(rm);
    return status;
}

static void summary(const struct rm *rm, uint64_t started_ns)
{
    double seconds = (double)(rg_now_ns() - started_ns) * 1e-9;
    if (rm->dry_run) {
        cli_summary("dry run: %" PRIu64 " would be removed", rm->found);
    } else {
        cli_summary("%" PRIu64 " removed, %" PRIu64 " failed in %.1f s", rm->removed, rm->failed,
                    seconds);
    }
}

static int check_places(const struct rm *rm, char *const *places, int count)
{
    for (int i = 0; i < count; i++) {
        struct cli_uri uri;
        if (!cli_parse_uri(places[i], &uri)) {
            return CLI_USAGE;
        }
        if (uri.name[0] == '\0' && !rm->recursive && !rm->unfinished) {
            return cli_usage("needs an object, got the bucket \"%s\"; -r removes everything in it",
                             places[i]);
        }
    }
    if (rm->if_generation_match != 0 &&
        (count > 1 || rm->recursive || (count == 1 && is_pattern(rm, places[0])))) {
        return cli_usage("--if-generation-match is for one object without -r and wildcards");
    }
    if (rm->unfinished && (rm->recursive || rm->if_generation_match != 0)) {
        return cli_usage("--unfinished excludes -r and --if-generation-match");
    }
    return count > 0 ? CLI_DONE : cli_usage("needs an object, gs://BUCKET/OBJECT");
}

enum {
    OPTION_DRY_RUN = CLI_OPTION_FIRST,
    OPTION_MATCH,
    OPTION_UNFINISHED,
    OPTION_OLDER_THAN,
    OPTION_LITERAL
};

static bool rm_option(struct rm *rm, int option)
{
    switch (option) {
    case CLI_OPTION_JSON:
        rm->json = true;
        return true;
    case OPTION_DRY_RUN:
        rm->dry_run = true;
        return true;
    case 'r':
    case 'R':
        rm->recursive = true;
        return true;
    case OPTION_LITERAL:
        rm->literal = true;
        return true;
    case OPTION_MATCH:
        return cli_parse_match(optarg, &rm->if_generation_match);
    case OPTION_UNFINISHED:
        rm->unfinished = true;
        return true;
    case OPTION_OLDER_THAN:
        rm->has_age = true;
        return unfinished_parse_age("--older-than", optarg, &rm->older_than_s);
    default:
        return false;
    }
}

static int rm_run(int argc, char **argv)
{
    static const struct option options[] = {
        CLI_CONNECTION_OPTIONS,
        {"recursive", no_argument, NULL, 'r'},
        {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
        {"if-generation-match", required_argument, NULL, OPTION_MATCH},
        {"unfinished", no_argument, NULL, OPTION_UNFINISHED},
        {"older-than", required_argument, NULL, OPTION_OLDER_THAN},
        {"literal", no_argument, NULL, OPTION_LITERAL},
        {0}};
    static struct rm rm = {.older_than_s = OLDER_THAN_S_DEFAULT};
    struct cli_connection connection = {.connections = BATCHES_INFLIGHT + 1};
    int option;
    bool ok;
    while ((option = cli_getopt(argc, argv, ":rR", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (!rm_option(&rm, option)) {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    if (rm.has_age && !rm.unfinished) {
        return cli_usage("--older-than is for --unfinished");
    }
    int status = check_places(&rm, &argv[optind], argc - optind);
    if (status != CLI_DONE) {
        return status;
    }
    status = cli_session_open(&rm.session, &connection, BATCHES_INFLIGHT);
    if (status != CLI_DONE) {
        return status;
    }
    uint64_t started_ns = rg_now_ns();
    cli_interrupt_catch();
    status = remove_all(&rm, &argv[optind], argc - optind);
    cli_session_close(&rm.session);
    /* Where nobody reads the names of a dry run, what was found until then is not all. */
    status = cli_output_end(status);
    bool is_read = !ferror(stdout);
    /* One failure was said in its line. */
    if (!rm.json && is_read && !cli_interrupted() &&
        (rm.dry_run || rm.removed > 0 || rm.found > 1)) {
        summary(&rm, started_ns);
    }
    if (rm.json && !rm.dry_run) {
        printf("{\"found\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"failed\":%" PRIu64 "}\n", rm.found,
               rm.removed, rm.failed);
    }
    return cli_output_end(status);
}

const struct cli_command cli_rm = {
    .name = "rm",
    .arguments = "gs://BUCKET/OBJECT... [OPTIONS]",
    .summary = "remove objects",
    .help =
        "Options:\n"
        "  -r, --recursive    the object and everything below it: gs://b/a removes \"a\" and\n"
        "                     \"a/...\", but not \"ab\"; gs://b removes everything in the "
        "bucket\n"
        "  --dry-run          only say what would be removed\n"
        "  --if-generation-match N\n"
        "                     only if the object has generation N\n"
        "  --unfinished       remove what killed programs left: unfinished multipart uploads to\n"
        "                     names that begin with OBJECT; for a whole bucket, also the\n"
        "                     temporary objects of ringest's own uploads\n"
        "  --older-than AGE   with --unfinished: only what is older, because younger uploads may\n"
        "                     be in progress; a number with s, m, h or d; default: 1d\n"
        "  --literal          * ? [ ] are characters of names, not wildcards\n"
        "  --json             a summary as one JSON object\n" CLI_CONNECTION_HELP
        "\nWildcards: * ? [a-z] within a part between \"/\", ** across them. Folders that match "
        "are\n"
        "removed with -r. Names from a list may have such characters: use --literal.\n"
        "\nWith -r and wildcards, an object that is replaced after it was listed is not removed. "
        "In a\n"
        "bucket that keeps versions, old versions stay.\n"
        "\nExamples:\n"
        "  ringest rm gs://bucket/model.pt\n"
        "  ringest rm -r gs://bucket/runs/17 --dry-run\n"
        "  ringest rm 'gs://bucket/runs/**.tmp'\n"
        "  ringest rm --unfinished gs://bucket --older-than 12h\n",
    .run = rm_run,
};
