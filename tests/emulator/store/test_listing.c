/* Pages of a listing against a naive model: sort, filter, collapse. */
#include "emulator/store/bucket_folders.h"
#include "emulator/store/listing.h"
#include "emulator/store/writer.h"
#include "tests/support/test.h"

#include <errno.h>

#define NAMES_MAX 64
#define FOLDERS_MAX 512
#define RESULTS_MAX (2 * NAMES_MAX)
#define NAME_SIZE_MAX 24

struct model_result {
    bool is_prefix;
    char name[NAME_SIZE_MAX];
};

static char names[NAMES_MAX][NAME_SIZE_MAX];
static size_t name_count;
/* Those of a hierarchical bucket, with repetitions. */
static char folders[FOLDERS_MAX][NAME_SIZE_MAX];
static size_t folder_count;

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void random_text(char *out, size_t size_max)
{
    static const char letters[] = "ab//~";
    size_t size = rg_test_random_below(size_max + 1);
    for (size_t i = 0; i < size; i++) {
        out[i] = letters[rg_test_random_below(sizeof(letters) - 1)];
    }
    out[size] = '\0';
}

static void make_hierarchical(struct rg_bucket *bucket)
{
    struct rg_bucket_info info;
    rg_bucket_get_info(bucket, &info);
    info.hierarchical = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket, &info, 0), 0);
}

/* The folders that lead to a name. */
static void note_folders(const char *name)
{
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        RG_CHECK(folder_count < FOLDERS_MAX);
        snprintf(folders[folder_count++], NAME_SIZE_MAX, "%.*s", (int)(slash - name) + 1, name);
    }
}

static void create_random_folders(struct rg_bucket *bucket)
{
    for (size_t i = rg_test_random_below(10); i > 0; i--) {
        char name[NAME_SIZE_MAX] = "";
        struct rg_folder_info info;
        random_text(name, 4);
        strcat(name, "/");
        int rc = rg_bucket_create_folder(bucket, rg_text_slice(name), true, &info);
        RG_CHECK(rc == 0 || rc == -EEXIST);
        note_folders(name);
    }
}

static struct rg_store *random_store(struct rg_bucket **out_bucket)
{
    static const char *const synthetic[] = {"bucket/a/:3:1", "bucket/b:2:1"};
    struct rg_store *store;
    char error[256];
    struct rg_store_options options = {.synthetic = synthetic,
                                       .synthetic_count = rg_test_random_below(3)};
    RG_CHECK_EQ(rg_store_open(&store, &options, error, sizeof(error)), 0);
    name_count = 0;
    for (size_t i = 0; i < 3 && options.synthetic_count > 0; i++) {
        snprintf(names[name_count++], NAME_SIZE_MAX, "a/%08zu", i);
    }
    for (size_t i = 0; i < 2 && options.synthetic_count > 1; i++) {
        snprintf(names[name_count++], NAME_SIZE_MAX, "b%08zu", i);
    }
    int rc = rg_store_create_bucket(store, rg_text_slice("bucket"), out_bucket);
    RG_CHECK(rc == 0 || rc == -EEXIST);
    bool hierarchical = options.synthetic_count == 0 && rg_test_random_below(2) != 0;
    folder_count = 0;
    if (hierarchical) {
        make_hierarchical(*out_bucket);
        create_random_folders(*out_bucket);
    }
    for (size_t i = rg_test_random_below(40); i > 0; i--) {
        char name[NAME_SIZE_MAX] = "";
        struct rg_store_writer *writer;
        struct rg_store_conditions none = {0};
        struct rg_store_object_info info = {0};
        random_text(name, 6);
        if (name[0] == '\0') {
            strcpy(name, "x");
        }
        RG_CHECK_EQ(
            rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice(name), 0),
            0);
        RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
        size_t same = 0;
        while (same < name_count && strcmp(names[same], name) != 0) {
            same++;
        }
        if (same == name_count) {
            strcpy(names[name_count++], name);
        }
    }
    for (size_t i = 0; hierarchical && i < name_count; i++) {
        note_folders(names[i]);
    }
    qsort(names, name_count, NAME_SIZE_MAX, compare_names);
    qsort(folders, folder_count, NAME_SIZE_MAX, compare_names);
    return store;
}

static size_t naive_listing(const char *prefix, const char *delimiter, const char *start,
                            const char *end, bool trailing, bool with_folders,
                            struct model_result *out)
{
    size_t count = 0;
    char last_group[NAME_SIZE_MAX] = "";
    size_t folder_end = with_folders ? folder_count : 0;
    for (size_t i = 0, f = 0; i < name_count || f < folder_end;) {
        bool is_folder = f < folder_end && (i == name_count || strcmp(folders[f], names[i]) < 0);
        const char *name = is_folder ? folders[f++] : names[i++];
        if (strncmp(name, prefix, strlen(prefix)) != 0 || strcmp(name, start) < 0 ||
            (end[0] != '\0' && strcmp(name, end) >= 0)) {
            continue;
        }
        const char *found = delimiter[0] != '\0' ? strstr(name + strlen(prefix), delimiter) : NULL;
        if (!is_folder && (found == NULL || (trailing && found[strlen(delimiter)] == '\0'))) {
            out[count].is_prefix = false;
            strcpy(out[count++].name, name);
        }
        char group[NAME_SIZE_MAX] = "";
        if (found != NULL) {
            memcpy(group, name, (size_t)(found - name) + strlen(delimiter));
            if (strcmp(group, last_group) != 0) {
                out[count].is_prefix = true;
                strcpy(out[count++].name, group);
                strcpy(last_group, group);
            }
        }
    }
    return count;
}

