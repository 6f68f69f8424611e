/* `ringest ckpt ls`: which checkpoints lie below a prefix, and whether they are complete.
 *
 * A listing gives the objects that checkpoints consist of, by their names (see member_kind).
 * Sorted, those of one folder are one checkpoint. Its metadata is fetched and searched for the
 * names of data objects, which stand in its pickle as they are; nothing is unpickled. The Python
 * module ringest.retention finds the same. */
#include "cli/cli.h"
#include "cli/lister.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Metadata that is fetched at once. */
#define GETS_INFLIGHT 8
/* Hexadecimal digits of a save's number in the name of a data object. */
#define SAVE_DIGITS 16
#define UPDATED_SIZE 40

enum member_kind {
    MEMBER_NONE,
    MEMBER_FILE,     /* a checkpoint of its own */
    MEMBER_METADATA, /* what makes a folder a checkpoint */
    MEMBER_DATA,
    MEMBER_META, /* meta.pt, which Lightning puts beside */
    MEMBER_UNFINISHED_METADATA,
};

struct member {
    char *name;       /* owned: of the object */
    size_t base_size; /* of what names the checkpoint: the folder, or all of a file's name */
    enum member_kind kind;
    uint64_t size;
    char updated[UPDATED_SIZE];
    bool is_named; /* a data object that the metadata names */
};

struct ckpt {
    const struct member *first; /* borrowed, as are the others behind it */
    size_t member_count;
    bool has_step, has_metadata, is_complete;
    uint64_t step;
    char **named; /* owned: data objects that the metadata names, sorted, each once */
    size_t named_count;
    size_t rank_count, stray_count;
    uint64_t size, stray_size;
    const char *updated;
};

struct ckpt_ls {
    struct cli_session session;
    struct cli_uri uri;
    struct member *members;
    size_t member_count, member_capacity;
    struct ckpt *ckpts;
    size_t ckpt_count;
};

static const char *digits_skip(const char *text)
{
    const char *end = text;
    while (isdigit((unsigned char)*end)) {
        end++;
    }
    return end > text ? end : NULL;
}

/* The end of a data object's name at the beginning of a text, or NULL. */
static const char *data_name_end(const char *text)
{
    if (strncmp(text, "__", 2) != 0 || (text = digits_skip(text + 2)) == NULL || *text != '_' ||
        (text = digits_skip(text + 1)) == NULL || *text != '.') {
        return NULL;
    }
    static const char alone[] = ".rank", ending[] = ".distcp";
    if (strspn(text + 1, "0123456789abcdef") == SAVE_DIGITS) {
        text += 1 + SAVE_DIGITS;
        text += strncmp(text, alone, strlen(alone)) == 0 ? strlen(alone) : 0;
    }
    return strncmp(text, ending, strlen(ending)) == 0 ? text + strlen(ending) : NULL;
}

static bool has_ending(const char *name, const char *ending)
{
    size_t size = strlen(name), ending_size = strlen(ending);
    /* A name that begins with its only dot has no ending. */
    return size > ending_size && strcmp(name + size - ending_size, ending) == 0;
}

static enum member_kind member_kind(const char *name, bool is_in_folder)
{
    const char *end = data_name_end(name);
    if (is_in_folder && end != NULL && *end == '\0') {
        return MEMBER_DATA;
    }
    const char *text = strncmp(name, "__", 2) == 0 ? digits_skip(name + 2) : name;
    if (is_in_folder && text != NULL && strcmp(text, ".metadata") == 0) {
        return MEMBER_METADATA;
    }
    if (is_in_folder && text != NULL && strcmp(text, ".metadata.tmp") == 0) {
        return MEMBER_UNFINISHED_METADATA;
    }
    if (is_in_folder && strcmp(name, "meta.pt") == 0) {
        return MEMBER_META;
    }
    bool is_file = has_ending(name, ".pt") || has_ending(name, ".pth") ||
                   has_ending(name, ".ckpt") || has_ending(name, ".safetensors");
    return is_file ? MEMBER_FILE : MEMBER_NONE;
}

