/* See candidates.h. */
#include "http/candidates.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static uint32_t count_of(const struct rg_candidates *candidates)
{
    return candidates->addresses != NULL ? candidates->addresses->count : 0;
}

/* Where an address of another list is in this one. */
static uint32_t find(const struct rg_candidates *candidates, const struct rg_addresses *addresses,
                     uint32_t index)
{
    if (addresses == candidates->addresses) {
        return index;
    }
    const struct rg_address *wanted = &addresses->list[index];
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        const struct rg_address *address = &candidates->addresses->list[i];
        if (address->size == wanted->size &&
            memcmp(&address->storage, &wanted->storage, wanted->size) == 0) {
            return i;
        }
    }
    return NONE;
}

static struct rg_candidate *candidate_of(struct rg_candidates *candidates,
                                         const struct rg_candidate_use *use)
{
    RG_ASSERT(use->addresses != NULL);
    uint32_t index = find(candidates, use->addresses, use->index);
    return index != NONE ? &candidates->list[index] : NULL;
}

/* No more connections are waited for than are being made, the next turn is that of an address there
 * is, and only an address that has failed has failed in some way. */
static bool invariants(const struct rg_candidates *candidates)
{
    uint32_t count = count_of(candidates);
    bool holds = candidates->next <= count &&
                 (!candidates->all_failed || candidates->awaited_count <= candidates->making_count);
    for (uint32_t i = 0; i < count; i++) {
        const struct rg_candidate *candidate = &candidates->list[i];
        holds &= candidate->failed || (!candidate->final && !candidate->unreachable);
        holds &= candidate->failed_round <= candidates->round;
    }
    return holds;
}

static bool is_reachable(const struct rg_address *address, const struct rg_local *local)
{
    return local == NULL || local->address_size == 0 ||
           local->address.ss_family == address->storage.ss_family;
}

int rg_candidates_set(struct rg_candidates *candidates, struct rg_addresses *addresses,
                      const struct rg_local *local)
{
    RG_ASSERT(addresses->count > 0);
    struct rg_candidate *list = calloc(addresses->count, sizeof(*list));
    if (list == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < addresses->count; i++) {
        uint32_t before = find(candidates, addresses, i);
        if (before != NONE) {
            list[i] = candidates->list[before];
        } else if (!is_reachable(&addresses->list[i], local)) {
            list[i].passed_until_ns = UINT64_MAX;
        }
    }
    free(candidates->list);
    rg_addresses_unref(candidates->addresses);
    candidates->list = list;
    candidates->addresses = addresses;
    candidates->next = 0;
    candidates->round = RG_MAX(candidates->round, 1u);
    RG_VERIFY(invariants(candidates));
    return 0;
}

void rg_candidates_fini(struct rg_candidates *candidates)
{
    free(candidates->list);
    rg_addresses_unref(candidates->addresses);
    *candidates = (struct rg_candidates){0};
}

uint32_t rg_candidates_choose(struct rg_candidates *candidates, uint64_t now_ns)
{
    uint32_t count = count_of(candidates), best = NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = (candidates->next + i) % count;
        uint64_t until_ns = candidates->list[index].passed_until_ns;
        if (best == NONE || until_ns < candidates->list[best].passed_until_ns) {
            best = index;
        }
        if (until_ns <= now_ns) {
            best = index;
            break;
        }
    }
    RG_ASSERT(best < count);
    candidates->next = (best + 1) % count;
    return best;
}

void rg_candidates_begin(struct rg_candidates *candidates, uint32_t index,
                         struct rg_candidate_use *out_use)
{
    RG_ASSERT(index < count_of(candidates));
    *out_use = (struct rg_candidate_use){
        .addresses = rg_addresses_ref(candidates->addresses),
        .index = index,
        .is_made = true,
        .notice = candidates->notice,
    };
    candidates->making_count++;
    RG_VERIFY(invariants(candidates));
}

const struct rg_address *rg_candidate_address(const struct rg_candidate_use *use)
{
    RG_ASSERT(use->addresses != NULL && use->index < use->addresses->count);
    return &use->addresses->list[use->index];
}

void rg_candidate_release(struct rg_candidate_use *use)
{
    RG_ASSERT(!use->is_made);
    rg_addresses_unref(use->addresses);
    *use = (struct rg_candidate_use){0};
}

static void pass_over(struct rg_candidate *candidate, uint64_t now_ns)
{
    if (candidate->passed_until_ns != UINT64_MAX) {
        candidate->passed_until_ns = now_ns + RG_CANDIDATES_PENALTY_NS;
    }
}

void rg_candidates_slow(struct rg_candidates *candidates, const struct rg_candidate_use *use,
                        uint64_t now_ns)
{
    struct rg_candidate *candidate = candidate_of(candidates, use);
    if (candidate != NULL) {
        pass_over(candidate, now_ns);
    }
}

