/* See rm_unfinished.h. A page of uploads, then an abort for each of them that is old enough,
 * several at a time, then the next page. */
#include "cli/rm_unfinished.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ABORTS_INFLIGHT 16
/* Names of temporary objects: PARTS_PREFIX, digits of the upload, a slash, the part's number. */
#define PARTS_PREFIX ".ringest-parts/"
#define UPLOAD_DIGITS 32
#define PART_DIGITS_MIN 5
/* The largest number of an age, in its unit. */
#define AGE_MAX 1e12

struct walk {
    struct cli_session *session;
    const struct cli_uri *place;
    const struct unfinished_options *options;
    struct unfinished_counts *counts;
    const struct rg_uploads_page *page; /* in the lease of `completion` */
    struct rg_completion completion;
};

bool unfinished_parse_age(const char *option, const char *text, double *out_seconds)
{
    static const struct {
        char letter;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char number[32];
    size_t size = strlen(text);
    double factor = 1;
    for (size_t i = 0; i < RG_ARRAY_LEN(units) && size > 0; i++) {
        if (text[size - 1] == units[i].letter) {
            factor = units[i].seconds;
            size--;
            break;
        }
    }
    snprintf(number, sizeof(number), "%.*s", (int)RG_MIN(size, sizeof(number) - 1), text);
    char *end;
    double value = strtod(number, &end);
    if (end == number || *end != '\0' || !(value >= 0) || value > AGE_MAX) {
        cli_usage("%s must be a number with s, m, h or d (such as 12h), got \"%s\"", option, text);
        return false;
    }
    *out_seconds = value;
    *out_seconds *= factor;
    return true;
}

bool unfinished_is_old(const struct cli_session *session, const char *time_text,
                       double older_than_s)
{
    struct tm parts = {0};
    const char *end = time_text != NULL ? strptime(time_text, "%Y-%m-%dT%H:%M:%S", &parts) : NULL;
    /* The service tells UTC, with or without a fraction. */
    if (end == NULL || end[strspn(end, ".0123456789")] != 'Z') {
        return false;
    }
    if (older_than_s == 0) {
        return true;
    }
    int64_t now_s = time(NULL);
    (void)rg_client_server_time(session->client, &now_s);
    return (double)(now_s - timegm(&parts)) >= older_than_s;
}

/* What all temporary objects of an upload begin with, or 0 where a name is of none: how much of it.
 */
static size_t upload_of(const char *name)
{
    const char *upload = name + strlen(PARTS_PREFIX), *number = upload + UPLOAD_DIGITS + 1;
    if (strncmp(name, PARTS_PREFIX, strlen(PARTS_PREFIX)) != 0 ||
        strspn(upload, "0123456789abcdef") != UPLOAD_DIGITS || upload[UPLOAD_DIGITS] != '/') {
        return 0;
    }
    size_t size = strlen(number);
    bool is_part = size >= PART_DIGITS_MIN && strspn(number, "0123456789") == size;
    return is_part ? (size_t)(number - name) : 0;
}

int unfinished_parts(struct cli_session *session, const char *bucket, double older_than_s,
                     struct listed **out_objects, size_t *out_count)
{
    struct listed *objects;
    size_t count, kept = 0;
    int status = lister_all(session, bucket, PARTS_PREFIX, &objects, &count);
    for (size_t i = 0, end; i < count; i = end) {
        size_t size = upload_of(objects[i].name);
        bool is_old = size > 0;
        for (end = i;
             end < count && (end == i || (size > 0 && upload_of(objects[end].name) > 0 &&
                                          strncmp(objects[end].name, objects[i].name, size) == 0));
             end++) {
            is_old = is_old && unfinished_is_old(session, objects[end].updated, older_than_s);
        }
        for (size_t j = i; j < end; j++) {
            if (is_old) {
                objects[kept++] = objects[j];
            } else {
                free(objects[j].name);
            }
        }
    }
    *out_objects = objects;
    *out_count = kept;
    return status;
}

/* The next completion of the queue, also after an interruption, which cancels what is out. */
static struct rg_completion completion_take(struct cli_session *session, uint64_t out)
{
    struct rg_completion completion;
    while (!cli_wait_one(session, &completion)) {
        for (uint64_t i = 0; i < out; i++) {
            rg_cancel(session->client, session->cq, i);
        }
    }
    return completion;
}

static int page_ask(struct walk *walk, const struct rg_list_uploads *list)
{
    int rc = rg_submit_list_uploads(walk->session->client, walk->session->cq, list);
    walk->completion.lease = NULL;
    walk->page = NULL;
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", list->bucket, list->prefix, cli_submit_text(rc));
    }
    walk->completion = completion_take(walk->session, 1);
    if (walk->completion.status != RG_STATUS_OK) {
        return cli_fail("%s",
                        cli_interrupted() ? "interrupted" : cli_completion_text(&walk->completion));
    }
    walk->page = walk->completion.data;
    return CLI_DONE;
}

