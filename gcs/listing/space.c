/* Segments, and what a page changes in them; see space.h. */
#include "gcs/listing/space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* So many names of a page, evenly spread, are shown to the model. */
#define SAMPLES 16
/* A rest of fewer pages is not cut. */
#define PAGES_WORTH_CUTTING 1.5
/* There are more pieces than predicted pages, because some pieces are a little too large for one.
 */
#define PIECES_PER_PAGE 1.15
/* After this many pages that were not predicted, the prediction is no longer believed. */
#define SURPRISES_MAX 2
/* Answers in a row with no names and the token that was sent. More of them are an error. */
#define REPEATS_MAX 50
/* After this many empty new segments in a row, only one at a time is cut off. */
#define MISSES_MAX 16
/* How many pieces an ordered listing makes at first, when none has shown yet whether the predicted
 * density is right. */
#define TRUST_FIRST 8
/* The weight of the newest page in the moving average of `fill`. */
#define FILL_WEIGHT 0.25

static struct rg_segment *segment_create(const char *low, const char *limit)
{
    struct rg_segment *segment = calloc(1, sizeof(*segment));
    if (segment != NULL) {
        rg_list_init(&segment->node);
        rg_list_init(&segment->pages);
        strcpy(segment->low, low);
        strcpy(segment->limit, limit);
        strcpy(segment->chain_start, low);
        strcpy(segment->chain_end, limit);
    }
    return segment;
}

static const char *text_or_none(const char *text)
{
    return text != NULL ? text : "";
}

int rg_space_init(struct rg_space *space, const struct rg_space_options *options)
{
    const char *start = text_or_none(options->start), *end = text_or_none(options->end);
    if (strlen(start) >= RG_SPLIT_KEY_SIZE || strlen(end) >= RG_SPLIT_KEY_SIZE) {
        return -EINVAL;
    }
    memset(space, 0, sizeof(*space));
    rg_list_init(&space->segments);
    space->prefix = text_or_none(options->prefix);
    space->delimiter = text_or_none(options->delimiter);
    space->versions = options->versions;
    space->ordered = options->ordered;
    space->page_size = options->page_size;
    space->trust = TRUST_FIRST;
    space->fill = 1;
    struct rg_segment *segment = segment_create(start, end);
    if (segment == NULL) {
        return -ENOMEM;
    }
    rg_list_push_back(&space->segments, &segment->node);
    space->segment_count = 1;
    return 0;
}

/* Segments lie in the order of names and do not overlap: only the last may have no end. What a
 * segment has seen lies below its end, and one that is done has no token to go on with. */
static bool invariants(const struct rg_space *space)
{
    const struct rg_segment *before = NULL;
    uint32_t count = 0;
    for (const struct rg_list *node = space->segments.next; node != &space->segments;
         node = node->next) {
        const struct rg_segment *segment = RG_CONTAINER_OF(node, struct rg_segment, node);
        bool has_end = segment->limit[0] != '\0';
        bool follows = before == NULL ||
                       (before->limit[0] != '\0' && strcmp(before->limit, segment->low) <= 0);
        if (!follows || (has_end && strcmp(segment->floor, segment->limit) >= 0) ||
            (segment->done && segment->token != NULL)) {
            return false;
        }
        before = segment;
        count++;
    }
    return count == space->segment_count && space->trust >= 1 &&
           space->trust <= RG_SPLIT_KEYS_MAX && space->fill >= 0 && space->fill <= 1;
}

void rg_space_remove(struct rg_space *space, struct rg_segment *segment)
{
    RG_ASSERT(rg_list_empty(&segment->pages) && space->segment_count > 0);
    rg_list_remove(&segment->node);
    space->segment_count--;
    free(segment->token);
    free(segment);
}

void rg_space_fini(struct rg_space *space)
{
    struct rg_segment *segment;
    while ((segment = rg_space_first(space)) != NULL) {
        rg_space_remove(space, segment);
    }
}

struct rg_segment *rg_space_first(const struct rg_space *space)
{
    struct rg_list *node = space->segments.next;
    return node != &space->segments ? RG_CONTAINER_OF(node, struct rg_segment, node) : NULL;
}

static const char *none_or_text(const char *text)
{
    return *text != '\0' ? text : NULL;
}

void rg_segment_query(const struct rg_segment *segment, struct rg_space_query *out_query)
{
    RG_ASSERT(!segment->done);
    *out_query = (struct rg_space_query){
        .start_offset = none_or_text(segment->chain_start),
        .end_offset = none_or_text(segment->chain_end),
        .page_token = segment->token,
    };
}

/* A page has two ordered lists, of objects and of prefixes. Both are handled as `struct names`. */
static const char *object_name(const struct rg_list_page *page, size_t index)
{
    return page->objects[index].name;
}

