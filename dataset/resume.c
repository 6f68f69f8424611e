/* See resume.h. */
#include "dataset/resume.h"

#include "gcs/request/client.h"

#include <errno.h>
#include <stdlib.h>

static bool is_same_reader(const struct rg_sampler_options *assignment,
                           const struct rg_state *state)
{
    return state->rank == assignment->rank && state->world_size == assignment->world_size &&
           state->worker == assignment->worker && state->worker_count == assignment->worker_count &&
           state->batch_size == assignment->block_size && state->remainder == assignment->remainder;
}

/* What this reader may do with a state of another one. */
static int state_check(const struct rg_state *state, const struct rg_sampler_options *assignment,
                       char *error, size_t error_size)
{
    if (state->worker_count != 1) {
        return rg_explain(
            error, error_size, -EINVAL,
            "the state was saved by worker %u of %u on rank %u of %u with batches of %u, and this "
            "reader is another one: resume there, or give the states of all workers",
            state->worker, state->worker_count, state->rank, state->world_size, state->batch_size);
    }
    bool is_of_rank =
        state->rank == assignment->rank && state->world_size == assignment->world_size;
    if (!is_of_rank && state->world_size != 1) {
        return rg_explain(
            error, error_size, -EINVAL,
            "the state was saved by rank %u of %u, and this is rank %u of %u: what the other ranks "
            "consumed is not in it, so give a list of the states of all ranks",
            state->rank, state->world_size, assignment->rank, assignment->world_size);
    }
    return 0;
}

/* Turns what another reader consumed into a base, which replaces the entry's. */
static int state_to_base(struct rg_resume *resume, struct rg_base_entry *entry,
                         const struct rg_saved *saved, const struct rg_sampler_options *assignment,
                         char *error, size_t error_size)
{
    int rc = state_check(&entry->state, assignment, error, error_size);
    rc = rc == 0 ? rg_base_open(&resume->base, saved, 1, false, error, error_size) : rc;
    if (rc < 0) {
        return rc;
    }
    struct rg_saved base = {.base = resume->base->data, .base_size = resume->base->size};
    return rg_base_entry_read(entry, &base, error, error_size);
}

/* That a base which is one rank's is this one's. */
static int own_check(const struct rg_base_content *base,
                     const struct rg_sampler_options *assignment, char *error, size_t error_size)
{
    if (!base->has_own) {
        return 0;
    }
    if (base->rank != assignment->rank || base->world_size != assignment->world_size) {
        return rg_explain(
            error, error_size, -EINVAL,
            "the state was saved by rank %u of %u, and this is rank %u of %u: what the other ranks "
            "consumed is not in it, so give a list of the states of all ranks",
            base->rank, base->world_size, assignment->rank, assignment->world_size);
    }
    if (base->remainder != assignment->remainder) {
        return rg_explain(error, error_size, -EINVAL,
                          "the state was saved with another `remainder`");
    }
    return 0;
}

/* What is left, by the base that the entry has. */
static int base_apply(struct rg_resume *resume, const struct rg_base_entry *entry,
                      const struct rg_sampler_options *assignment, char *error, size_t error_size)
{
    const struct rg_base_content *base = &entry->base;
    int rc = own_check(base, assignment, error, error_size);
    if (rc < 0) {
        return rc;
    }
    rc = rg_base_left(&resume->left, assignment->count, &base->positions);
    if (rc == 0 && base->has_own) {
        uint64_t length = rg_sampler_rank_total(rg_remaining_total(&resume->left), assignment->rank,
                                                assignment->world_size, assignment->remainder);
        rc = rg_base_left(&resume->own_left, length, &base->own);
        resume->has_own_left = rc == 0;
    }
    return rc < 0 ? rg_explain(error, error_size, rc,
                               rc == -EINVAL ? "the state lies beyond the end of the epoch"
                                             : "no memory to read the state")
                  : 0;
}

static int resume_read(struct rg_resume *resume, const struct rg_saved *saved,
                       const struct rg_state_epoch *of, const struct rg_sampler_options *assignment,
                       char *error, size_t error_size)
{
    struct rg_base_entry entry;
    int rc = rg_base_entry_read(&entry, saved, error, error_size);
    if (rc < 0) {
        return rc;
    }
    rc = rg_base_compare(entry.has_state ? &entry.state.of : &entry.base.of, of, error, error_size);
    if (rc < 0) {
        return rc;
    }
    if (entry.has_state && is_same_reader(assignment, &entry.state)) {
        resume->state = entry.state;
    } else if (entry.has_state) {
        rc = state_to_base(resume, &entry, saved, assignment, error, error_size);
    }
    if (rc == 0 && resume->base == NULL && (entry.has_base || entry.base.positions.low > 0)) {
        /* A copy, of what is the caller's or, of version 1, nobody's. */
        struct rg_base_content content = entry.base;
        content.of = *of;
        rc = rg_base_make(&resume->base, &content);
    }
    if (rc < 0 || resume->base == NULL) {
        return rc < 0 && rc != -EINVAL ? rg_explain(error, error_size, rc, "no memory") : rc;
    }
    return base_apply(resume, &entry, assignment, error, error_size);
}

int rg_resume_init(struct rg_resume *resume, const struct rg_saved *saved,
                   const struct rg_state_epoch *of, const struct rg_sampler_options *assignment,
                   char *error, size_t error_size)
{
    *resume = (struct rg_resume){0};
    if (saved->state == NULL && saved->base == NULL) {
        return 0;
    }
    int rc = resume_read(resume, saved, of, assignment, error, error_size);
    if (rc < 0) {
        rg_resume_fini(resume);
    }
    return rc;
}

void rg_resume_assign(const struct rg_resume *resume, struct rg_sampler *sampler)
{
    if (resume->base == NULL) {
        return;
    }
    struct rg_sampler_options assignment = sampler->options;
    assignment.left = &resume->left;
    assignment.own_left = resume->has_own_left ? &resume->own_left : NULL;
    int rc = rg_sampler_init(sampler, &assignment);
    RG_ASSERT(rc == 0);
}

struct rg_state rg_resume_state(const struct rg_resume *resume, const struct rg_state_epoch *of,
                                const struct rg_sampler_options *assignment,
                                const struct rg_progress *consumed, uint8_t *bits)
{
    return (struct rg_state){
        .of = *of,
        .has_base = resume->base != NULL,
        .base_crc = resume->base != NULL ? resume->base->crc : 0,
        .rank = assignment->rank,
        .world_size = assignment->world_size,
        .worker = assignment->worker,
        .worker_count = assignment->worker_count,
        .batch_size = assignment->block_size,
        .remainder = assignment->remainder,
        .taken = consumed->first,
        .bit_count = rg_progress_bits(consumed, bits),
        .bits = bits,
    };
}

void rg_resume_fini(struct rg_resume *resume)
{
    rg_base_close(resume->base);
    rg_remaining_fini(&resume->left);
    rg_remaining_fini(&resume->own_left);
    *resume = (struct rg_resume){0};
}