static int member_add(struct ckpt_ls *ls, const struct rg_object *object)
{
    const char *slash = strrchr(object->name, '/');
    const char *last = slash != NULL ? slash + 1 : object->name;
    bool is_in_folder = slash != NULL && slash != object->name;
    enum member_kind kind = member_kind(last, is_in_folder);
    if (kind == MEMBER_NONE) {
        return CLI_DONE;
    }
    if (ls->member_count == ls->member_capacity) {
        size_t capacity = ls->member_capacity * 2 + 64;
        struct member *grown = realloc(ls->members, capacity * sizeof(*grown));
        if (grown == NULL) {
            return cli_fail("no memory for %zu names", capacity);
        }
        ls->members = grown;
        ls->member_capacity = capacity;
    }
    struct member *member = &ls->members[ls->member_count];
    *member = (struct member){.name = strdup(object->name), .kind = kind, .size = object->size};
    if (member->name == NULL) {
        return cli_fail("no memory");
    }
    member->base_size = kind == MEMBER_FILE ? strlen(object->name) : (size_t)(slash - object->name);
    snprintf(member->updated, sizeof(member->updated), "%s",
             object->updated != NULL ? object->updated : "");
    ls->member_count++;
    return CLI_DONE;
}

static int members_list(struct ckpt_ls *ls)
{
    struct rg_listing_options options = {.bucket = ls->uri.bucket, .prefix = ls->uri.name};
    struct lister lister;
    const struct rg_list_page *page = NULL;
    int status = lister_open(&lister, &ls->session, &options);
    while (status == CLI_DONE && (status = lister_next(&lister, &page)) == CLI_DONE &&
           page != NULL) {
        for (size_t i = 0; status == CLI_DONE && i < page->object_count; i++) {
            status = member_add(ls, &page->objects[i]);
        }
    }
    lister_close(&lister);
    return status;
}

static int bytes_compare(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* By checkpoint, and within one by name. */
static int member_compare(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    int order = bytes_compare(a->name, a->base_size, b->name, b->base_size);
    return order != 0 ? order : strcmp(a->name, b->name);
}

/* The number behind the last "step", with at most one character between, or else the last number.
 */
static bool step_find(const char *name, size_t size, uint64_t *out_step)
{
    bool found = false;
    for (int only_step = 1; only_step >= 0 && !found; only_step--) {
        for (size_t i = 0; i < size; i++) {
            size_t at = i;
            if (only_step) {
                if (size - i < 5 || memcmp(name + i, "step", 4) != 0) {
                    continue;
                }
                at = i + 4;
                at += at + 1 < size && !isdigit((unsigned char)name[at]);
            }
            if (!isdigit((unsigned char)name[at])) {
                continue;
            }
            *out_step = 0;
            for (found = true; at < size && isdigit((unsigned char)name[at]); at++) {
                *out_step = *out_step * 10 + (uint64_t)(name[at] - '0');
            }
            i = at - 1;
        }
    }
    return found;
}

static const char *kind_text(const struct ckpt *ckpt)
{
    if (ckpt->first->kind != MEMBER_FILE) {
        return "dcp";
    }
    return has_ending(ckpt->first->name, ".safetensors") ? "safetensors" : "torch";
}

/* Where the last part of a checkpoint's name begins. */
static size_t last_part(const struct member *member)
{
    size_t at = member->base_size;
    while (at > 0 && member->name[at - 1] != '/') {
        at--;
    }
    return at;
}

static void ckpt_begin(struct ckpt *ckpt, const struct member *first, size_t count)
{
    *ckpt = (struct ckpt){.first = first, .member_count = count, .updated = ""};
    size_t at = last_part(first), size = first->base_size - at;
    if (first->kind == MEMBER_FILE) {
        size = (size_t)(strrchr(first->name, '.') - first->name) - at;
    }
    ckpt->has_step = step_find(first->name + at, size, &ckpt->step);
}

/* Makes checkpoints of what was found; what is only beside the data of one is none. */
static int ckpts_group(struct ckpt_ls *ls)
{
    if (ls->member_count == 0) {
        return CLI_DONE;
    }
    qsort(ls->members, ls->member_count, sizeof(*ls->members), member_compare);
    ls->ckpts = calloc(ls->member_count, sizeof(*ls->ckpts));
    if (ls->ckpts == NULL) {
        return cli_fail("no memory");
    }
    for (size_t i = 0, end; i < ls->member_count; i = end) {
        const struct member *first = &ls->members[i];
        bool is_ckpt = false;
        for (end = i; end < ls->member_count; end++) {
            const struct member *member = &ls->members[end];
            if (member->base_size != first->base_size ||
                memcmp(member->name, first->name, first->base_size) != 0 ||
                (end > i && first->kind == MEMBER_FILE)) {
                break;
            }
            is_ckpt |= member->kind == MEMBER_FILE || member->kind == MEMBER_METADATA ||
                       member->kind == MEMBER_DATA;
        }
        if (is_ckpt) {
            ckpt_begin(&ls->ckpts[ls->ckpt_count++], first, end - i);
        }
    }
    return CLI_DONE;
}

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int named_add(struct ckpt *ckpt, const char *name, size_t size)
{
    if (ckpt->named_count > 0 && strncmp(ckpt->named[ckpt->named_count - 1], name, size) == 0 &&
        ckpt->named[ckpt->named_count - 1][size] == '\0') {
        return CLI_DONE;
    }
    /* At powers of two. */
    if ((ckpt->named_count & (ckpt->named_count - 1)) == 0) {
        size_t capacity = ckpt->named_count > 0 ? ckpt->named_count * 2 : 1;
        char **grown = realloc(ckpt->named, capacity * sizeof(*grown));
        if (grown == NULL) {
            return cli_fail("no memory for %zu names", capacity);
        }
        ckpt->named = grown;
    }
    ckpt->named[ckpt->named_count] = strndup(name, size);
    return ckpt->named[ckpt->named_count++] != NULL ? CLI_DONE : cli_fail("no memory");
}

static int metadata_search(struct ckpt *ckpt, const char *data, size_t size)
{
    int status = CLI_DONE;
    /* A copy, because what is searched must end. */
    char *text = malloc(size + 1);
    if (text == NULL) {
        return cli_fail("no memory for metadata of %zu bytes", size);
    }
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *at = text; status == CLI_DONE && at < text + size; at++) {
        at = memchr(at, '_', (size_t)(text + size - at));
        if (at == NULL) {
            break;
        }
        const char *end = data_name_end(at);
        if (end != NULL) {
            status = named_add(ckpt, at, (size_t)(end - at));
            at += end - at - 1;
        }
    }
    free(text);
    return status;
}

