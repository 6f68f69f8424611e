/* See ckpt_elsewhere.h.
 *
 *   each checkpoint, for each part of its path that may say a process: a member of the group of
 *   those whose path is the same but for the numbers of that part -> sorted, group by group ->
 *   of each group that has several folders, which steps are needed */
#include "cli/ckpt_elsewhere.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct member {
    const struct ckpt *ckpt;
    size_t index;
    size_t depth;        /* of the part of the path */
    char *group;         /* owned: what the group has in common, its pattern at the end */
    const char *pattern; /* of the part */
};

struct members {
    struct member *items;
    size_t count, capacity;
};

static int no_memory(void)
{
    return cli_fail("no memory");
}

static int member_add(struct members *members, const struct ckpt_search *search, size_t index,
                      size_t depth, const char *part)
{
    if (members->count == members->capacity) {
        size_t capacity = members->capacity * 2 + 16;
        struct member *grown = realloc(members->items, capacity * sizeof(*grown));
        if (grown == NULL) {
            return no_memory();
        }
        members->items = grown;
        members->capacity = capacity;
    }
    const struct ckpt *ckpt = &search->ckpts[index];
    size_t before = (size_t)(part - ckpt->name), size = strcspn(part, "/");
    size_t behind = ckpt_folder_size(ckpt->name) - before - size;
    struct member member = {.ckpt = ckpt, .index = index, .depth = depth};
    char pattern[CKPT_PATTERN_SIZE];
    ckpt_as_pattern(part, size, pattern);
    /* Names of objects have no line breaks. */
    if (asprintf(&member.group, "%s\n%.*s\n%.*s\n%s", ckpt->what.series, (int)before, ckpt->name,
                 (int)behind, part + size, pattern) < 0) {
        return no_memory();
    }
    member.pattern = strrchr(member.group, '\n') + 1;
    members->items[members->count++] = member;
    return CLI_DONE;
}

/* A checkpoint, for each part of its path behind those that were asked for. */
static int members_add(struct members *members, const struct ckpt_search *search, size_t index)
{
    const struct ckpt *ckpt = &search->ckpts[index];
    const char *part = ckpt->name, *slash;
    size_t given = 0;
    int status = CLI_DONE;
    for (const char *at = search->uri.name; (at = strchr(at, '/')) != NULL; at++) {
        given++;
    }
    for (size_t depth = 0; ckpt->has_name && (slash = strchr(part, '/')) != NULL; depth++) {
        bool counts = depth >= given && ckpt_may_be_of_process(part, (size_t)(slash - part));
        if (status == CLI_DONE && counts) {
            status = member_add(members, search, index, depth, part);
        }
        part = slash + 1;
    }
    return status;
}

static int compare_groups(const struct member *a, const struct member *b)
{
    int order = (a->depth > b->depth) - (a->depth < b->depth);
    return order != 0 ? order : strcmp(a->group, b->group);
}

/* By group, then by name, which keeps what lies in one folder together. */
static int compare_names(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    int order = compare_groups(a, b);
    return order != 0 ? order : strcmp(a->ckpt->name, b->ckpt->name);
}

/* Orders the members of one group: the last step first, then by name. */
static int compare_steps(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    uint64_t one = a->ckpt->what.step, other = b->ckpt->what.step;
    return one != other ? (one < other) - (one > other) : strcmp(a->ckpt->name, b->ckpt->name);
}

static bool is_same_folder(const struct ckpt *a, const struct ckpt *b)
{
    size_t size = ckpt_folder_size(a->name);
    return size == ckpt_folder_size(b->name) && memcmp(a->name, b->name, size) == 0;
}

/* In how many folders members lie that are sorted by name; complete ones only, if asked for. */
static size_t folders_count(const struct member *members, size_t count, bool complete)
{
    const struct ckpt *before = NULL;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ckpt *ckpt = members[i].ckpt;
        if ((ckpt->is_complete || !complete) && (before == NULL || !is_same_folder(before, ckpt))) {
            before = ckpt;
            found++;
        }
    }
    return found;
}

static int step_keep(const struct member *members, size_t count, uint64_t keep_last,
                     const char *where, char **reasons)
{
    for (size_t i = 0; i < count; i++) {
        char **reason = &reasons[members[i].index];
        if (*reason == NULL && asprintf(reason, "one of the last %" PRIu64 " %s called %s",
                                        keep_last, where, members[i].pattern) < 0) {
            *reason = NULL;
            return no_memory();
        }
    }
    return CLI_DONE;
}

static int group_decide(struct member *members, size_t count, const bool *is_last,
                        uint64_t keep_last, char **reasons)
{
    size_t folders = folders_count(members, count, false), end;
    uint64_t common_left = keep_last;
    int status = CLI_DONE;
    if (folders < 2) {
        return CLI_DONE;
    }
    qsort(members, count, sizeof(*members), compare_steps);
    for (size_t i = 0; status == CLI_DONE && i < count; i = end) {
        bool is_needed = false;
        for (end = i; end < count && members[end].ckpt->what.step == members[i].ckpt->what.step;
             end++) {
            is_needed |= is_last[members[end].index];
        }
        bool is_common = common_left > 0 && folders_count(members + i, end - i, true) == folders;
        common_left -= is_common;
        if (is_needed || is_common) {
            status = step_keep(members + i, end - i, keep_last,
                               is_needed ? "in another folder" : "in all folders", reasons);
        }
    }
    return status;
}

int ckpt_elsewhere(const struct ckpt_search *search, const bool *is_last, uint64_t keep_last,
                   char **reasons)
{
    struct members members = {0};
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && i < search->ckpt_count; i++) {
        status = members_add(&members, search, i);
    }
    if (members.count > 0) {
        qsort(members.items, members.count, sizeof(*members.items), compare_names);
    }
    for (size_t i = 0, end; status == CLI_DONE && i < members.count; i = end) {
        for (end = i + 1;
             end < members.count && compare_groups(&members.items[i], &members.items[end]) == 0;) {
            end++;
        }
        status = group_decide(members.items + i, end - i, is_last, keep_last, reasons);
    }
    for (size_t i = 0; i < members.count; i++) {
        free(members.items[i].group);
    }
    free(members.items);
    return status;
}
