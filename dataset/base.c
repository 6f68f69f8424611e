/* See base.h. */
#include "dataset/base.h"

#include "dataset/sampler.h"
#include "gcs/request/client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is being united. Entries are sorted: by rank and worker, and at the end those of no one in
 * particular, who have consumed nothing since their base. */
struct unite {
    struct rg_base_entry *entries; /* owned */
    size_t count, known_count;
    struct rg_state_epoch of;
    uint32_t world_size, remainder;
    uint32_t missing;             /* ranks that have no state of their own */
    struct rg_state_set before;   /* positions that were consumed before the assignment */
    struct rg_remaining assigned; /* positions that were assigned; owned */
    struct rg_remaining *streams; /* of each rank, what is left of its stream; owned */
    char *error;
    size_t error_size;
};

/* The states of one rank's workers, in their order. */
struct rank_states {
    const struct rg_base_entry *entries;
    size_t count;
    struct rg_sampler_options assignment; /* to its workers */
};

static bool is_known(const struct rg_base_entry *entry)
{
    return entry->has_state || entry->base.has_own;
}

static uint32_t rank_of(const struct rg_base_entry *entry)
{
    return entry->has_state ? entry->state.rank : entry->base.rank;
}

static uint32_t worker_of(const struct rg_base_entry *entry)
{
    return entry->has_state ? entry->state.worker : 0;
}

static const struct rg_state_epoch *epoch_of(const struct rg_base_entry *entry)
{
    return entry->has_state ? &entry->state.of : &entry->base.of;
}

static int base_read(struct rg_base_entry *entry, const struct rg_saved *saved, char *error,
                     size_t error_size)
{
    if (saved->base == NULL) {
        return 0;
    }
    entry->has_base = true;
    if (rg_base_decode(saved->base, saved->base_size, &entry->base, &entry->base_crc) < 0) {
        return rg_explain(error, error_size, -EINVAL,
                          "the base of a state is damaged, or was written by a newer version");
    }
    return 0;
}

int rg_base_entry_read(struct rg_base_entry *entry, const struct rg_saved *saved, char *error,
                       size_t error_size)
{
    *entry = (struct rg_base_entry){.has_state = saved->state != NULL};
    int rc = base_read(entry, saved, error, error_size);
    if (rc < 0 || !entry->has_state) {
        return rc;
    }
    struct rg_state *state = &entry->state;
    if (rg_state_decode(saved->state, saved->state_size, state) < 0) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state is damaged, or was written by a newer version");
    }
    if (state->has_base && !entry->has_base) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state needs the base that was saved with it");
    }
    bool is_of_rank = !entry->base.has_own || (entry->base.rank == state->rank &&
                                               entry->base.world_size == state->world_size &&
                                               entry->base.remainder == state->remainder);
    if (state->has_base != entry->has_base ||
        (state->has_base && state->base_crc != entry->base_crc) || !is_of_rank) {
        return rg_explain(
            error, error_size, -EINVAL,
            "a state and a base do not belong together: give both as they were saved");
    }
    if (!entry->has_base) {
        entry->base.positions.low = state->consumed;
    }
    return 0;
}

static bool is_zero(const uint8_t *digest)
{
    for (size_t i = 0; i < RG_DIGEST_SIZE; i++) {
        if (digest[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool is_of_another_list(const struct rg_state_epoch *a, const struct rg_state_epoch *b)
{
    return a->fingerprint != b->fingerprint ||
           (!is_zero(a->digest) && !is_zero(b->digest) &&
            memcmp(a->digest, b->digest, sizeof(a->digest)) != 0);
}

int rg_base_compare(const struct rg_state_epoch *saved, const struct rg_state_epoch *other,
                    char *error, size_t error_size)
{
    if (saved->count != other->count) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state was saved with %" PRIu64 " objects, and now there are %" PRIu64
                          ": resume with the list of that run, as a manifest keeps it",
                          saved->count, other->count);
    }
    if (is_of_another_list(saved, other)) {
        return rg_explain(
            error, error_size, -EINVAL,
            "the state was saved with other objects: names, sizes or generations differ; "
            "resume with the list of that run, as a manifest keeps it");
    }
    if (saved->seed != other->seed || saved->epoch != other->epoch) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state was saved with seed %" PRIu64 " in epoch %" PRIu64
                          ", and this is seed %" PRIu64 " in epoch %" PRIu64,
                          saved->seed, saved->epoch, other->seed, other->epoch);
    }
    if (saved->shuffle != other->shuffle) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state was saved in an epoch that was%s shuffled",
                          saved->shuffle ? "" : " not");
    }
    return 0;
}