static int metadata_submit(struct ckpt_ls *ls, size_t index, const struct member *member)
{
    struct rg_get get = {.bucket = ls->uri.bucket, .object = member->name, .user_data = index};
    return rg_submit_get(ls->session.client, ls->session.cq, &get);
}

static int metadata_take(struct ckpt_ls *ls)
{
    struct rg_completion done;
    if (!cli_wait_one(&ls->session, &done)) {
        return cli_fail("interrupted");
    }
    int status = CLI_DONE;
    if (done.status == RG_STATUS_OK) {
        status = metadata_search(&ls->ckpts[done.user_data], done.data, done.size);
    } else {
        status = cli_fail("%s", cli_completion_text(&done));
    }
    rg_lease_release(done.lease);
    return status;
}

/* Fetches the metadata of all, several at once. */
static int metadata_fetch(struct ckpt_ls *ls)
{
    size_t out = 0;
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && i < ls->ckpt_count; i++) {
        struct ckpt *ckpt = &ls->ckpts[i];
        for (size_t j = 0; status == CLI_DONE && j < ckpt->member_count; j++) {
            const struct member *member = &ckpt->first[j];
            if (member->kind != MEMBER_METADATA) {
                continue;
            }
            ckpt->has_metadata = true;
            if (out == GETS_INFLIGHT) {
                status = metadata_take(ls);
                out--;
            }
            int rc = status == CLI_DONE ? metadata_submit(ls, i, member) : 0;
            if (rc < 0) {
                status = cli_fail("gs://%s/%s: %s", ls->uri.bucket, member->name, strerror(-rc));
            }
            out += status == CLI_DONE;
        }
    }
    while (out > 0) {
        int one = metadata_take(ls);
        status = status == CLI_DONE ? one : status;
        out--;
    }
    return status;
}

static bool is_named(const struct ckpt *ckpt, const char *name)
{
    return ckpt->named_count > 0 && bsearch(&name, ckpt->named, ckpt->named_count,
                                            sizeof(*ckpt->named), name_compare) != NULL;
}

static void named_sort(struct ckpt *ckpt)
{
    if (ckpt->named_count == 0) {
        return;
    }
    qsort(ckpt->named, ckpt->named_count, sizeof(*ckpt->named), name_compare);
    size_t kept = 1;
    for (size_t i = 1; i < ckpt->named_count; i++) {
        if (strcmp(ckpt->named[i], ckpt->named[kept - 1]) == 0) {
            free(ckpt->named[i]);
        } else {
            ckpt->named[kept++] = ckpt->named[i];
        }
    }
    ckpt->named_count = kept;
}

/* True for the first data object of each rank, of names in their order: what they have in common up
 * to the rank's end keeps those of a rank together. */
static bool is_next_rank(const char *name, const char *before)
{
    size_t size = (size_t)(digits_skip(name + 2) - name) + 1;
    return before == NULL || strncmp(name, before, size) != 0;
}

