/* See ckpt_prune.h.
 *
 *   search -> for each series, which steps are its last ones -> which of those others need
 *   (ckpt_elsewhere.h) -> for each checkpoint, why it is kept
 *   -> those without a reason are removed, each object only if it is what was listed -> strays,
 *   parts of uploads that are composed, unfinished uploads
 *
 * What makes a folder a checkpoint goes first, so that what is left by an interruption is not taken
 * for one. */
#include "cli/ckpt_prune.h"

#include "cli/ckpt_elsewhere.h"
#include "cli/rm_unfinished.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Objects beside checkpoints may say which is the last or the best: `latest` of DeepSpeed,
 * last.txt, best.json ... */
#define POINTER_SIZE_MAX RG_KIB(4)
#define REASON_SIZE 512
#define PARTS_AGE_MIN_S 86400.0

/* What is known of a checkpoint besides the search. */
struct fate {
    bool is_decided, is_last;
    char *best;   /* owned: what its trainer_state.json names as the best; NULL: not read */
    char *reason; /* owned: why it is kept; NULL: it goes */
};

struct prune {
    struct ckpt_search *search;
    const struct prune_options *options;
    struct fate *fates; /* of each checkpoint */
    char **elsewhere; /* the same, owned: why it is kept for the sake of others; NULL: it is not */
    /* Small objects in a folder that may say which checkpoint is the last or the best. */
    struct {
        char *folder; /* owned; NULL: none was read yet */
        struct ckpt_strings names, texts;
    } beside;
    struct rg_delete deletes[RG_DELETES_MAX];
    size_t delete_count;
    struct ckpt_strings strays, uploads, uploads_left;
    uint64_t size, removed_count, failed_count;
    bool out_of_memory;
};

bool prune_place(const struct cli_uri *uri)
{
    const char *part = uri->name, *slash;
    struct ckpt_name what;
    for (; (slash = strchr(part, '/')) != NULL; part = slash + 1) {
        size_t size = (size_t)(slash - part);
        if (ckpt_folder_name(part, size, &what) && !what.is_number) {
            cli_usage("gs://%s/%s lies in a checkpoint, %.*s/; name the folder that checkpoints "
                      "lie in",
                      uri->bucket, uri->name, (int)size, part);
            return false;
        }
    }
    return true;
}

/* Whether a name lies in a folder whose name only begins with the end of the prefix: in run2/, for
 * a prefix run. */
static bool is_beside(const char *prefix, const char *name)
{
    size_t size = strlen(prefix);
    if (size == 0 || prefix[size - 1] == '/' || strncmp(name, prefix, size) != 0) {
        return false;
    }
    return name[size] != '/' && strchr(name + size, '/') != NULL;
}

/* Whether that folder is called like a checkpoint. */
static bool is_in_checkpoint(const char *prefix, const char *name)
{
    const char *end = strchr(name + strlen(prefix), '/'), *begin = end;
    struct ckpt_name what;
    while (begin > name && begin[-1] != '/') {
        begin--;
    }
    return ckpt_folder_name(begin, (size_t)(end - begin), &what);
}

/* Refuses a prefix that also stands for other folders: nobody can tell which ones are meant. */
static int prefix_check(const struct ckpt_search *search)
{
    const struct cli_uri *uri = &search->uri;
    for (size_t i = 0; i < search->ckpt_count; i++) {
        const char *name = search->ckpts[search->order[i]].name;
        if (is_beside(uri->name, name)) {
            return cli_fail("gs://%s/%s is not in gs://%s/%s/, but in a folder whose name begins "
                            "alike, so nothing was removed; end the prefix in \"/\", and name each "
                            "folder by itself",
                            uri->bucket, name, uri->bucket, uri->name);
        }
    }
    return CLI_DONE;
}

static const char *base_name(const struct ckpt *ckpt)
{
    return ckpt_last(ckpt->name);
}

static bool is_same_folder(const char *a, const char *b)
{
    size_t size = ckpt_folder_size(a);
    return size == ckpt_folder_size(b) && memcmp(a, b, size) == 0;
}

