/* What is printed again and again, on a terminal in its own place; and the options of the commands
 * that do so. */
#ifndef RG_CLI_LIVE_H
#define RG_CLI_LIVE_H

#include "cli/cli.h"

struct live {
    bool once, json;
    double interval_s;
};

/* For a command's table of options. */
enum live_option { LIVE_OPTION_ONCE = 1000, LIVE_OPTION_JSON, LIVE_OPTION_INTERVAL };
/* Reads one of these from optarg. CLI_DONE, or CLI_USAGE after saying what is wrong. */
int live_option_read(struct live *live, int option);

/* A signal ends it. */
void live_pause(double seconds);
/* Lines, cut to what fits where they are redrawn; takes the text. */
void live_print(const struct live *live, char *text);
/* The folder by which processes share, by RINGEST_SHARING; NULL, after a note: they share nothing.
 * A note, too, of other builds of ringest that share there and are not seen. CLI_DONE, or what ends
 * the command, which was told. */
int live_folder_find(const char **out_folder);

#endif