static bool texts_equal(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* The page behind the one that the walk has. */
static int page_next(struct walk *walk)
{
    struct rg_list_uploads list = {.bucket = walk->place->bucket, .prefix = walk->place->name};
    struct rg_completion before = walk->completion;
    if (walk->page != NULL) {
        list.key_marker = walk->page->next_key_marker;
        list.id_marker = walk->page->next_id_marker;
    }
    int status = page_ask(walk, &list);
    if (status == CLI_DONE && list.key_marker != NULL &&
        texts_equal(walk->page->next_key_marker, list.key_marker) &&
        texts_equal(walk->page->next_id_marker, list.id_marker)) {
        status = cli_fail("gs://%s/%s: the server repeats pages of its list of uploads",
                          list.bucket, list.prefix);
    }
    rg_lease_release(before.lease);
    return status;
}

/* What somebody else has ended meanwhile is gone, too. */
static void abort_take(struct walk *walk, uint64_t out)
{
    struct rg_completion completion = completion_take(walk->session, out);
    if (completion.status == RG_STATUS_OK || completion.status == RG_STATUS_NOT_FOUND) {
        walk->counts->removed++;
    } else {
        walk->counts->failed++;
        cli_fail("%s", cli_completion_text(&completion));
    }
    rg_lease_release(completion.lease);
}

static bool abort_submit(struct walk *walk, const struct rg_unfinished_upload *upload,
                         uint64_t number)
{
    const struct rg_abort_upload abort = {.bucket = walk->place->bucket,
                                          .object = upload->object,
                                          .id = upload->id,
                                          .user_data = number};
    int rc = rg_submit_abort_upload(walk->session->client, walk->session->cq, &abort);
    if (rc < 0) {
        walk->counts->failed++;
        cli_fail("gs://%s/%s: %s", abort.bucket, abort.object, cli_submit_text(rc));
    }
    return rc == 0;
}

static void page_abort(struct walk *walk)
{
    uint64_t out = 0;
    for (size_t i = 0; i < walk->page->count && !cli_interrupted(); i++) {
        const struct rg_unfinished_upload *upload = &walk->page->uploads[i];
        if (!unfinished_is_old(walk->session, upload->initiated, walk->options->older_than_s)) {
            continue;
        }
        if (walk->options->is_meant != NULL &&
            !walk->options->is_meant(walk->options->context, upload->object)) {
            continue;
        }
        walk->counts->found++;
        if (walk->options->dry_run && walk->options->is_meant != NULL) {
            continue;
        }
        if (walk->options->dry_run) {
            printf("would abort the upload of gs://%s/%s that began at %s\n", walk->place->bucket,
                   upload->object, upload->initiated);
            continue;
        }
        /* A cancellation is by these numbers. */
        out += abort_submit(walk, upload, out);
        if (out == ABORTS_INFLIGHT) {
            for (; out > 0; out--) {
                abort_take(walk, ABORTS_INFLIGHT);
            }
        }
    }
    for (; out > 0; out--) {
        abort_take(walk, ABORTS_INFLIGHT);
    }
}

int unfinished_abort(struct cli_session *session, const struct cli_uri *place,
                     const struct unfinished_options *options, struct unfinished_counts *counts)
{
    struct walk walk = {.session = session, .place = place, .options = options, .counts = counts};
    int status;
    do {
        status = page_next(&walk);
        if (status == CLI_DONE) {
            page_abort(&walk);
        }
    } while (status == CLI_DONE && !cli_interrupted() && walk.page->next_key_marker != NULL);
    rg_lease_release(walk.completion.lease);
    return status;
}
