/* See ckpt_find.h.
 *
 *   listing -> sorted -> each object is given to a checkpoint -> metadata is fetched and searched
 *   for the names of data, which stand in its pickle as they are -> what is there, what is missing
 *
 * A folder that is called like a checkpoint is one with all that is below it, whatever that is. A
 * number says less: a folder of that name is only one if it has what makes a distributed
 * checkpoint, and numbers below another number say nothing. */
#include "cli/ckpt_find.h"

#include "cli/lister.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Metadata that is fetched at once. */
#define GETS_INFLIGHT 8
/* user_data of a get: the object, and that the newest generation was asked for. */
#define NEWEST (UINT64_C(1) << 63)

size_t ckpt_folder_size(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? (size_t)(slash - name) : 0;
}

const char *ckpt_last(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

static int no_memory(void)
{
    return cli_fail("no memory for what was listed");
}

static int string_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int ckpt_strings_add(struct ckpt_strings *strings, const char *format, ...)
{
    if (strings->count == strings->capacity) {
        size_t capacity = strings->capacity * 2 + 4;
        char **grown = realloc(strings->items, capacity * sizeof(*grown));
        if (grown == NULL) {
            return no_memory();
        }
        strings->items = grown;
        strings->capacity = capacity;
    }
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&strings->items[strings->count], format, arguments);
    va_end(arguments);
    if (size < 0) {
        return no_memory();
    }
    strings->count++;
    return CLI_DONE;
}

static void strings_sort(struct ckpt_strings *strings)
{
    if (strings->count == 0) {
        return;
    }
    qsort(strings->items, strings->count, sizeof(*strings->items), string_compare);
    size_t kept = 1;
    for (size_t i = 1; i < strings->count; i++) {
        if (strcmp(strings->items[i], strings->items[kept - 1]) == 0) {
            free(strings->items[i]);
        } else {
            strings->items[kept++] = strings->items[i];
        }
    }
    strings->count = kept;
}

/* Whether sorted strings have this one. */
static bool strings_have(const struct ckpt_strings *strings, const char *text)
{
    return strings->count > 0 && bsearch(&text, strings->items, strings->count,
                                         sizeof(*strings->items), string_compare) != NULL;
}

static bool strings_have_part(const struct ckpt_strings *strings, const char *text, size_t size)
{
    char part[RG_OBJECT_NAME_SIZE_MAX + 1];
    snprintf(part, sizeof(part), "%.*s", (int)size, text);
    return strings_have(strings, part);
}

void ckpt_strings_free(struct ckpt_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++) {
        free(strings->items[i]);
    }
    free(strings->items);
    *strings = (struct ckpt_strings){0};
}

const char *ckpt_relative(const struct ckpt *ckpt, const struct listed *object)
{
    return object->name + strlen(ckpt->name) + 1;
}

/* A new checkpoint, or the one of that name in front of it. */
static int ckpt_of(struct ckpt_search *search, const char *name, size_t size, bool is_folder,
                   size_t *out_index)
{
    for (size_t i = search->ckpt_count; is_folder && i > 0; i--) {
        const struct ckpt *ckpt = &search->ckpts[i - 1];
        if (ckpt->is_folder && strlen(ckpt->name) == size && memcmp(ckpt->name, name, size) == 0) {
            *out_index = i - 1;
            return CLI_DONE;
        }
    }
    if (search->ckpt_count == search->ckpt_capacity) {
        size_t capacity = search->ckpt_capacity * 2 + 16;
        struct ckpt *grown = realloc(search->ckpts, capacity * sizeof(*grown));
        if (grown == NULL) {
            return no_memory();
        }
        search->ckpts = grown;
        search->ckpt_capacity = capacity;
    }
    struct ckpt *ckpt = &search->ckpts[search->ckpt_count];
    *ckpt = (struct ckpt){.name = strndup(name, size), .is_folder = is_folder, .updated = ""};
    if (ckpt->name == NULL) {
        return no_memory();
    }
    *out_index = search->ckpt_count++;
    return CLI_DONE;
}

static int object_give(struct ckpt_search *search, size_t index, const char *name, size_t size,
                       bool is_folder, const struct ckpt_name *what)
{
    size_t owner = 0;
    int status = ckpt_of(search, name, size, is_folder, &owner);
    if (status != CLI_DONE) {
        return status;
    }
    struct ckpt *ckpt = &search->ckpts[owner];
    if (ckpt->end == 0) {
        ckpt->first = index;
        ckpt->has_name = what != NULL;
        ckpt->what = what != NULL ? *what : (struct ckpt_name){0};
    }
    ckpt->end = index + 1;
    search->owners[index] = owner;
    return CLI_DONE;
}

