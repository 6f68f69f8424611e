/* Plans: which requests a reader makes for objects and for samples of shards, in one window. */
#include "dataset/plan.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <string.h>

#define COUNT 300
#define SMALL 3000u

static struct rg_object objects[COUNT];
static char names[COUNT][16], name[RG_OBJECT_NAME_SIZE_MAX + 1];
static struct rg_source source;
static struct rg_sampler sampler;
static struct rg_window window;
static struct rg_plan plan;
static struct rg_tar_index *index_of_shards;

static void lease_ignore(struct rg_lease *lease)
{
    RG_CHECK(lease == NULL);
}

/* In the order of the source. */
static void plan_open(const struct rg_reader_options *options, uint32_t requests_max)
{
    char error[256];
    RG_CHECK_EQ(rg_source_open(&source, options, error, sizeof(error)), 0);
    struct rg_sampler_options assignment = {
        .count = source.count, .world_size = 1, .worker_count = 1, .block_size = 1};
    RG_CHECK_EQ(rg_sampler_init(&sampler, &assignment), 0);
    struct rg_window_options limits = {
        .total = source.count, .requests_max = requests_max, .bytes_max = RG_MIB(64)};
    RG_CHECK_EQ(rg_window_init(&window, &limits, 0, NULL, 0), 0);
    plan = (struct rg_plan){.window = &window, .source = &source, .sampler = &sampler};
    rg_plan_limit(&plan, RG_MIB(1));
}

static void plan_close(void)
{
    rg_window_fini(&window, lease_ignore);
    rg_source_close(&source);
    rg_tar_index_close(index_of_shards);
    index_of_shards = NULL;
}

static void objects_plan(uint32_t requests_max)
{
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "x-%d", i);
        objects[i] = (struct rg_object){.name = names[i], .size = 1000, .generation = 10 + i};
    }
    options.bucket = "bucket";
    options.objects = objects;
    options.object_count = COUNT;
    plan_open(&options, requests_max);
}

static void shard_add(struct rg_tar_builder *builder, int shard, uint32_t large_each)
{
    struct rg_tar_section section;
    char text[64];
    uint64_t at = 0;
    RG_CHECK_EQ(rg_tar_section_init(&section), 0);
    for (uint32_t i = 0; i < COUNT / 2; i++) {
        static const char *const extensions[] = {"a", "b", "c"};
        for (uint32_t k = 0; k < RG_ARRAY_LEN(extensions); k++) {
            bool is_large = large_each != 0 && i % large_each == 0 && k == 1;
            snprintf(text, sizeof(text), "%04" PRIu32 ".%s", i, extensions[k]);
            struct rg_tar_member member = {.name = text,
                                           .offset = at + RG_TAR_BLOCK_SIZE,
                                           .size = is_large ? RG_TAR_GAP_MAX + 1 : SMALL};
            RG_CHECK_EQ(rg_tar_section_add(&section, &member), 0);
            at = rg_tar_blocks_end(member.offset, member.size);
        }
    }
    RG_CHECK_EQ(rg_tar_section_end(&section), 0);
    snprintf(text, sizeof(text), "%d.tar", shard);
    RG_CHECK_EQ(rg_tar_builder_add(builder, text, at, 5 + shard, &section), 0);
    rg_tar_section_fini(&section);
}

/* Two shards of samples with members a, b and c, of which b is left out; every so many times it is
 * large, so that the sample is read in pieces. */
static void shards_plan(uint32_t requests_max, uint32_t large_each)
{
    static const char *const members[] = {"a", "c"};
    struct rg_tar_builder builder;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "bucket"), 0);
    shard_add(&builder, 0, large_each);
    shard_add(&builder, 1, large_each);
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &index_of_shards), 0);
    rg_tar_builder_fini(&builder);
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    options.tar = index_of_shards;
    options.tar_members = members;
    options.tar_member_count = RG_ARRAY_LEN(members);
    plan_open(&options, requests_max);
}