/* Reads the small objects in a folder whose names begin so. */
static int pointers_read(struct prune *prune, const char *folder, const char *begin)
{
    const struct ckpt_search *search = prune->search;
    char prefix[RG_OBJECT_NAME_SIZE_MAX + 8];
    struct listed *objects;
    size_t count;
    size_t skip = strlen(folder) + (*folder != '\0');
    snprintf(prefix, sizeof(prefix), "%s%s%s", folder, *folder != '\0' ? "/" : "", begin);
    int status = lister_all(search->session, search->uri.bucket, prefix, &objects, &count);
    for (size_t i = 0; status == CLI_DONE && i < count; i++) {
        const char *name = objects[i].name + skip;
        if (strchr(name, '/') != NULL || objects[i].size > POINTER_SIZE_MAX) {
            continue;
        }
        char *text = NULL;
        size_t text_size = 0;
        status =
            ckpt_read(search->session, search->uri.bucket, objects[i].name, 0, &text, &text_size);
        /* What is behind a 0 counts, too. */
        for (size_t j = 0; text != NULL && j < text_size; j++) {
            text[j] = text[j] != '\0' ? text[j] : '\1';
        }
        if (text != NULL) {
            status = ckpt_strings_add(&prune->beside.names, "%s", name);
        }
        if (text != NULL && status == CLI_DONE) {
            status = ckpt_strings_add(&prune->beside.texts, "%s", text);
        }
        free(text);
    }
    listed_free(objects, count);
    return status;
}

/* Reads the small objects called best, last or latest in the folder that a checkpoint lies in. */
static int beside_read(struct prune *prune, const struct ckpt *ckpt)
{
    static const char *const begins[] = {"best", "last", "latest"};
    size_t size = ckpt_folder_size(ckpt->name);
    if (prune->beside.folder != NULL && strlen(prune->beside.folder) == size &&
        memcmp(prune->beside.folder, ckpt->name, size) == 0) {
        return CLI_DONE;
    }
    ckpt_strings_free(&prune->beside.names);
    ckpt_strings_free(&prune->beside.texts);
    free(prune->beside.folder);
    prune->beside.folder = strndup(ckpt->name, size);
    int status = prune->beside.folder != NULL ? CLI_DONE : cli_fail("no memory");
    for (size_t i = 0; status == CLI_DONE && i < RG_ARRAY_LEN(begins); i++) {
        status = pointers_read(prune, prune->beside.folder, begins[i]);
    }
    return status;
}

static bool is_of_name(char byte)
{
    return byte != '\0' && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.=-",
                                  byte) != NULL;
}

/* Whether a text has a name, and not as a part of a longer one. */
static bool has_name(const char *text, const char *name, size_t size)
{
    for (const char *at = text; (at = memmem(at, strlen(at), name, size)) != NULL; at++) {
        if ((at == text || !is_of_name(at[-1])) && !is_of_name(at[size])) {
            return true;
        }
    }
    return false;
}

/* The part of a text between the spaces around it. */
static const char *trimmed(const char *text, size_t *out_size)
{
    static const char spaces[] = " \t\r\n\v\f";
    text += strspn(text, spaces);
    *out_size = strlen(text);
    while (*out_size > 0 && strchr(spaces, text[*out_size - 1]) != NULL) {
        (*out_size)--;
    }
    return text;
}

/* Whether a small object names a checkpoint, also without its ending unless that is a number, or
 * has its step and nothing else. */
static bool is_pointed_at(const struct prune *prune, size_t pointer, const struct ckpt *ckpt)
{
    const char *text = prune->beside.texts.items[pointer], *name = base_name(ckpt);
    bool is_file = ckpt_file_kind(prune->beside.names.items[pointer]) != CKPT_NONE;
    size_t size = strlen(name), stem = size;
    struct ckpt_name what;
    if (ckpt_file_kind(name) != CKPT_NONE && !ckpt->what.is_number) {
        stem = (size_t)(strrchr(name, '.') - name);
    }
    if (has_name(text, name, size) || has_name(text, name, stem)) {
        return true;
    }
    text = trimmed(text, &size);
    return !is_file && memchr(text, '.', size) == NULL && ckpt_folder_name(text, size, &what) &&
           what.is_number && what.step == ckpt->what.step;
}

/* DeepSpeed says in `latest` that all ranks have saved: this step, or a later one. */
static bool is_announced(const struct prune *prune, const struct ckpt *ckpt)
{
    for (size_t i = 0; i < prune->beside.names.count; i++) {
        const char *text = prune->beside.texts.items[i];
        struct ckpt_name what;
        size_t size;
        text = trimmed(text, &size);
        if (strcmp(prune->beside.names.items[i], "latest") == 0 &&
            ckpt_folder_name(text, size, &what) && strcmp(what.series, ckpt->what.series) == 0 &&
            what.step >= ckpt->what.step) {
            return true;
        }
    }
    return false;
}

