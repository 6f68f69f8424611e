/* Listing, verifying and pruning a folder from the outside. */
#include "cache/folder.h"

#include "tests/cache/cache_case.h"

static int entry_count(void *context, const struct rg_cache_entry *entry)
{
    unsigned *count = context;
    (*count)++;
    if (entry->error == 0) {
        RG_CHECK_STR(entry->key.bucket, "bucket");
        RG_CHECK_EQ(entry->object_size, entry->body_size);
    }
    return 0;
}

static int entry_stop(void *context, const struct rg_cache_entry *entry)
{
    (void)context;
    (void)entry;
    return 5;
}

static void fill(struct cache_case *c, unsigned first, unsigned count)
{
    struct rg_cache *cache = cache_case_start(c, RG_MIB(64));
    for (unsigned i = first; i < first + count; i++) {
        RG_CHECK(case_write(c, cache, i, 30000));
    }
    rg_cache_close(cache);
}

static void damage(struct cache_case *c, off_t at)
{
    DIR *dir = opendir(c->folder);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL && entry->d_name[0] == '.') {
    }
    int fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    RG_CHECK_EQ(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    RG_CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    closedir(dir);
}

struct walk {
    unsigned records, damaged;
    uint64_t bytes;
};

/* The walk goes forward, and not beyond its end. */
static int entry_damaged(void *context, const struct rg_cache_entry *entry)
{
    struct walk *walk = context;
    RG_CHECK(entry->bytes_before > walk->bytes && entry->bytes_before < entry->bytes_all);
    walk->bytes = entry->bytes_before;
    walk->records++;
    walk->damaged += entry->error < 0;
    return 0;
}

static void test_list_verify_prune(void)
{
    struct cache_case c;
    struct rg_cache_folder_totals totals;
    unsigned count = 0;
    cache_case_open(&c);
    fill(&c, 0, 20);
    fill(&c, 20, 20);
    RG_CHECK_EQ(rg_cache_list(c.folder, entry_count, &count, &totals), 0);
    RG_CHECK_EQ(count, 40);
    RG_CHECK_EQ(totals.records, 40);
    RG_CHECK_EQ(totals.segments, 2);
    RG_CHECK(totals.size > 40 * 30000 && totals.size < 40 * 31000);
    RG_CHECK_EQ(rg_cache_list(c.folder, entry_stop, NULL, &totals), 5);
    struct walk walk = {0};
    RG_CHECK_EQ(rg_cache_verify(c.folder, false, entry_damaged, &walk, &totals), 0);
    RG_CHECK_EQ(walk.records, 40);
    RG_CHECK_EQ(walk.damaged, 0);
    RG_CHECK(walk.bytes > 39 * 30000 && walk.bytes < totals.size);
    damage(&c, RG_CACHE_HEAD_SIZE + 10000);
    walk = (struct walk){0};
    RG_CHECK_EQ(rg_cache_verify(c.folder, false, entry_damaged, &walk, &totals), 0);
    RG_CHECK_EQ(walk.damaged, 1);
    RG_CHECK_EQ(totals.damaged_records, 1);
    RG_CHECK_EQ(rg_cache_verify(c.folder, true, NULL, NULL, &totals), 0);
    RG_CHECK_EQ(totals.removed_segments, 1);
    RG_CHECK_EQ(rg_cache_prune(c.folder, RG_MIB(1), &totals), 0);
    RG_CHECK_EQ(totals.removed_segments, 0);
    RG_CHECK_EQ(totals.segments, 1);
    RG_CHECK_EQ(rg_cache_prune(c.folder, 0, &totals), 0);
    RG_CHECK_EQ(totals.removed_segments, 1);
    RG_CHECK_EQ(totals.size, 0);
    RG_CHECK_EQ(rg_cache_list(c.share, NULL, NULL, &totals), 0);
    RG_CHECK_EQ(rg_cache_list("/not/there", NULL, NULL, &totals), -ENOENT);
    cache_case_close(&c);
}

/* Whoever writes it has written no more than the beginning of some records yet. */
static void test_what_is_being_written_is_not_damaged(void)
{
    struct cache_case c;
    struct rg_cache_folder_totals totals;
    struct rg_cache_files files = {.count = 0};
    char sealed[RG_CACHE_NAME_SIZE], open_name[RG_CACHE_NAME_SIZE];
    struct walk walk = {0};
    cache_case_open(&c);
    fill(&c, 0, 20);
    damage(&c, RG_CACHE_HEAD_SIZE + 10000);
    int folder = open(c.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    RG_CHECK_EQ(rg_cache_files_list(folder, &files), 0);
    RG_CHECK_EQ(files.count, 1);
    rg_cache_name_write(&files.files[0].nonce, false, sealed);
    rg_cache_name_write(&files.files[0].nonce, true, open_name);
    RG_CHECK_EQ(renameat(folder, sealed, folder, open_name), 0);
    RG_CHECK_EQ(rg_cache_verify(c.folder, true, entry_damaged, &walk, &totals), 0);
    RG_CHECK_EQ(walk.damaged, 0);
    RG_CHECK_EQ(totals.damaged_records, 0);
    RG_CHECK_EQ(totals.records, 19);
    RG_CHECK_EQ(renameat(folder, open_name, folder, sealed), 0);
    RG_CHECK_EQ(rg_cache_verify(c.folder, false, NULL, NULL, &totals), 0);
    RG_CHECK_EQ(totals.damaged_records, 1);
    rg_cache_files_fini(&files);
    close(folder);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_list_verify_prune),
        RG_TEST(test_what_is_being_written_is_not_damaged),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
