/* A line on the terminal while no connection can be had, so that a wrong endpoint does not look
 * like a program that hangs: attempts and the pauses between them may take a while. */
#ifndef RG_CLI_WATCH_H
#define RG_CLI_WATCH_H

#include <ringest/ringest.h>

struct watch;

/* Looks until it is closed, on a thread of its own; standard error is a terminal. NULL: no thread
 * or memory, and nothing is lost but the line. */
struct watch *watch_open(const struct rg_runtime *runtime);
/* Takes the line away. NULL is fine. */
void watch_close(struct watch *watch);

#endif