int rg_base_left(struct rg_remaining *left, uint64_t count, const struct rg_state_set *consumed)
{
    return rg_remaining_init(left, count, consumed->low, consumed->bits, consumed->bit_count);
}

int rg_base_make(struct rg_base **out_base, const struct rg_base_content *content)
{
    size_t size = rg_base_encode(content, NULL, 0);
    struct rg_base *base = malloc(sizeof(*base) + size);
    if (base == NULL) {
        return -ENOMEM;
    }
    base->size = rg_base_encode(content, base->data, size);
    RG_ASSERT(base->size == size);
    struct rg_base_content again;
    RG_ASSERT(rg_base_decode(base->data, size, &again, &base->crc) == 0);
    *out_base = base;
    return 0;
}

static int explain_memory(const struct unite *unite, int rc)
{
    if (rc == -EFBIG) {
        return rg_explain(unite->error, unite->error_size, -EINVAL,
                          "the ranks stopped more than %" PRIu64 " samples apart",
                          RG_REMAINING_BITS_MAX);
    }
    return rg_explain(unite->error, unite->error_size, rc,
                      rc == -EINVAL ? "the state lies beyond the end of the epoch"
                                    : "no memory to read the states");
}

static int entry_compare(const void *a, const void *b)
{
    const struct rg_base_entry *left = a, *right = b;
    if (is_known(left) != is_known(right)) {
        return is_known(left) ? -1 : 1;
    }
    if (rank_of(left) != rank_of(right)) {
        return rank_of(left) < rank_of(right) ? -1 : 1;
    }
    return worker_of(left) < worker_of(right) ? -1 : worker_of(left) > worker_of(right);
}

static bool sets_equal(const struct rg_state_set *a, const struct rg_state_set *b)
{
    return a->low == b->low && a->bit_count == b->bit_count &&
           (a->bit_count == 0 || memcmp(a->bits, b->bits, a->bit_count / 8) == 0);
}

/* That an entry is of the same epoch and assignment as the others. */
static int entry_check(struct unite *unite, const struct rg_base_entry *entry)
{
    char *error = unite->error;
    size_t error_size = unite->error_size;
    if (!entry->has_state && !entry->has_base) {
        return unite->before.low == 0 && unite->before.bit_count == 0
                   ? 0
                   : rg_explain(error, error_size, -EINVAL,
                                "one rank is at the start of the epoch, and the others had resumed "
                                "from a state: they are not of one run");
    }
    int rc = rg_base_compare(epoch_of(entry), &unite->of, error, error_size);
    if (rc < 0) {
        return rc;
    }
    if (!sets_equal(&entry->base.positions, &unite->before)) {
        return rg_explain(error, error_size, -EINVAL,
                          "the states are not of one run: they had resumed from different states");
    }
    if (!is_known(entry)) {
        return 0;
    }
    uint32_t world_size = entry->has_state ? entry->state.world_size : entry->base.world_size;
    uint32_t remainder = entry->has_state ? entry->state.remainder : entry->base.remainder;
    if (world_size != unite->world_size) {
        return rg_explain(error, error_size, -EINVAL,
                          "the states have different world sizes: %u and %u", unite->world_size,
                          world_size);
    }
    return remainder == unite->remainder
               ? 0
               : rg_explain(error, error_size, -EINVAL, "the states differ in `remainder`");
}