/* Answers a request and takes all samples that came. */
static void request_answer(const struct rg_get *get, enum rg_status status)
{
    static const uint8_t body[RG_MIB(1)];
    struct rg_completion completion = {
        .status = status, .data = body, .size = sizeof(body), .user_data = get->user_data};
    rg_window_arrive(&window, get->user_data, &completion);
    struct rg_sample sample;
    while (rg_window_take(&window, &sample)) {
    }
}

static void test_objects_are_asked_for_in_order_until_the_window_is_full(void)
{
    struct rg_get get;
    struct rg_source_item item;
    objects_plan(20);
    for (uint64_t i = 0; i < 20; i++) {
        RG_CHECK(rg_plan_next(&plan, name, &get, &item));
        RG_CHECK_EQ(get.user_data, i);
        RG_CHECK_STR(get.object, names[i]);
        RG_CHECK_STR(get.bucket, "bucket");
        RG_CHECK_EQ(get.generation, 10 + (int64_t)i);
        RG_CHECK_EQ(get.offset, 0);
        RG_CHECK_EQ(get.length, RG_WHOLE);
        RG_CHECK_EQ(item.piece_count, 0);
    }
    RG_CHECK(!rg_plan_next(&plan, name, &get, &item));
    get.user_data = 0;
    request_answer(&get, RG_STATUS_OK);
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    RG_CHECK_EQ(get.user_data, 20);
    plan_close();
}

static void test_what_is_postponed_is_planned_again(void)
{
    struct rg_get get;
    struct rg_source_item item;
    objects_plan(20);
    for (int i = 0; i < 3; i++) {
        RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    }
    rg_window_slot(&window, 1)->kind = RG_SLOT_NEWEST;
    rg_window_postpone(&window, 2);
    rg_window_postpone(&window, 1);
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    RG_CHECK_EQ(get.user_data, 1);
    RG_CHECK_EQ(get.generation, 0); /* of whatever is there now */
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    RG_CHECK_EQ(get.user_data, 2);
    RG_CHECK_EQ(get.generation, 12);
    plan_close();
}

static void test_unknown_sizes_are_charged_by_the_largest_so_far(void)
{
    struct rg_get get;
    struct rg_source_item item;
    objects_plan(20);
    for (int i = 0; i < COUNT; i++) {
        objects[i].size = 0;
    }
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    uint64_t before = window.bytes;
    rg_plan_learn(&plan, RG_MIB(3));
    rg_plan_learn(&plan, 5);
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    RG_CHECK(before < RG_MIB(1));
    RG_CHECK(window.bytes - before > RG_MIB(3));
    plan_close();
}

static void test_neighbours_of_a_shard_share_a_request(void)
{
    struct rg_get get;
    struct rg_source_item item;
    uint64_t samples = 0, requests = 0;
    shards_plan(160, 0);
    while (rg_plan_next(&plan, name, &get, &item)) {
        const struct rg_slot *slot = rg_window_slot(&window, get.user_data);
        RG_CHECK_EQ(get.user_data, samples);
        RG_CHECK_EQ(slot->kind, RG_SLOT_RANGE);
        RG_CHECK(slot->followers < 160 / 16);
        RG_CHECK_EQ(get.generation, samples < COUNT / 2 ? 5 : 6);
        RG_CHECK_EQ(get.length, rg_window_body_size(&window, get.user_data));
        /* All samples of a request are of one shard. */
        RG_CHECK_EQ(samples / (COUNT / 2), (samples + slot->followers) / (COUNT / 2));
        samples += slot->followers + 1;
        requests++;
        request_answer(&get, RG_STATUS_OK);
    }
    RG_CHECK_EQ(samples, COUNT);
    RG_CHECK_EQ(requests, COUNT / 10);
    RG_CHECK(rg_window_is_done(&window));
    plan_close();
}

