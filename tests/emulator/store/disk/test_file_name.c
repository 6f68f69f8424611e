/* Object names as paths: there and back, nothing collides, nothing escapes. */
#include "emulator/store/disk/file_name.h"
#include "emulator/wire/text.h"
#include "tests/support/test.h"

static void check_round_trip(struct rg_h1_slice name)
{
    char path[RG_FILE_PATH_MAX], back[RG_STORE_NAME_SIZE_MAX];
    size_t size = rg_file_name_encode(name, path);
    RG_CHECK_EQ(strlen(path), size);
    int back_size = rg_file_name_decode(path, back);
    RG_CHECK(back_size > 0);
    RG_CHECK_MEM(back, (size_t)back_size, name.data, name.size);
    strcat(path, RG_FILE_NAME_ASIDE);
    RG_CHECK_EQ(rg_file_name_decode(path, back), back_size);
}

/* No component that means something to the kernel, or that it would refuse. */
static void check_path_is_safe(struct rg_h1_slice name)
{
    char path[RG_FILE_PATH_MAX];
    rg_file_name_encode(name, path);
    RG_CHECK(path[0] != '/');
    RG_CHECK(strcmp(path, ".ringest") != 0 && strncmp(path, ".ringest/", 9) != 0);
    for (const char *at = path; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        size_t size = strcspn(at, "/");
        RG_CHECK(size > 0 && size <= 255 - strlen(RG_FILE_NAME_ASIDE));
        RG_CHECK(!(size == 1 && at[0] == '.'));
        RG_CHECK(!(size == 2 && at[0] == '.' && at[1] == '.'));
    }
}

static void test_names_become_the_paths_a_user_expects(void)
{
    static const struct {
        const char *name, *path;
    } rows[] = {
        {"a", "a"},
        {"dir/sub/file name.txt", "dir/sub/file name.txt"},
        {"grün/中", "grün/中"},
        {".hidden", ".hidden"},
        {"100%", "100%25"},
        {"a/", "a/%-"},
        {"/a", "%-/a"},
        {"a//b", "a/%-/b"},
        {"/", "%-/%-"},
        {"../x", "%2E./x"},
        {"a/./b", "a/%2E/b"},
        {"...", "..."},
        {".ringest/x", "%2Eringest/x"},
        {".ringest", "%2Eringest"},
        {".ringestx", "%2Eringestx"},
        {"a/.ringest", "a/.ringest"},
        {"tab\there", "tab%09here"},
        {"%-", "%25-"},
        {"a%+", "a%25+"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char path[RG_FILE_PATH_MAX];
        rg_file_name_encode(rg_text_slice(rows[i].name), path);
        RG_CHECK_STR(path, rows[i].path);
        check_round_trip(rg_text_slice(rows[i].name));
        check_path_is_safe(rg_text_slice(rows[i].name));
    }
    struct rg_h1_slice with_nul = {"a\0b", 3};
    check_round_trip(with_nul);
}

static void test_long_components_are_split(void)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    for (uint32_t size = 190; size <= RG_STORE_NAME_SIZE_MAX; size++) {
        memset(name, 'x', size);
        check_round_trip((struct rg_h1_slice){name, size});
        check_path_is_safe((struct rg_h1_slice){name, size});
        memset(name + RG_MIN(size, 200u), '.', size - RG_MIN(size, 200u));
        check_round_trip((struct rg_h1_slice){name, size});
        check_path_is_safe((struct rg_h1_slice){name, size});
    }
}

static void test_the_longest_paths_fit(void)
{
    static const char bytes[] = "/%\x01.";
    char name[RG_STORE_NAME_SIZE_MAX];
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        memset(name, bytes[i], sizeof(name));
        check_round_trip((struct rg_h1_slice){name, sizeof(name)});
        check_path_is_safe((struct rg_h1_slice){name, sizeof(name)});
    }
}

/* From an alphabet of what is dangerous. */
static uint32_t random_name(char *name)
{
    static const char *const parts[] = {".",
                                        "..",
                                        "/",
                                        "%",
                                        "%2E",
                                        "%-",
                                        "%_",
                                        "%+",
                                        "a",
                                        "é",
                                        "\x01",
                                        ".ringest",
                                        "\xf0\x9f\x98\x80"};
    uint32_t size = 0;
    uint32_t wanted = 1 + (uint32_t)rg_test_random_below(rg_test_random_below(4) == 0 ? 1000 : 8);
    do {
        const char *part = parts[rg_test_random_below(RG_ARRAY_LEN(parts))];
        memcpy(name + size, part, strlen(part));
        size += (uint32_t)strlen(part);
    } while (size < wanted);
    return size;
}

static void test_random_names_round_trip(void)
{
    for (int i = 0; i < 20000; i++) {
        char name[RG_STORE_NAME_SIZE_MAX];
        struct rg_h1_slice slice = {name, random_name(name)};
        if (rg_store_object_name_valid(slice)) {
            check_round_trip(slice);
            check_path_is_safe(slice);
        }
    }
}

static void test_paths_that_hold_no_object(void)
{
    static const char *const paths[] = {
        "100%", "a%2f", "%41", "a/%2Eb", "a%-", "a%_/b", "%",   "a%_",
        "\xff", "a//b", "./a", "a/",     "%+",  "a%",    "%zz", "a\nb",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(paths); i++) {
        char name[RG_STORE_NAME_SIZE_MAX];
        if (rg_file_name_decode(paths[i], name) != -EINVAL) {
            rg_test_fail(__FILE__, __LINE__, "'%s' is taken for an object", paths[i]);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_names_become_the_paths_a_user_expects),
        RG_TEST(test_long_components_are_split),
        RG_TEST(test_the_longest_paths_fit),
        RG_TEST(test_random_names_round_trip),
        RG_TEST(test_paths_that_hold_no_object),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