/* Finds what an object belongs to, if that is a checkpoint. */
static int object_take(struct ckpt_search *search, size_t index)
{
    const char *name = search->objects[index].name, *last = ckpt_last(name), *part = name, *slash;
    size_t given = 0, depth = 0;
    struct ckpt_name what;
    bool is_below_number = false;
    for (const char *at = search->uri.name; (at = strchr(at, '/')) != NULL; at++) {
        given++;
    }
    for (; (slash = strchr(part, '/')) != NULL; part = slash + 1, depth++) {
        size_t size = (size_t)(slash - name);
        if (!ckpt_folder_name(part, (size_t)(slash - part), &what)) {
            continue;
        }
        if (what.is_number && !strings_have_part(&search->dcp_folders, name, size)) {
            is_below_number |= depth >= given;
        } else if (!what.is_number || !is_below_number) {
            return object_give(search, index, name, size, true, &what);
        }
    }
    size_t folder_size = ckpt_folder_size(name);
    if (last > name && ckpt_part_of(CKPT_DCP, last) >= 0 &&
        strings_have_part(&search->dcp_folders, name, folder_size)) {
        return object_give(search, index, name, folder_size, true, NULL);
    }
    if (ckpt_file_kind(last) == CKPT_NONE || strcmp(last, "meta.pt") == 0) {
        return CLI_DONE;
    }
    bool has_name = ckpt_file_name(last, &what) && !(what.is_number && is_below_number);
    return object_give(search, index, name, strlen(name), false, has_name ? &what : NULL);
}

static int objects_group(struct ckpt_search *search)
{
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && i < search->object_count; i++) {
        const char *name = search->objects[i].name;
        if (ckpt_is_dcp(ckpt_last(name)) && ckpt_last(name) > name) {
            status =
                ckpt_strings_add(&search->dcp_folders, "%.*s", (int)ckpt_folder_size(name), name);
        }
    }
    strings_sort(&search->dcp_folders);
    for (size_t i = 0; status == CLI_DONE && i < search->object_count; i++) {
        search->owners[i] = SIZE_MAX;
        status = object_take(search, i);
    }
    return status;
}

/* Whether an object is the mark of an empty folder. */
static bool is_mark(const struct ckpt *ckpt, const struct listed *object)
{
    return ckpt->is_folder && *ckpt_relative(ckpt, object) == '\0' && object->size == 0;
}

static enum ckpt_kind layout_of(const struct ckpt_search *search, size_t index)
{
    const struct ckpt *ckpt = &search->ckpts[index];
    bool has_state = false, has_dcp = false, has_deepspeed = false;
    if (!ckpt->is_folder) {
        return ckpt_file_kind(ckpt_last(ckpt->name));
    }
    for (size_t i = ckpt->first; i < ckpt->end; i++) {
        if (search->owners[i] == index) {
            const char *name = ckpt_relative(ckpt, &search->objects[i]);
            has_state |= strcmp(name, "trainer_state.json") == 0;
            has_dcp |= ckpt_is_dcp(name);
            has_deepspeed |= ckpt_part_of(CKPT_DEEPSPEED, name) >= 0;
        }
    }
    if (strncmp(ckpt->what.series, "checkpoint-", strlen("checkpoint-")) == 0 && has_state) {
        return CKPT_HUGGINGFACE;
    }
    if (has_dcp) {
        return CKPT_DCP;
    }
    bool is_deepspeed = strncmp(ckpt->what.series, "global_step", strlen("global_step")) == 0;
    return is_deepspeed && has_deepspeed ? CKPT_DEEPSPEED : CKPT_UNKNOWN;
}

static int named_search(struct ckpt *ckpt, const char *folder, size_t folder_size, char *text,
                        size_t size)
{
    int status = CLI_DONE;
    for (char *at = text; status == CLI_DONE && at < text + size; at++) {
        at = memchr(at, '_', (size_t)(text + size - at));
        if (at == NULL) {
            break;
        }
        const char *end = ckpt_data_end(at);
        if (end != NULL) {
            status = ckpt_strings_add(&ckpt->named, "%.*s%.*s", (int)folder_size, folder,
                                      (int)(end - at), at);
            at += end - at - 1;
        }
        if (ckpt->named.count == ckpt->named.capacity) {
            strings_sort(&ckpt->named); /* most are named more than once */
        }
    }
    return status;
}

