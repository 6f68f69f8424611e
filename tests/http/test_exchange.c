/* The body of a request in every arrangement of its parts, looked at from every byte. */
#include "http/exchange.h"

#include "tests/support/test.h"

#define SIZE_MAX_BODY 64

/* A body of bytes 0, 1, 2 ..., divided at random. */
struct body {
    struct rg_exchange x;
    uint8_t bytes[SIZE_MAX_BODY + 8]; /* eight are skipped */
    struct rg_body_piece pieces[SIZE_MAX_BODY + 8];
    uint64_t size;
};

static void body_make(struct body *body)
{
    *body = (struct body){0};
    size_t lead = (size_t)rg_test_random_below(10), trail = (size_t)rg_test_random_below(10);
    size_t upload = (size_t)rg_test_random_below(40), skip = (size_t)rg_test_random_below(8);
    size_t begin = lead, at = 0;
    bool divided = upload > 0 && rg_test_random_below(2) == 0;
    skip = divided ? skip : 0;
    body->size = lead + upload + trail;
    for (size_t i = 0; i < body->size + skip; i++) {
        body->bytes[i] = (uint8_t)(i < begin ? i : i < begin + skip ? 0xee : i - skip);
    }
    body->x = (struct rg_exchange){
        .lead = body->bytes,
        .lead_size = lead,
        .upload = divided ? NULL : body->bytes + begin,
        .upload_size = upload,
        .upload_skip = skip,
        .trail = body->bytes + begin + skip + upload,
        .trail_size = trail,
    };
    while (divided && at < skip + upload) {
        size_t part = 1 + (size_t)rg_test_random_below(7);
        part = RG_MIN(part, skip + upload - at);
        body->pieces[body->x.piece_count++] =
            (struct rg_body_piece){.data = body->bytes + begin + at, .end = at + part};
        at += part;
    }
    body->x.pieces = divided ? body->pieces : NULL;
}

static void test_every_byte_is_where_it_belongs(void)
{
    for (int round = 0; round < 2000; round++) {
        struct body body;
        body_make(&body);
        RG_CHECK_EQ(rg_exchange_body_size(&body.x), body.size);
        for (uint64_t sent = 0; sent < body.size; sent++) {
            uint64_t left = 0;
            const uint8_t *data = rg_exchange_body_at(&body.x, sent, &left);
            RG_CHECK(left > 0 && left <= body.size - sent);
            for (uint64_t i = 0; i < left; i++) {
                RG_CHECK_EQ(data[i], sent + i);
            }
        }
    }
}

static void test_pieces_are_put_together(void)
{
    for (int round = 0; round < 2000; round++) {
        struct body body;
        uint8_t got[SIZE_MAX_BODY];
        body_make(&body);
        uint64_t sent = rg_test_random_below(body.size + 1), room = 1 + rg_test_random_below(60);
        uint64_t size = rg_exchange_body_gather(&body.x, sent, got, room);
        RG_CHECK_EQ(size, RG_MIN(room, body.size - sent));
        for (uint64_t i = 0; i < size; i++) {
            RG_CHECK_EQ(got[i], sent + i);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_byte_is_where_it_belongs),
        RG_TEST(test_pieces_are_put_together),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
