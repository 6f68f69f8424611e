/* See live.h. */
#include "cli/live.h"

#include "gcs/host/region.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_MAX_S 3600.0

int live_option_read(struct live *live, int option)
{
    live->once |= option == LIVE_OPTION_ONCE;
    live->json |= option == LIVE_OPTION_JSON;
    if (option != LIVE_OPTION_INTERVAL) {
        return CLI_DONE;
    }
    if (!cli_parse_double("--interval", optarg, 0.1, &live->interval_s)) {
        return CLI_USAGE;
    }
    return live->interval_s <= INTERVAL_MAX_S
               ? CLI_DONE
               : cli_usage("--interval is at most %.0f seconds", INTERVAL_MAX_S);
}

void live_pause(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) < 0 && !cli_interrupted()) {
    }
}

/* What fits on the terminal, below which the cursor stays; elsewhere everything. */
struct screen {
    bool is_redrawn;
    int width;
    uint32_t lines;
};

static struct screen screen_of(const struct live *live)
{
    struct winsize size;
    bool is_redrawn = !live->once && isatty(STDOUT_FILENO);
    bool is_known = is_redrawn && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return (struct screen){
        .is_redrawn = is_redrawn,
        .width = is_known && size.ws_col > 0 ? size.ws_col : INT32_MAX,
        .lines = is_known && size.ws_row > 2 ? size.ws_row - 1u : UINT32_MAX,
    };
}

void live_print(const struct live *live, char *text)
{
    struct screen screen = screen_of(live);
    char *rest = text;
    if (screen.is_redrawn) {
        printf("\033[H\033[J");
    }
    for (uint32_t i = 0; i < screen.lines && rest != NULL && *rest != '\0'; i++) {
        const char *line = strsep(&rest, "\n");
        printf("%.*s\n", screen.width, line);
    }
    free(text);
}

static void note_others(const char *folder)
{
    uint32_t version = rg_host_other_version(folder);
    if (version != 0) {
        char path[RG_HOST_PATH_SIZE_MAX];
        rg_host_path_write(folder, path, sizeof(path));
        cli_note("processes of another version of ringest are not shown: they share version %u of "
                 "%s; use the `ringest` that is installed with them",
                 version, path);
    }
}

int live_folder_find(const char **out_folder)
{
    const char *text = getenv("RINGEST_SHARING");
    struct rg_client_options options;
    char error[RG_HOST_PATH_SIZE_MAX + 100];
    rg_client_options_init(&options);
    if (text != NULL && rg_option_set(NULL, &options, "sharing", text, error, sizeof(error)) < 0) {
        return cli_usage("RINGEST_SHARING: %s", error);
    }
    *out_folder = rg_host_folder(text);
    if (*out_folder == NULL) {
        cli_note("RINGEST_SHARING is off: processes that share nothing cannot be seen");
    } else if (access(*out_folder, F_OK) < 0) {
        return cli_fail(
            "%s, by which processes share, cannot be seen: %s; give RINGEST_SHARING the "
            "folder that they have",
            *out_folder, strerror(errno));
    } else {
        note_others(*out_folder);
    }
    return CLI_DONE;
}
