/* `ringest cache warm`: reads objects through the cache, for what they leave there.
 *
 *   a pass: open -> list, or read the manifest -> get what is there -> close, which writes the rest
 *
 * The cache drops what comes faster than its disk takes it. So passes are repeated while one still
 * adds something that an earlier one lost; what is there already costs a look at the disk. */
#include "cli/cache.h"
#include "cli/lister.h"
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* A multiple of the cache's blocks: larger objects are read by ranges of this size. */
#define PART_SIZE RG_MIB(8)
#define PASSES_MAX 8
#define ERRORS_SHOWN 3

/* Where names come from: a listing, or a manifest. */
struct source {
    struct lister lister;
    const struct rg_list_page *page;
    size_t in_page;
    struct rg_manifest *manifest;
    struct rg_manifest_cursor *cursor;
    uint64_t index;
};

struct pass {
    struct cli_session session;
    struct source source;
    const char *bucket;
    struct rg_object object; /* that is being asked for; its name is the source's */
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    uint64_t offset; /* of its next part; UINT64_MAX: the next object comes */
    uint64_t inflight, objects, bytes, errors;
    struct rg_stats stats;
    struct progress progress;
};

static int manifest_source_open(struct source *source, const char *path)
{
    char error[512] = "";
    int rc = rg_manifest_open(&source->manifest, path, error, sizeof(error));
    if (rc == 0) {
        rc = rg_manifest_cursor_open(&source->cursor, source->manifest);
    }
    return rc == 0            ? CLI_DONE
           : error[0] != '\0' ? cli_fail("%s", error)
                              : cli_fail("%s: %s; make one with `ringest manifest save`", path,
                                         rg_error_text(-rc));
}

static int source_open(struct pass *pass, const struct cache_warming *warming)
{
    struct rg_listing_options options = {.bucket = warming->uri.bucket,
                                         .prefix = warming->uri.name};
    pass->bucket = warming->uri.bucket;
    if (warming->manifest == NULL) {
        return lister_open(&pass->source.lister, &pass->session, &options);
    }
    int status = manifest_source_open(&pass->source, warming->manifest);
    if (status == CLI_DONE) {
        pass->bucket = rg_manifest_bucket(pass->source.manifest);
    }
    return status;
}

static void source_close(struct source *source)
{
    if (source->lister.session != NULL) {
        lister_close(&source->lister);
    }
    rg_manifest_cursor_close(source->cursor);
    rg_manifest_close(source->manifest);
}

/* The next object; *out_more is false behind the last. */
static int source_next(struct source *source, struct rg_object *out_object, bool *out_more)
{
    *out_more = false;
    if (source->manifest != NULL) {
        int rc = rg_manifest_cursor_get(source->cursor, source->index++, out_object);
        *out_more = rc == 0;
        return rc == 0 || rc == -ERANGE ? CLI_DONE
                                        : cli_fail("the manifest is damaged behind object %" PRIu64
                                                   ": make it anew with `ringest manifest save`",
                                                   source->index - 1);
    }
    while (source->page == NULL || source->in_page == source->page->object_count) {
        int status = lister_next(&source->lister, &source->page);
        source->in_page = 0;
        if (status != CLI_DONE || source->page == NULL) {
            return status;
        }
    }
    *out_object = source->page->objects[source->in_page++];
    *out_more = true;
    return CLI_DONE;
}

/* Chooses the object of the next part; *out_more is false where there is none. */
static int part_choose(struct pass *pass, bool *out_more)
{
    *out_more = pass->offset < pass->object.size;
    while (!*out_more) {
        bool more;
        int status = source_next(&pass->source, &pass->object, &more);
        if (status != CLI_DONE || !more) {
            return status;
        }
        snprintf(pass->name, sizeof(pass->name), "%s", pass->object.name);
        pass->offset = 0;
        pass->objects += pass->object.size > 0;
        *out_more = pass->object.size > 0; /* there is nothing to keep of an empty one */
    }
    return CLI_DONE;
}

static int part_submit(struct pass *pass)
{
    bool is_small = pass->object.size <= PART_SIZE;
    struct rg_get get = {
        .bucket = pass->bucket,
        .object = pass->name,
        .generation = pass->object.generation,
        .offset = pass->offset,
        .length = is_small ? RG_WHOLE : PART_SIZE,
    };
    int rc = rg_submit_get(pass->session.client, pass->session.cq, &get);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", pass->bucket, pass->name, cli_submit_text(rc));
    }
    pass->offset += is_small ? pass->object.size : PART_SIZE;
    pass->inflight++;
    return CLI_DONE;
}

