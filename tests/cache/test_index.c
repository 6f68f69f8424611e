/* The index: what is put in is found, whatever is torn is not, and it grows in bounds. */
#include "cache/index.h"

#include "tests/cache/cache_case.h"

static struct rg_cache_index *index_get(struct cache_case *c)
{
    struct rg_cache_index *index = NULL;
    if (rg_cache_index_open(&index, c->share, 1, c->why, sizeof(c->why)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->why);
    }
    return index;
}

static struct rg_cache_content content_of(uint64_t i)
{
    uint64_t hash = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 31) * UINT64_C(0xbf58476d1ce4e5b9) | 1;
    return (struct rg_cache_content){hash, 64 + (uint32_t)(i % 1000000), 5000};
}

static uint64_t count_found(struct rg_cache_index *index, uint64_t from, uint64_t to)
{
    uint64_t found_count = 0;
    for (uint64_t i = from; i < to; i++) {
        struct rg_cache_found found;
        struct rg_cache_content content = content_of(i);
        if (rg_cache_index_find(index, content.hash, &found)) {
            RG_CHECK_EQ(found.place, content.place);
            RG_CHECK_EQ(found.size, 79);
            found_count++;
        }
    }
    return found_count;
}

static void fill(struct rg_cache_index *index, uint32_t number, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct rg_cache_content content = content_of(i);
        rg_cache_index_insert(index, number, &content);
        rg_cache_index_grow(index);
    }
}

static void test_two_openings_see_the_same(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}};
    cache_case_open(&c);
    struct rg_cache_index *one = index_get(&c), *two = index_get(&c);
    uint32_t number = rg_cache_index_number(one, &nonce);
    RG_CHECK_EQ(number, 1);
    RG_CHECK_EQ(rg_cache_index_number(two, &nonce), number);
    fill(one, number, 0, 1000);
    RG_CHECK_EQ(count_found(one, 0, 1000), 1000);
    RG_CHECK_EQ(count_found(two, 0, 1000), 1000);
    RG_CHECK_EQ(count_found(two, 1000, 9000), 0);
    rg_cache_index_forget(two, content_of(5).hash);
    RG_CHECK_EQ(count_found(one, 0, 10), 9);
    RG_CHECK_EQ(rg_cache_index_tick(one, 100), 100);
    RG_CHECK_EQ(rg_cache_index_tick(two, 11), 111);
    rg_cache_index_close(one);
    rg_cache_index_close(two);
    cache_case_close(&c);
}

static void test_a_number_that_is_another_segments_now(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}}, next = {{2}};
    cache_case_open(&c);
    struct rg_cache_index *one = index_get(&c), *two = index_get(&c);
    uint32_t number = rg_cache_index_number(one, &nonce);
    fill(one, number, 0, 2000);
    RG_CHECK(!rg_cache_index_refresh(two));
    rg_cache_index_drop(one, number);
    RG_CHECK_EQ(count_found(one, 0, 2000), 0);
    RG_CHECK_EQ(rg_cache_index_number(one, &next), number);
    /* One slot in 2,048 has the right check by chance. */
    uint64_t stale = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        struct rg_cache_found found;
        stale += rg_cache_index_find(one, content_of(i).hash, &found);
    }
    RG_CHECK(stale < 20);
    /* The other opening has not looked since, and asks the table. */
    fill(one, number, 3000, 3100);
    RG_CHECK_EQ(count_found(two, 3000, 3100), 100);
    rg_cache_index_close(one);
    rg_cache_index_close(two);
    cache_case_close(&c);
}

/* Another process has dropped the segment and given its number on since these looked: what they say
 * of it, or of its end, is not said of the one that has the number now. */
static void test_what_is_said_of_a_segment_is_not_said_of_the_next(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}}, next = {{2}};
    cache_case_open(&c);
    struct rg_cache_index *one = index_get(&c), *late[3];
    uint32_t number = rg_cache_index_number(one, &nonce);
    for (unsigned i = 0; i < RG_ARRAY_LEN(late); i++) {
        late[i] = index_get(&c);
        RG_CHECK_EQ(rg_cache_index_number(late[i], &nonce), number);
    }
    rg_cache_index_drop(one, number);
    RG_CHECK_EQ(rg_cache_index_number(one, &next), number);
    fill(one, number, 0, 100);
    rg_cache_index_set_use(late[0], number, 1000);
    rg_cache_index_set_listed(late[1], number, &nonce);
    rg_cache_index_drop(late[2], number);
    RG_CHECK(!rg_cache_index_refresh(one));
    const struct rg_cache_numbered *numbered = rg_cache_index_at(one, number);
    RG_CHECK_EQ(numbered->nonce.bytes[0], next.bytes[0]);
    RG_CHECK_EQ(numbered->state, RG_CACHE_SEGMENT_NUMBERED);
    RG_CHECK_EQ(numbered->last_use, 0);
    for (unsigned i = 0; i < RG_ARRAY_LEN(late); i++) {
        RG_CHECK_EQ(rg_cache_index_at(late[i], number)->nonce.bytes[0], next.bytes[0]);
        RG_CHECK_EQ(count_found(late[i], 0, 100), 100);
        rg_cache_index_close(late[i]);
    }
    rg_cache_index_close(one);
    cache_case_close(&c);
}

