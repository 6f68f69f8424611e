/* The places that a command has given away, so that no two things go to one. */
#ifndef RG_CLI_PLACES_H
#define RG_CLI_PLACES_H

#include <stdbool.h>

struct places {
    void *taken; /* by tsearch */
};

/* Whether the place was free, and is taken now. -ENOMEM: no memory to tell. */
int places_take(struct places *places, const char *place, bool *out_was_free);
/* Calls `take` for each of them, in no order that is promised. */
void places_each(const struct places *places, void (*take)(const char *place, void *context),
                 void *context);
bool places_have(const struct places *places, const char *place);
void places_fini(struct places *places);

#endif
