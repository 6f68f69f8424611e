/* The line at the foot of the terminal: see progress.h. */
#include "cli/progress.h"

#include "cli/cli.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_INTERVAL_NS (200 * RG_NS_PER_MS)
#define RATE_INTERVAL_NS (1 * RG_NS_PER_S)
/* The weight of the newest interval in the rate that is shown. */
#define RATE_WEIGHT 0.4
/* A terminal that does not say how wide it is. */
#define WIDTH_DEFAULT 80
#define LINE_SIZE_MAX 256
/* A bar takes what the text leaves of the line, if that is enough for one. */
#define BAR_WIDTH_MIN 6
#define BAR_WIDTH_MAX 30
static const char bar_full[BAR_WIDTH_MAX + 1] = "##############################";

static atomic_bool is_in_trouble;

/* Asked for each line: terminals change. The last column stays free, where some of them wrap. */
static int line_width(void)
{
    struct winsize size;
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return (int)RG_MIN(is_known ? size.ws_col : WIDTH_DEFAULT, LINE_SIZE_MAX) - 1;
}

/* In one call, so that lines of several threads do not mix. */
static void line_draw(const char *text)
{
    fprintf(stderr, "\r%.*s\033[K", line_width(), text);
    fflush(stderr);
}

static void line_clear(void)
{
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

/* "[####    ] text", without the bar where it does not fit. */
static void bar_draw(uint64_t part, uint64_t whole, const char *text)
{
    int room = line_width() - (int)strlen(text) - (int)strlen("[] ");
    int width = RG_MIN(room, BAR_WIDTH_MAX);
    if (width < BAR_WIDTH_MIN) {
        line_draw(text);
        return;
    }
    char line[LINE_SIZE_MAX + BAR_WIDTH_MAX];
    int filled = whole > 0 ? (int)((double)RG_MIN(part, whole) / (double)whole * width) : 0;
    snprintf(line, sizeof(line), "[%.*s%*s] %s", filled, bar_full, width - filled, "", text);
    line_draw(line);
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

void cli_progress(const char *what, uint64_t done, uint64_t total)
{
    static uint64_t drawn_ns;
    uint64_t now_ns = rg_now_ns();
    if (total != 0 && done >= total) {
        cli_progress_end();
        return;
    }
    if (now_ns - drawn_ns < DRAW_INTERVAL_NS || atomic_load(&is_in_trouble)) {
        return;
    }
    drawn_ns = now_ns;
    char text[LINE_SIZE_MAX];
    if (total == 0) {
        snprintf(text, sizeof(text), "%s: %" PRIu64, what, done);
        line_draw(text);
    } else {
        snprintf(text, sizeof(text), "%s, %d%%", what, (int)(done * 100 / total));
        bar_draw(done, total, text);
    }
}

void cli_progress_end(void)
{
    line_clear();
}

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
    if (spent_ns < RATE_INTERVAL_NS) {
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

/* The long form, or that for narrow terminals. */
static void text_make(const struct progress *progress, const struct progress_state *state,
                      bool is_long, char out[static LINE_SIZE_MAX])
{
    char done[32], total[32], rate[32], left[32];
    const char *growing = state->is_planned ? "" : "+";
    time_left(progress, state, left);
    cli_format_size(state->bytes_done, done);
    cli_format_size(state->bytes_total, total);
    cli_format_size((uint64_t)progress->bytes_per_s, rate);
    int size = snprintf(out, LINE_SIZE_MAX, "%" PRIu64 "/%" PRIu64 "%s", state->files_done,
                        state->files_total, growing);
    RG_ASSERT(size > 0 && size < LINE_SIZE_MAX);
    size_t rest = LINE_SIZE_MAX - (size_t)size;
    if (state->bytes_total > 0 && is_long) {
        snprintf(out + size, rest, " files, %s of %s%s, %s/s, %s left", done, total, growing, rate,
                 left);
    } else if (state->bytes_total > 0) {
        snprintf(out + size, rest, ", %s/s, %s", rate, left);
    }
}

void progress_draw(struct progress *progress, const struct progress_state *state)
{
    uint64_t now_ns = rg_now_ns();
    if (!progress_is_due(progress) || atomic_load(&is_in_trouble)) {
        return;
    }
    progress->drawn_ns = now_ns;
    rate_update(progress, now_ns, state->bytes_done);
    struct progress_state shown = *state;
    shown.bytes_total = RG_MAX(shown.bytes_total, shown.bytes_done);
    char text[LINE_SIZE_MAX];
    text_make(progress, &shown, true, text);
    if ((int)strlen(text) > line_width()) {
        text_make(progress, &shown, false, text);
    }
    /* Without bytes, as when objects are removed, the bar is that of the files. */
    bool has_bytes = shown.bytes_total > 0;
    bar_draw(has_bytes ? shown.bytes_done : shown.files_done,
             has_bytes ? shown.bytes_total : shown.files_total, text);
}

void progress_close(struct progress *progress)
{
    if (progress->shown && progress->drawn_ns != 0) {
        line_clear();
    }
    progress->shown = false;
}
