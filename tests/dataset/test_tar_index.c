/* Index files: samples come back by their numbers, shards are taken over as they are, and every
 * damage is noticed. */
#include "dataset/tar_index.h"
#include "runtime/bytes.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <unistd.h>

static const uint64_t counts[] = {0, 70, 0, 0, 1, 64, 129, 0};

static char key[64];

static const char *key_of(uint64_t shard, uint64_t number)
{
    snprintf(key, sizeof(key), "s%" PRIu64 "/%05" PRIu64, shard, number);
    return key;
}

static void shard_add(struct rg_tar_builder *builder, uint64_t number, uint64_t count)
{
    struct rg_tar_section section;
    char name[96];
    RG_CHECK_EQ(rg_tar_section_init(&section), 0);
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%s.txt", key_of(number, i));
        struct rg_tar_member member = {.name = name, .offset = 512 + 1024 * i, .size = i + 1};
        RG_CHECK_EQ(rg_tar_section_add(&section, &member), 0);
    }
    RG_CHECK_EQ(rg_tar_section_end(&section), 0);
    snprintf(name, sizeof(name), "train/%" PRIu64 ".tar", number);
    RG_CHECK_EQ(rg_tar_builder_add(builder, name, 1000 + number, 77 + (int64_t)number, &section),
                0);
    rg_tar_section_fini(&section);
}

static struct rg_tar_index *index_make(void)
{
    struct rg_tar_builder builder;
    struct rg_tar_index *index;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "bucket"), 0);
    for (uint64_t i = 0; i < RG_ARRAY_LEN(counts); i++) {
        shard_add(&builder, i, counts[i]);
    }
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &index), 0);
    rg_tar_builder_fini(&builder);
    return index;
}

static void check_index(const struct rg_tar_index *index)
{
    uint64_t number = 0;
    RG_CHECK_STR(rg_tar_index_bucket(index), "bucket");
    RG_CHECK_EQ(rg_tar_index_shard_count(index), RG_ARRAY_LEN(counts));
    for (uint64_t i = 0; i < RG_ARRAY_LEN(counts); i++) {
        struct rg_tar_shard shard;
        char name[64];
        RG_CHECK_EQ(rg_tar_index_shard(index, i, &shard), 0);
        snprintf(name, sizeof(name), "train/%" PRIu64 ".tar", i);
        RG_CHECK_STR(shard.name, name);
        RG_CHECK_EQ(shard.size, 1000 + i);
        RG_CHECK_EQ(shard.generation, 77 + (int64_t)i);
        RG_CHECK_EQ(shard.first, number);
        RG_CHECK_EQ(shard.count, counts[i]);
        for (uint64_t k = 0; k < counts[i]; k++, number++) {
            struct rg_tar_sample sample;
            struct rg_tar_block block;
            RG_CHECK_EQ(rg_tar_index_get(index, number, &sample), 0);
            RG_CHECK_EQ(sample.shard, i);
            RG_CHECK_STR(sample.key, key_of(i, k));
            RG_CHECK_EQ(sample.offset, 512 + 1024 * k);
            RG_CHECK_EQ(sample.size, k + 1);
            RG_CHECK_EQ(rg_tar_index_block(index, number, &block), 0);
            RG_CHECK_STR(block.name, name);
            RG_CHECK_EQ(block.generation, shard.generation);
            RG_CHECK_EQ(block.begin, number - k % 64);
            RG_CHECK_EQ(block.end, number - k + RG_MIN(k - k % 64 + 64, counts[i]));
        }
    }
    RG_CHECK_EQ(rg_tar_index_count(index), number);
    struct rg_tar_sample sample;
    struct rg_tar_shard shard;
    RG_CHECK_EQ(rg_tar_index_get(index, number, &sample), -ERANGE);
    RG_CHECK_EQ(rg_tar_index_shard(index, RG_ARRAY_LEN(counts), &shard), -ERANGE);
}

static void test_samples_are_found_by_number(void)
{
    struct rg_tar_index *index = index_make();
    check_index(index);
    rg_tar_index_close(index);
    rg_tar_index_close(NULL);
}

static void test_a_file_is_the_index_again(void)
{
    char folder[] = "/tmp/ringest-tar-index-XXXXXX", path[64], error[256];
    RG_CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/index", folder);
    struct rg_tar_index *index = index_make(), *again;
    RG_CHECK_EQ(rg_tar_index_open(&again, path, error, sizeof(error)), -ENOENT);
    RG_CHECK(strstr(error, path) != NULL && strstr(error, "No such file") != NULL);
    for (int i = 0; i < 2; i++) {
        RG_CHECK_EQ(rg_tar_index_save(index, path), 0);
        RG_CHECK_EQ(rg_tar_index_open(&again, path, error, sizeof(error)), 0);
        check_index(again);
        rg_tar_index_close(again);
    }
    RG_CHECK_EQ(unlink(path), 0);
    RG_CHECK_EQ(rmdir(folder), 0); /* nothing else was left there */
    RG_CHECK_EQ(rg_tar_index_save(index, path), -ENOENT);
    rg_tar_index_close(index);
}

