/* A line of progress from numbers, and rates over the last seconds. No clock and no terminal: what
 * is drawn is what the numbers say. */
#ifndef RG_CLI_PROGRESS_LINE_H
#define RG_CLI_PROGRESS_LINE_H

#include "runtime/base.h"

#define PROGRESS_LINE_SIZE_MAX 512

/* A rate or a time that nobody knows yet. */
#define PROGRESS_UNKNOWN (-1.0)

struct progress_numbers {
    const char *what;                 /* "files", "objects", "requests" */
    uint64_t done, total;             /* total 0: nobody knows */
    uint64_t bytes_done, bytes_total; /* bytes_total 0: bytes are not counted */
    bool may_grow;                    /* the totals are not final */
    double share;                     /* of the time, where that is what ends it; or unknown */
    double rate; /* bytes per second, or things where bytes are not counted; or unknown */
    double seconds_left;
};

/* Writes a line of at most `width` characters: a bar where it fits, and as much text as fits. The
 * bar and the line say that everything is done only when it is. */
void progress_line_make(const struct progress_numbers *numbers, int width,
                        char out[static PROGRESS_LINE_SIZE_MAX]);

/* What a counter gained in the last seconds. Invariant: the samples are at least an interval apart,
 * and the counts never shrink. */
#define RATE_SAMPLES_MAX 16
struct rate_window {
    struct {
        uint64_t at_ns, count;
    } samples[RATE_SAMPLES_MAX]; /* a ring, the oldest at `first` */
    uint32_t first, used;
};

/* Notes the counter's value; a zeroed window is empty. */
void rate_window_add(struct rate_window *window, uint64_t now_ns, uint64_t count);
/* Per second; PROGRESS_UNKNOWN until the window has seen two seconds. */
double rate_window_per_second(const struct rate_window *window);

#endif
