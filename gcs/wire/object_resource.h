/* The resource of one object, whole, and the answer to a step of a copy.
 *
 * As with listings (gcs/wire/list_parser.h), all that parsing needs and yields lies in one block of
 * the caller's; nothing is allocated, and the body may go when the function returns. */
#ifndef RG_GCS_WIRE_OBJECT_RESOURCE_H
#define RG_GCS_WIRE_OBJECT_RESOURCE_H

#include "runtime/base.h"

#include <errno.h>
#include <ringest/objects.h>

/* A resource with all its metadata has some 20 KiB at most. */
#define RG_RESOURCE_BODY_SIZE_MAX RG_KIB(256)

/* A block of this size is enough for any body of at most RG_RESOURCE_BODY_SIZE_MAX. */
size_t rg_object_info_size_bound(size_t body_size);

/* Parses a resource. *out_info and all it points to lie in `memory`, of at least
 * rg_object_info_size_bound(body_size) bytes. -EBADMSG: the body is no resource, and *out_problem
 * says why, in words that follow "the answer" (static storage). */
int rg_object_info_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                         struct rg_object_info **out_info, const char **out_problem);

/* True when a change ("objects: patch") of this body would leave the object as it is. Allocates
 * while it runs; false without memory. */
bool rg_object_info_has(const struct rg_object_info *info, const char *change, size_t change_size);

/* What "objects: rewrite" is told for a copy of this resource with another storage class. A body
 * that says anything has to say all: the service then takes nothing over from the source. To its
 * own place the object keeps its access control list, where the resource has one, and its key. All
 * is owned; zeroed: nothing. -EINVAL or -ENOMEM, with the output untouched. */
struct rg_rewrite_said {
    char *body;
    size_t body_size;
    char *kms_key; /* NULL: the bucket's */
};
int rg_rewrite_say(const char *resource, size_t resource_size, const char *storage_class,
                   bool is_own_place, struct rg_rewrite_said *out_said);
void rg_rewrite_said_fini(struct rg_rewrite_said *said);

/* What a step of a copy has come to. */
struct rg_rewrite_answer {
    bool done;
    uint64_t rewritten, object_size;   /* bytes */
    const char *token;                 /* for the next step; NULL when done */
    const struct rg_object_info *info; /* of the copy; NULL until done */
};
/* The same for the answer of "objects: rewrite". */
int rg_rewrite_answer_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                            struct rg_rewrite_answer *out_answer, const char **out_problem);

/* Which of `count` permissions the answer to "buckets: testIamPermissions" names: granted[i] is of
 * the i-th name, which end with a NUL each and follow one another. The same memory and errors. */
int rg_permissions_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                         const char *names, size_t count, bool *granted, const char **out_problem);

#endif