static bool belongs(const struct ckpt *ckpt, const struct member *member)
{
    switch (member->kind) {
    case MEMBER_DATA:
        return is_named(ckpt, member->name + member->base_size + 1);
    case MEMBER_META:
        return ckpt->has_metadata;
    default:
        return member->kind != MEMBER_UNFINISHED_METADATA;
    }
}

static void ckpt_sum(struct ckpt *ckpt)
{
    named_sort(ckpt);
    size_t found = 0, listed_ranks = 0;
    const char *before = NULL;
    for (size_t i = 0; i < ckpt->member_count; i++) {
        const struct member *member = &ckpt->first[i];
        bool is_data = member->kind == MEMBER_DATA;
        if (belongs(ckpt, member)) {
            found += is_data;
            ckpt->size += member->size;
        } else {
            ckpt->stray_count++;
            ckpt->stray_size += member->size;
        }
        if (is_data) {
            const char *name = member->name + member->base_size + 1;
            listed_ranks += is_next_rank(name, before);
            before = name;
        }
        if (strcmp(member->updated, ckpt->updated) > 0) {
            ckpt->updated = member->updated;
        }
    }
    for (size_t i = 0; i < ckpt->named_count; i++) {
        ckpt->rank_count += is_next_rank(ckpt->named[i], i > 0 ? ckpt->named[i - 1] : NULL);
    }
    bool is_file = ckpt->first->kind == MEMBER_FILE;
    if (ckpt->named_count == 0) {
        ckpt->rank_count = is_file ? 1 : listed_ranks;
    }
    ckpt->is_complete = is_file || (ckpt->has_metadata && found == ckpt->named_count);
}

/* By the folder that they lie in, then by step, those without one first. */
static int ckpt_compare(const void *left, const void *right)
{
    const struct ckpt *a = left, *b = right;
    size_t a_at = last_part(a->first), b_at = last_part(b->first);
    int order = bytes_compare(a->first->name, a_at > 0 ? a_at - 1 : 0, b->first->name,
                              b_at > 0 ? b_at - 1 : 0);
    if (order == 0) {
        order = (int)a->has_step - (int)b->has_step;
    }
    if (order == 0 && a->has_step) {
        order = (a->step > b->step) - (a->step < b->step);
    }
    return order != 0 ? order
                      : bytes_compare(a->first->name, a->first->base_size, b->first->name,
                                      b->first->base_size);
}

/* The next data object that the metadata names and that is not there, or NULL. */
static const char *next_missing(const struct ckpt *ckpt, size_t *index)
{
    while (*index < ckpt->named_count) {
        const char *name = ckpt->named[(*index)++];
        bool is_there = false;
        for (size_t i = 0; !is_there && i < ckpt->member_count; i++) {
            const struct member *member = &ckpt->first[i];
            is_there = member->kind == MEMBER_DATA &&
                       strcmp(member->name + member->base_size + 1, name) == 0;
        }
        if (!is_there) {
            return name;
        }
    }
    return NULL;
}

static void print_name(const struct ckpt_ls *ls, const struct ckpt *ckpt)
{
    char uri[sizeof("gs:///") + RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX];
    snprintf(uri, sizeof(uri), "gs://%s/%.*s", ls->uri.bucket, (int)ckpt->first->base_size,
             ckpt->first->name);
    cli_json_string(uri);
}

static void print_json(const struct ckpt_ls *ls)
{
    printf("{\"checkpoints\":[");
    for (size_t i = 0; i < ls->ckpt_count; i++) {
        const struct ckpt *ckpt = &ls->ckpts[i];
        printf("%s{\"uri\":", i > 0 ? "," : "");
        print_name(ls, ckpt);
        printf(",\"kind\":\"%s\",\"step\":", kind_text(ckpt));
        if (ckpt->has_step) {
            printf("%" PRIu64, ckpt->step);
        } else {
            printf("null");
        }
        printf(",\"ranks\":%zu,\"size\":%" PRIu64 ",\"complete\":%s,\"missing\":[",
               ckpt->rank_count, ckpt->size, ckpt->is_complete ? "true" : "false");
        size_t index = 0;
        const char *name, *comma = "";
        while (!ckpt->is_complete && (name = next_missing(ckpt, &index)) != NULL) {
            printf("%s", comma);
            cli_json_string(name);
            comma = ",";
        }
        printf("],\"stray_count\":%zu,\"stray_size\":%" PRIu64 ",\"updated\":", ckpt->stray_count,
               ckpt->stray_size);
        cli_json_string_or_null(ckpt->updated[0] != '\0' ? ckpt->updated : NULL);
        printf("}");
    }
    printf("]}\n");
}

