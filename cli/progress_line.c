/* A line of progress from numbers: see progress_line.h. */
#include "cli/progress_line.h"

#include "cli/quantity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Sixteen samples are the last four seconds. */
#define SAMPLE_INTERVAL_NS (250 * RG_NS_PER_MS)
/* Before that, connections are being opened, and no rate holds. */
#define RATE_TIME_MIN_NS (2 * RG_NS_PER_S)
/* A bar takes what the text leaves of the line, if that is enough for one. */
#define BAR_WIDTH_MIN 6
#define BAR_WIDTH_MAX 30
/* On lines of usual width, so that it stays when rates and times come to be known. */
#define BAR_WIDTH_USUAL 16
#define WIDE 100
static const char bar_full[BAR_WIDTH_MAX + 1] = "##############################";

/* From the least text to the most. */
enum detail { DETAIL_LEAST, DETAIL_SHORT, DETAIL_FULL };

static bool is_complete(const struct progress_numbers *numbers)
{
    return numbers->total > 0 && numbers->done >= numbers->total && !numbers->may_grow;
}

/* Every byte has been sent or read, and the last answers, checks and writes are waited for. */
static bool is_finishing(const struct progress_numbers *numbers)
{
    return numbers->bytes_total > 0 && numbers->bytes_done >= numbers->bytes_total &&
           !numbers->may_grow && !is_complete(numbers);
}

/* By bytes where they are counted. Below 0: nobody knows, as while the totals are being found. */
static double share_of(const struct progress_numbers *numbers)
{
    if (numbers->share >= 0) {
        return RG_MIN(numbers->share, 1.0);
    }
    if (numbers->may_grow) {
        return PROGRESS_UNKNOWN;
    }
    if (numbers->bytes_total > 0) {
        uint64_t done = RG_MIN(numbers->bytes_done, numbers->bytes_total);
        return (double)done / (double)numbers->bytes_total;
    }
    if (numbers->total > 0) {
        return (double)RG_MIN(numbers->done, numbers->total) / (double)numbers->total;
    }
    return PROGRESS_UNKNOWN;
}

struct text {
    char *at;
    size_t room;
};

static void append(struct text *text, const char *format, ...) RG_PRINTF(2, 3);
static void append(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text->at, text->room, format, args);
    va_end(args);
    RG_ASSERT(size >= 0 && (size_t)size < text->room);
    text->at += size;
    text->room -= (size_t)size;
}

static void counts_append(struct text *text, const struct progress_numbers *numbers,
                          enum detail detail)
{
    char done[CLI_QUANTITY_SIZE], total[CLI_QUANTITY_SIZE];
    const char *growing = numbers->may_grow ? "+" : "";
    append(text, "%" PRIu64, numbers->done);
    if (numbers->total > 0) {
        append(text, "/%" PRIu64 "%s", numbers->total, growing);
    }
    if (detail == DETAIL_FULL || numbers->total == 0) {
        append(text, " %s", numbers->what);
    }
    if (numbers->bytes_total > 0 && detail == DETAIL_FULL) {
        append(text, ", %s of %s%s", cli_format_size(numbers->bytes_done, done),
               cli_format_size(numbers->bytes_total, total), growing);
    }
}

static void rates_append(struct text *text, const struct progress_numbers *numbers,
                         enum detail detail)
{
    char quantity[CLI_QUANTITY_SIZE];
    if (numbers->rate >= 0 && numbers->bytes_total > 0) {
        append(text, ", %s/s", cli_format_size((uint64_t)numbers->rate, quantity));
    } else if (numbers->rate >= 0) {
        append(text, ", %.0f/s", numbers->rate);
    }
    if (is_finishing(numbers)) {
        append(text, ", finishing");
    } else if (numbers->seconds_left >= 0) {
        append(text, ", %s%s", cli_format_duration(numbers->seconds_left, quantity),
               detail == DETAIL_FULL ? " left" : "");
    }
}

static void text_make(const struct progress_numbers *numbers, enum detail detail,
                      char out[static PROGRESS_LINE_SIZE_MAX])
{
    struct text text = {out, PROGRESS_LINE_SIZE_MAX};
    counts_append(&text, numbers, detail);
    if (detail > DETAIL_LEAST) {
        rates_append(&text, numbers, detail);
    }
}

void progress_line_make(const struct progress_numbers *numbers, int width,
                        char out[static PROGRESS_LINE_SIZE_MAX])
{
    char text[PROGRESS_LINE_SIZE_MAX];
    width = RG_MAX(RG_MIN(width, PROGRESS_LINE_SIZE_MAX - 1), 0);
    int detail = DETAIL_FULL;
    text_make(numbers, DETAIL_FULL, text);
    while (detail > DETAIL_LEAST && (int)strlen(text) > width) {
        text_make(numbers, (enum detail)-- detail, text);
    }
    double share = share_of(numbers);
    int room = width - (int)strlen(text) - (int)strlen("[] ");
    int bar = RG_MIN(room, width < WIDE ? BAR_WIDTH_USUAL : BAR_WIDTH_MAX);
    if (share < 0 || bar < BAR_WIDTH_MIN) {
        snprintf(out, PROGRESS_LINE_SIZE_MAX, "%.*s", width, text);
        return;
    }
    int most = is_complete(numbers) ? bar : bar - 1;
    int filled = RG_MIN((int)(share * bar), most);
    snprintf(out, PROGRESS_LINE_SIZE_MAX, "[%.*s%*s] %s", filled, bar_full, bar - filled, "", text);
}

static uint32_t newest(const struct rate_window *window)
{
    return (window->first + window->used - 1) % RATE_SAMPLES_MAX;
}

static void invariants(const struct rate_window *window)
{
#ifdef RG_VERIFY
    RG_ASSERT(window->used <= RATE_SAMPLES_MAX && window->first < RATE_SAMPLES_MAX);
    for (uint32_t i = 1; i < window->used; i++) {
        uint32_t before = (window->first + i - 1) % RATE_SAMPLES_MAX;
        uint32_t after = (window->first + i) % RATE_SAMPLES_MAX;
        RG_ASSERT(window->samples[after].at_ns - window->samples[before].at_ns >=
                  SAMPLE_INTERVAL_NS);
        RG_ASSERT(window->samples[after].count >= window->samples[before].count);
    }
#else
    (void)window;
#endif
}

void rate_window_add(struct rate_window *window, uint64_t now_ns, uint64_t count)
{
    if (window->used > 0) {
        uint32_t last = newest(window);
        if (now_ns - window->samples[last].at_ns < SAMPLE_INTERVAL_NS) {
            return;
        }
        count = RG_MAX(count, window->samples[last].count);
    }
    if (window->used == RATE_SAMPLES_MAX) {
        window->first = (window->first + 1) % RATE_SAMPLES_MAX;
        window->used--;
    }
    window->used++;
    uint32_t at = newest(window);
    window->samples[at].at_ns = now_ns;
    window->samples[at].count = count;
    invariants(window);
}

double rate_window_per_second(const struct rate_window *window)
{
    if (window->used < 2) {
        return PROGRESS_UNKNOWN;
    }
    uint32_t last = newest(window);
    uint64_t time_ns = window->samples[last].at_ns - window->samples[window->first].at_ns;
    uint64_t gained = window->samples[last].count - window->samples[window->first].count;
    return time_ns < RATE_TIME_MIN_NS ? PROGRESS_UNKNOWN : (double)gained * 1e9 / (double)time_ns;
}