/* The connection is no longer being made. */
static struct rg_candidate *use_over(struct rg_candidates *candidates, struct rg_candidate_use *use)
{
    RG_ASSERT(use->is_made && candidates->making_count > 0);
    use->is_made = false;
    candidates->making_count--;
    if (candidates->all_failed && use->notice != candidates->notice) {
        RG_ASSERT(candidates->awaited_count > 0);
        candidates->awaited_count--;
    }
    return candidate_of(candidates, use);
}

void rg_candidates_withdraw(struct rg_candidates *candidates, struct rg_candidate_use *use)
{
    (void)use_over(candidates, use);
    rg_candidate_release(use);
}

void rg_candidates_succeeded(struct rg_candidates *candidates, struct rg_candidate_use *use)
{
    struct rg_candidate *candidate = use_over(candidates, use);
    rg_candidates_round_end(candidates);
    if (candidate != NULL) {
        candidate->passed_until_ns = 0;
        candidate->failed = candidate->final = candidate->unreachable = false;
    }
    RG_VERIFY(invariants(candidates));
}

void rg_candidates_failed(struct rg_candidates *candidates, struct rg_candidate_use *use,
                          const struct rg_candidate_failure *failure, uint64_t now_ns)
{
    struct rg_candidate *candidate = use_over(candidates, use);
    if (candidate != NULL) {
        pass_over(candidate, now_ns);
        candidate->failed_round = candidates->round;
        candidate->failed = true;
        candidate->final = failure->final;
        candidate->unreachable = failure->unreachable;
    }
    RG_VERIFY(invariants(candidates));
}

void rg_candidates_useless(struct rg_candidates *candidates, const struct rg_candidate_use *use,
                           uint64_t now_ns)
{
    struct rg_candidate *candidate = candidate_of(candidates, use);
    for (uint32_t i = 0; candidate != NULL && i < count_of(candidates); i++) {
        if (&candidates->list[i] != candidate && candidates->list[i].passed_until_ns <= now_ns) {
            pass_over(candidate, now_ns);
            return;
        }
    }
}

uint64_t rg_candidates_free_ns(const struct rg_candidates *candidates)
{
    uint64_t free_ns = UINT64_MAX;
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        free_ns = RG_MIN(free_ns, candidates->list[i].passed_until_ns);
    }
    return free_ns;
}

bool rg_candidates_hopeful(const struct rg_candidates *candidates)
{
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        const struct rg_candidate *candidate = &candidates->list[i];
        if (candidate->failed_round != candidates->round &&
            candidate->passed_until_ns != UINT64_MAX) {
            return true;
        }
    }
    return false;
}

static bool each_has_failed(const struct rg_candidates *candidates, uint64_t now_ns)
{
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        const struct rg_candidate *candidate = &candidates->list[i];
        bool lately = candidate->failed && candidate->passed_until_ns > now_ns;
        bool failed = lately || candidate->failed_round == candidates->round ||
                      candidate->passed_until_ns == UINT64_MAX;
        if (!failed) {
            return false;
        }
    }
    return true;
}

bool rg_candidates_lost(struct rg_candidates *candidates, uint64_t now_ns)
{
    bool failed = each_has_failed(candidates, now_ns);
    if (failed && !candidates->all_failed) {
        candidates->notice++;
        candidates->awaited_count = candidates->making_count;
    }
    candidates->all_failed = failed;
    RG_VERIFY(invariants(candidates));
    return failed && candidates->awaited_count == 0;
}

/* True where an address of the family failed finally. */
static bool family_is_final(const struct rg_candidates *candidates, sa_family_t family)
{
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        if (candidates->list[i].final &&
            candidates->addresses->list[i].storage.ss_family == family) {
            return true;
        }
    }
    return false;
}

bool rg_candidates_final(const struct rg_candidates *candidates)
{
    bool any = false;
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        const struct rg_candidate *candidate = &candidates->list[i];
        any |= candidate->final;
        RG_ASSERT(candidate->failed || !candidate->final);
        sa_family_t family = candidates->addresses->list[i].storage.ss_family;
        bool says_nothing = candidate->passed_until_ns == UINT64_MAX ||
                            (candidate->unreachable && !family_is_final(candidates, family));
        if (!candidate->final && !says_nothing) {
            return false;
        }
    }
    return any;
}

void rg_candidates_round_end(struct rg_candidates *candidates)
{
    candidates->round++;
    candidates->all_failed = false;
}

bool rg_candidates_fresh(const struct rg_candidates *candidates)
{
    for (uint32_t i = 0; i < count_of(candidates); i++) {
        if (candidates->list[i].failed_round == candidates->round) {
            return false;
        }
    }
    return true;
}
