/* Caches of so many objects, all of one size, by different rules: for comparing hits. Ours admits
 * and removes segments of several objects, the others single objects. */
#ifndef RG_TESTS_CACHE_POLICIES_H
#define RG_TESTS_CACHE_POLICIES_H

#include "runtime/base.h"

#define POLICY_OBJECTS_MAX 8192

enum policy_kind { POLICY_OURS, POLICY_LRU, POLICY_SIEVE, POLICY_S3_FIFO, POLICY_COUNT };
extern const char *const policy_names[POLICY_COUNT];

struct policy;
struct policy *policy_make(enum policy_kind kind, uint32_t capacity);
void policy_free(struct policy *policy);
/* Looks one object up, and puts it in as the rule says. True: it was there. */
bool policy_access(struct policy *policy, uint32_t object);

#endif
