/* The line at the foot of the terminal. Without a terminal nothing is drawn. A line is never longer
 * than the terminal is wide, since one that wraps cannot replace itself. One thread at a time, but
 * for what is said of trouble.
 *
 *   open -> draw, over and over -> close */
#ifndef RG_CLI_PROGRESS_H
#define RG_CLI_PROGRESS_H

#include "cli/progress_line.h"

struct progress {
    bool shown;
    const char *what; /* borrowed: "files", "objects" */
    uint64_t started_ns, drawn_ns;
    struct rate_window finished, moved;
};

/* What is known at a moment. What is not given does not exist. */
struct progress_state {
    uint64_t done, total; /* total 0: nobody knows */
    uint64_t bytes_done, bytes_total;
    uint64_t bytes_skipped; /* of bytes_done: there already, so that they are no part of the rate */
    uint64_t time_ns;       /* after which it ends; 0: not by the time */
    bool may_grow;          /* the totals are not final */
};

/* From any thread: this line is drawn instead of every other one, until it is cleared. */
void progress_trouble(const char *text);
void progress_trouble_clear(void);

/* `quiet`: never drawn. */
void progress_open(struct progress *progress, const char *what, bool quiet);
/* Whether progress_draw would draw now; for callers to whom finding out the state costs something.
 */
bool progress_is_due(const struct progress *progress);
void progress_draw(struct progress *progress, const struct progress_state *state);
/* Takes the line away until it is drawn again, for what is printed in its place. */
void progress_clear(struct progress *progress);
/* Takes the line away. */
void progress_close(struct progress *progress);

#endif