static bool is_head(const struct ckpt_search *search, size_t index)
{
    const struct listed *object = &search->objects[index];
    if (search->owners[index] == SIZE_MAX || !ckpt_is_metadata(ckpt_last(object->name))) {
        return false;
    }
    const struct ckpt *ckpt = &search->ckpts[search->owners[index]];
    return ckpt->kind == CKPT_HUGGINGFACE ||
           (ckpt->kind == CKPT_DCP && strchr(ckpt_relative(ckpt, object), '/') == NULL);
}

static int head_submit(struct ckpt_search *search, uint64_t user_data)
{
    const struct listed *object = &search->objects[user_data & ~NEWEST];
    struct rg_get get = {.bucket = search->uri.bucket,
                         .object = object->name,
                         .generation = (user_data & NEWEST) != 0 ? 0 : object->generation,
                         .user_data = user_data};
    int rc = rg_submit_get(search->session->client, search->session->cq, &get);
    return rc == 0 ? CLI_DONE
                   : cli_fail("gs://%s/%s: %s", get.bucket, get.object, cli_submit_text(rc));
}

/* Takes a completion; what was replaced since it was listed is asked for once more. */
static int head_take(struct ckpt_search *search, size_t *out)
{
    struct rg_completion done;
    if (!cli_wait_one(search->session, &done)) {
        return cli_fail("interrupted");
    }
    (*out)--;
    int status = CLI_DONE;
    if (done.status == RG_STATUS_NOT_FOUND && (done.user_data & NEWEST) == 0) {
        status = head_submit(search, done.user_data | NEWEST);
        *out += status == CLI_DONE;
    } else if (done.status != RG_STATUS_OK) {
        status = cli_fail("%s", cli_completion_text(&done));
    } else {
        size_t index = (size_t)(done.user_data & ~NEWEST);
        struct ckpt *ckpt = &search->ckpts[search->owners[index]];
        const char *name = ckpt_relative(ckpt, &search->objects[index]);
        /* A copy, because what is searched must end. */
        char *text = malloc(done.size + 1);
        if (text == NULL) {
            status = no_memory();
        } else {
            memcpy(text, done.data, done.size);
            text[done.size] = '\0';
            status = named_search(ckpt, name, (size_t)(ckpt_last(name) - name), text, done.size);
            free(text);
        }
    }
    rg_lease_release(done.lease);
    return status;
}

/* Fetches the metadata of all, several at once. */
static int heads_fetch(struct ckpt_search *search)
{
    size_t out = 0;
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && i < search->object_count; i++) {
        if (!is_head(search, i)) {
            continue;
        }
        search->ckpts[search->owners[i]].has_metadata = true;
        while (status == CLI_DONE && out == GETS_INFLIGHT) {
            status = head_take(search, &out);
        }
        if (status == CLI_DONE) {
            status = head_submit(search, i);
            out += status == CLI_DONE;
        }
    }
    while (out > 0) {
        int one = head_take(search, &out);
        status = status == CLI_DONE ? one : status;
    }
    for (size_t i = 0; i < search->ckpt_count; i++) {
        strings_sort(&search->ckpts[i].named);
    }
    return status;
}

bool ckpt_is_stray(const struct ckpt *ckpt, const struct listed *object)
{
    if (ckpt->kind != CKPT_DCP || !ckpt->is_listed) {
        return false;
    }
    const char *name = ckpt_relative(ckpt, object);
    return ckpt_is_ours(name) && !strings_have(&ckpt->named, name);
}

static bool has_object(const struct ckpt_search *search, const struct ckpt *ckpt, const char *name)
{
    char full[2 * RG_OBJECT_NAME_SIZE_MAX + 2];
    snprintf(full, sizeof(full), "%s/%s", ckpt->name, name);
    size_t first = 0, end = search->object_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        int order = strcmp(full, search->objects[middle].name);
        if (order == 0) {
            return true;
        }
        first = order > 0 ? middle + 1 : first;
        end = order > 0 ? end : middle;
    }
    return false;
}

