/* The line at the foot of the terminal. Without a terminal nothing is drawn. A line is never longer
 * than the terminal is wide, since one that wraps cannot replace itself. One thread at a time, but
 * for what is said of trouble. */
#ifndef RG_CLI_PROGRESS_H
#define RG_CLI_PROGRESS_H

#include "runtime/base.h"

struct progress {
    bool shown;
    uint64_t started_ns, drawn_ns;
    /* The rate is that of the last seconds, so that a stall shows. */
    uint64_t rate_ns, rate_bytes;
    double bytes_per_s;
};

struct progress_state {
    uint64_t files_done, files_total, bytes_done, bytes_total;
    bool is_planned; /* the totals will not grow */
};

/* One line that replaces itself; the last call is with done == total. total 0: unknown. */
void cli_progress(const char *what, uint64_t done, uint64_t total);
/* Takes that line away. */
void cli_progress_end(void);

/* From any thread: this line is drawn instead of every other one, until it is cleared. */
void progress_trouble(const char *text);
void progress_trouble_clear(void);

/* `quiet`: never drawn. */
void progress_open(struct progress *progress, bool quiet);
/* Whether progress_draw would draw now; for callers to whom finding out the state costs something.
 */
bool progress_is_due(const struct progress *progress);
void progress_draw(struct progress *progress, const struct progress_state *state);
/* Takes the line away. */
void progress_close(struct progress *progress);

#endif
