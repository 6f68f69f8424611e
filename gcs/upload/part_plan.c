/* See part_plan.h. */
#include "gcs/upload/part_plan.h"

#include "gcs/upload/limits.h"

static uint64_t whole_mib(uint64_t size)
{
    return (size + RG_MIB(1) - 1) / RG_MIB(1) * RG_MIB(1);
}

/* What the program asks for wins: both numbers are the bound, one alone raises it where it has to.
 */
static uint64_t bytes_max_of(const struct rg_part_plan_options *options)
{
    uint64_t size = options->part_size != 0 ? options->part_size : RG_UPLOAD_PART_SIZE_MIN;
    uint64_t bytes = size * (options->window != 0 ? options->window : 1);
    bool is_fixed = options->part_size != 0 && options->window != 0;
    return is_fixed ? bytes : RG_MAX(bytes, (uint64_t)RG_WRITER_MEMORY_MAX);
}

static uint64_t size_first_of(const struct rg_part_plan_options *options)
{
    uint64_t hint = options->size_hint, size = RG_UPLOAD_PART_SIZE_DEFAULT;
    /* What one request takes is one part, also where there is a little more of it. */
    if (hint > RG_UPLOAD_SINGLE_SIZE_MAX) {
        uint64_t small = RG_MAX(whole_mib(hint / RG_PARTS_PARALLEL), (uint64_t)RG_PARTS_SIZE_SMALL);
        size = RG_MIN(size, small);
    }
    return RG_MAX(size, whole_mib(hint / RG_PARTS_PLANNED_MAX));
}

void rg_part_plan_init(struct rg_part_plan *plan, const struct rg_part_plan_options *options)
{
    *plan = (struct rg_part_plan){.options = *options, .bytes_max = bytes_max_of(options)};
    uint32_t parts = RG_MAX(options->window, (uint32_t)RG_PARTS_WINDOW_MIN);
    plan->size_max = plan->bytes_max / parts / RG_MIB(1) * RG_MIB(1);
    plan->size_max = RG_MAX(plan->size_max, (uint64_t)RG_UPLOAD_PART_SIZE_MIN);
    plan->size_first = RG_MIN(size_first_of(options), plan->size_max);
    plan->window_max = options->window != 0 ? options->window : RG_PARTS_WINDOW_MAX;
    plan->window = options->window != 0 ? options->window : RG_PARTS_WINDOW_FIRST;
}

uint64_t rg_part_plan_size(const struct rg_part_plan *plan, uint64_t offset)
{
    if (plan->options.part_size != 0) {
        return plan->options.part_size;
    }
    bool is_announced = offset < plan->options.size_hint;
    uint64_t grown = is_announced ? 0 : whole_mib(offset / RG_PARTS_GROWTH);
    return RG_MIN(RG_MAX(plan->size_first, grown), plan->size_max);
}

bool rg_part_plan_has_room(const struct rg_part_plan *plan, uint32_t count, uint64_t bytes,
                           uint64_t size)
{
    return count == 0 || (count < plan->window && bytes + size <= plan->bytes_max);
}

void rg_part_plan_wait(struct rg_part_plan *plan)
{
    plan->waited = true;
}

/* Begins a round; after a change of the window, when what is there now has gone. */
static void round_begin(struct rg_part_plan *plan, uint32_t skipped, uint64_t now_ns)
{
    plan->skipped = skipped;
    plan->parts = 0;
    plan->bytes = 0;
    plan->since_ns = now_ns;
    plan->waited = plan->was_cut = false;
}

/* Where the program is the slower one, nothing is known about the network. */
static void window_adapt(struct rg_part_plan *plan, double rate, uint64_t now_ns)
{
    uint32_t before = plan->window;
    bool has_gained = rate >= plan->rate_before * RG_PARTS_GAIN;
    if (plan->trying && !has_gained) {
        plan->window = plan->window_before;
        plan->hold = RG_PARTS_HOLD_ROUNDS;
    } else if (plan->hold > 0) {
        plan->hold--;
    } else if (plan->window < plan->window_max) {
        plan->window_before = plan->window;
        plan->rate_before = rate;
        plan->window = RG_MIN(2 * plan->window, plan->window_max);
    }
    plan->trying = plan->window > before;
    round_begin(plan, plan->window != before ? RG_MAX(before, plan->window) : 0, now_ns);
}

void rg_part_plan_sent(struct rg_part_plan *plan, uint64_t size, uint64_t now_ns)
{
    if (plan->options.window != 0) {
        return;
    }
    if (plan->since_ns == 0 || plan->skipped > 0) {
        /* The time of the first part that counts begins here. */
        uint32_t left = plan->skipped > 0 ? plan->skipped - 1 : 0;
        bool was_cut = plan->was_cut;
        round_begin(plan, left, now_ns);
        plan->was_cut = was_cut && left > 0;
        return;
    }
    plan->parts++;
    plan->bytes += size;
    if (plan->parts < plan->window) {
        return;
    }
    if (plan->waited) {
        uint64_t elapsed_ns = RG_MAX(now_ns - plan->since_ns, UINT64_C(1));
        window_adapt(plan, (double)plan->bytes / (double)elapsed_ns, now_ns);
    } else {
        plan->trying = false;
        round_begin(plan, 0, now_ns);
    }
}

void rg_part_plan_throttle(struct rg_part_plan *plan)
{
    if (plan->options.window != 0 || plan->was_cut) {
        return;
    }
    uint32_t before = plan->window;
    plan->window =
        RG_MAX((uint32_t)((double)plan->window * RG_PARTS_CUT), (uint32_t)RG_PARTS_WINDOW_MIN);
    plan->trying = false;
    plan->hold = RG_PARTS_HOLD_ROUNDS;
    plan->skipped = before;
    plan->was_cut = true;
}

bool rg_part_plan_too_long(const struct rg_part_plan *plan)
{
    uint64_t size = plan->options.part_size != 0 ? plan->options.part_size : plan->size_max;
    return plan->options.size_hint / RG_UPLOAD_PARTS_MAX >= size;
}