/* What the other parts are called that a part ("model-00002-of-00003.bin") needs. */
static int parts_find_missing(const struct ckpt_search *search, struct ckpt *ckpt, const char *name,
                              size_t name_count)
{
    const char *number = strrchr(name, '-');
    const char *of = number;
    while (of > name && of[-1] != '-') {
        of--;
    }
    /* "model-" | "00002-of" | "-00003.bin": `of` is at "of". */
    const char *first = of - 1;
    while (first > name && first[-1] != '-') {
        first--;
    }
    size_t width = strspn(first, "0123456789");
    uint64_t count = strtoull(number + 1, NULL, 10);
    int status = CLI_DONE;
    /* More than there are names is told by as many. */
    for (uint64_t i = 1; status == CLI_DONE && i <= RG_MIN(count, name_count + 1); i++) {
        char part[RG_OBJECT_NAME_SIZE_MAX + 1];
        snprintf(part, sizeof(part), "%.*s%0*" PRIu64 "-%s", (int)(first - name), name, (int)width,
                 i, of);
        if (!has_object(search, ckpt, part)) {
            status = ckpt_strings_add(&ckpt->missing, "%s", part);
        }
    }
    return status;
}

/* What a folder of distributed checkpoints in a folder of another kind lacks: its metadata. */
static int inner_find_missing(const struct ckpt_search *search, struct ckpt *ckpt,
                              const char *relative)
{
    const char *last = ckpt_last(relative);
    int folder_size = (int)(last - relative);
    char metadata[RG_OBJECT_NAME_SIZE_MAX + 16];
    if (!ckpt_is_dcp(last)) {
        return CLI_DONE;
    }
    snprintf(metadata, sizeof(metadata), "%.*s.metadata", folder_size, relative);
    bool has_head = has_object(search, ckpt, metadata);
    for (size_t i = ckpt->first; !has_head && i < ckpt->end; i++) {
        const char *name = ckpt_relative(ckpt, &search->objects[i]);
        has_head = strncmp(name, relative, (size_t)folder_size) == 0 &&
                   ckpt_is_metadata(name + folder_size);
    }
    return has_head ? CLI_DONE : ckpt_strings_add(&ckpt->missing, "%s", metadata);
}

/* Finds what a folder that is not DCP's lacks, as far as the names in it tell. */
static int others_find_missing(const struct ckpt_search *search, size_t index)
{
    struct ckpt *ckpt = &search->ckpts[index];
    bool has_model = false;
    int status = CLI_DONE;
    uint64_t weights = ckpt_parts_with_weights(ckpt->kind), many = ckpt_parts_of_many(ckpt->kind);
    for (size_t i = ckpt->first; status == CLI_DONE && i < ckpt->end; i++) {
        const char *name = ckpt_relative(ckpt, &search->objects[i]);
        int part = ckpt_part_of(ckpt->kind, name);
        has_model |= part >= 0 && strstr(ckpt_part_text(ckpt->kind, part), "model_states") != NULL;
        if (part >= 0 && (many >> part & 1) != 0) {
            status = parts_find_missing(search, ckpt, name, ckpt->object_count);
        }
        if (status == CLI_DONE && ckpt->kind == CKPT_HUGGINGFACE) {
            status = inner_find_missing(search, ckpt, name);
        }
    }
    if (status == CLI_DONE && ckpt->kind == CKPT_DEEPSPEED && !has_model) {
        status = ckpt_strings_add(&ckpt->missing, "mp_rank_#_model_states.pt");
    }
    if (status == CLI_DONE && ckpt->kind == CKPT_HUGGINGFACE &&
        (ckpt->parts & (weights | many)) == 0) {
        status = ckpt_strings_add(&ckpt->missing, "model.safetensors");
    }
    return status;
}

/* True for the first data of each rank, of names in their order: what they have in common up to the
 * rank's end keeps those of a rank together. */
static bool is_next_rank(const char *name, const char *before)
{
    size_t size = 2 + strspn(name + 2, "0123456789") + 1;
    return before == NULL || strncmp(name, before, size) != 0;
}

static void ranks_count(const struct ckpt_search *search, size_t index)
{
    struct ckpt *ckpt = &search->ckpts[index];
    const char *before = NULL;
    ckpt->rank_count = 0;
    for (size_t i = 0; i < ckpt->named.count; i++) {
        ckpt->rank_count += is_next_rank(ckpt->named.items[i], before);
        before = ckpt->named.items[i];
    }
    for (size_t i = ckpt->first; ckpt->named.count == 0 && i < ckpt->end; i++) {
        const char *name = ckpt_relative(ckpt, &search->objects[i]);
        if (search->owners[i] == index && ckpt_is_data(name)) {
            ckpt->rank_count += is_next_rank(name, before);
            before = name;
        }
    }
}

