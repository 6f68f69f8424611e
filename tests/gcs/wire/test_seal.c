/* Sealing: the published example, and that nothing else than what was sealed is opened. */
#include "gcs/wire/seal.h"
#include "tests/support/test.h"

static const char text[] =
    "Ladies and Gentlemen of the class of '99: If I could offer you only one "
    "tip for the future, sunscreen would be it.";
#define TEXT_SIZE (sizeof(text) - 1)

/* draft-irtf-cfrg-xchacha-03, appendix A.3.1. */
static const uint8_t label[12] = {0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1,
                                  0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7};
static const uint8_t tag[RG_SEAL_OVERHEAD] = {0xc0, 0x87, 0x59, 0x24, 0xc1, 0xc7, 0x98, 0x79,
                                              0x47, 0xde, 0xaf, 0xd8, 0x78, 0x0a, 0xcf, 0x49};

struct example {
    uint8_t key[RG_SEAL_KEY_SIZE], nonce[RG_SEAL_NONCE_SIZE];
    uint8_t sealed[TEXT_SIZE + RG_SEAL_OVERHEAD];
    struct rg_seal_input input;
};

static void example_make(struct example *example)
{
    *example = (struct example){0};
    for (size_t i = 0; i < sizeof(example->key); i++) {
        example->key[i] = (uint8_t)(0x80 + i);
    }
    for (size_t i = 0; i < sizeof(example->nonce); i++) {
        example->nonce[i] = (uint8_t)(0x40 + i);
    }
    struct rg_seal_input plain = {text, TEXT_SIZE, label, sizeof(label)};
    rg_seal(example->key, example->nonce, &plain, example->sealed);
    example->input =
        (struct rg_seal_input){example->sealed, sizeof(example->sealed), label, sizeof(label)};
}

static bool opens(const struct example *example)
{
    uint8_t out[TEXT_SIZE];
    return rg_unseal(example->key, example->nonce, &example->input, out);
}

static void test_the_published_example(void)
{
    struct example example;
    uint8_t out[TEXT_SIZE];
    example_make(&example);
    RG_CHECK_MEM(example.sealed + TEXT_SIZE, RG_SEAL_OVERHEAD, tag, sizeof(tag));
    RG_CHECK(rg_unseal(example.key, example.nonce, &example.input, out));
    RG_CHECK_MEM(out, sizeof(out), text, TEXT_SIZE);
}

static void test_nothing_else_is_opened(void)
{
    struct example example;
    for (size_t i = 0; i < sizeof(example.sealed); i++) {
        example_make(&example);
        example.sealed[i] ^= 1;
        RG_CHECK(!opens(&example));
    }
    example_make(&example);
    example.key[31] ^= 1;
    RG_CHECK(!opens(&example));
    example_make(&example);
    example.nonce[23] ^= 1;
    RG_CHECK(!opens(&example));
    example_make(&example);
    example.input.label_size--;
    RG_CHECK(!opens(&example));
    for (size_t size = 0; size < sizeof(example.sealed); size++) {
        example_make(&example);
        example.input.size = size;
        RG_CHECK(!opens(&example));
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_published_example),
        RG_TEST(test_nothing_else_is_opened),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