static void test_a_group_that_is_planned_again_stays_the_same(void)
{
    struct rg_get get, again;
    struct rg_source_item item;
    shards_plan(160, 0);
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    rg_window_postpone(&window, 0);
    RG_CHECK(rg_plan_next(&plan, name, &again, &item));
    RG_CHECK_EQ(again.user_data, 0);
    RG_CHECK_EQ(again.offset, get.offset);
    RG_CHECK_EQ(again.length, get.length);
    RG_CHECK_EQ(rg_window_slot(&window, 0)->followers, 9);
    plan_close();
}

/* Pieces come as results that lie one behind the other, as rg_submit_get_ranges puts them. */
static void pieces_answer(const struct rg_get *get, const struct rg_source_item *item,
                          uint64_t last_size)
{
    static const uint8_t body[RG_KIB(64)];
    struct rg_range ranges[RG_TAR_MEMBERS_MAX];
    struct rg_range_result results[RG_TAR_MEMBERS_MAX];
    struct rg_get_ranges all = rg_plan_ranges(get, item, ranges);
    RG_CHECK_EQ(all.count, item->piece_count);
    RG_CHECK_EQ(all.user_data, get->user_data);
    RG_CHECK_EQ(all.generation, get->generation);
    for (uint32_t i = 0; i < all.count; i++) {
        RG_CHECK_EQ(ranges[i].offset, item->pieces[i].offset);
        results[i].data = body + item->pieces[i].place;
        results[i].size = i + 1 < all.count ? ranges[i].length : last_size;
    }
    struct rg_completion completion = {.status = RG_STATUS_OK, .data = results};
    rg_plan_unite(&completion, item);
    RG_CHECK(completion.data == body);
    RG_CHECK_EQ(completion.size, item->pieces[all.count - 1].place + last_size);
}

static void test_samples_far_apart_are_read_in_pieces(void)
{
    struct rg_get get;
    struct rg_source_item item;
    uint64_t in_pieces = 0, samples = 0;
    shards_plan(160, 25);
    while (rg_plan_next(&plan, name, &get, &item)) {
        const struct rg_slot *slot = rg_window_slot(&window, get.user_data);
        samples += slot->followers + 1;
        if (item.piece_count > 1) {
            RG_CHECK_EQ(slot->kind, RG_SLOT_PIECES);
            RG_CHECK_EQ(slot->followers, 0);
            pieces_answer(&get, &item, SMALL);
            pieces_answer(&get, &item, 7); /* the object ends there */
            in_pieces++;
        }
        request_answer(&get, RG_STATUS_OK);
    }
    RG_CHECK_EQ(samples, COUNT);
    RG_CHECK_EQ(in_pieces, COUNT / 25);
    plan_close();
}

static void test_what_is_refused_arrives_with_its_status(void)
{
    struct rg_get get;
    struct rg_source_item item;
    struct rg_sample sample;
    shards_plan(160, 0);
    RG_CHECK(rg_plan_next(&plan, name, &get, &item));
    rg_plan_refuse(&plan, get.user_data, RG_STATUS_BAD_REQUEST);
    for (uint64_t i = 0; i < 10; i++) {
        RG_CHECK(rg_window_take(&window, &sample));
        RG_CHECK_EQ(sample.number, i);
        RG_CHECK_EQ(sample.completion.user_data, i);
        RG_CHECK_EQ(sample.completion.status, RG_STATUS_BAD_REQUEST);
    }
    RG_CHECK(!rg_window_take(&window, &sample));
    plan_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_objects_are_asked_for_in_order_until_the_window_is_full),
        RG_TEST(test_what_is_postponed_is_planned_again),
        RG_TEST(test_unknown_sizes_are_charged_by_the_largest_so_far),
        RG_TEST(test_neighbours_of_a_shard_share_a_request),
        RG_TEST(test_a_group_that_is_planned_again_stays_the_same),
        RG_TEST(test_samples_far_apart_are_read_in_pieces),
        RG_TEST(test_what_is_refused_arrives_with_its_status),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