static const char *prefix_name(const struct rg_list_page *page, size_t index)
{
    return page->prefixes[index];
}

struct names {
    const struct rg_list_page *page;
    const char *(*at)(const struct rg_list_page *page, size_t index);
    size_t begin, end; /* those that count */
};

/* `repeats`: a name may come several times. */
static bool is_sorted(const struct names *names, bool repeats)
{
    for (size_t i = names->begin + 1; i < names->end; i++) {
        int order = strcmp(names->at(names->page, i - 1), names->at(names->page, i));
        if (order > 0 || (order == 0 && !repeats)) {
            return false;
        }
    }
    return true;
}

/* Drops names that were seen before or are another segment's. True: some lie behind the end of this
 * one, so that it has been walked to its end. */
static bool names_cut(struct names *names, const struct rg_space *space,
                      const struct rg_segment *segment)
{
    while (names->begin < names->end) {
        const char *name = names->at(names->page, names->begin);
        bool is_done = !space->versions && strcmp(name, segment->floor) <= 0;
        /* A prefix may lie before the start of the whole listing, but not before that of a piece.
         */
        bool is_before = segment->is_cut_off && strcmp(name, segment->low) < 0;
        if (!is_done && !is_before) {
            break;
        }
        names->begin++;
    }
    size_t end = names->end;
    while (segment->limit[0] != '\0' && names->end > names->begin &&
           strcmp(names->at(names->page, names->end - 1), segment->limit) >= 0) {
        names->end--;
    }
    return names->end < end;
}

static void learn(struct rg_space *space, const struct names *names)
{
    size_t count = names->end - names->begin;
    for (size_t i = 0; i < SAMPLES && count > 0; i++) {
        rg_split_learn(&space->model, names->at(names->page, names->begin + i * count / SAMPLES));
    }
    if (count > 0) {
        rg_split_learn(&space->model, names->at(names->page, names->end - 1));
    }
}

/* Notes the first and the last name of a page. */
static void note_ends(struct rg_segment *segment, const struct names *names)
{
    if (names->begin == names->end) {
        return;
    }
    const char *first = names->at(names->page, names->begin);
    const char *last = names->at(names->page, names->end - 1);
    if (!segment->has_progress || strcmp(first, segment->first) < 0) {
        strcpy(segment->first, first);
    }
    if (strcmp(last, segment->floor) > 0) {
        strcpy(segment->floor, last);
    }
    segment->has_progress = true;
}

static bool names_fit(const struct names *names)
{
    for (size_t i = names->begin; i < names->end; i++) {
        if (strlen(names->at(names->page, i)) > RG_OBJECT_NAME_SIZE_MAX) {
            return false;
        }
    }
    return true;
}

static int segment_go_on(struct rg_segment *segment, const char *token, bool is_reached,
                         const char **out_problem)
{
    if (token == NULL || is_reached) {
        free(segment->token);
        segment->token = NULL;
        segment->done = true;
        return 0;
    }
    bool repeats =
        segment->token != NULL && !segment->has_progress && strcmp(token, segment->token) == 0;
    segment->repeats = repeats ? segment->repeats + 1 : 0;
    if (segment->repeats > REPEATS_MAX) {
        *out_problem = "has nothing, again and again, but the page token that led to it";
        return -EBADMSG;
    }
    char *copy = strdup(token);
    if (copy == NULL) {
        return -ENOMEM;
    }
    free(segment->token);
    segment->token = copy;
    return 0;
}

/* A server that does not sort its names can be followed while there is only one chain, unless the
 * caller wants them in order. */
static int check_order(struct rg_space *space, const struct names *objects,
                       const struct names *prefixes, const char **out_problem)
{
    if (!names_fit(objects) || !names_fit(prefixes)) {
        *out_problem = "has a name of more than 1,024 bytes";
        return -EBADMSG;
    }
    if (is_sorted(objects, space->versions) && is_sorted(prefixes, false)) {
        return 0;
    }
    if (space->ordered || space->segment_count > 1) {
        *out_problem = "has names that are not in order";
        return -EBADMSG;
    }
    space->unsorted = true;
    return 0;
}