static size_t paged_listing(struct rg_bucket *bucket, struct rg_api_listing_query query,
                            struct model_result *out)
{
    size_t count = 0;
    struct rg_text token = {0};
    struct rg_api_listing listing;
    do {
        query.token = (struct rg_h1_slice){token.data, (uint32_t)token.size};
        RG_CHECK_EQ(rg_api_listing_start(&listing, bucket, &query), 0);
        size_t page = 0;
        int kind;
        while ((kind = rg_api_listing_next(&listing)) > RG_LISTING_END) {
            struct rg_h1_slice name = {listing.entry.name, listing.entry.name_size};
            name = kind == RG_LISTING_PREFIX ? listing.group : name;
            RG_CHECK(count < RESULTS_MAX);
            out[count].is_prefix = kind == RG_LISTING_PREFIX;
            snprintf(out[count].name, NAME_SIZE_MAX, "%.*s", (int)name.size, name.data);
            count++;
            page++;
        }
        RG_CHECK_EQ(kind, RG_LISTING_END);
        RG_CHECK(page <= query.page_max + query.trailing_delimiter);
        RG_CHECK(!listing.more || page >= query.page_max);
        rg_text_fini(&token);
        if (listing.more) {
            rg_api_listing_append_token(&listing, &token);
        }
    } while (listing.more);
    return count;
}

static void test_pages_are_those_of_a_naive_model(void)
{
    static const char *const delimiters[] = {"", "/", "/", "a", "//", "ab"};
    for (int i = 0; i < 3000; i++) {
        struct rg_bucket *bucket;
        struct rg_store *store = random_store(&bucket);
        char prefix[NAME_SIZE_MAX], start[NAME_SIZE_MAX], end[NAME_SIZE_MAX];
        static struct model_result want[RESULTS_MAX], got[RESULTS_MAX];
        random_text(prefix, 2);
        random_text(start, 3);
        random_text(end, rg_test_random_below(2) * 3);
        const char *delimiter = delimiters[rg_test_random_below(RG_ARRAY_LEN(delimiters))];
        struct rg_api_listing_query query = {
            .prefix = rg_text_slice(prefix),
            .delimiter = rg_text_slice(delimiter),
            .start = rg_text_slice(start),
            .end = rg_text_slice(end),
            .page_max = 1 + (uint32_t)rg_test_random_below(8),
            .folders = strcmp(delimiter, "/") == 0 && rg_test_random_below(2) != 0,
            .trailing_delimiter = rg_test_random_below(2) != 0,
        };
        size_t want_count = naive_listing(prefix, delimiter, start, end, query.trailing_delimiter,
                                          query.folders, want);
        size_t got_count = paged_listing(bucket, query, got);
        RG_CHECK_EQ(got_count, want_count);
        for (size_t r = 0; r < want_count; r++) {
            RG_CHECK_STR(got[r].name, want[r].name);
            RG_CHECK_EQ(got[r].is_prefix, want[r].is_prefix);
        }
        rg_store_close(store);
    }
}

static void test_a_marker_that_is_a_prefix_stands_for_all_of_it(void)
{
    static const char *const synthetic[] = {"bucket/a/:3:1", "bucket/b:2:1"};
    struct rg_store *store;
    char error[256];
    struct rg_store_options options = {.synthetic = synthetic, .synthetic_count = 2};
    RG_CHECK_EQ(rg_store_open(&store, &options, error, sizeof(error)), 0);
    struct rg_bucket *bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    struct rg_api_listing_query query = {
        .delimiter = rg_text_slice("/"), .after = rg_text_slice("a/"), .page_max = 10};
    struct rg_api_listing listing;
    RG_CHECK_EQ(rg_api_listing_start(&listing, bucket, &query), 0);
    RG_CHECK_EQ(rg_api_listing_next(&listing), RG_LISTING_OBJECT);
    RG_CHECK_MEM(listing.entry.name, listing.entry.name_size, "b00000000", 9);
    query.delimiter = rg_text_slice("");
    RG_CHECK_EQ(rg_api_listing_start(&listing, bucket, &query), 0);
    RG_CHECK_EQ(rg_api_listing_next(&listing), RG_LISTING_OBJECT);
    RG_CHECK_MEM(listing.entry.name, listing.entry.name_size, "a/00000000", 10);
    rg_store_close(store);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pages_are_those_of_a_naive_model),
        RG_TEST(test_a_marker_that_is_a_prefix_stands_for_all_of_it),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