static void print_text(const struct ckpt_ls *ls)
{
    char size[32], step[24];
    for (size_t i = 0; i < ls->ckpt_count; i++) {
        const struct ckpt *ckpt = &ls->ckpts[i];
        snprintf(step, sizeof(step), ckpt->has_step ? "%" PRIu64 : "-", ckpt->step);
        printf("%10s  %-11s  %5zu  %10s  %-10s  %-24s  gs://%s/%.*s\n", step, kind_text(ckpt),
               ckpt->rank_count, cli_format_size(ckpt->size, size),
               ckpt->is_complete ? "complete" : "incomplete", ckpt->updated, ls->uri.bucket,
               (int)ckpt->first->base_size, ckpt->first->name);
        size_t index = 0;
        const char *name;
        while (!ckpt->is_complete && (name = next_missing(ckpt, &index)) != NULL) {
            printf("%12smissing: %s\n", "", name);
        }
        if (ckpt->stray_count > 0) {
            printf("%12sof no complete save: %zu object%s, %s\n", "", ckpt->stray_count,
                   ckpt->stray_count == 1 ? "" : "s", cli_format_size(ckpt->stray_size, size));
        }
    }
}

static int ckpts_show(struct ckpt_ls *ls, bool json)
{
    int status = members_list(ls);
    if (status == CLI_DONE) {
        status = ckpts_group(ls);
    }
    if (status == CLI_DONE) {
        status = metadata_fetch(ls);
    }
    if (status != CLI_DONE) {
        return status;
    }
    if (ls->ckpt_count == 0 && !json) {
        return ls->uri.name[0] == '\0' ? cli_fail("no checkpoint in gs://%s", ls->uri.bucket)
                                       : cli_fail("no checkpoint in gs://%s begins with \"%s\"",
                                                  ls->uri.bucket, ls->uri.name);
    }
    for (size_t i = 0; i < ls->ckpt_count; i++) {
        ckpt_sum(&ls->ckpts[i]);
    }
    if (ls->ckpt_count > 0) {
        qsort(ls->ckpts, ls->ckpt_count, sizeof(*ls->ckpts), ckpt_compare);
    }
    json ? print_json(ls) : print_text(ls);
    return cli_output_end(CLI_DONE);
}

static void ckpts_free(struct ckpt_ls *ls)
{
    for (size_t i = 0; i < ls->ckpt_count; i++) {
        for (size_t j = 0; j < ls->ckpts[i].named_count; j++) {
            free(ls->ckpts[i].named[j]);
        }
        free(ls->ckpts[i].named);
    }
    for (size_t i = 0; i < ls->member_count; i++) {
        free(ls->members[i].name);
    }
    free(ls->ckpts);
    free(ls->members);
}

static int ckpt_run(int argc, char **argv)
{
    static const struct option options[] = {CLI_CONNECTION_OPTIONS, {0}};
    struct cli_connection connection = {.connections = LISTER_REQUESTS};
    struct ckpt_ls ls = {0};
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
    if (argc - optind != 2 || strcmp(argv[optind], "ls") != 0) {
        return cli_usage("what is needed is ls gs://BUCKET/PREFIX");
    }
    if (!cli_parse_uri(argv[optind + 1], &ls.uri)) {
        return CLI_USAGE;
    }
    int status = cli_session_open(&ls.session, &connection, GETS_INFLIGHT);
    if (status == CLI_DONE) {
        status = ckpts_show(&ls, json);
        ckpts_free(&ls);
        cli_session_close(&ls.session);
    }
    return status;
}

const struct cli_command cli_ckpt = {
    .name = "ckpt",
    .arguments = "ls gs://BUCKET/PREFIX [OPTIONS]",
    .summary = "list checkpoints",
    .help =
        "Options:\n"
        "  --json             one JSON object: {\"checkpoints\":[...]}\n" CLI_CONNECTION_HELP
        "\nOf each checkpoint below the prefix: step, kind, ranks, size, whether it is complete,\n"
        "time of change, and place. Kinds are dcp (a folder with .metadata, of\n"
        "torch.distributed.checkpoint), torch (.pt .pth .ckpt) and safetensors.\n"
        "\nExamples:\n"
        "  ringest ckpt ls gs://bucket/run/\n"
        "  ringest ckpt ls gs://bucket/run/ --json | jq '.checkpoints[] | select(.complete)'\n",
    .run = ckpt_run,
};
