/* What users of gsutil and gcloud storage type, and what it is called here. */
#ifndef RG_CLI_HABITS_H
#define RG_CLI_HABITS_H

#include <stdbool.h>

/* A command of another name; NULL: none. */
const char *habit_command(const char *name);

/* Whether it is a word in front of a command there, as in `gcloud storage ls`. */
bool habit_is_front(const char *name);

/* What is said behind "there is no option NAME" of a command: "-d" or "--name", without a value.
 * NULL: nothing. */
const char *habit_option(const char *command, const char *option);

#endif
