/* The division of names into segments, against a server that is an array: every name once, whatever
 * the names, the pages' sizes and the order in which answers come. */
#include "gcs/listing/space.h"
#include "gcs/wire/utf8.h"
#include "tests/support/listing_model.h"
#include "tests/support/test.h"

#define SLOTS_MAX 24
#define RUNS 1000
#define NAMES_MAX 1500

struct world {
    struct rg_listing_model model;
    uint32_t page_max;
    uint32_t slots;
    uint32_t empty_percent, short_percent;
    bool ordered, ignores_offsets;
    /* The course of a run. */
    struct rg_space space;
    struct rg_segment *out[SLOTS_MAX];
    uint32_t out_count;
    uint64_t requests;
    struct rg_listing_found found;
};

static void query_check(const struct rg_space_query *query)
{
    const char *const offsets[] = {query->start_offset, query->end_offset};
    for (size_t i = 0; i < RG_ARRAY_LEN(offsets); i++) {
        uint32_t code;
        for (const char *at = offsets[i]; at != NULL && *at != '\0';) {
            int size = rg_utf8_decode(at, strlen(at), &code);
            RG_CHECK(size > 0);
            at += size;
        }
    }
}

/* Answers one query, as a server might. */
static void answer_make(struct world *world, struct rg_segment *segment,
                        struct rg_listing_model_page *answer)
{
    const struct rg_listing_model *model = &world->model;
    struct rg_space_query query;
    rg_segment_query(segment, &query);
    query_check(&query);
    world->requests++;
    if (world->ignores_offsets) {
        rg_listing_model_serve(model, "", "", NULL, (uint32_t)model->set.count, answer);
        return;
    }
    uint32_t count_max = world->page_max;
    if (rg_test_random_below(100) < world->short_percent) {
        count_max = 1 + (uint32_t)rg_test_random_below(count_max);
    }
    if (rg_test_random_below(100) < world->empty_percent) {
        count_max = 0;
    }
    rg_listing_model_serve(model, query.start_offset != NULL ? query.start_offset : "",
                           query.end_offset != NULL ? query.end_offset : "", query.page_token,
                           count_max, answer);
}

/* One answer comes, to a request that is out: which one is left to chance. */
static void step(struct world *world)
{
    uint32_t index = (uint32_t)rg_test_random_below(world->out_count);
    struct rg_segment *segment = world->out[index];
    world->out[index] = world->out[--world->out_count];
    struct rg_listing_model_page answer = {.token = ""};
    answer_make(world, segment, &answer);
    const char *problem = "";
    int rc = rg_space_take_page(&world->space, segment, &answer.page, &problem);
    if (rc < 0) {
        rg_test_fail(__FILE__, __LINE__, "a page was refused: %s", problem);
    }
    rg_listing_found_add(&world->found, &answer.page);
    (void)rg_space_cut(&world->space, segment, world->slots - 1 - world->out_count);
    rg_listing_model_page_free(&answer);
    segment->waits = true;
}

static void start_all(struct world *world)
{
    struct rg_list *node = world->space.segments.next;
    while (node != &world->space.segments) {
        struct rg_segment *segment = RG_CONTAINER_OF(node, struct rg_segment, node);
        node = node->next;
        if (segment->done) {
            rg_space_remove(&world->space, segment);
        } else if (segment->waits || segment->page_count == 0) {
            bool is_out = false;
            for (uint32_t i = 0; i < world->out_count; i++) {
                is_out = is_out || world->out[i] == segment;
            }
            if (!is_out) {
                RG_CHECK(world->out_count < world->slots);
                segment->waits = false;
                world->out[world->out_count++] = segment;
            }
        }
    }
}

static void list_all(struct world *world)
{
    const struct rg_space_options options = {
        .prefix = world->model.prefix,
        .delimiter = world->model.delimiter,
        .start = world->model.start,
        .end = world->model.end,
        .versions = world->model.versions > 0,
        .ordered = world->ordered,
        .page_size = world->page_max,
    };
    RG_CHECK_EQ(rg_space_init(&world->space, &options), 0);
    start_all(world);
    while (world->out_count > 0) {
        step(world);
        start_all(world);
        RG_CHECK(world->requests < 200000);
    }
    RG_CHECK_EQ(world->space.segment_count, 0);
    rg_space_fini(&world->space);
}

static void world_make(struct world *world, enum rg_test_name_kind kind)
{
    static const uint32_t page_sizes[] = {1, 2, 7, 50, 333, 1000};
    rg_listing_model_make(&world->model, kind, NAMES_MAX);
    world->page_max = page_sizes[rg_test_random_below(RG_ARRAY_LEN(page_sizes))];
    if (world->model.set.count > 400 && world->page_max == 1) {
        world->page_max = 20;
    }
    world->slots = 1 + (uint32_t)rg_test_random_below(SLOTS_MAX);
    world->ordered = rg_test_random_below(2) == 0;
    world->empty_percent = rg_test_random_below(3) == 0 ? 30 : 0;
    world->short_percent = rg_test_random_below(3) == 0 ? 50 : 0;
}

/* The order of pages is chance here, so names are compared without it. */
static void world_check(struct world *world)
{
    rg_listing_found_check(&world->found, &world->model, false);
    rg_listing_model_free(&world->model);
}