/* What the checkpoints of a series had so far, as those behind them must have. */
struct lasting {
    uint64_t parts;
    size_t ranks_alone;
};

/* Whether it has what those before it had. */
static int completeness_check(struct prune *prune, struct ckpt *ckpt, struct lasting *lasting)
{
    if (ckpt->is_complete && ckpt->ranks_alone > 0) {
        ckpt->is_complete = ckpt->ranks_alone >= lasting->ranks_alone;
        lasting->ranks_alone = RG_MAX(lasting->ranks_alone, ckpt->ranks_alone);
        return ckpt->is_complete
                   ? CLI_DONE
                   : ckpt_strings_add(&ckpt->missing, "__%zu.metadata", ckpt->ranks_alone);
    }
    if (ckpt->kind == CKPT_DEEPSPEED) {
        int status = beside_read(prune, ckpt);
        if (status != CLI_DONE || !is_announced(prune, ckpt)) {
            ckpt->is_complete = false;
            ckpt_strings_free(&ckpt->missing);
            return status != CLI_DONE
                       ? status
                       : ckpt_strings_add(&ckpt->missing, "../latest that names it or a later one");
        }
    }
    bool is_compared = ckpt->kind == CKPT_HUGGINGFACE || ckpt->kind == CKPT_DEEPSPEED;
    if (!ckpt->is_complete || !is_compared) {
        return CLI_DONE;
    }
    uint64_t has = ckpt->parts & ~ckpt_parts_that_differ(ckpt->kind);
    const char *first = NULL;
    for (int i = 0; i < 64; i++) {
        if (((lasting->parts & ~has) >> i & 1) != 0) {
            const char *text = ckpt_part_text(ckpt->kind, i);
            first = first == NULL || strcmp(text, first) < 0 ? text : first;
        }
    }
    lasting->parts |= has;
    ckpt->is_complete = first == NULL;
    return first == NULL ? CLI_DONE : ckpt_strings_add(&ckpt->missing, "%s", first);
}

static bool is_of_series(const struct ckpt *a, const struct ckpt *b)
{
    return a->has_name && b->has_name && strcmp(a->what.series, b->what.series) == 0;
}

/* Decides about a series: places first to end of the order, which are all of one folder. */
static int series_decide(struct prune *prune, size_t first, size_t end)
{
    struct ckpt_search *search = prune->search;
    const struct ckpt *one = &search->ckpts[search->order[first]];
    struct lasting lasting = {0};
    uint64_t left = prune->options->keep_last, step = 0;
    int status = CLI_DONE;
    for (size_t i = first; status == CLI_DONE && i < end; i++) {
        struct ckpt *ckpt = &search->ckpts[search->order[i]];
        if (is_of_series(one, ckpt)) {
            prune->fates[search->order[i]].is_decided = true;
            status = completeness_check(prune, ckpt, &lasting);
        }
    }
    bool has_step = false;
    for (size_t i = end; i > first; i--) {
        const struct ckpt *ckpt = &search->ckpts[search->order[i - 1]];
        if (!is_of_series(one, ckpt) || !ckpt->is_complete) {
            continue;
        }
        if (!has_step || ckpt->what.step != step) {
            if (left == 0) {
                break;
            }
            left--;
        }
        has_step = true;
        step = ckpt->what.step;
    }
    for (size_t i = first; has_step && i < end; i++) {
        const struct ckpt *ckpt = &search->ckpts[search->order[i]];
        prune->fates[search->order[i]].is_last |=
            is_of_series(one, ckpt) && ckpt->what.step >= step;
    }
    return status;
}

static int all_decide(struct prune *prune)
{
    const struct ckpt_search *search = prune->search;
    int status = CLI_DONE;
    for (size_t i = 0, end; status == CLI_DONE && i < search->ckpt_count; i = end) {
        const char *name = search->ckpts[search->order[i]].name;
        for (end = i + 1; end < search->ckpt_count &&
                          is_same_folder(name, search->ckpts[search->order[end]].name);) {
            end++;
        }
        for (size_t j = i; status == CLI_DONE && j < end; j++) {
            size_t index = search->order[j];
            if (search->ckpts[index].has_name && !prune->fates[index].is_decided) {
                status = series_decide(prune, j, end);
            }
        }
    }
    return status;
}