/* Each rank of a distributed checkpoint that was saved without the others has metadata of its own:
 * finds who lacks it. */
static int ranks_find_missing(const struct ckpt_search *search, size_t index)
{
    struct ckpt *ckpt = &search->ckpts[index];
    uint64_t rank, last = 0;
    size_t names = 0;
    bool has_all = false;
    for (size_t i = ckpt->first; i < ckpt->end; i++) {
        const struct listed *object = &search->objects[i];
        if (search->owners[i] != index || is_mark(ckpt, object)) {
            continue;
        }
        const char *name = ckpt_relative(ckpt, object);
        names++;
        has_all |= strcmp(name, ".metadata") == 0;
        if (ckpt_rank_alone(name, &rank)) {
            last = RG_MAX(last, rank);
            ckpt->ranks_alone += ckpt_is_metadata(name);
        }
    }
    if (has_all || ckpt->ranks_alone == 0) {
        ckpt->ranks_alone = 0;
        return CLI_DONE;
    }
    /* More ranks than there are names are told by as many. */
    bool *has_metadata = calloc(names + 1, sizeof(*has_metadata));
    int status = has_metadata != NULL ? CLI_DONE : no_memory();
    for (size_t i = ckpt->first; status == CLI_DONE && i < ckpt->end; i++) {
        const char *name = ckpt_relative(ckpt, &search->objects[i]);
        if (search->owners[i] == index && ckpt_is_metadata(name) && ckpt_rank_alone(name, &rank) &&
            rank <= names) {
            has_metadata[rank] = true;
        }
    }
    for (size_t i = 0; status == CLI_DONE && i <= RG_MIN(last, names); i++) {
        if (!has_metadata[i]) {
            status = ckpt_strings_add(&ckpt->missing, "__%zu.metadata", i);
        }
    }
    free(has_metadata);
    return status;
}

/* Whether a part of a distributed checkpoint counts for its size. */
static bool belongs(const struct ckpt *ckpt, const char *name)
{
    return ckpt_is_metadata(name) || strings_have(&ckpt->named, name) ||
           (ckpt->has_metadata && strcmp(name, "meta.pt") == 0);
}

static int objects_sum(const struct ckpt_search *search, size_t index)
{
    struct ckpt *ckpt = &search->ckpts[index];
    int status = CLI_DONE;
    for (size_t i = ckpt->first; status == CLI_DONE && i < ckpt->end; i++) {
        const struct listed *object = &search->objects[i];
        if (search->owners[i] != index) {
            continue;
        }
        if (strcmp(object->updated, ckpt->updated) > 0) {
            ckpt->updated = object->updated;
        }
        if (ckpt_is_stray(ckpt, object)) {
            ckpt->stray_count++;
            ckpt->stray_size += object->size;
            continue;
        }
        ckpt->object_count++;
        const char *name = ckpt->is_folder ? ckpt_relative(ckpt, object) : "";
        ckpt->size += ckpt->kind != CKPT_DCP || belongs(ckpt, name) ? object->size : 0;
        if (!ckpt->is_folder || is_mark(ckpt, object) || ckpt->kind == CKPT_UNKNOWN) {
            continue;
        }
        int part = ckpt_part_of(ckpt->kind, name);
        ckpt->parts |= part >= 0 ? UINT64_C(1) << part : 0;
        if (part < 0) {
            status = ckpt_strings_add(&ckpt->foreign, "%s", name);
        }
    }
    return status;
}

