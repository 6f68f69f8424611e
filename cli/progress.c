/* The line at the foot of the terminal: see progress.h. */
#include "cli/progress.h"

#include "cli/cli.h"

#include <inttypes.h>

#define DRAW_INTERVAL_NS (200 * RG_NS_PER_MS)
#define RATE_INTERVAL_NS (1 * RG_NS_PER_S)
/* Of the newest interval in the rate that is shown. */
#define RATE_WEIGHT 0.4
#define BAR_WIDTH 24
static const char bar_full[BAR_WIDTH + 1] = "########################";

void progress_open(struct progress *progress, bool quiet)
{
    uint64_t now_ns = rg_now_ns();
    *progress = (struct progress){
        .shown = !quiet && cli_shows_progress(),
        .started_ns = now_ns,
        .rate_ns = now_ns,
    };
}

static void rate_update(struct progress *progress, uint64_t now_ns, uint64_t bytes_done)
{
    uint64_t spent_ns = now_ns - progress->rate_ns;
    if (spent_ns < RATE_INTERVAL_NS && progress->bytes_per_s > 0) {
        return;
    }
    uint64_t bytes = bytes_done - RG_MIN(progress->rate_bytes, bytes_done);
    double rate = (double)bytes * 1e9 / (double)RG_MAX(spent_ns, UINT64_C(1));
    progress->bytes_per_s = progress->bytes_per_s > 0
                                ? RATE_WEIGHT * rate + (1 - RATE_WEIGHT) * progress->bytes_per_s
                                : rate;
    progress->rate_ns = now_ns;
    progress->rate_bytes = bytes_done;
}

static void time_left(const struct progress *progress, const struct progress_state *state,
                      char out[static 32])
{
    double left = (double)(state->bytes_total - state->bytes_done);
    if (!state->is_planned || progress->bytes_per_s < 1) {
        snprintf(out, 32, "--:--");
        return;
    }
    uint64_t seconds = (uint64_t)RG_MIN(left / progress->bytes_per_s, 359999.0);
    if (seconds >= 3600) {
        snprintf(out, 32, "%" PRIu64 ":%02u:%02u", seconds / 3600, (unsigned)(seconds / 60 % 60),
                 (unsigned)(seconds % 60));
    } else {
        snprintf(out, 32, "%02u:%02u", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
    }
}

bool progress_is_due(const struct progress *progress)
{
    return progress->shown && rg_now_ns() - progress->drawn_ns >= DRAW_INTERVAL_NS;
}

void progress_draw(struct progress *progress, const struct progress_state *state)
{
    uint64_t now_ns = rg_now_ns();
    if (!progress_is_due(progress)) {
        return;
    }
    progress->drawn_ns = now_ns;
    rate_update(progress, now_ns, state->bytes_done);
    char done[32], total[32], rate[32], left[32];
    struct progress_state shown = *state;
    shown.bytes_total = RG_MAX(shown.bytes_total, shown.bytes_done);
    time_left(progress, &shown, left);
    /* Without bytes, as when objects are removed, the bar is that of the files. */
    uint64_t part = shown.bytes_total > 0 ? shown.bytes_done : shown.files_done;
    uint64_t whole = shown.bytes_total > 0 ? shown.bytes_total : shown.files_total;
    int filled = whole > 0 ? (int)((double)part / (double)whole * BAR_WIDTH) : 0;
    const char *growing = shown.is_planned ? "" : "+";
    fprintf(stderr, "\r[%.*s%*s] %" PRIu64 "/%" PRIu64 "%s", filled, bar_full, BAR_WIDTH - filled,
            "", shown.files_done, shown.files_total, growing);
    if (shown.bytes_total > 0) {
        fprintf(stderr, " files, %s of %s%s, %s/s, %s left",
                cli_format_size(shown.bytes_done, done), cli_format_size(shown.bytes_total, total),
                growing, cli_format_size((uint64_t)progress->bytes_per_s, rate), left);
    }
    fprintf(stderr, "\033[K");
    fflush(stderr);
}

void progress_close(struct progress *progress)
{
    if (progress->shown && progress->drawn_ns != 0) {
        fprintf(stderr, "\r\033[K");
    }
    progress->shown = false;
}
