/* See places.h. */
#include "cli/places.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static int text_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int places_take(struct places *places, const char *place, bool *out_was_free)
{
    char *key = strdup(place);
    char **found = key != NULL ? tsearch(key, &places->taken, text_compare) : NULL;
    if (found == NULL) {
        free(key);
        return -ENOMEM;
    }
    *out_was_free = *found == key;
    if (!*out_was_free) {
        free(key);
    }
    return 0;
}

bool places_have(const struct places *places, const char *place)
{
    return tfind(place, &places->taken, text_compare) != NULL;
}

/* twalk hands nothing through, and twalk_r is not in all versions of glibc that wheels run with. */
struct each {
    void (*take)(const char *place, void *context);
    void *context;
};
static _Thread_local const struct each *walking;

static void node_take(const void *node, VISIT visit, int depth)
{
    (void)depth;
    if (visit == preorder || visit == leaf) {
        walking->take(*(char *const *)node, walking->context);
    }
}

void places_each(const struct places *places, void (*take)(const char *place, void *context),
                 void *context)
{
    const struct each each = {take, context}, *outer = walking;
    walking = &each;
    twalk(places->taken, node_take);
    walking = outer;
}

void places_fini(struct places *places)
{
    tdestroy(places->taken, free);
    places->taken = NULL;
}