static void test_shards_are_taken_over_as_they_are(void)
{
    struct rg_tar_index *index = index_make(), *again;
    struct rg_tar_builder builder;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "bucket"), 0);
    for (uint64_t i = 0; i < RG_ARRAY_LEN(counts); i++) {
        if (i % 3 == 1) {
            shard_add(&builder, i, counts[i]);
        } else {
            RG_CHECK_EQ(rg_tar_builder_take(&builder, index, i), 0);
        }
    }
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &again), 0);
    rg_tar_builder_fini(&builder);
    check_index(again);
    size_t size, size_again;
    const void *data = rg_tar_index_data(index, &size);
    const void *data_again = rg_tar_index_data(again, &size_again);
    RG_CHECK_MEM(data_again, size_again, data, size);
    rg_tar_index_close(again);
    rg_tar_index_close(index);
}

static void test_an_index_of_nothing(void)
{
    struct rg_tar_builder builder;
    struct rg_tar_index *index;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "bucket"), 0);
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &index), 0);
    rg_tar_builder_fini(&builder);
    RG_CHECK_EQ(rg_tar_index_count(index), 0);
    RG_CHECK_EQ(rg_tar_index_shard_count(index), 0);
    rg_tar_index_close(index);
}

static void test_large_indexes_lie_in_memory_that_others_map(void)
{
    struct rg_tar_builder builder;
    struct rg_tar_index *index, *other;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "bucket"), 0);
    for (unsigned shard = 0; shard < 100; shard++) {
        shard_add(&builder, shard, 500);
    }
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &index), 0);
    rg_tar_builder_fini(&builder);
    size_t size, other_size;
    const void *data = rg_tar_index_data(index, &size);
    RG_CHECK(size > RG_BYTES_SHARED_SIZE_MIN && rg_tar_index_fd(index) >= 0);
    RG_CHECK_EQ(rg_tar_index_open_fd(&other, rg_tar_index_fd(index), NULL, 0), 0);
    const void *other_data = rg_tar_index_data(other, &other_size);
    RG_CHECK_MEM(other_data, other_size, data, size);
    uint8_t digest[RG_DIGEST_SIZE], again[RG_DIGEST_SIZE];
    rg_tar_index_digest(index, digest);
    rg_tar_index_close(index);
    rg_tar_index_digest(other, again);
    RG_CHECK_MEM(digest, sizeof(digest), again, sizeof(again));
    rg_tar_index_close(other);
    char error[256] = "";
    RG_CHECK_EQ(rg_tar_index_open_fd(&other, -1, error, sizeof(error)), -EBADF);
    RG_CHECK_STR(error, "Bad file descriptor");
}

static void test_every_damage_is_noticed(void)
{
    struct rg_tar_index *index = index_make(), *broken;
    size_t size;
    const void *data = rg_tar_index_data(index, &size);
    uint8_t *copy = malloc(size);
    char error[256];
    RG_CHECK(copy != NULL);
    memcpy(copy, data, size);
    for (size_t bit = 0; bit < 8 * size; bit += 1 + bit / 512 % 7) {
        copy[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        error[0] = '\0';
        RG_CHECK_EQ(rg_tar_index_open_memory(&broken, copy, size, error, sizeof(error)), -EBADMSG);
        RG_CHECK(strstr(error, "at byte ") == error);
        copy[bit / 8] ^= (uint8_t)(1 << (bit % 8));
    }
    for (size_t cut = 0; cut < size; cut++) {
        RG_CHECK_EQ(rg_tar_index_open_memory(&broken, copy, cut, NULL, 0), -EBADMSG);
    }
    RG_CHECK_EQ(rg_tar_index_open_memory(&broken, copy, size, NULL, 0), 0);
    rg_tar_index_close(broken);
    free(copy);
    rg_tar_index_close(index);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_samples_are_found_by_number),
        RG_TEST(test_a_file_is_the_index_again),
        RG_TEST(test_shards_are_taken_over_as_they_are),
        RG_TEST(test_an_index_of_nothing),
        RG_TEST(test_every_damage_is_noticed),
        RG_TEST(test_large_indexes_lie_in_memory_that_others_map),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
