/* The line at the foot of the terminal: see progress.h. */
#include "cli/progress.h"

#include "cli/cli.h"
#include "runtime/log.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_INTERVAL_NS (200 * RG_NS_PER_MS)
/* A terminal that does not say how wide it is. */
#define WIDTH_DEFAULT 80
/* To the end of the line. */
#define ERASE "\033[K"
#define LINE_CLEAR "\r" ERASE

static atomic_bool is_in_trouble;

/* Asked for each line: terminals change. The last column stays free, where some of them wrap. */
static int line_width(void)
{
    struct winsize size;
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return (is_known ? size.ws_col : WIDTH_DEFAULT) - 1;
}

/* In one call, so that lines of several threads do not mix. A line of the log clears this one
 * first, and the next drawing brings it back below. */
static void line_draw(const char *text)
{
    rg_log_precede(LINE_CLEAR);
    fprintf(stderr, "\r%.*s" ERASE, line_width(), text);
    fflush(stderr);
}

static void line_clear(void)
{
    fputs(LINE_CLEAR, stderr);
    fflush(stderr);
    rg_log_precede(NULL);
}

void progress_trouble(const char *text)
{
    atomic_store(&is_in_trouble, true);
    line_draw(text);
}

void progress_trouble_clear(void)
{
    if (atomic_exchange(&is_in_trouble, false)) {
        line_clear();
    }
}

void progress_open(struct progress *progress, const char *what, bool quiet)
{
    *progress = (struct progress){
        .shown = !quiet && cli_shows_progress(),
        .what = what,
        .started_ns = rg_now_ns(),
    };
}

bool progress_is_due(const struct progress *progress)
{
    return progress->shown && rg_now_ns() - progress->drawn_ns >= DRAW_INTERVAL_NS;
}

/* By what was finished in the last seconds. */
static double seconds_left(const struct progress *progress, const struct progress_state *state)
{
    double per_second = rate_window_per_second(&progress->finished);
    bool by_bytes = state->bytes_total > 0;
    uint64_t done = by_bytes ? state->bytes_done : state->done;
    uint64_t total = by_bytes ? state->bytes_total : state->total;
    if (state->may_grow || per_second <= 0 || total <= done) {
        return PROGRESS_UNKNOWN;
    }
    return (double)(total - done) / per_second;
}

static void numbers_make(struct progress *progress, const struct progress_state *state,
                         uint64_t now_ns, struct progress_numbers *out_numbers)
{
    bool by_bytes = state->bytes_total > 0;
    rate_window_add(&progress->finished, now_ns, by_bytes ? state->bytes_done : state->done);
    rate_window_add(&progress->moved, now_ns,
                    by_bytes ? state->bytes_done - state->bytes_skipped : state->done);
    *out_numbers = (struct progress_numbers){
        .what = progress->what,
        .done = state->done,
        .total = state->total,
        .bytes_done = state->bytes_done,
        .bytes_total = by_bytes ? RG_MAX(state->bytes_total, state->bytes_done) : 0,
        .may_grow = state->may_grow,
        .share = PROGRESS_UNKNOWN,
        .rate = rate_window_per_second(&progress->moved),
        .seconds_left = seconds_left(progress, state),
    };
    if (state->time_ns > 0) {
        double spent = (double)RG_MIN(now_ns - progress->started_ns, state->time_ns);
        out_numbers->share = spent / (double)state->time_ns;
        out_numbers->seconds_left = ((double)state->time_ns - spent) / 1e9;
    }
}

void progress_draw(struct progress *progress, const struct progress_state *state)
{
    if (!progress_is_due(progress) || atomic_load(&is_in_trouble)) {
        return;
    }
    RG_ASSERT(state->bytes_skipped <= state->bytes_done);
    progress->drawn_ns = rg_now_ns();
    struct progress_numbers numbers;
    char line[PROGRESS_LINE_SIZE_MAX];
    numbers_make(progress, state, progress->drawn_ns, &numbers);
    progress_line_make(&numbers, line_width(), line);
    line_draw(line);
}

void progress_clear(struct progress *progress)
{
    if (progress->shown && progress->drawn_ns != 0) {
        line_clear();
        progress->drawn_ns = 0;
    }
}

void progress_close(struct progress *progress)
{
    progress_clear(progress);
    progress->shown = false;
}