static void test_every_name_comes_once(void)
{
    for (uint32_t run = 0; run < rg_test_rounds(RUNS); run++) {
        struct world world = {.requests = 0};
        world_make(&world, (enum rg_test_name_kind)(run % RG_TEST_NAMES_KIND_COUNT));
        list_all(&world);
        world_check(&world);
    }
}

static void test_a_prefix_bounds_it(void)
{
    static const char *const prefixes[] = {"train-0000",       "data/", "folder1",
                                           "level-0/of/many/", "a",     "no such"};
    for (uint32_t run = 0; run < rg_test_rounds(RUNS / 3); run++) {
        struct world world = {.requests = 0};
        world_make(&world, RG_TEST_NAMES_MIXED);
        world.model.prefix = prefixes[run % RG_ARRAY_LEN(prefixes)];
        list_all(&world);
        world_check(&world);
    }
}

/* Servers that ignore offsets send everything in one page. */
static void test_a_server_without_offsets_is_listed_once(void)
{
    for (uint32_t run = 0; run < 50; run++) {
        struct world world = {.ignores_offsets = true};
        world_make(&world, RG_TEST_NAMES_MIXED);
        strcpy(world.model.start, "");
        strcpy(world.model.end, "");
        world.model.versions = 0;
        list_all(&world);
        RG_CHECK_EQ(world.requests, 1);
        world_check(&world);
    }
}

/* Not many more requests are made than there are pages. */
static void test_guesses_cost_little(void)
{
    for (int kind = 0; kind < RG_TEST_NAMES_KIND_COUNT; kind++) {
        for (unsigned ordered = 0; ordered < 2; ordered++) {
            struct world world = {.page_max = 10, .slots = 16, .ordered = ordered == 1};
            world.model.prefix = world.model.delimiter = "";
            world.model.set = rg_test_names_make((enum rg_test_name_kind)kind, NAMES_MAX);
            size_t pages = world.model.set.count / world.page_max + 1;
            list_all(&world);
            RG_CHECK(world.requests < 3 * pages + 100);
            world_check(&world);
        }
    }
}

static struct rg_space space;

static struct rg_segment *space_open(bool ordered)
{
    const struct rg_space_options options = {.page_size = 3, .ordered = ordered};
    RG_CHECK_EQ(rg_space_init(&space, &options), 0);
    return rg_space_first(&space);
}

static int take(struct rg_segment *segment, const char *const *names, size_t count,
                const char *token)
{
    struct rg_object objects[8] = {{0}};
    for (size_t i = 0; i < count; i++) {
        objects[i].name = names[i];
    }
    struct rg_list_page page = {
        .objects = objects, .object_count = count, .next_page_token = token};
    const char *problem = NULL;
    int rc = rg_space_take_page(&space, segment, &page, &problem);
    RG_CHECK(rc == 0 || problem != NULL);
    return rc;
}

static void test_names_out_of_order(void)
{
    const char *const names[] = {"b", "a", "c"};
    struct rg_segment *segment = space_open(false);
    RG_CHECK_EQ(take(segment, names, 3, "t"), 0);
    RG_CHECK_EQ(rg_space_cut(&space, segment, 8), 0);
    RG_CHECK_EQ(take(segment, names, 3, NULL), 0);
    RG_CHECK(segment->done);
    rg_space_fini(&space);
    segment = space_open(true);
    RG_CHECK_EQ(take(segment, names, 3, "t"), -EBADMSG);
    rg_space_fini(&space);
}

static void test_a_token_that_leads_nowhere(void)
{
    const char *const names[] = {"a", "b", "c"};
    struct rg_segment *segment = space_open(false);
    RG_CHECK_EQ(take(segment, names, 3, "t"), 0);
    int rc = 0;
    for (unsigned i = 0; i < 1000 && rc == 0; i++) {
        rc = take(segment, names, 0, "u");
        RG_CHECK(rc == 0 || i > 10);
    }
    RG_CHECK_EQ(rc, -EBADMSG);
    rg_space_fini(&space);
}

static void test_offsets_that_no_name_has(void)
{
    char text[RG_SPLIT_KEY_SIZE + 1];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    RG_CHECK_EQ(rg_space_init(&space, &(struct rg_space_options){.start = text}), -EINVAL);
    RG_CHECK_EQ(rg_space_init(&space, &(struct rg_space_options){.end = text}), -EINVAL);
}

static void test_the_first_question_is_plain(void)
{
    struct rg_space_query query;
    struct rg_segment *segment = space_open(false);
    rg_segment_query(segment, &query);
    RG_CHECK(query.start_offset == NULL && query.end_offset == NULL && query.page_token == NULL);
    const char *const names[] = {"a", "b", "c"};
    RG_CHECK_EQ(take(segment, names, 3, NULL), 0);
    RG_CHECK(segment->done);
    RG_CHECK_EQ(rg_space_cut(&space, segment, 9), 0);
    rg_space_fini(&space);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_name_comes_once),
        RG_TEST(test_a_prefix_bounds_it),
        RG_TEST(test_a_server_without_offsets_is_listed_once),
        RG_TEST(test_guesses_cost_little),
        RG_TEST(test_names_out_of_order),
        RG_TEST(test_a_token_that_leads_nowhere),
        RG_TEST(test_offsets_that_no_name_has),
        RG_TEST(test_the_first_question_is_plain),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
