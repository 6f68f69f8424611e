/* See intake.h. */
#include "dataset/intake.h"

#include "gcs/request/client.h"

#include <errno.h>

/* Many completions are waited for at a time, since each wait that ends costs a switch between
 * threads. But no more than this part of what is out, so that the window is refilled in time, and
 * not so many bytes that the first ones have left the cache. */
#define WAIT_DIVISOR 8
#define WAIT_BYTES RG_MIB(1)

int rg_intake_open(struct rg_intake *intake, struct rg_client *client,
                   const struct rg_window_options *options, const struct rg_state *state)
{
    intake->client = client;
    int rc = rg_window_init(&intake->window, options, state->taken, state->bits, state->bit_count);
    return rc < 0 ? rc : rg_cq_open(&intake->cq, client->runtime, intake->window.capacity);
}

/* Ends what is out. */
static void requests_cancel(struct rg_intake *intake)
{
    if (intake->client != NULL) {
        rg_client_cancel_all(intake->client, intake->cq);
    }
    for (uint32_t left = rg_intake_out(intake); left > 0;) {
        struct rg_completion done;
        if (rg_cq_wait(intake->cq, &done, 1, 1, RG_FOREVER) == 1) {
            rg_lease_release(done.lease);
            left--;
        }
    }
}

static void fill_tell(struct rg_intake *intake)
{
    const uint32_t *counts = intake->window.counts;
    uint32_t out = counts[RG_SLOT_OUT] + counts[RG_SLOT_AGAIN] + counts[RG_SLOT_FOLLOWS];
    const struct rg_window_fill now = {
        .room = intake->window.options.requests_max,
        .out = out,
        .filled = counts[RG_SLOT_HERE] + counts[RG_SLOT_OFFERED],
    };
    rg_runtime_window(intake->client->runtime, &intake->told, &now);
}

void rg_intake_leave(struct rg_intake *intake)
{
    const struct rg_window_fill nothing = {0};
    if (intake->client != NULL) {
        rg_runtime_window(intake->client->runtime, &intake->told, &nothing);
    }
    intake->client = NULL;
}

void rg_intake_close(struct rg_intake *intake, bool is_owner)
{
    rg_ahead_close(intake->ahead, intake->client, is_owner);
    if (intake->cq != NULL && is_owner) {
        requests_cancel(intake);
    }
    rg_cq_close(intake->cq);
    if (is_owner) {
        rg_intake_leave(intake);
    }
    rg_window_fini(&intake->window, is_owner ? rg_lease_release : NULL);
}

/* Notes what became of submitting a request. False: there is no room for it now. */
static bool submission_note(struct rg_intake *intake, uint64_t first, int rc)
{
    if (rc == -EINVAL) {
        rg_plan_refuse(&intake->plan, first, RG_STATUS_BAD_REQUEST);
    } else if (rc < 0) {
        rg_window_postpone(&intake->window, first);
    }
    return rc >= 0 || rc == -EINVAL;
}

static int pieces_submit(struct rg_intake *intake, const struct rg_get *get,
                         const struct rg_source_item *item)
{
    struct rg_range ranges[RG_TAR_MEMBERS_MAX];
    struct rg_get_ranges all = rg_plan_ranges(get, item, ranges);
    return rg_submit_get_ranges(intake->client, intake->cq, &all);
}

/* Collects gets for one batch. Submits at once what is read in pieces. */
static uint32_t gets_collect(struct rg_intake *intake, struct rg_get *gets, bool *out_is_full)
{
    uint32_t count = 0;
    struct rg_source_item item;
    *out_is_full = false;
    while (count < RG_INTAKE_AT_ONCE && !*out_is_full &&
           rg_plan_next(&intake->plan, intake->names[count], &gets[count], &item)) {
        if (item.piece_count > 1) {
            int rc = pieces_submit(intake, &gets[count], &item);
            *out_is_full = !submission_note(intake, gets[count].user_data, rc);
        } else {
            count++;
        }
    }
    return count;
}

/* Submits one batch. False: there is nothing more to submit now. */
static bool refill_some(struct rg_intake *intake)
{
    struct rg_get gets[RG_INTAKE_AT_ONCE];
    bool is_full;
    uint32_t count = gets_collect(intake, gets, &is_full), done = 0;
    int rc = 1;
    while (done < count && rc > 0) {
        rc = rg_submit_gets(intake->client, intake->cq, gets + done, count - done);
        if (rc == -EINVAL) {
            (void)submission_note(intake, gets[done++].user_data, rc);
            rc = 1;
            continue;
        }
        done += rc > 0 ? (uint32_t)rc : 0;
    }
    is_full = is_full || done < count;
    while (done < count) {
        rg_window_postpone(&intake->window, gets[done++].user_data);
    }
    intake->is_refused = is_full;
    return count == RG_INTAKE_AT_ONCE && !is_full;
}