static int part_take(struct pass *pass)
{
    struct rg_completion done;
    if (!cli_wait_one(&pass->session, &done)) {
        return cli_fail("interrupted");
    }
    int status = CLI_DONE;
    pass->inflight--;
    if (done.status == RG_STATUS_OK) {
        pass->bytes += done.size;
    } else if (pass->errors++ < ERRORS_SHOWN) {
        (void)cli_fail("%s", cli_completion_text(&done));
    }
    if (done.status != RG_STATUS_OK && cli_is_everybodys(done.status)) {
        status = CLI_FAILED;
    }
    rg_lease_release(done.lease);
    const struct rg_manifest *manifest = pass->source.manifest;
    progress_draw(&pass->progress, &(struct progress_state){
                                       .done = pass->objects,
                                       .total = manifest != NULL ? rg_manifest_count(manifest) : 0,
                                       .bytes_done = pass->bytes,
                                   });
    return status;
}

static int parts_get(struct pass *pass, uint64_t concurrency)
{
    bool more = true;
    int status = CLI_DONE;
    while (status == CLI_DONE && (more || pass->inflight > 0)) {
        while (status == CLI_DONE && more && pass->inflight < concurrency) {
            status = part_choose(pass, &more);
            if (status == CLI_DONE && more) {
                status = part_submit(pass);
            }
        }
        if (status == CLI_DONE && pass->inflight > 0) {
            status = part_take(pass);
        }
    }
    return status;
}

/* Takes off what is out, when the pass ends early. */
static void parts_drop(struct pass *pass)
{
    struct rg_completion done;
    if (pass->inflight > 0) {
        (void)rg_cancel(pass->session.client, pass->session.cq, 0);
    }
    while (pass->inflight > 0 && rg_cq_wait(pass->session.cq, &done, 1, 1, RG_FOREVER) != -EINVAL) {
        rg_lease_release(done.lease);
        pass->inflight--;
    }
}

static int pass_run(struct pass *pass, struct cache_warming *warming)
{
    int status = cli_session_open(&pass->session, &warming->connection,
                                  (uint32_t)(2 * warming->concurrency));
    if (status != CLI_DONE) {
        return status;
    }
    progress_open(&pass->progress, "objects", warming->json);
    status = source_open(pass, warming);
    if (status == CLI_DONE) {
        status = parts_get(pass, warming->concurrency);
    }
    parts_drop(pass);
    source_close(&pass->source);
    progress_close(&pass->progress);
    (void)rg_runtime_stats(pass->session.runtime, &pass->stats);
    cli_session_close(&pass->session);
    return status != CLI_DONE ? status : pass->errors > 0 ? CLI_FAILED : CLI_DONE;
}

static void print_done(const struct cache_warming *warming, const struct pass *pass,
                       uint64_t written)
{
    char size[CLI_QUANTITY_SIZE];
    if (warming->json) {
        printf("{\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"blocks_written\":%" PRIu64
               ",\"blocks_left_out\":%" PRIu64 ",\"errors\":%" PRIu64 "}\n",
               pass->objects, pass->bytes, written, pass->stats.cache_drops, pass->errors);
        return;
    }
    cli_summary("%" PRIu64 " object%s, %s: %" PRIu64 " blocks written", pass->objects,
                pass->objects == 1 ? "" : "s", cli_format_size(pass->bytes, size), written);
    if (pass->stats.cache_drops > 0) {
        cli_note("%" PRIu64 " blocks were left out: the cache is full; see --option cache_size",
                 pass->stats.cache_drops);
    }
}

int cache_warm(struct cache_warming *warming)
{
    struct pass pass;
    uint64_t written = 0;
    int status = CLI_DONE;
    cli_interrupt_catch();
    for (unsigned i = 0; i < PASSES_MAX; i++) {
        pass = (struct pass){.offset = UINT64_MAX};
        status = pass_run(&pass, warming);
        written += pass.stats.cache_writes;
        if (status != CLI_DONE || pass.stats.cache_drops == 0 || pass.stats.cache_writes == 0) {
            break;
        }
    }
    if (pass.objects > 0 || status == CLI_DONE) {
        print_done(warming, &pass, written);
    }
    return cli_output_end(status);
}