/* Another opening of the file of the only index there. */
static struct rg_cache_index_file file_get(struct cache_case *c)
{
    struct rg_cache_index_file file = {.share = c->share, .fd = -1};
    DIR *dir = opendir(c->share);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && entry->d_name[0] == '.') {
    }
    snprintf(file.path, sizeof(file.path), "%s/%.100s", c->share, entry->d_name);
    closedir(dir);
    RG_CHECK_EQ(rg_cache_index_file_open(&file, 1, c->why, sizeof(c->why)), 0);
    return file;
}

static void test_torn_slots_are_none(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}};
    cache_case_open(&c);
    struct rg_cache_index *index = index_get(&c);
    uint32_t number = rg_cache_index_number(index, &nonce);
    fill(index, number, 0, 4000);
    struct rg_cache_index_file file = file_get(&c);
    uint64_t words = 2 * file.memory.lines * RG_CACHE_LINE_SLOTS;
    for (unsigned i = 0; i < 3000; i++) {
        _Atomic uint64_t *word = &file.memory.slots[0].hash + rg_test_random_below(words);
        uint64_t mask = UINT64_C(255) << 8 * rg_test_random_below(8);
        atomic_store(word, (atomic_load(word) & ~mask) | (rg_test_random() & mask));
    }
    rg_cache_index_file_close(&file);
    /* Whatever is found now is only a hint, but most of it is right. */
    uint64_t right = 0, wrong = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        struct rg_cache_found found;
        struct rg_cache_content content = content_of(i);
        if (rg_cache_index_find(index, content.hash, &found)) {
            right += found.place == content.place;
            wrong += found.place != content.place;
        }
    }
    RG_CHECK(right > 2000 && wrong < 10);
    rg_cache_index_close(index);
    cache_case_close(&c);
}

/* At most 24 bytes for each record, and hardly any is lost; others notice that it is another. */
static void test_it_grows(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}};
    uint64_t count = getenv("RINGEST_CACHE_RECORDS") != NULL
                         ? strtoull(getenv("RINGEST_CACHE_RECORDS"), NULL, 10)
                         : 200000;
    cache_case_open(&c);
    struct rg_cache_index *index = index_get(&c), *other = index_get(&c);
    uint32_t number = rg_cache_index_number(index, &nonce);
    fill(index, number, 0, count);
    uint64_t objects, bytes, found = count_found(index, 0, count);
    rg_cache_index_measure(index, &objects, &bytes);
    printf("%llu records, %llu found, %.1f bytes each, the table of segments beside\n",
           (unsigned long long)count, (unsigned long long)found,
           (double)(bytes - rg_cache_index_file_size()) / (double)count);
    RG_CHECK(found * 1000 >= count * 995);
    RG_CHECK(bytes - rg_cache_index_file_size() <= 24 * count);
    struct rg_cache_index_file file = file_get(&c);
    struct stat status;
    RG_CHECK_EQ(fstat(file.fd, &status), 0);
    RG_CHECK_EQ(status.st_size, rg_cache_index_file_size());
    RG_CHECK(status.st_blocks * 512 <= 16 * 4096);
    rg_cache_index_file_close(&file);
    RG_CHECK(objects * 100 >= count * 95 && objects * 100 <= count * 105);
    RG_CHECK(rg_cache_index_refresh(other));
    RG_CHECK_EQ(count_found(other, 0, 1000), count_found(index, 0, 1000));
    rg_cache_index_close(index);
    rg_cache_index_close(other);
    cache_case_close(&c);
}

static void test_an_index_that_is_removed_is_made_again(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}};
    cache_case_open(&c);
    struct rg_cache_index *index = index_get(&c);
    fill(index, rg_cache_index_number(index, &nonce), 0, 100);
    folder_empty(c.share);
    RG_CHECK(rg_cache_index_refresh(index));
    RG_CHECK_EQ(count_found(index, 0, 100), 0);
    RG_CHECK(!rg_cache_index_refresh(index));
    rg_cache_index_close(index);
    cache_case_close(&c);
}