/* The text of "best_model_checkpoint" in the JSON of a trainer: the last part of its path. */
static char *best_find(const char *text)
{
    static const char key[] = "\"best_model_checkpoint\"", spaces[] = " \t\r\n\v\f";
    for (const char *at = text; (at = strstr(at, key)) != NULL;) {
        at += strlen(key);
        at += strspn(at, spaces);
        if (*at != ':') {
            continue;
        }
        at += 1 + strspn(at + 1, spaces);
        if (*at != '"') {
            continue;
        }
        const char *begin = ++at;
        while (*at != '\0' && *at != '"') {
            at += *at == '\\' && at[1] != '\0' ? 2 : 1;
        }
        if (*at == '\0') {
            break;
        }
        const char *end = at;
        while (end > begin && (end[-1] == '/' || end[-1] == '\\')) {
            end--;
        }
        const char *last = end;
        while (last > begin && last[-1] != '/' && last[-1] != '\\') {
            last--;
        }
        return strndup(last, (size_t)(end - last));
    }
    return strdup("");
}

/* Whether one of the last ones of the series says that this is the best. */
static int best_reason(struct prune *prune, size_t index, char reason[static REASON_SIZE])
{
    struct ckpt_search *search = prune->search;
    const struct ckpt *ckpt = &search->ckpts[index];
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && reason[0] == '\0' && i < search->ckpt_count; i++) {
        size_t other = search->order[i];
        const struct ckpt *one = &search->ckpts[other];
        struct fate *fate = &prune->fates[other];
        if (!is_of_series(ckpt, one) || !is_same_folder(ckpt->name, one->name) || !fate->is_last ||
            !one->is_complete) {
            continue;
        }
        if (fate->best == NULL) {
            char name[RG_OBJECT_NAME_SIZE_MAX + 32], *text = NULL;
            size_t size;
            snprintf(name, sizeof(name), "%s/trainer_state.json", one->name);
            status = ckpt_read(search->session, search->uri.bucket, name, 0, &text, &size);
            fate->best = text != NULL ? best_find(text) : strdup("");
            free(text);
        }
        if (fate->best != NULL && strcmp(fate->best, base_name(ckpt)) == 0) {
            snprintf(reason, REASON_SIZE, "%s/trainer_state.json names it as the best",
                     base_name(one));
        }
    }
    return status;
}

/* The first stray of a checkpoint that is not old, or NULL. */
static const char *young_stray(const struct prune *prune, size_t index)
{
    const struct ckpt_search *search = prune->search;
    const struct ckpt *ckpt = &search->ckpts[index];
    for (size_t i = ckpt->first; i < ckpt->end; i++) {
        const struct listed *object = &search->objects[i];
        if (search->owners[i] == index && ckpt_is_stray(ckpt, object) &&
            !unfinished_is_old(search->session, object->updated, prune->options->older_than_s)) {
            return ckpt_relative(ckpt, object);
        }
    }
    return NULL;
}

/* What speaks for keeping it without a look at anything else; "" if nothing does. */
static void reason_find(const struct prune *prune, size_t index, char reason[static REASON_SIZE])
{
    const struct prune_options *options = prune->options;
    const struct ckpt *ckpt = &prune->search->ckpts[index];
    const char *young;
    reason[0] = '\0';
    if (!ckpt->has_name) {
        snprintf(reason, REASON_SIZE, "its name says no step in a way that is known");
    } else if (ckpt->kind == CKPT_UNKNOWN) {
        snprintf(reason, REASON_SIZE, "a folder of no known layout");
    } else if (!ckpt->is_complete && ckpt->missing.count > 0) {
        snprintf(reason, REASON_SIZE, "not complete, %s is missing", ckpt->missing.items[0]);
    } else if (!ckpt->is_complete) {
        snprintf(reason, REASON_SIZE, "not complete");
    } else if (prune->fates[index].is_last) {
        snprintf(reason, REASON_SIZE, "one of the last %" PRIu64 " of %s", options->keep_last,
                 ckpt->what.series);
    } else if (options->keep_every > 0 && ckpt->what.step % options->keep_every == 0) {
        snprintf(reason, REASON_SIZE, "its step is a multiple of %" PRIu64, options->keep_every);
    } else if (ckpt->foreign.count > 0) {
        snprintf(reason, REASON_SIZE, "holds what is no part of such a checkpoint: %s",
                 ckpt->foreign.items[0]);
    } else if ((young = young_stray(prune, index)) != NULL) {
        snprintf(reason, REASON_SIZE, "a save may be under way: %s is not old", young);
    }
}

