/* A command that `ringest emulate` runs: its clients find the emulator by their environment. */
#ifndef RG_CLI_EMULATE_COMMAND_H
#define RG_CLI_EMULATE_COMMAND_H

#include "emulator/emulator.h"

#include <signal.h>

/* Runs argv until it ends, and returns its exit status as a shell would: 128 and the number of the
 * signal that ended it. `signals` are those that end the emulator, and SIGCHLD; all are blocked.
 * SIGTERM is passed on. SIGINT is not: from a terminal, the command gets it itself. */
int emulate_command_run(const struct rg_emulator *emulator, char **argv, const sigset_t *signals);

#endif
