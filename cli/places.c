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

struct each {
    void (*take)(const char *place, void *context);
    void *context;
};

static void node_take(const void *node, VISIT visit, void *closure)
{
    const struct each *each = closure;
    if (visit == preorder || visit == leaf) {
        each->take(*(char *const *)node, each->context);
    }
}

void places_each(const struct places *places, void (*take)(const char *place, void *context),
                 void *context)
{
    struct each each = {take, context};
    twalk_r(places->taken, node_take, &each);
}

void places_fini(struct places *places)
{
    tdestroy(places->taken, free);
    places->taken = NULL;
}
