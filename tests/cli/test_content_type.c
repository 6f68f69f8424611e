/* Types by names. */
#include "cli/content_type.h"
#include "tests/support/test.h"

static void check_type(const char *name, const char *type)
{
    const char *guessed = content_type_guess(name);
    RG_CHECK_STR(guessed != NULL ? guessed : "(none)", type);
}

static void test_types_by_extension(void)
{
    check_type("a.png", "image/png");
    check_type("folder.d/a.b.JPEG", "image/jpeg");
    check_type("/data/labels.json", "application/json");
    check_type("index.html", "text/html");
    check_type("x.txt", "text/plain");
    check_type("train-000.tar", "application/x-tar");
    check_type("page.webmanifest", "application/manifest+json");
}

/* The first and the last row are found, and so is what lies between: the table is sorted. */
static void test_the_ends_of_the_table(void)
{
    check_type("a.3g2", "audio/3gpp2");
    check_type("a.7z", "application/x-7z-compressed");
    check_type("a.zip", "application/zip");
    check_type("a.zst", "application/zstd");
}

static void test_compressed_files_have_the_type_of_the_compression(void)
{
    check_type("train-000.tar.gz", "application/gzip");
    check_type("a.tgz", "application/gzip");
    check_type("a.json.zst", "application/zstd");
    check_type("a.svg.bz2", "application/x-bzip2");
}

static void test_what_is_not_known_is_not_guessed(void)
{
    static const char *const names[] = {
        "",         "name",
        "model.pt", "a.",
        ".png",     "folder.png/name",
        "png",      "a.a-very-long-extension.of-something-else-than-a-type"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        check_type(names[i], "(none)");
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_types_by_extension),
        RG_TEST(test_the_ends_of_the_table),
        RG_TEST(test_compressed_files_have_the_type_of_the_compression),
        RG_TEST(test_what_is_not_known_is_not_guessed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
