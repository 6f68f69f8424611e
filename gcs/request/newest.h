/* The generations that objects were last seen to have: a table of hints for those who ask for the
 * newest one. An entry is lost when another object needs its place, and may be outdated or another
 * object's; whoever uses it asks the service, too. Any thread, without a lock. */
#ifndef RG_GCS_REQUEST_NEWEST_H
#define RG_GCS_REQUEST_NEWEST_H

#include "runtime/base.h"

struct rg_newest;

/* 0 or -ENOMEM; memory is touched as far as it is used, 1 MiB at most. */
int rg_newest_create(struct rg_newest **out_newest);
void rg_newest_destroy(struct rg_newest *newest); /* NULL is fine */
void rg_newest_note(struct rg_newest *newest, const char *bucket, const char *object,
                    int64_t generation);
/* 0: not known. */
int64_t rg_newest_find(const struct rg_newest *newest, const char *bucket, const char *object);

#endif