/* As happens when the memory is removed by hand, or with the user's last session. */
static void test_an_index_whose_memory_is_removed_is_made_again(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}};
    cache_case_open(&c);
    struct rg_cache_index *one = index_get(&c);
    fill(one, rg_cache_index_number(one, &nonce), 0, 100);
    struct rg_cache_index_file file = file_get(&c);
    rg_cache_index_memory_remove(file.memory.id, &file.memory.nonce);
    rg_cache_index_file_close(&file);
    RG_CHECK_EQ(count_found(one, 0, 100), 100);
    RG_CHECK(!rg_cache_index_refresh(one));
    rg_cache_index_close(one);
    struct rg_cache_index *two = index_get(&c), *three = index_get(&c);
    RG_CHECK_EQ(count_found(two, 0, 100), 0);
    fill(two, rg_cache_index_number(two, &nonce), 0, 100);
    RG_CHECK_EQ(count_found(three, 0, 100), 100);
    rg_cache_index_close(two);
    rg_cache_index_close(three);
    cache_case_close(&c);
}

/* What lies behind it in its line is found all the same, and its place is taken by another. */
static void test_what_is_forgotten_hides_nothing(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}};
    cache_case_open(&c);
    struct rg_cache_index *index = index_get(&c);
    uint32_t number = rg_cache_index_number(index, &nonce);
    /* All of them begin at the same slot of the same line. */
    for (uint64_t i = 1; i <= RG_CACHE_LINE_SLOTS; i++) {
        struct rg_cache_content content = {i * RG_CACHE_LINE_SLOTS, (uint32_t)i, 5000};
        rg_cache_index_insert(index, number, &content);
    }
    struct rg_cache_found found;
    for (uint64_t i = 1; i <= RG_CACHE_LINE_SLOTS; i++) {
        RG_CHECK(rg_cache_index_find(index, i * RG_CACHE_LINE_SLOTS, &found));
        RG_CHECK_EQ(found.place, i);
        if (i % 2 == 0) {
            rg_cache_index_forget(index, i * RG_CACHE_LINE_SLOTS);
        }
    }
    for (uint64_t i = 1; i <= RG_CACHE_LINE_SLOTS; i++) {
        RG_CHECK_EQ(rg_cache_index_find(index, i * RG_CACHE_LINE_SLOTS, &found), i % 2 == 1);
    }
    struct rg_cache_content more = {1000 * RG_CACHE_LINE_SLOTS, 1000, 5000};
    rg_cache_index_insert(index, number, &more);
    RG_CHECK(rg_cache_index_find(index, more.hash, &found));
    for (uint64_t i = 1; i <= RG_CACHE_LINE_SLOTS; i += 2) {
        RG_CHECK(rg_cache_index_find(index, i * RG_CACHE_LINE_SLOTS, &found));
    }
    rg_cache_index_close(index);
    cache_case_close(&c);
}

/* A line that is full of segments that are gone takes what comes; what another process has numbered
 * meanwhile is not taken for one of these. */
static void test_places_of_segments_that_are_gone(void)
{
    struct cache_case c;
    struct rg_cache_nonce nonce = {{1}}, next = {{2}}, others = {{3}};
    cache_case_open(&c);
    struct rg_cache_index *one = index_get(&c), *two = index_get(&c);
    uint32_t gone = rg_cache_index_number(one, &nonce), own = rg_cache_index_number(one, &next);
    uint32_t number = rg_cache_index_number(two, &others);
    for (uint64_t i = 1; i <= RG_CACHE_LINE_SLOTS; i++) {
        struct rg_cache_content content = {i * RG_CACHE_LINE_SLOTS, (uint32_t)i, 5000};
        bool is_last = i == RG_CACHE_LINE_SLOTS;
        uint32_t of = i == 1 ? number : is_last ? own : gone;
        rg_cache_index_insert(i == 1 ? two : one, of, &content);
    }
    rg_cache_index_drop(one, gone);
    struct rg_cache_content more = {1000 * RG_CACHE_LINE_SLOTS, 1000, 5000};
    rg_cache_index_insert(one, own, &more);
    struct rg_cache_found found;
    RG_CHECK(rg_cache_index_find(one, more.hash, &found));
    RG_CHECK(rg_cache_index_find(one, 1 * RG_CACHE_LINE_SLOTS, &found));
    RG_CHECK_EQ(found.number, number);
    RG_CHECK(rg_cache_index_find(one, RG_CACHE_LINE_SLOTS * RG_CACHE_LINE_SLOTS, &found));
    RG_CHECK(!rg_cache_index_find(one, 2 * RG_CACHE_LINE_SLOTS, &found));
    rg_cache_index_close(one);
    rg_cache_index_close(two);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_two_openings_see_the_same),
        RG_TEST(test_a_number_that_is_another_segments_now),
        RG_TEST(test_what_is_said_of_a_segment_is_not_said_of_the_next),
        RG_TEST(test_torn_slots_are_none),
        RG_TEST(test_it_grows),
        RG_TEST(test_an_index_that_is_removed_is_made_again),
        RG_TEST(test_an_index_whose_memory_is_removed_is_made_again),
        RG_TEST(test_what_is_forgotten_hides_nothing),
        RG_TEST(test_places_of_segments_that_are_gone),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
