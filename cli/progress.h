/* The line at the foot of the terminal while files are copied or objects removed. Without a
 * terminal nothing is drawn. One thread at a time. */
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

/* `quiet`: never drawn. */
void progress_open(struct progress *progress, bool quiet);
/* Whether progress_draw would draw now; for callers to whom finding out the state costs something.
 */
bool progress_is_due(const struct progress *progress);
void progress_draw(struct progress *progress, const struct progress_state *state);
/* Takes the line away. */
void progress_close(struct progress *progress);

#endif
