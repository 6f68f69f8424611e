/* Lists of names and values: setting, taking away, sharing, heads. */
#include "emulator/store/model/attributes.h"

#include "tests/support/test.h"

static int set(struct rg_text *list, const char *name, const char *value)
{
    struct rg_h1_slice none = {NULL, 0};
    return rg_attributes_set(list, rg_text_slice(name),
                             value != NULL ? rg_text_slice(value) : none);
}

static void check(const struct rg_attributes *attributes, const char *want)
{
    char text[512] = "";
    struct rg_h1_slice name, value;
    for (size_t at = 0; rg_attributes_next(attributes, &at, &name, &value);) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%.*s=%.*s ", (int)name.size,
                 name.data, (int)value.size, value.data);
    }
    RG_CHECK_STR(text, want);
}

static void test_a_list_is_set_changed_and_shared(void)
{
    struct rg_text list = {0};
    struct rg_attributes *attributes;
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    RG_CHECK(attributes == NULL); /* Nothing is no list. */
    check(NULL, "");
    RG_CHECK(rg_attributes_ref(NULL) == NULL);
    rg_attributes_unref(NULL);
    RG_CHECK_EQ(set(&list, "cacheControl", "no-cache"), 0);
    RG_CHECK_EQ(set(&list, "metadata.a", "1"), 0);
    RG_CHECK_EQ(set(&list, "metadata.b", ""), 0);
    RG_CHECK_EQ(set(&list, "metadata.a", "2"), 0);
    RG_CHECK_EQ(set(&list, "componentCount", "7"), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    check(attributes, "cacheControl=no-cache metadata.b= metadata.a=2 componentCount=7 ");
    RG_CHECK_EQ(rg_attributes_component_count(attributes), 7);
    RG_CHECK_EQ(rg_attributes_get(attributes, "metadata.a").size, 1);
    RG_CHECK(rg_attributes_get(attributes, "metadata").data == NULL);
    struct rg_attributes *shared = rg_attributes_ref(attributes);
    rg_attributes_unref(attributes);
    rg_text_fini(&list);
    rg_attributes_copy(&list, shared);
    RG_CHECK_EQ(set(&list, "metadata.b", NULL), 0);
    RG_CHECK_EQ(set(&list, "metadata.x", NULL), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    check(attributes, "cacheControl=no-cache metadata.a=2 componentCount=7 ");
    rg_attributes_unref(attributes);
    rg_attributes_clear(&list, RG_ATTRIBUTES_METADATA);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    check(attributes, "cacheControl=no-cache componentCount=7 ");
    rg_attributes_unref(attributes);
    rg_attributes_unref(shared);
    rg_text_fini(&list);
}

static void test_what_cannot_be_an_attribute(void)
{
    struct rg_text list = {0};
    struct rg_attributes *attributes;
    RG_CHECK_EQ(set(&list, "", "x"), -EINVAL);
    RG_CHECK_EQ(set(&list, "cacheControl", "a\nb"), -EINVAL);
    RG_CHECK_EQ(set(&list, "cacheControl", " a"), -EINVAL);
    RG_CHECK_EQ(rg_attributes_set(&list, (struct rg_h1_slice){"a\0b", 3}, rg_text_slice("x")),
                -EINVAL);
    RG_CHECK_EQ(
        rg_attributes_set(&list, rg_text_slice("metadata.k"), (struct rg_h1_slice){"a\0b", 3}),
        -EINVAL);
    RG_CHECK_EQ(list.size, 0);
    char *value = calloc(1, RG_ATTRIBUTES_SIZE_MAX + 1);
    memset(value, 'x', RG_ATTRIBUTES_SIZE_MAX);
    RG_CHECK_EQ(set(&list, "metadata.k", value), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), -EMSGSIZE);
    free(value);
    rg_text_fini(&list);
}

static void test_header_fields_come_in_and_go_out(void)
{
    static const char request[] = "PUT /b/o HTTP/1.1\r\nHost: h\r\nCache-Control: no-store\r\n"
                                  "X-Goog-Meta-Some-Key: some value\r\nx-goog-meta-: none\r\n"
                                  "Content-Language: de\r\nX-Other: 1\r\n\r\n";
    struct rg_h1_head head;
    struct rg_text list = {0};
    struct rg_attributes *attributes;
    struct rg_h1_encoder encoder;
    char out[512];
    RG_CHECK(rg_h1_parse_request(&head, request, strlen(request), 0) > 0);
    RG_CHECK_EQ(rg_attributes_take_head(&list, &head), 0);
    /* Neither a header's name nor a header's value. */
    RG_CHECK_EQ(set(&list, "metadata.a b", "x"), 0);
    RG_CHECK_EQ(set(&list, "metadata.line", "a\nb"), 0);
    RG_CHECK_EQ(set(&list, "componentCount", "2"), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    rg_h1_encoder_init(&encoder, out, sizeof(out));
    rg_h1_encode_status(&encoder, 200, "OK");
    rg_attributes_encode(attributes, &encoder);
    int size = rg_h1_encode_end(&encoder);
    RG_CHECK(size > 0);
    out[size] = '\0';
    RG_CHECK_STR(out, "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-language: de\r\n"
                      "x-goog-meta-some-key: some value\r\nx-goog-component-count: 2\r\n\r\n");
    rg_attributes_unref(attributes);
    rg_text_fini(&list);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_list_is_set_changed_and_shared),
        RG_TEST(test_what_cannot_be_an_attribute),
        RG_TEST(test_header_fields_come_in_and_go_out),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
