/* What a listing of a set of names has to say, told by an array: pages as the service makes them,
 * and a comparison of what was found with what there is. */
#ifndef RG_TESTS_SUPPORT_LISTING_MODEL_H
#define RG_TESTS_SUPPORT_LISTING_MODEL_H

#include "tests/support/names.h"

#include <ringest/gcs.h>

#define RG_LISTING_MODEL_TOKEN_SIZE 64

/* A bucket, and how it is listed. Strings are "" where there is none. */
struct rg_listing_model {
    struct rg_test_names set;
    const char *prefix, *delimiter;
    char start[RG_OBJECT_NAME_SIZE_MAX + 1], end[RG_OBJECT_NAME_SIZE_MAX + 1];
    uint32_t versions; /* generations of a name at most; 0: one, and none else are listed */
};

/* Chooses a set of the kind, and offsets for some. */
void rg_listing_model_make(struct rg_listing_model *model, enum rg_test_name_kind kind,
                           size_t count_max);
void rg_listing_model_free(struct rg_listing_model *model);

struct rg_listing_model_page {
    struct rg_list_page page;
    struct rg_object *objects;
    char **prefixes;
    char token[RG_LISTING_MODEL_TOKEN_SIZE];
};

/* The page that a token leads to, or (NULL) the first one from `start` on. Checks that nothing else
 * changes along with a token. */
void rg_listing_model_serve(const struct rg_listing_model *model, const char *start,
                            const char *end, const char *token, uint32_t count_max,
                            struct rg_listing_model_page *out_page);
void rg_listing_model_page_free(struct rg_listing_model_page *page);

/* What has come. */
struct rg_listing_found {
    char **texts;
    size_t count, capacity;
};
/* Adds what a page holds, in the order of names. */
void rg_listing_found_add(struct rg_listing_found *found, const struct rg_list_page *page);
/* Checks that everything was found, each once (in order, if `ordered`), and frees it. */
void rg_listing_found_check(struct rg_listing_found *found, const struct rg_listing_model *model,
                            bool ordered);
void rg_listing_found_free(struct rg_listing_found *found);

#endif