static int fate_decide(struct prune *prune, size_t index)
{
    const struct ckpt *ckpt = &prune->search->ckpts[index];
    char reason[REASON_SIZE];
    reason_find(prune, index, reason);
    int status = CLI_DONE;
    if (reason[0] == '\0' && prune->elsewhere[index] != NULL) {
        snprintf(reason, sizeof(reason), "%s", prune->elsewhere[index]);
    }
    if (reason[0] == '\0') {
        status = beside_read(prune, ckpt);
    }
    for (size_t i = 0; status == CLI_DONE && reason[0] == '\0' && i < prune->beside.names.count;
         i++) {
        if (is_pointed_at(prune, i, ckpt)) {
            snprintf(reason, sizeof(reason), "%s names it", prune->beside.names.items[i]);
        }
    }
    if (status == CLI_DONE && reason[0] == '\0' && ckpt->kind == CKPT_HUGGINGFACE) {
        status = best_reason(prune, index, reason);
    }
    if (status == CLI_DONE && reason[0] != '\0') {
        prune->fates[index].reason = strdup(reason);
        status = prune->fates[index].reason != NULL ? CLI_DONE : cli_fail("no memory");
    }
    return status;
}

/* Removes what was gathered; what is gone or another one by now counts as done. */
static int deletes_send(struct prune *prune)
{
    struct cli_session *session = prune->search->session;
    const struct rg_delete_many many = {.deletes = prune->deletes, .count = prune->delete_count};
    struct rg_completion done;
    if (prune->delete_count == 0) {
        return CLI_DONE;
    }
    int rc = rg_submit_delete_many(session->client, session->cq, &many);
    if (rc < 0) {
        return cli_fail("gs://%s: %s", prune->search->uri.bucket, cli_submit_text(rc));
    }
    if (!cli_wait_one(session, &done)) {
        return cli_fail("interrupted");
    }
    int status = CLI_DONE;
    if (done.status != RG_STATUS_OK) {
        status = cli_fail("%s", cli_completion_text(&done));
    }
    const struct rg_delete_result *results = done.data;
    for (size_t i = 0; done.status == RG_STATUS_OK && i < prune->delete_count; i++) {
        enum rg_status one = results[i].status;
        if (one != RG_STATUS_OK && one != RG_STATUS_NOT_FOUND && one != RG_STATUS_PRECONDITION) {
            status = cli_fail("gs://%s/%s: %s", prune->deletes[i].bucket, prune->deletes[i].object,
                              results[i].detail != NULL ? results[i].detail : rg_status_text(one));
            prune->failed_count++;
        }
    }
    rg_lease_release(done.lease);
    prune->delete_count = 0;
    return status;
}

static int object_delete(struct prune *prune, const struct listed *object)
{
    prune->size += object->size;
    if (prune->options->dry_run) {
        return CLI_DONE;
    }
    prune->deletes[prune->delete_count++] =
        (struct rg_delete){.bucket = prune->search->uri.bucket,
                           .object = object->name,
                           .conditions = {.if_generation_match = object->generation}};
    return prune->delete_count == RG_DELETES_MAX ? deletes_send(prune) : CLI_DONE;
}

/* Whether it makes its folder a checkpoint. */
static bool is_what_makes_it(const struct listed *object)
{
    const char *last = ckpt_last(object->name);
    return ckpt_is_metadata(last) || strcmp(last, "trainer_state.json") == 0;
}

