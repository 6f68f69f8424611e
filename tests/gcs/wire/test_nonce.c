/* Nonces are unlike one another, and there is room for one beside a program's own metadata unless
 * that has one already. */
#include "gcs/wire/nonce.h"
#include "tests/support/test.h"

static void test_no_two_are_alike(void)
{
    static char drawn[1000][RG_NONCE_SIZE + 1];
    for (size_t i = 0; i < RG_ARRAY_LEN(drawn); i++) {
        rg_nonce_draw(drawn[i]);
        RG_CHECK_EQ(strlen(drawn[i]), RG_NONCE_SIZE);
        RG_CHECK_EQ(strspn(drawn[i], "0123456789abcdef"), RG_NONCE_SIZE);
    }
    qsort(drawn, RG_ARRAY_LEN(drawn), sizeof(drawn[0]),
          (int (*)(const void *, const void *))strcmp);
    for (size_t i = 1; i < RG_ARRAY_LEN(drawn); i++) {
        RG_CHECK(strcmp(drawn[i - 1], drawn[i]) != 0);
    }
}

static void test_what_one_fits_beside(void)
{
    const struct rg_metadata pairs[] = {{"colour", "red"}, {NULL, "x"}, {"Ringest-Nonce", NULL}};
    RG_CHECK(rg_nonce_fits(NULL, 0));
    RG_CHECK(rg_nonce_fits(pairs, 2));
    RG_CHECK(!rg_nonce_fits(pairs, 3));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_no_two_are_alike),
        RG_TEST(test_what_one_fits_beside),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