/* Reads and sorts what was saved, and finds out what all of it is of. */
static int entries_read(struct unite *unite, const struct rg_saved *saved)
{
    for (size_t i = 0; i < unite->count; i++) {
        struct rg_base_entry *entry = &unite->entries[i];
        int rc = rg_base_entry_read(entry, &saved[i], unite->error, unite->error_size);
        if (rc < 0) {
            return rc;
        }
        unite->known_count += is_known(entry);
        if ((entry->has_state || entry->has_base) &&
            (unite->of.count == 0 || is_zero(unite->of.digest))) {
            unite->of = *epoch_of(entry);
        }
    }
    qsort(unite->entries, unite->count, sizeof(*unite->entries), entry_compare);
    const struct rg_base_entry *lead = &unite->entries[0];
    unite->before = lead->base.positions;
    unite->world_size = lead->has_state ? lead->state.world_size : lead->base.world_size;
    unite->remainder = lead->has_state ? lead->state.remainder : lead->base.remainder;
    if (unite->world_size > RG_SAVED_MAX) {
        return rg_explain(unite->error, unite->error_size, -EINVAL,
                          "the states have a world size of %u, above the limit of %u",
                          unite->world_size, RG_SAVED_MAX);
    }
    for (size_t i = 0; i < unite->count; i++) {
        int rc = entry_check(unite, &unite->entries[i]);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* How many entries are of the rank that the first is of. */
static size_t rank_count(const struct unite *unite, size_t first)
{
    size_t end = first + 1;
    while (end < unite->known_count &&
           rank_of(&unite->entries[end]) == rank_of(&unite->entries[first])) {
        end++;
    }
    return end - first;
}

/* That each worker of a rank is there once. */
static int rank_check(const struct unite *unite, const struct rg_base_entry *entries, size_t count)
{
    uint32_t rank = rank_of(&entries[0]);
    uint32_t workers = entries[0].has_state ? entries[0].state.worker_count : 1;
    for (size_t i = 0; i < count; i++) {
        uint32_t worker = worker_of(&entries[i]);
        if (i > 0 && worker == worker_of(&entries[i - 1])) {
            return rg_explain(unite->error, unite->error_size, -EINVAL,
                              "there are two states of rank %u of %u, worker %u: give one of each",
                              rank, unite->world_size, worker);
        }
        const struct rg_state *state = &entries[i].state, *first = &entries[0].state;
        if (entries[i].has_state && (state->worker_count != workers || !entries[0].has_state ||
                                     state->batch_size != first->batch_size)) {
            return rg_explain(unite->error, unite->error_size, -EINVAL,
                              "the states of rank %u have different numbers of workers or "
                              "batch sizes",
                              rank);
        }
        if (worker != i) {
            return rg_explain(unite->error, unite->error_size, -EINVAL,
                              "the state of rank %u of %u, worker %zu of %u is missing", rank,
                              unite->world_size, i, workers);
        }
        if (!sets_equal(&entries[i].base.own, &entries[0].base.own)) {
            return rg_explain(unite->error, unite->error_size, -EINVAL,
                              "the states of rank %u are not of one run", rank);
        }
    }
    return count == workers ? 0
                            : rg_explain(unite->error, unite->error_size, -EINVAL,
                                         "the state of rank %u of %u, worker %zu of %u is missing",
                                         rank, unite->world_size, count, workers);
}

static bool sample_is_done(const struct rg_state *state, uint64_t sample)
{
    if (sample < state->taken) {
        return true;
    }
    uint64_t bit = sample - state->taken;
    return bit < state->bit_count && (state->bits[bit / 8] & (1 << (bit % 8))) != 0;
}

static bool place_is_done(const void *context, uint64_t place)
{
    const struct rank_states *rank = context;
    uint64_t sample;
    uint32_t worker = rg_sampler_worker(&rank->assignment, place, &sample);
    return sample_is_done(&rank->entries[worker].state, sample);
}

/* The sample behind the last that a reader has consumed. */
static uint64_t state_end(const struct rg_state *state)
{
    uint64_t end = state->taken + state->bit_count;
    while (end > state->taken && !sample_is_done(state, end - 1)) {
        end--;
    }
    return end;
}

/* What is left of a rank's stream, of which `before` was left when its workers began. */
static int stream_after(struct rg_remaining *stream, const struct rg_remaining *before,
                        struct rank_states *rank)
{
    uint64_t total = rg_remaining_total(before);
    struct rg_remaining_change change = {
        .is_done = place_is_done, .context = rank, .low = total, .high = 0};
    for (size_t i = 0; i < rank->count; i++) {
        const struct rg_state *state = &rank->entries[i].state;
        rank->assignment.worker = (uint32_t)i;
        uint64_t end = state_end(state), own = rg_sampler_worker_total(&rank->assignment, total);
        if (end > own) {
            return -EINVAL;
        }
        if (state->taken < own) {
            change.low = RG_MIN(change.low, rg_sampler_place(&rank->assignment, state->taken));
        }
        if (end > 0) {
            change.high = RG_MAX(change.high, rg_sampler_place(&rank->assignment, end - 1) + 1);
        }
    }
    return rg_remaining_after(stream, before, &change);
}

static int stream_make(const struct unite *unite, struct rg_remaining *stream,
                       const struct rg_base_entry *entries, size_t count)
{
    uint64_t length = rg_sampler_rank_total(rg_remaining_total(&unite->assigned), rank_of(entries),
                                            unite->world_size, (enum rg_remainder)unite->remainder);
    struct rg_remaining before;
    int rc = rg_base_left(&before, length, &entries[0].base.own);
    if (rc < 0 || !entries[0].has_state) {
        *stream = rc < 0 ? *stream : before;
        return rc;
    }
    struct rank_states rank = {.entries = entries, .count = count};
    rank.assignment.block_size = entries[0].state.batch_size;
    rank.assignment.worker_count = entries[0].state.worker_count;
    rc = stream_after(stream, &before, &rank);
    rg_remaining_fini(&before);
    return rc;
}

/* What is left of the stream of each rank that has a state; how many have none. */
static int streams_make(struct unite *unite)
{
    unite->streams = calloc(unite->world_size, sizeof(*unite->streams));
    if (unite->streams == NULL) {
        return explain_memory(unite, -ENOMEM);
    }
    unite->missing = unite->world_size;
    for (size_t i = 0, count; i < unite->known_count; i += count) {
        const struct rg_base_entry *first = &unite->entries[i];
        count = rank_count(unite, i);
        int rc = rank_check(unite, first, count);
        if (rc < 0) {
            return rc;
        }
        rc = stream_make(unite, &unite->streams[rank_of(first)], first, count);
        if (rc < 0) {
            return explain_memory(unite, rc);
        }
        unite->missing--;
    }
    return 0;
}

/* That there is a state of each rank, or one without a rank in its place. */
static int ranks_check(const struct unite *unite)
{
    uint32_t missing = unite->missing;
    size_t unnamed = unite->count - unite->known_count;
    if (unnamed > missing) {
        return rg_explain(unite->error, unite->error_size, -EINVAL,
                          "%zu states are of ranks that had not started, but only %u of %u ranks "
                          "have no other state",
                          unnamed, missing, unite->world_size);
    }
    if (unnamed < missing) {
        uint32_t rank = 0;
        for (size_t i = 0; i < unite->known_count && rank_of(&unite->entries[i]) <= rank; i++) {
            rank = RG_MAX(rank, rank_of(&unite->entries[i]) + 1);
        }
        return rg_explain(unite->error, unite->error_size, -EINVAL,
                          "the states of %u of the %u ranks are missing, for instance of rank %u",
                          missing, unite->world_size, rank);
    }
    return 0;
}

static bool assigned_is_done(const void *context, uint64_t place)
{
    const struct unite *unite = context;
    const struct rg_remaining *stream = &unite->streams[place % unite->world_size];
    uint64_t number = place / unite->world_size;
    return number < stream->count && rg_remaining_is_done(stream, number);
}

/* A rank that has no state has consumed nothing: its whole stream is left. */
static void streams_complete(struct unite *unite)
{
    size_t at = 0;
    for (uint32_t rank = 0; rank < unite->world_size; rank++) {
        while (at < unite->known_count && rank_of(&unite->entries[at]) < rank) {
            at++;
        }
        if (at == unite->known_count || rank_of(&unite->entries[at]) != rank) {
            uint64_t length =
                rg_sampler_rank_total(rg_remaining_total(&unite->assigned), rank, unite->world_size,
                                      (enum rg_remainder)unite->remainder);
            unite->streams[rank] = rg_remaining_from(length, 0);
        }
    }
}

/* The sample that pads a rank's stream, if it was consumed: it is one of the order's beginning. */
static bool pad_of(const struct unite *unite, uint32_t rank, uint64_t *out_position)
{
    const struct rg_remaining *stream = &unite->streams[rank];
    uint64_t total = rg_remaining_total(&unite->assigned);
    if (stream->count == 0 || !rg_remaining_is_done(stream, stream->count - 1)) {
        return false;
    }
    uint64_t place = (stream->count - 1) * unite->world_size + rank;
    *out_position = place >= total ? (place - total) % unite->of.count : 0;
    return place >= total;
}

/* Positions that are left when all ranks' streams are known. */
static int positions_after(struct unite *unite, struct rg_remaining *left)
{
    uint64_t total = rg_remaining_total(&unite->assigned);
    struct rg_remaining_change change = {
        .is_done = assigned_is_done, .context = unite, .low = total, .high = 0};
    uint64_t *pads = malloc(unite->world_size * sizeof(*pads));
    if (pads == NULL) {
        return -ENOMEM;
    }
    bool is_over = true;
    for (uint32_t rank = 0; rank < unite->world_size; rank++) {
        const struct rg_remaining *stream = &unite->streams[rank];
        change.low = RG_MIN(change.low, stream->low * unite->world_size + rank);
        if (stream->high > 0) {
            uint64_t end = (stream->high - 1) * unite->world_size + rank + 1;
            change.high = RG_MAX(change.high, RG_MIN(end, total));
        }
        change.number_count += pad_of(unite, rank, &pads[change.number_count]);
        is_over = is_over && stream->low == stream->count;
    }
    change.numbers = pads;
    int rc = 0;
    if (is_over) {
        /* What was to be dropped does not come after all. */
        *left = rg_remaining_from(unite->of.count, unite->of.count);
    } else {
        rc = rg_remaining_after(left, &unite->assigned, &change);
    }
    free(pads);
    return rc;
}

static int set_make(struct rg_state_set *set, uint8_t **out_bits, const struct rg_remaining *left)
{
    uint64_t size = rg_remaining_bits_size(left);
    uint8_t *bits = malloc(size + 1);
    if (bits == NULL) {
        return -ENOMEM;
    }
    rg_remaining_bits(left, bits);
    *set = (struct rg_state_set){.low = left->low, .bit_count = 8 * size, .bits = bits};
    *out_bits = bits;
    return 0;
}

/* A base of what is left: positions, or with a rank's stream that, and positions as they were. */
static int base_of_left(const struct unite *unite, const struct rg_remaining *left,
                        const uint32_t *rank, struct rg_base **out_base)
{
    struct rg_base_content content = {.of = unite->of, .positions = unite->before};
    uint8_t *bits = NULL;
    int rc = set_make(rank != NULL ? &content.own : &content.positions, &bits, left);
    if (rank != NULL) {
        content.has_own = true;
        content.rank = *rank;
        content.world_size = unite->world_size;
        content.remainder = unite->remainder;
    }
    rc = rc == 0 ? rg_base_make(out_base, &content) : rc;
    free(bits);
    return rc;
}

/* Nobody has consumed anything since the base that all have. */
static int unite_unbegun(const struct unite *unite, struct rg_base **out_base)
{
    for (size_t i = 0; i < unite->count; i++) {
        if (unite->entries[i].has_base) {
            return rg_base_make(out_base, &unite->entries[i].base);
        }
    }
    return rg_explain(unite->error, unite->error_size, -EINVAL, "there is no state in the list");
}

static int unite_all(struct unite *unite, struct rg_base **out_base)
{
    streams_complete(unite);
    struct rg_remaining left = {0};
    int rc = positions_after(unite, &left);
    rc = rc == 0 ? base_of_left(unite, &left, NULL, out_base) : rc;
    rg_remaining_fini(&left);
    return rc < 0 ? explain_memory(unite, rc) : 0;
}

static int unite_rank(struct unite *unite, struct rg_base **out_base)
{
    uint32_t rank = rank_of(&unite->entries[0]);
    if (unite->known_count != unite->count || rank_count(unite, 0) != unite->count) {
        return rg_explain(
            unite->error, unite->error_size, -EINVAL,
            "the states are of several ranks: give a list of the states of all ranks");
    }
    int rc = base_of_left(unite, &unite->streams[rank], &rank, out_base);
    return rc < 0 ? explain_memory(unite, rc) : 0;
}

static int unite_run(struct unite *unite, const struct rg_saved *saved, bool all_ranks,
                     struct rg_base **out_base)
{
    int rc = entries_read(unite, saved);
    if (rc < 0 || unite->known_count == 0) {
        return rc < 0 ? rc : unite_unbegun(unite, out_base);
    }
    rc = rg_base_left(&unite->assigned, unite->of.count, &unite->before);
    if (rc < 0) {
        return explain_memory(unite, rc);
    }
    rc = streams_make(unite);
    if (rc == 0 && (all_ranks || unite->world_size == 1)) {
        rc = ranks_check(unite);
        return rc == 0 ? unite_all(unite, out_base) : rc;
    }
    return rc == 0 ? unite_rank(unite, out_base) : rc;
}

int rg_base_open(struct rg_base **out_base, const struct rg_saved *saved, size_t saved_count,
                 bool all_ranks, char *error, size_t error_size)
{
    if (saved_count == 0 || saved_count > RG_SAVED_MAX) {
        return rg_explain(error, error_size, -EINVAL, "there are %zu states; there may be 1 to %u",
                          saved_count, RG_SAVED_MAX);
    }
    struct unite unite = {.count = saved_count, .error = error, .error_size = error_size};
    unite.entries = calloc(saved_count, sizeof(*unite.entries));
    int rc = unite.entries != NULL ? unite_run(&unite, saved, all_ranks, out_base)
                                   : explain_memory(&unite, -ENOMEM);
    for (uint32_t rank = 0; unite.streams != NULL && rank < unite.world_size; rank++) {
        rg_remaining_fini(&unite.streams[rank]);
    }
    free(unite.streams);
    rg_remaining_fini(&unite.assigned);
    free(unite.entries);
    return rc;
}

const void *rg_base_data(const struct rg_base *base, size_t *out_size)
{
    *out_size = base->size;
    return base->data;
}

void rg_base_close(struct rg_base *base)
{
    free(base);
}
