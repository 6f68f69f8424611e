/* Keys: which can be cached, and that unlike keys have unlike hashes. */
#include "cache/key.h"

#include "tests/support/test.h"

static const struct rg_cache_key plain = {"host", "bucket", "object", 5, 0};

static uint64_t hash_of(const struct rg_cache_key *key)
{
    struct rg_cache_key_sizes sizes;
    RG_CHECK(rg_cache_key_measure(key, &sizes));
    return rg_cache_key_hash(key, &sizes);
}

static void test_every_part_counts(void)
{
    struct rg_cache_key keys[] = {
        plain,
        {"host2", "bucket", "object", 5, 0},
        {"host", "bucket2", "object", 5, 0},
        {"host", "bucket", "object2", 5, 0},
        {"host", "bucket", "object", 6, 0},
        {"host", "bucket", "object", 5, 1},
        /* The same letters, divided in another way. */
        {"hostb", "ucket", "object", 5, 0},
        {"host", "bucketo", "bject", 5, 0},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(keys); i++) {
        for (size_t j = 0; j < i; j++) {
            RG_CHECK(hash_of(&keys[i]) != hash_of(&keys[j]));
        }
    }
    /* Other hosts and other runs find what this one wrote. */
    RG_CHECK_EQ(hash_of(&plain), hash_of(&(struct rg_cache_key){"host", "bucket", "object", 5, 0}));
}

static void test_the_limits_of_texts(void)
{
    char text[RG_CACHE_OBJECT_SIZE_MAX + 2];
    struct rg_cache_key_sizes sizes = {1, 2, 3};
    struct rg_cache_key key = plain;
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    key.object = text;
    RG_CHECK(!rg_cache_key_measure(&key, &sizes));
    RG_CHECK_EQ(sizes.object, 3);
    key.object = text + 1;
    RG_CHECK(rg_cache_key_measure(&key, &sizes));
    RG_CHECK_EQ(sizes.object, RG_CACHE_OBJECT_SIZE_MAX);
    RG_CHECK(hash_of(&key) != hash_of(&plain));
    key.object = "";
    RG_CHECK(!rg_cache_key_measure(&key, &sizes));
    key = plain;
    key.generation = 0;
    RG_CHECK(!rg_cache_key_measure(&key, &sizes));
    key.generation = -1;
    RG_CHECK(!rg_cache_key_measure(&key, &sizes));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_part_counts),
        RG_TEST(test_the_limits_of_texts),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