static int ckpt_carry_out(struct prune *prune, size_t index)
{
    const struct ckpt_search *search = prune->search;
    const struct ckpt *ckpt = &search->ckpts[index];
    bool goes = prune->fates[index].reason == NULL;
    int status = CLI_DONE;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = ckpt->first; status == CLI_DONE && i < ckpt->end; i++) {
            const struct listed *object = &search->objects[i];
            if (search->owners[i] != index || is_what_makes_it(object) != (pass == 0)) {
                continue;
            }
            bool is_stray = ckpt_is_stray(ckpt, object);
            if (is_stray &&
                unfinished_is_old(search->session, object->updated, prune->options->older_than_s)) {
                status = ckpt_strings_add(&prune->strays, "%s", object->name);
            } else if (is_stray || !goes) {
                continue;
            }
            status = status == CLI_DONE ? object_delete(prune, object) : status;
        }
        /* Files are removed together, folders one after the other. */
        if (status == CLI_DONE && ckpt->is_folder) {
            status = deletes_send(prune);
        }
    }
    prune->removed_count += goes;
    if (!prune->options->json && goes && status == CLI_DONE) {
        char size[32];
        printf("%s gs://%s/%s: %zu object%s, %s\n",
               prune->options->dry_run ? "would remove" : "remove", search->uri.bucket,
               cli_shown(ckpt->name), ckpt->object_count, ckpt->object_count == 1 ? "" : "s",
               cli_format_size(ckpt->size, size));
    } else if (!prune->options->json && !goes && ckpt->object_count > 0) {
        printf("keep gs://%s/%s: %s\n", search->uri.bucket, cli_shown(ckpt->name),
               cli_shown(prune->fates[index].reason));
    }
    return status;
}

/* Temporary objects of uploads that are composed. They are of the whole bucket, and not all of
 * saves whose length the caller knows. */
static int parts_carry_out(struct prune *prune)
{
    struct listed *objects = NULL;
    size_t count = 0;
    int status =
        unfinished_parts(prune->search->session, prune->search->uri.bucket,
                         RG_MAX(prune->options->older_than_s, PARTS_AGE_MIN_S), &objects, &count);
    for (size_t i = 0; status == CLI_DONE && i < count; i++) {
        status = ckpt_strings_add(&prune->strays, "%s", objects[i].name);
        status = status == CLI_DONE ? object_delete(prune, &objects[i]) : status;
    }
    status = status == CLI_DONE ? deletes_send(prune) : status;
    listed_free(objects, count);
    return status;
}

static bool upload_is_meant(void *context, const char *object)
{
    struct prune *prune = context;
    const char *last = ckpt_last(object), *prefix = prune->search->uri.name;
    struct ckpt_name what;
    if (is_beside(prefix, object) && !is_in_checkpoint(prefix, object)) {
        return false;
    }
    bool is_ours = ckpt_is_ours(last);
    if (!is_ours && !ckpt_is_dcp(last) && !ckpt_file_name(last, &what)) {
        return false;
    }
    bool is_meant = is_ours || prune->options->all_uploads;
    prune->out_of_memory |= ckpt_strings_add(is_meant ? &prune->uploads : &prune->uploads_left,
                                             "%s", object) != CLI_DONE;
    return is_meant;
}

static int uploads_carry_out(struct prune *prune)
{
    const struct ckpt_search *search = prune->search;
    const struct unfinished_options options = {.older_than_s = prune->options->older_than_s,
                                               .dry_run = prune->options->dry_run,
                                               .is_meant = upload_is_meant,
                                               .context = prune};
    struct unfinished_counts counts = {0};
    int status = unfinished_abort(search->session, &search->uri, &options, &counts);
    prune->failed_count += counts.failed;
    return prune->out_of_memory ? CLI_FAILED : status;
}

static void print_uris(const struct prune *prune, const char *key,
                       const struct ckpt_strings *strings)
{
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < strings->count; i++) {
        char uri[sizeof("gs:///") + RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX];
        snprintf(uri, sizeof(uri), "gs://%s/%s", prune->search->uri.bucket, strings->items[i]);
        printf("%s", i > 0 ? "," : "");
        cli_json_string(uri);
    }
    printf("]");
}

static void print_json(const struct prune *prune)
{
    const struct ckpt_search *search = prune->search;
    for (int kept = 0; kept < 2; kept++) {
        printf(kept ? "],\"kept\":[" : "{\"removed\":[");
        const char *comma = "";
        for (size_t i = 0; i < search->ckpt_count; i++) {
            size_t index = search->order[i];
            const struct ckpt *ckpt = &search->ckpts[index];
            const char *reason = prune->fates[index].reason;
            if ((reason != NULL) != kept || ckpt->object_count == 0) {
                continue;
            }
            char uri[sizeof("gs:///") + RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX];
            snprintf(uri, sizeof(uri), "gs://%s/%s", search->uri.bucket, ckpt->name);
            printf("%s%s", comma, kept ? "{\"uri\":" : "");
            cli_json_string(uri);
            if (kept) {
                printf(",\"reason\":");
                cli_json_string(reason);
                printf("}");
            }
            comma = ",";
        }
    }
    printf("]");
    print_uris(prune, "strays", &prune->strays);
    print_uris(prune, "uploads", &prune->uploads);
    print_uris(prune, "uploads_left", &prune->uploads_left);
    printf(",\"size\":%" PRIu64 ",\"failed\":%" PRIu64 "}\n", prune->size, prune->failed_count);
}

