/* Targets to routes, names, parameters, conditions and ranges. */
#include "emulator/request/request.h"
#include "emulator/wire/text.h"
#include "tests/support/test.h"

static struct rg_h1_head head;
static struct rg_api_request request;

static int parse(const char *method, const char *target, const char *fields)
{
    static char text[4096];
    int size =
        snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: h\r\n%s\r\n", method, target, fields);
    RG_CHECK(rg_h1_parse_request(&head, text, (size_t)size, 0) > 0);
    return rg_api_request_parse(&request, &head);
}

static void test_paths_become_routes_and_names(void)
{
    static const struct {
        const char *target;
        enum rg_route route;
        const char *bucket, *object, *part;
        bool media;
    } rows[] = {
        {"/", RG_ROUTE_XML_SERVICE, "", "", "", false},
        {"/b", RG_ROUTE_XML_BUCKET, "b", "", "", false},
        {"/b/", RG_ROUTE_XML_BUCKET, "b", "", "", false},
        {"/b/o", RG_ROUTE_XML_OBJECT, "b", "o", "", false},
        {"/b/o/p?x=y", RG_ROUTE_XML_OBJECT, "b", "o/p", "", false},
        {"/b//o", RG_ROUTE_XML_OBJECT, "b", "/o", "", false},
        {"/%62/%2E%2E%2Fo+1", RG_ROUTE_XML_OBJECT, "b", "../o+1", "", false},
        {"/storage", RG_ROUTE_XML_BUCKET, "storage", "", "", false},
        {"/storage/v1/bx", RG_ROUTE_XML_OBJECT, "storage", "v1/bx", "", false},
        {"/storage/v1/b", RG_ROUTE_JSON_BUCKETS, "", "", "", false},
        {"/storage/v1/b/", RG_ROUTE_JSON_BUCKETS, "", "", "", false},
        {"/storage/v1/b/b", RG_ROUTE_JSON_BUCKET, "b", "", "", false},
        {"/storage/v1/b/b/storageLayout", RG_ROUTE_JSON_BUCKET_PART, "b", "", "storageLayout",
         false},
        {"/storage/v1/b/b/o", RG_ROUTE_JSON_OBJECTS, "b", "", "", false},
        {"/storage/v1/b/b/o/", RG_ROUTE_NONE, "b", "", "", false},
        {"/storage/v1/b/b/o/a%2Fb", RG_ROUTE_JSON_OBJECT, "b", "a/b", "", false},
        {"/storage/v1/b/b/o/a/b", RG_ROUTE_JSON_OBJECT, "b", "a/b", "", false},
        {"/storage/v1/b/b/o/a?alt=media", RG_ROUTE_JSON_OBJECT, "b", "a", "", true},
        {"/download/storage/v1/b/b/o/a", RG_ROUTE_JSON_OBJECT, "b", "a", "", true},
        {"/upload/storage/v1/b/b/o", RG_ROUTE_JSON_UPLOAD, "b", "", "", false},
        {"/upload/storage/v1/b/b", RG_ROUTE_NONE, "b", "", "", false},
        {"/batch/storage/v1", RG_ROUTE_JSON_BATCH, "", "", "", false},
        {"*", RG_ROUTE_NONE, "", "", "", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const char *method = rows[i].target[0] == '*' ? "OPTIONS" : "GET";
        RG_CHECK_EQ(parse(method, rows[i].target, ""), 0);
        if (request.route != rows[i].route) {
            rg_test_fail(__FILE__, __LINE__, "%s: route %d", rows[i].target, request.route);
        }
        RG_CHECK(rg_text_equals(request.bucket, rows[i].bucket));
        RG_CHECK(rg_text_equals(request.object, rows[i].object));
        RG_CHECK(rg_text_equals(request.part, rows[i].part));
        RG_CHECK_EQ(request.media, rows[i].media);
    }
}

static void test_parameters_are_decoded_and_others_ignored(void)
{
    int64_t value;
    RG_CHECK_EQ(parse("GET", "/b?prefix=a%2Fb+c%2B&unknown=1&max-keys=12&delimiter=&x", ""), 0);
    RG_CHECK(rg_text_equals(request.params[RG_PARAM_PREFIX], "a/b c+"));
    RG_CHECK(rg_api_request_has(&request, RG_PARAM_DELIMITER));
    RG_CHECK_EQ(request.params[RG_PARAM_DELIMITER].size, 0);
    RG_CHECK(!rg_api_request_has(&request, RG_PARAM_MARKER));
    RG_CHECK_EQ(rg_api_request_int(&request, RG_PARAM_MAX_KEYS, 7, &value), 0);
    RG_CHECK_EQ(value, 12);
    RG_CHECK_EQ(rg_api_request_int(&request, RG_PARAM_MAX_RESULTS, 7, &value), 0);
    RG_CHECK_EQ(value, 7);
    RG_CHECK_EQ(rg_api_request_int(&request, RG_PARAM_PREFIX, 7, &value), -EINVAL);
}

static void test_broken_escapes_are_refused(void)
{
    RG_CHECK_EQ(parse("GET", "/b/%", ""), -EINVAL);
    RG_CHECK_EQ(parse("GET", "/b%2/o", ""), -EINVAL);
    RG_CHECK_EQ(parse("GET", "/storage/v1/b/b/o/%zz", ""), -EINVAL);
    RG_CHECK_EQ(parse("GET", "/b?prefix=%g0", ""), -EINVAL);
}

static void test_conditions_come_from_where_the_api_has_them(void)
{
    struct rg_store_conditions conditions;
    const char *bad = NULL;
    const char *fields = "x-goog-if-generation-match: 5\r\n";
    RG_CHECK_EQ(parse("GET", "/storage/v1/b/b/o/o?ifGenerationMatch=0&generation=9", fields), 0);
    RG_CHECK_EQ(rg_api_request_conditions(&request, &conditions, &bad), 0);
    RG_CHECK(conditions.generation_match.set && conditions.generation_match.value == 0);
    RG_CHECK(conditions.generation.set && conditions.generation.value == 9);
    RG_CHECK(!conditions.metageneration_match.set && !conditions.generation_not_match.set);
    RG_CHECK_EQ(parse("GET", "/b/o?ifGenerationMatch=0", fields), 0);
    RG_CHECK_EQ(rg_api_request_conditions(&request, &conditions, &bad), 0);
    RG_CHECK(conditions.generation_match.set && conditions.generation_match.value == 5);
    RG_CHECK_EQ(parse("GET", "/storage/v1/b/b/o/o?ifMetagenerationNotMatch=x", ""), 0);
    RG_CHECK_EQ(rg_api_request_conditions(&request, &conditions, &bad), -EINVAL);
    RG_CHECK_STR(bad, "ifMetagenerationNotMatch");
}

static void test_ranges_agree_with_a_naive_reading(void)
{
    for (int i = 0; i < 20000; i++) {
        char field[64];
        uint64_t size = rg_test_random_below(6), a = rg_test_random_below(8);
        uint64_t b = rg_test_random_below(8), first = 77, count = 77;
        int kind = (int)rg_test_random_below(3);
        snprintf(field, sizeof(field),
                 kind == 0   ? "Range: bytes=%llu-%llu\r\n"
                 : kind == 1 ? "Range: bytes=%llu-\r\n"
                             : "Range: bytes=-%llu\r\n",
                 (unsigned long long)a, (unsigned long long)b);
        RG_CHECK_EQ(parse("GET", "/b/o", field), 0);
        int rc = rg_api_request_range(&request, size, &first, &count);
        /* The positions that are asked for, one by one. */
        uint64_t wanted_first = 77, wanted_count = 0;
        for (uint64_t at = size; at-- > 0;) {
            bool in = kind == 2 ? at + a >= size : at >= a && (kind == 1 || at <= b);
            wanted_first = in ? at : wanted_first;
            wanted_count += in;
        }
        if (kind == 0 && b < a) {
            RG_CHECK_EQ(rc, 0);
        } else if (wanted_count == 0) {
            RG_CHECK_EQ(rc, -ERANGE);
        } else {
            RG_CHECK_EQ(rc, 1);
            RG_CHECK_EQ(first, wanted_first);
            RG_CHECK_EQ(count, wanted_count);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_paths_become_routes_and_names),
        RG_TEST(test_parameters_are_decoded_and_others_ignored),
        RG_TEST(test_broken_escapes_are_refused),
        RG_TEST(test_conditions_come_from_where_the_api_has_them),
        RG_TEST(test_ranges_agree_with_a_naive_reading),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
