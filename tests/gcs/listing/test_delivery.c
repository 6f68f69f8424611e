/* Pages that wait for the caller: their order, what moves to the heap, and how it comes back. */
#include "gcs/listing/delivery.h"
#include "tests/support/loop.h"
#include "tests/support/test.h"

#include <string.h>

#define MEMORY_MAX RG_MIB(16)
/* More pages than may keep their leases while they wait. */
#define PAGES 8

struct world {
    struct rg_loop *loop;
    struct rg_space space;
    struct rg_delivery delivery;
    struct rg_waiting_page pages[PAGES];
    struct rg_task memory;
    unsigned memory_came;
};

static struct world *world;

static void memory_came(struct rg_task *task)
{
    RG_CHECK(task == &world->memory);
    world->memory_came++;
}

static void world_open(bool ordered)
{
    static struct world the_world;
    world = &the_world;
    memset(world, 0, sizeof(*world));
    world->memory.run = memory_came;
    const struct rg_loop_options options = {
        .backend = rg_test_backend(),
        .placement = {.node = -1, .cpu = -1},
        .memory_max = MEMORY_MAX,
    };
    RG_CHECK_EQ(rg_loop_create(&world->loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(world->loop), 0);
    const struct rg_space_options space_options = {.page_size = 3, .ordered = ordered};
    RG_CHECK_EQ(rg_space_init(&world->space, &space_options), 0);
    rg_delivery_init(&world->delivery, world->loop, &world->space, ordered, &world->memory);
}

static uint64_t leased_bytes(void)
{
    struct rg_slab_stats stats;
    rg_slab_arena_stats(world->loop->slabs, &stats);
    return stats.leased_bytes;
}

static void world_close(void)
{
    RG_CHECK_EQ(world->delivery.counted, 0);
    RG_CHECK_EQ(leased_bytes(), 0);
    rg_space_fini(&world->space);
    rg_loop_destroy(world->loop);
}

/* A page with one object and one prefix in a lease, as the parser makes them. */
static void page_put(unsigned index)
{
    static const char *const prefixes[] = {"folder/"};
    struct rg_lease *lease = rg_slab_take(world->loop->slabs, RG_KIB(4));
    RG_CHECK(lease != NULL);
    struct rg_list_page *page = (struct rg_list_page *)lease->data;
    struct rg_object *object = (struct rg_object *)(page + 1);
    char *name = (char *)(object + 1);
    snprintf(name, 16, "name-%u", index);
    *object = (struct rg_object){.name = name, .size = index, .updated = index > 1 ? "now" : NULL};
    *page = (struct rg_list_page){
        .objects = object, .object_count = 1, .prefixes = prefixes, .prefix_count = 1};
    const struct rg_completion completion = {
        .data = page, .size = sizeof(*page), .lease = lease, .attempts = (uint16_t)(index + 1)};
    rg_delivery_put(&world->delivery, rg_space_first(&world->space), &world->pages[index],
                    &completion);
}

static void page_check(unsigned index, const struct rg_completion *completion)
{
    const struct rg_list_page *page = completion->data;
    char name[16];
    snprintf(name, sizeof(name), "name-%u", index);
    RG_CHECK_EQ(completion->attempts, index + 1);
    RG_CHECK((const uint8_t *)page == completion->lease->data);
    RG_CHECK_EQ(page->object_count, 1);
    RG_CHECK_STR(page->objects[0].name, name);
    RG_CHECK_EQ(page->objects[0].size, index);
    RG_CHECK((page->objects[0].updated != NULL) == (index > 1));
    RG_CHECK_EQ(page->prefix_count, 1);
    RG_CHECK_STR(page->prefixes[0], "folder/");
}

static void page_take(unsigned index)
{
    struct rg_completion completion;
    struct rg_waiting_page *page = rg_delivery_next(&world->delivery);
    RG_CHECK(page == &world->pages[index]);
    RG_CHECK(rg_delivery_take(&world->delivery, page, &completion));
    page_check(index, &completion);
    rg_lease_release(completion.lease);
}

static void test_pages_come_as_they_were_put(void)
{
    world_open(false);
    RG_CHECK(rg_delivery_next(&world->delivery) == NULL);
    for (unsigned i = 0; i < PAGES; i++) {
        page_put(i);
        RG_CHECK(world->pages[i].heap == NULL);
    }
    for (unsigned i = 0; i < PAGES; i++) {
        page_take(i);
    }
    RG_CHECK(rg_delivery_next(&world->delivery) == NULL);
    world_close();
}

/* The page that is next keeps its lease, some behind it do, and all others are on the heap. */
static void test_pages_of_an_ordered_listing_keep_little_memory(void)
{
    world_open(true);
    for (unsigned i = 0; i < PAGES; i++) {
        page_put(i);
    }
    RG_CHECK(world->pages[0].heap == NULL && world->pages[0].counted == 0);
    RG_CHECK(world->pages[1].heap == NULL && world->pages[1].counted > 0);
    RG_CHECK(world->pages[PAGES - 1].heap != NULL);
    RG_CHECK(world->delivery.counted <= MEMORY_MAX / 4);
    for (unsigned i = 0; i < PAGES; i++) {
        page_take(i);
    }
    world_close();
}

/* A segment that has ended is removed when its pages are gone. */
static void test_an_ended_segment_is_left_behind(void)
{
    world_open(true);
    page_put(0);
    rg_space_first(&world->space)->done = true;
    page_take(0);
    RG_CHECK(rg_delivery_next(&world->delivery) == NULL);
    RG_CHECK_EQ(world->space.segment_count, 0);
    world_close();
}

/* A page on the heap waits until there is memory for it, and says when that is. */
static void test_a_page_waits_for_memory(void)
{
    struct rg_completion completion;
    world_open(true);
    for (unsigned i = 0; i < PAGES; i++) {
        page_put(i);
    }
    for (unsigned i = 0; i < PAGES - 1; i++) {
        page_take(i);
    }
    struct rg_lease *all = rg_slab_take(world->loop->slabs, rg_slab_size_max(world->loop->slabs));
    RG_CHECK(all != NULL);
    struct rg_waiting_page *last = rg_delivery_next(&world->delivery);
    RG_CHECK(!rg_delivery_take(&world->delivery, last, &completion));
    RG_CHECK(!rg_delivery_take(&world->delivery, last, &completion));
    rg_lease_release(all);
    RG_AWAIT((rg_loop_pass(world->loop, 0), world->memory_came == 1));
    page_take(PAGES - 1);
    world_close();
}

static void test_pages_that_nobody_takes(void)
{
    struct rg_completion completion;
    world_open(true);
    for (unsigned i = 0; i < PAGES; i++) {
        page_put(i);
    }
    for (unsigned i = 0; i < PAGES - 1; i++) {
        rg_delivery_drop(&world->delivery, &world->pages[i]);
    }
    struct rg_lease *all = rg_slab_take(world->loop->slabs, rg_slab_size_max(world->loop->slabs));
    struct rg_waiting_page *last = rg_delivery_next(&world->delivery);
    RG_CHECK(!rg_delivery_take(&world->delivery, last, &completion));
    rg_loop_undefer(&world->memory);
    rg_delivery_drop(&world->delivery, last);
    rg_lease_release(all);
    for (unsigned i = 0; i < 4; i++) {
        rg_loop_pass(world->loop, 0);
    }
    RG_CHECK_EQ(world->memory_came, 0);
    world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pages_come_as_they_were_put),
        RG_TEST(test_pages_of_an_ordered_listing_keep_little_memory),
        RG_TEST(test_an_ended_segment_is_left_behind),
        RG_TEST(test_a_page_waits_for_memory),
        RG_TEST(test_pages_that_nobody_takes),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