static void print_rest(const struct prune *prune)
{
    const char *would = prune->options->dry_run ? "would " : "",
               *bucket = prune->search->uri.bucket;
    char size[32];
    for (size_t i = 0; i < prune->strays.count; i++) {
        printf("%sremove gs://%s/%s: of a save that was not finished\n", would, bucket,
               cli_shown(prune->strays.items[i]));
    }
    for (size_t i = 0; i < prune->uploads.count; i++) {
        printf("%sabort the upload of gs://%s/%s\n", would, bucket,
               cli_shown(prune->uploads.items[i]));
    }
    for (size_t i = 0; i < prune->uploads_left.count; i++) {
        printf("keep the upload of gs://%s/%s: its owner is unknown; see --all-uploads\n", bucket,
               cli_shown(prune->uploads_left.items[i]));
    }
    printf("%sremove %" PRIu64 " checkpoint%s, %s in all\n", would, prune->removed_count,
           prune->removed_count == 1 ? "" : "s", cli_format_size(prune->size, size));
}

/* Which of the last ones of other folders are needed here. */
static int elsewhere_find(struct prune *prune)
{
    const struct ckpt_search *search = prune->search;
    bool *is_last = calloc(search->ckpt_count + 1, sizeof(*is_last));
    if (is_last == NULL) {
        return cli_fail("no memory");
    }
    for (size_t i = 0; i < search->ckpt_count; i++) {
        is_last[i] = prune->fates[i].is_last && search->ckpts[i].is_complete;
    }
    int status = ckpt_elsewhere(search, is_last, prune->options->keep_last, prune->elsewhere);
    free(is_last);
    return status;
}

static int prune_run(struct prune *prune)
{
    const struct ckpt_search *search = prune->search;
    int status = all_decide(prune);
    status = status == CLI_DONE ? elsewhere_find(prune) : status;
    for (size_t i = 0; status == CLI_DONE && i < search->ckpt_count; i++) {
        status = fate_decide(prune, search->order[i]);
    }
    for (size_t i = 0; status == CLI_DONE && i < search->ckpt_count; i++) {
        status = ckpt_carry_out(prune, search->order[i]);
    }
    status = status == CLI_DONE ? deletes_send(prune) : status;
    status = status == CLI_DONE ? parts_carry_out(prune) : status;
    if (status != CLI_DONE) {
        return status;
    }
    /* Where uploads cannot be listed that was said, and is no reason to fail. */
    if (uploads_carry_out(prune) != CLI_DONE && cli_interrupted()) {
        return CLI_FAILED;
    }
    prune->options->json ? print_json(prune) : print_rest(prune);
    return cli_output_end(prune->failed_count > 0 ? CLI_FAILED : CLI_DONE);
}

int ckpt_prune(struct ckpt_search *search, const struct prune_options *options)
{
    struct prune prune = {.search = search, .options = options};
    int status = ckpt_search_run(search);
    status = status == CLI_DONE ? prefix_check(search) : status;
    if (status == CLI_DONE) {
        prune.fates = calloc(search->ckpt_count + 1, sizeof(*prune.fates));
        prune.elsewhere = calloc(search->ckpt_count + 1, sizeof(*prune.elsewhere));
        bool has_memory = prune.fates != NULL && prune.elsewhere != NULL;
        status = has_memory ? prune_run(&prune) : cli_fail("no memory");
        for (size_t i = 0; has_memory && i < search->ckpt_count; i++) {
            free(prune.fates[i].best);
            free(prune.fates[i].reason);
            free(prune.elsewhere[i]);
        }
    }
    free(prune.fates);
    free(prune.elsewhere);
    free(prune.beside.folder);
    ckpt_strings_free(&prune.beside.names);
    ckpt_strings_free(&prune.beside.texts);
    ckpt_strings_free(&prune.strays);
    ckpt_strings_free(&prune.uploads);
    ckpt_strings_free(&prune.uploads_left);
    return status;
}
