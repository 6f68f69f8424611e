/* Names: percent-encoding against vectors written out by hand and against a plain reference, and
 * what the service refuses. */
#include "gcs/wire/names.h"

#include "tests/support/test.h"

static int encode(const char *name, size_t size, char *out, size_t capacity)
{
    return rg_name_encode(name, size, out, capacity);
}

static void test_vectors(void)
{
    static const struct {
        const char *name, *encoded;
    } vectors[] = {
        {"", ""},
        {"a", "a"},
        {"object.txt", "object.txt"},
        {"ABCXYZabcxyz0189-._~", "ABCXYZabcxyz0189-._~"},
        {"/", "%2F"},
        {"a/b/c.jpg", "a%2Fb%2Fc.jpg"},
        {"//", "%2F%2F"},
        {"a//b", "a%2F%2Fb"},
        {"/leading", "%2Fleading"},
        {"trailing/", "trailing%2F"},
        {"..", ".."},
        {"../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"},
        {"a/./b", "a%2F.%2Fb"},
        {"%2F", "%252F"},
        {"100%", "100%25"},
        {"%", "%25"},
        {"%%", "%25%25"},
        {"a+b", "a%2Bb"},
        {"a b", "a%20b"},
        {" ", "%20"},
        {"a&b=c", "a%26b%3Dc"},
        {"a?b#c", "a%3Fb%23c"},
        {"x;y,z:w", "x%3By%2Cz%3Aw"},
        {"me@host", "me%40host"},
        {"[1]", "%5B1%5D"},
        {"!$'()*", "%21%24%27%28%29%2A"},
        {"\"<>\\^`{|}", "%22%3C%3E%5C%5E%60%7B%7C%7D"},
        {"\t", "%09"},
        {"\n", "%0A"},
        {"\x01\x1f\x7f", "%01%1F%7F"},
        {"\xc3\xa9t\xc3\xa9", "%C3%A9t%C3%A9"},
        {"\xe2\x82\xac", "%E2%82%AC"},
        {"\xe6\x97\xa5\xe6\x9c\xac", "%E6%97%A5%E6%9C%AC"},
        {"\xf0\x9f\x98\x80.png", "%F0%9F%98%80.png"},
        {"\xff\xfe", "%FF%FE"},
        {"train/00000001.tfrecord", "train%2F00000001.tfrecord"},
        {"shard-00001-of-00100", "shard-00001-of-00100"},
        {"CiAKGjBpNDd2Nmp2Zml2cXRwYjBpOXA=", "CiAKGjBpNDd2Nmp2Zml2cXRwYjBpOXA%3D"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(vectors); i++) {
        char out[256];
        int size = encode(vectors[i].name, strlen(vectors[i].name), out, sizeof(out));
        RG_CHECK(size >= 0);
        RG_CHECK_MEM(out, (size_t)size, vectors[i].encoded, strlen(vectors[i].encoded));
    }
}

static void test_every_byte_alone(void)
{
    for (int byte = 0; byte < 256; byte++) {
        char name = (char)byte, out[8], want[8];
        bool plain = (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
                     (byte >= '0' && byte <= '9') || (byte != 0 && strchr("-._~", byte) != NULL);
        snprintf(want, sizeof(want), plain ? "%c" : "%%%02X", byte);
        int size = encode(&name, 1, out, sizeof(out));
        RG_CHECK_MEM(out, (size_t)size, want, plain ? 1 : 3);
    }
}

/* Whatever room there is, either all is written or -ENOSPC is returned, and nothing beyond. */
static void test_every_capacity(void)
{
    for (int round = 0; round < 2000; round++) {
        char name[24], whole[sizeof(name) * 3];
        size_t name_size = rg_test_random_below(sizeof(name) + 1);
        for (size_t i = 0; i < name_size; i++) {
            name[i] = (char)(rg_test_random_below(2) ? 'x' : rg_test_random_below(256));
        }
        int size = encode(name, name_size, whole, sizeof(whole));
        RG_CHECK(size >= (int)name_size);
        for (size_t capacity = 0; capacity <= sizeof(whole); capacity++) {
            char *out = malloc(capacity + 1);
            RG_CHECK(out != NULL);
            out[capacity] = '#';
            int got = encode(name, name_size, out, capacity);
            RG_CHECK_EQ(got, (int)capacity < size ? -ENOSPC : size);
            RG_CHECK(got < 0 || memcmp(out, whole, (size_t)size) == 0);
            RG_CHECK_EQ(out[capacity], '#');
            free(out);
        }
    }
}

static const char *object_problem(const char *name, size_t size)
{
    const char *problem = NULL;
    int status = rg_object_name_check(name, size, &problem);
    RG_CHECK_EQ(status, problem == NULL ? 0 : -EINVAL);
    return problem;
}

static const char *bucket_problem(const char *name)
{
    const char *problem = NULL;
    int status = rg_bucket_name_check(name, strlen(name), &problem);
    RG_CHECK_EQ(status, problem == NULL ? 0 : -EINVAL);
    return problem;
}

static void test_object_names_that_the_service_takes(void)
{
    static const char *const names[] = {
        "a",
        "...",
        ".a",
        "..a",
        "/",
        "//",
        "../x",
        "a/../b",
        "a b\tc",
        "#[]*?",
        ".well-known/acme-challenge",
        "x/.well-known/acme-challenge/",
        "\xc3\xa9",
        "12345678\xe2\x82\xac",
        "\xf4\x8f\xbf\xbf",
        "\x01\x7f",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        RG_CHECK(object_problem(names[i], strlen(names[i])) == NULL);
    }
    char longest[RG_OBJECT_NAME_SIZE_MAX];
    memset(longest, 'x', sizeof(longest));
    RG_CHECK(object_problem(longest, sizeof(longest)) == NULL);
}

static void test_object_names_that_the_service_refuses(void)
{
    static const struct {
        const char *name, *problem;
    } names[] = {
        {"", "is empty"},
        {".", "is \".\" or \"..\""},
        {"..", "is \".\" or \"..\""},
        {"a\rb", "contains a carriage return or line feed"},
        {"\n", "contains a carriage return or line feed"},
        {"0123456789abcdef\n", "contains a carriage return or line feed"},
        {"01234\n6789abcdef", "contains a carriage return or line feed"},
        {"\xff", "is not valid UTF-8"},
        {"01234567\x80", "is not valid UTF-8"},
        {"0123456\xc3", "is not valid UTF-8"},
        {"\xed\xa0\x80", "is not valid UTF-8"},
        {"\xc0\xaf", "is not valid UTF-8"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        RG_CHECK_STR(object_problem(names[i].name, strlen(names[i].name)), names[i].problem);
    }
    char too_long[RG_OBJECT_NAME_SIZE_MAX + 1];
    memset(too_long, 'x', sizeof(too_long));
    RG_CHECK_STR(object_problem(too_long, sizeof(too_long)), "is longer than 1024 bytes");
    RG_CHECK_STR(object_problem("a\0b", 3), "contains a NUL character");
    RG_CHECK(object_problem(".well-known/acme-challenge/x", 28) != NULL);
    RG_CHECK(object_problem(".well-known/acme-challenge/", 27) != NULL);
}

/* A character that is wrong is found wherever it stands, in whole words or behind them. */
static void test_wrong_characters_are_found_at_every_place(void)
{
    static const char wrong[] = {'\r', '\n', '\0', '\x80', '\xff'};
    for (size_t size = 1; size <= 40; size++) {
        for (size_t at = 0; at < size; at++) {
            char name[40];
            memset(name, 'a', sizeof(name));
            RG_CHECK(object_problem(name, size) == NULL);
            name[at] = wrong[rg_test_random_below(sizeof(wrong))];
            RG_CHECK(object_problem(name, size) != NULL);
        }
    }
}

static void test_buckets(void)
{
    static const char *const right[] = {
        "abc",
        "a-b",
        "a_b",
        "0-9",
        "my.bucket.example.com",
        "a--b",
        "x1y2z3",
        "b12345678901234567890123456789012345678901234567890123456789012",
    };
    static const char *const wrong[] = {
        "",
        "a",
        "ab",
        "Abc",
        "a bc",
        "abc/",
        "-abc",
        "abc-",
        "_abc",
        ".abc",
        "abc.",
        "a..b",
        "a%b",
        "a:b",
        "a\nb",
        "caf\xc3\xa9",
        "b123456789012345678901234567890123456789012345678901234567890123",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(right); i++) {
        RG_CHECK(bucket_problem(right[i]) == NULL);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        RG_CHECK(bucket_problem(wrong[i]) != NULL);
    }
    char name[RG_BUCKET_NAME_SIZE_MAX + 2];
    memset(name, 'a', sizeof(name));
    for (size_t i = 50; i < sizeof(name) - 4; i += 50) {
        name[i] = '.';
    }
    name[RG_BUCKET_NAME_SIZE_MAX + 1] = '\0';
    RG_CHECK_STR(bucket_problem(name), "is longer than 222 characters");
    name[RG_BUCKET_NAME_SIZE_MAX] = '\0';
    RG_CHECK(bucket_problem(name) == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_vectors),
        RG_TEST(test_every_byte_alone),
        RG_TEST(test_every_capacity),
        RG_TEST(test_object_names_that_the_service_takes),
        RG_TEST(test_object_names_that_the_service_refuses),
        RG_TEST(test_wrong_characters_are_found_at_every_place),
        RG_TEST(test_buckets),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
