/* Sets of object names of every kind that a listing has to get right, from the test's seed. */
#ifndef RG_TESTS_SUPPORT_NAMES_H
#define RG_TESTS_SUPPORT_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct rg_test_names {
    char **names; /* in the order of their bytes, each once */
    size_t count;
};

/* XX(kind): how the names of a set are made. */
#define RG_TEST_NAME_KINDS(XX)                                                                     \
    XX(COUNTER) /* train-00000000, ... */                                                          \
    XX(NUMBER)  /* no leading zeros */                                                             \
    XX(HEX)     /* hashes */                                                                       \
    XX(UUID)                                                                                       \
    XX(BASE64)                                                                                     \
    XX(DEEP)     /* thousands under one long prefix, and a few beside it */                        \
    XX(FOLDERS)  /* some names in each of many folders */                                          \
    XX(ONE_EACH) /* one name in each folder */                                                     \
    XX(ENDINGS)  /* that end in / # ? % + & and newlines */                                        \
    XX(UNICODE)  /* characters of every length */                                                  \
    XX(CJK)      /* words of three-byte characters */                                              \
    XX(EXTREMES) /* of the first and last characters that there are */                             \
    XX(LONG)     /* of 1,024 bytes */                                                              \
    XX(CHAIN)    /* each is a prefix of the next */                                                \
    XX(WORDS)    /* letters and punctuation */                                                     \
    XX(MIXED)    /* some of each */

enum rg_test_name_kind {
#define XX(kind) RG_TEST_NAMES_##kind,
    RG_TEST_NAME_KINDS(XX)
#undef XX
        RG_TEST_NAMES_KIND_COUNT
};

/* About `count` names, fewer where the kind has no more. */
struct rg_test_names rg_test_names_make(enum rg_test_name_kind kind, size_t count);
void rg_test_names_free(struct rg_test_names *set);

#endif
