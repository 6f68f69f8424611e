/* Many sets in one bucket against a look at each of them: names, order, and who has a name that
 * several have. */
#include "emulator/store/synthetic_sets.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

#include <errno.h>

enum { SETS_MAX = 40, ROUNDS = 60, STEPS = 400 };

static struct rg_synthetic_sets sets;
/* The same, in the order in which they were added. */
static struct rg_synthetic *added[SETS_MAX];
static size_t added_count;

static void add(const char *prefix, uint64_t count, uint64_t size)
{
    char spec[256], error[256];
    struct rg_h1_slice bucket;
    RG_ASSERT(added_count < SETS_MAX);
    snprintf(spec, sizeof(spec), "bucket/%s:%llu:%llu", prefix, (unsigned long long)count,
             (unsigned long long)size);
    struct rg_synthetic **set = &added[added_count++];
    RG_CHECK_EQ(rg_synthetic_create(set, spec, &bucket, error, sizeof(error)), 0);
    RG_CHECK_EQ(rg_synthetic_sets_add(&sets, *set), 0);
}

static void end(void)
{
    rg_synthetic_sets_fini(&sets);
    RG_CHECK_EQ(sets.count, 0);
    added_count = 0;
}

/* Whether the first comes before the second where both have a name: see synthetic_sets.h. */
static bool is_before(struct rg_synthetic *a, struct rg_synthetic *b)
{
    return rg_synthetic_prefix(a).size < rg_synthetic_prefix(b).size;
}

static int wanted_seek(struct rg_h1_slice from, struct rg_store_entry *out)
{
    struct rg_synthetic *best = NULL;
    for (size_t i = 0; i < added_count; i++) {
        static struct rg_store_entry entry;
        if (rg_synthetic_seek(added[i], from, entry.name, &entry.name_size) < 0) {
            continue;
        }
        rg_synthetic_describe(added[i], rg_store_entry_name(&entry), &entry.info);
        int order = best == NULL
                        ? -1
                        : rg_text_compare(rg_store_entry_name(&entry), rg_store_entry_name(out));
        if (order < 0 || (order == 0 && is_before(added[i], best))) {
            *out = entry;
            best = added[i];
        }
    }
    return best != NULL ? 0 : -ENOENT;
}

static int wanted_open(struct rg_h1_slice name, struct rg_store_object *out)
{
    struct rg_synthetic *best = NULL;
    for (size_t i = 0; i < added_count; i++) {
        struct rg_store_object object;
        if (rg_synthetic_open(added[i], name, &object) == 0 &&
            (best == NULL || is_before(added[i], best))) {
            *out = object;
            best = added[i];
        }
    }
    return best != NULL ? 0 : -ENOENT;
}

static void check_seek(struct rg_h1_slice from, struct rg_store_entry *entry)
{
    static struct rg_store_entry wanted;
    int rc = rg_synthetic_sets_seek(&sets, from, entry);
    RG_CHECK_EQ(rc, wanted_seek(from, &wanted));
    if (rc == 0) {
        RG_CHECK_EQ(rg_text_compare(rg_store_entry_name(entry), rg_store_entry_name(&wanted)), 0);
        RG_CHECK_EQ(entry->info.size, wanted.info.size);
        RG_CHECK_EQ(entry->info.crc32c, wanted.info.crc32c);
    }
}

static void check_open(struct rg_h1_slice name)
{
    struct rg_store_object object, wanted;
    int rc = rg_synthetic_sets_open(&sets, name, &object);
    RG_CHECK_EQ(rc, wanted_open(name, &wanted));
    if (rc == 0) {
        RG_CHECK_EQ(object.info.size, wanted.info.size);
    }
}

/* Of few letters, so that prefixes are the beginnings of others, and digits are part of them. */
static uint32_t random_text(char *text, uint32_t most)
{
    static const char letters[] = "0019a/";
    uint32_t size = (uint32_t)rg_test_random_below(most + 1);
    for (uint32_t i = 0; i < size; i++) {
        text[i] = letters[rg_test_random_below(sizeof(letters) - 1)];
    }
    text[size] = '\0';
    return size;
}

static void test_no_sets_have_nothing(void)
{
    static struct rg_store_entry entry;
    check_seek(rg_text_slice(""), &entry);
    check_open(rg_text_slice("a"));
    RG_CHECK_EQ(rg_synthetic_sets_hide(&sets, rg_text_slice("a")), -ENOENT);
    end();
}

static void test_a_name_that_several_have_is_of_the_shortest_prefix(void)
{
    struct rg_store_object object;
    add("x0", 10, 7);        /* x000000000 */
    add("x", 1000000000, 5); /* x000000000 */
    add("x", 1000000000, 6); /* the same, and added later */
    RG_CHECK_EQ(rg_synthetic_sets_open(&sets, rg_text_slice("x000000000"), &object), 0);
    RG_CHECK_EQ(object.info.size, 5);
    RG_CHECK_EQ(rg_synthetic_sets_hide(&sets, rg_text_slice("x000000000")), 0);
    RG_CHECK_EQ(rg_synthetic_sets_open(&sets, rg_text_slice("x000000000"), &object), -ENOENT);
    end();
}

static void test_random_sets_are_found_as_by_a_look_at_each(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        char text[32];
        size_t count = 1 + rg_test_random_below(SETS_MAX);
        for (size_t i = 0; i < count; i++) {
            random_text(text, 4);
            text[0] = text[0] == '/' ? 'b' : text[0];
            add(text, 1 + rg_test_random_below(5), i);
        }
        static struct rg_store_entry entry;
        char from[RG_STORE_NAME_SIZE_MAX + 1];
        uint32_t from_size = 0;
        for (int step = 0; step < STEPS; step++) {
            check_seek((struct rg_h1_slice){from, from_size}, &entry);
            struct rg_h1_slice name = rg_store_entry_name(&entry);
            check_open(name);
            if (rg_test_random_below(8) == 0) {
                (void)rg_synthetic_sets_hide(&sets, name);
                check_open(name);
            }
            memcpy(from, name.data, name.size);
            from[name.size] = '\0';
            from_size = name.size + 1;
            if (rg_test_random_below(4) == 0) {
                from_size = random_text(from, 14);
            }
        }
        end();
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_no_sets_have_nothing),
        RG_TEST(test_a_name_that_several_have_is_of_the_shortest_prefix),
        RG_TEST(test_random_sets_are_found_as_by_a_look_at_each),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