void rg_intake_refill(struct rg_intake *intake)
{
    while (intake->client != NULL && refill_some(intake)) {
    }
    if (intake->client != NULL) {
        fill_tell(intake);
    }
    if (intake->ahead != NULL && intake->client != NULL) {
        rg_ahead_step(intake->ahead, &intake->window);
    }
}

/* What becomes of a request. */
enum outcome { OUTCOME_ARRIVED, OUTCOME_SKIPPED, OUTCOME_AGAIN };

/* An object whose generation is gone follows the policy of the options. */
static enum outcome outcome_of_missing(struct rg_intake *intake, uint64_t first)
{
    struct rg_slot *slot = rg_window_slot(&intake->window, first);
    struct rg_source_item item;
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    if (slot->kind == RG_SLOT_NEWEST || rg_plan_item(&intake->plan, first, &item, name) < 0 ||
        item.generation == 0) {
        return OUTCOME_ARRIVED;
    }
    switch (intake->changed) {
    case RG_CHANGED_SKIP:
        return OUTCOME_SKIPPED;
    case RG_CHANGED_NEWEST:
        slot->kind = RG_SLOT_NEWEST;
        return OUTCOME_AGAIN;
    case RG_CHANGED_ERROR:
        break;
    }
    return OUTCOME_ARRIVED;
}

static enum outcome outcome_of(struct rg_intake *intake, const struct rg_completion *completion)
{
    if (completion->status == RG_STATUS_CLOSED && intake->client == NULL) {
        return OUTCOME_AGAIN; /* it is not the object that cannot be read */
    }
    return completion->status == RG_STATUS_NOT_FOUND
               ? outcome_of_missing(intake, completion->user_data)
               : OUTCOME_ARRIVED;
}

/* Makes what has come in pieces one body. The item was found when the request was planned; if the
 * index has been damaged since, the sample fails. */
static void pieces_unite(struct rg_intake *intake, struct rg_completion *completion)
{
    struct rg_source_item item;
    if (rg_plan_item(&intake->plan, completion->user_data, &item, NULL) == 0) {
        rg_plan_unite(completion, &item);
    } else {
        rg_lease_release(completion->lease);
        *completion =
            (struct rg_completion){.user_data = completion->user_data, .status = RG_STATUS_SOURCE};
    }
}

static void request_arrive(struct rg_intake *intake, struct rg_completion *completion)
{
    uint64_t first = completion->user_data;
    const struct rg_slot *slot = rg_window_slot(&intake->window, first);
    if (slot->kind == RG_SLOT_PIECES && completion->status == RG_STATUS_OK) {
        pieces_unite(intake, completion);
    }
    rg_lease_share(completion->lease, slot->followers);
    rg_window_arrive(&intake->window, first, completion);
}

static void request_notice(struct rg_intake *intake, struct rg_completion *completion)
{
    uint64_t first = completion->user_data;
    switch (outcome_of(intake, completion)) {
    case OUTCOME_ARRIVED:
        request_arrive(intake, completion);
        break;
    case OUTCOME_SKIPPED:
        rg_lease_release(completion->lease);
        intake->skipped += rg_window_skip(&intake->window, first);
        break;
    case OUTCOME_AGAIN:
        rg_lease_release(completion->lease);
        rg_window_postpone(&intake->window, first);
        break;
    }
    rg_plan_learn(&intake->plan, completion->size);
}

void rg_intake_note(struct rg_intake *intake, struct rg_completion *done, int count)
{
    intake->noted += (uint64_t)RG_MAX(count, 0);
    for (int i = 0; i < count; i++) {
        request_notice(intake, &done[i]);
    }
}

void rg_intake_poll(struct rg_intake *intake)
{
    struct rg_completion done[RG_INTAKE_AT_ONCE];
    int count;
    do {
        count = rg_cq_poll(intake->cq, done, RG_INTAKE_AT_ONCE);
        rg_intake_note(intake, done, count);
    } while (count == RG_INTAKE_AT_ONCE);
}

uint32_t rg_intake_portion(const struct rg_intake *intake)
{
    uint64_t count = RG_MIN(rg_intake_out(intake) / WAIT_DIVISOR, (uint32_t)RG_INTAKE_AT_ONCE);
    count = RG_MIN(count, WAIT_BYTES / intake->plan.size_guess);
    return (uint32_t)RG_MAX(count, UINT64_C(1));
}

bool rg_intake_relieve(struct rg_intake *intake)
{
    struct rg_window *window = &intake->window;
    if (rg_window_can_take(window) || window->counts[RG_SLOT_HERE] == 0) {
        return false;
    }
    rg_window_let_go(window, rg_lease_release);
    return true;
}