static int ckpt_sum(const struct ckpt_search *search, size_t index)
{
    struct ckpt *ckpt = &search->ckpts[index];
    char folder[RG_OBJECT_NAME_SIZE_MAX + 2];
    snprintf(folder, sizeof(folder), "%s/", ckpt->name);
    /* Where only a part of the folder was listed, what its metadata names is not known. */
    ckpt->is_listed = strncmp(folder, search->uri.name, strlen(search->uri.name)) == 0;
    ckpt->rank_count = 1;
    int status = objects_sum(search, index);
    for (size_t i = 0; status == CLI_DONE && i < ckpt->named.count; i++) {
        if (!has_object(search, ckpt, ckpt->named.items[i])) {
            status = ckpt_strings_add(&ckpt->missing, "%s", ckpt->named.items[i]);
        }
    }
    if (status == CLI_DONE && (ckpt->kind == CKPT_HUGGINGFACE || ckpt->kind == CKPT_DEEPSPEED)) {
        status = others_find_missing(search, index);
    }
    if (status == CLI_DONE && ckpt->kind == CKPT_DCP) {
        ranks_count(search, index);
        status = ranks_find_missing(search, index);
    }
    strings_sort(&ckpt->missing);
    strings_sort(&ckpt->foreign);
    bool has_head = ckpt->kind != CKPT_DCP || ckpt->has_metadata;
    ckpt->is_complete = ckpt->kind != CKPT_UNKNOWN && has_head && ckpt->missing.count == 0;
    return status;
}

static int bytes_compare(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, RG_MIN(a_size, b_size));
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* By the folder that they lie in, then by step, those without one first. */
static int order_compare(const void *left, const void *right, void *ckpts)
{
    const struct ckpt *a = (const struct ckpt *)ckpts + *(const size_t *)left;
    const struct ckpt *b = (const struct ckpt *)ckpts + *(const size_t *)right;
    int order =
        bytes_compare(a->name, ckpt_folder_size(a->name), b->name, ckpt_folder_size(b->name));
    if (order == 0) {
        order = (int)a->has_name - (int)b->has_name;
    }
    if (order == 0 && a->has_name) {
        order = (a->what.step > b->what.step) - (a->what.step < b->what.step);
    }
    return order != 0 ? order : strcmp(a->name, b->name);
}

static int ckpts_sort(struct ckpt_search *search)
{
    search->order = calloc(search->ckpt_count + 1, sizeof(*search->order));
    if (search->order == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < search->ckpt_count; i++) {
        search->order[i] = i;
    }
    if (search->ckpt_count > 0) {
        qsort_r(search->order, search->ckpt_count, sizeof(*search->order), order_compare,
                search->ckpts);
    }
    return CLI_DONE;
}

int ckpt_search_run(struct ckpt_search *search)
{
    int status = lister_all(search->session, search->uri.bucket, search->uri.name, &search->objects,
                            &search->object_count);
    search->owners = malloc((search->object_count + 1) * sizeof(*search->owners));
    if (status == CLI_DONE) {
        status = search->owners != NULL ? objects_group(search) : no_memory();
    }
    for (size_t i = 0; i < search->ckpt_count; i++) {
        search->ckpts[i].kind = layout_of(search, i);
    }
    if (status == CLI_DONE) {
        status = heads_fetch(search);
    }
    for (size_t i = 0; status == CLI_DONE && i < search->ckpt_count; i++) {
        status = ckpt_sum(search, i);
    }
    return status == CLI_DONE ? ckpts_sort(search) : status;
}

void ckpt_search_free(struct ckpt_search *search)
{
    for (size_t i = 0; i < search->ckpt_count; i++) {
        ckpt_strings_free(&search->ckpts[i].named);
        ckpt_strings_free(&search->ckpts[i].missing);
        ckpt_strings_free(&search->ckpts[i].foreign);
        free(search->ckpts[i].name);
    }
    listed_free(search->objects, search->object_count);
    free(search->owners);
    ckpt_strings_free(&search->dcp_folders);
    free(search->ckpts);
    free(search->order);
}

int ckpt_read(struct cli_session *session, const char *bucket, const char *name, int64_t generation,
              char **out_text, size_t *out_size)
{
    struct rg_get get = {.bucket = bucket, .object = name, .generation = generation};
    struct rg_completion done;
    *out_text = NULL;
    int rc = rg_submit_get(session->client, session->cq, &get);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", bucket, name, cli_submit_text(rc));
    }
    if (!cli_wait_one(session, &done)) {
        return cli_fail("interrupted");
    }
    int status = CLI_DONE;
    if (done.status == RG_STATUS_OK) {
        *out_text = malloc(done.size + 1);
        if (*out_text == NULL) {
            status = no_memory();
        } else {
            memcpy(*out_text, done.data, done.size);
            (*out_text)[done.size] = '\0';
            *out_size = done.size;
        }
    } else if (done.status != RG_STATUS_NOT_FOUND) {
        status = cli_fail("%s", cli_completion_text(&done));
    }
    rg_lease_release(done.lease);
    return status;
}