int rg_space_take_page(struct rg_space *space, struct rg_segment *segment,
                       struct rg_list_page *page, const char **out_problem)
{
    struct names objects = {page, object_name, 0, page->object_count};
    struct names prefixes = {page, prefix_name, 0, page->prefix_count};
    bool is_reached = false;
    segment->has_progress = false;
    segment->page_count++;
    int rc = space->unsorted ? 0 : check_order(space, &objects, &prefixes, out_problem);
    if (rc < 0) {
        return rc;
    }
    if (!space->unsorted) {
        is_reached = names_cut(&objects, space, segment);
        is_reached = names_cut(&prefixes, space, segment) || is_reached;
        learn(space, &objects);
        learn(space, &prefixes);
        note_ends(segment, &objects);
        note_ends(segment, &prefixes);
    } else {
        segment->has_progress = page->object_count + page->prefix_count > 0;
    }
    page->objects += objects.begin;
    page->object_count = objects.end - objects.begin;
    page->prefixes += prefixes.begin;
    page->prefix_count = prefixes.end - prefixes.begin;
    segment->last_count = (uint32_t)(page->object_count + page->prefix_count);
    rc = segment_go_on(segment, page->next_page_token, is_reached, out_problem);
    page->next_page_token = NULL;
    if (segment->page_count == 1 && segment->is_cut_off) {
        bool is_hit = segment->has_progress || !segment->done;
        space->misses = is_hit ? 0 : space->misses + 1;
        space->trust = is_hit ? RG_MIN(space->trust + 1, (uint32_t)RG_SPLIT_KEYS_MAX)
                              : RG_MAX(space->trust / 2, 1u);
        double fill = segment->done ? (double)segment->last_count / space->page_size : 1;
        space->fill += (RG_MIN(fill, 1.0) - space->fill) * FILL_WEIGHT;
    }
    RG_VERIFY(invariants(space));
    return rc;
}

/* How many new segments the rest is worth. */
static uint32_t cut_count(const struct rg_space *space, struct rg_segment *segment,
                          const struct rg_split_range *range, uint32_t new_max)
{
    double pages = rg_split_pages(&space->model, range);
    if (pages < PAGES_WORTH_CUTTING) {
        segment->surprises++;
        if (segment->surprises < SURPRISES_MAX) {
            return 0;
        }
        pages = 2.0 * segment->surprises;
    }
    uint32_t count = RG_MIN(new_max, (uint32_t)RG_SPLIT_KEYS_MAX);
    if (space->ordered) {
        count = RG_MIN(count, space->trust);
    } else if (space->misses > MISSES_MAX) {
        count = RG_MIN(count, 1u);
    }
    return RG_MIN(count, (uint32_t)(pages * PIECES_PER_PAGE));
}

/* Makes new segments at the first key_count of space->keys; fewer if there is no memory. */
static uint32_t cut_at(struct rg_space *space, struct rg_segment *segment, uint32_t key_count)
{
    char limit[RG_SPLIT_KEY_SIZE];
    strcpy(limit, segment->limit);
    uint32_t made = 0;
    while (made < key_count) {
        /* From the last key to the first, because each goes directly behind the segment that is
         * cut.
         */
        const char *key = space->keys[key_count - 1 - made];
        struct rg_segment *piece = segment_create(key, limit);
        if (piece == NULL) {
            break;
        }
        piece->is_cut_off = true;
        rg_list_push_front(&segment->node, &piece->node);
        strcpy(limit, key);
        made++;
    }
    space->segment_count += made;
    strcpy(segment->limit, limit);
    return made;
}

uint32_t rg_space_cut(struct rg_space *space, struct rg_segment *segment, uint32_t new_max)
{
    if (segment->done || !segment->has_progress || space->unsorted || new_max == 0) {
        return 0;
    }
    const struct rg_split_range range = {
        .prefix = space->prefix,
        .delimiter = space->delimiter,
        .first = segment->first,
        .last = segment->floor,
        .end = segment->limit,
        .count = segment->last_count,
        .page_size = space->page_size,
    };
    if (strncmp(range.last, range.prefix, strlen(range.prefix)) != 0) {
        return 0;
    }
    uint32_t count = cut_count(space, segment, &range, new_max);
    if (count == 0) {
        return 0;
    }
    count = space->ordered ? rg_split_choose_near(&space->model, &range, count, space->keys)
                           : rg_split_choose(&space->model, &range, count, space->keys);
    count = cut_at(space, segment, count);
    if (count > 0 && !space->versions) {
        free(segment->token);
        segment->token = NULL;
        bool is_below = strcmp(segment->floor, segment->low) < 0;
        strcpy(segment->chain_start, is_below ? segment->low : segment->floor);
        strcpy(segment->chain_end, segment->limit);
    }
    RG_VERIFY(invariants(space));
    return count;
}

static bool is_untouched(const struct rg_segment *segment)
{
    return segment->waits && segment->page_count == 0;
}

void rg_space_join(struct rg_space *space, struct rg_segment *segment, uint32_t join_max)
{
    if (!is_untouched(segment)) {
        return;
    }
    for (uint32_t i = 0; i < join_max && space->fill * (i + 2) <= 1; i++) {
        struct rg_list *node = segment->node.next;
        struct rg_segment *next = RG_CONTAINER_OF(node, struct rg_segment, node);
        if (node == &space->segments || !is_untouched(next)) {
            return;
        }
        strcpy(segment->limit, next->limit);
        strcpy(segment->chain_end, next->limit);
        rg_space_remove(space, next);
        RG_VERIFY(invariants(space));
    }
}
