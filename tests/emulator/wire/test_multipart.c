/* Multipart bodies whole, byte by byte and at random splits, and data that looks like the frame. */
#include "emulator/wire/multipart.h"
#include "tests/support/test.h"

struct collected {
    struct rg_text json, content_type, data;
    int metadata_count;
};

static int take_metadata(void *context, struct rg_h1_slice json, struct rg_h1_slice content_type)
{
    struct collected *collected = context;
    collected->metadata_count++;
    rg_text_append(&collected->json, json.data, json.size);
    rg_text_append(&collected->content_type, content_type.data, content_type.size);
    return 0;
}

static int take_data(void *context, const uint8_t *data, size_t size)
{
    struct collected *collected = context;
    RG_CHECK(size > 0);
    rg_text_append(&collected->data, data, size);
    return 0;
}

static void collected_fini(struct collected *collected)
{
    rg_text_fini(&collected->json);
    rg_text_fini(&collected->content_type);
    rg_text_fini(&collected->data);
}

/* 0: pieces of random size. */
static void feed(struct rg_multipart *multipart, const char *body, size_t size, size_t piece,
                 struct collected *out)
{
    const struct rg_multipart_sink sink = {out, take_metadata, take_data};
    memset(out, 0, sizeof(*out));
    while (size > 0) {
        size_t count = piece != 0 ? piece : 1 + rg_test_random_below(40);
        count = RG_MIN(count, size);
        /* A copy of its own, so that reading beyond the piece is noticed. */
        uint8_t *copy = malloc(count);
        memcpy(copy, body, count);
        RG_CHECK_EQ(rg_multipart_feed(multipart, copy, count, &sink), 0);
        free(copy);
        body += count;
        size -= count;
    }
}

static void test_bodies_at_any_split(void)
{
    static const char *const pieces[] = {"\r", "\n", "\r\n", "--", "-", "--bound", "bound", "x"};
    for (int round = 0; round < 3000; round++) {
        bool crlf = round % 2;
        const char *n = crlf ? "\r\n" : "\n";
        char data[256] = "", body[1024];
        for (size_t i = rg_test_random_below(20); i > 0; i--) {
            strcat(data, pieces[rg_test_random_below(RG_ARRAY_LEN(pieces))]);
        }
        char framed[300];
        snprintf(framed, sizeof(framed), "\n%s", data);
        if (strstr(framed, "\n--bound") != NULL) {
            continue; /* The boundary must not be in the data. */
        }
        int size = snprintf(body, sizeof(body),
                            "preamble%s--bound%sA: b%s%s{\"a\":1}%s--bound%sContent-Type: t/x%s%s%s"
                            "%s--bound--%s",
                            n, n, n, n, n, n, n, n, data, n, round % 3 == 0 ? "" : n);
        struct rg_multipart multipart;
        struct collected got;
        RG_CHECK_EQ(
            rg_multipart_init(&multipart, rg_text_slice("multipart/related; boundary=bound")), 0);
        feed(&multipart, body, (size_t)size, round % 3 == 0 ? 1 : round % 3 == 1 ? 4096 : 0, &got);
        RG_CHECK_EQ(multipart.stage, RG_MULTIPART_END);
        RG_CHECK_EQ(got.metadata_count, 1);
        RG_CHECK_MEM(got.json.data, got.json.size, "{\"a\":1}", 7);
        RG_CHECK_MEM(got.content_type.data, got.content_type.size, "t/x", 3);
        RG_CHECK_MEM(got.data.data, got.data.size, data, strlen(data));
        collected_fini(&got);
        rg_multipart_fini(&multipart);
    }
}

static void test_boundaries(void)
{
    static const struct {
        const char *type, *boundary;
    } rows[] = {
        {"multipart/related; boundary=abc", "abc"},
        {"multipart/related; type=x; BOUNDARY=\"a b;c\"; y=z", "a b;c"},
        {"multipart/related;boundary=abc; y=z", "abc"},
        {"multipart/related", NULL},
        {"multipart/related; boundary=", NULL},
        {"multipart/related; boundary=\"\"", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_multipart multipart;
        int rc = rg_multipart_init(&multipart, rg_text_slice(rows[i].type));
        if (rows[i].boundary == NULL) {
            RG_CHECK_EQ(rc, -EINVAL);
        } else {
            RG_CHECK_EQ(rc, 0);
            RG_CHECK_MEM(multipart.delimiter + 3, multipart.delimiter_size - 3, rows[i].boundary,
                         strlen(rows[i].boundary));
        }
    }
}

static void test_an_endless_preface_is_refused(void)
{
    struct rg_multipart multipart;
    struct collected got = {0};
    const struct rg_multipart_sink sink = {&got, take_metadata, take_data};
    char *junk = calloc(1, RG_MULTIPART_PREFACE_SIZE_MAX);
    RG_CHECK_EQ(rg_multipart_init(&multipart, rg_text_slice("a/b; boundary=b")), 0);
    RG_CHECK_EQ(rg_multipart_feed(&multipart, (const uint8_t *)junk,
                                  RG_MULTIPART_PREFACE_SIZE_MAX - 1, &sink),
                0);
    RG_CHECK_EQ(rg_multipart_feed(&multipart, (const uint8_t *)junk, 1, &sink), -EMSGSIZE);
    rg_multipart_fini(&multipart);
    free(junk);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bodies_at_any_split),
        RG_TEST(test_boundaries),
        RG_TEST(test_an_endless_preface_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
