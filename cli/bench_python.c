/* The part of `ringest bench` that is in Python: see bench_python.h.
 *
 * This process becomes the interpreter, so that signals, the exit status and the terminal are the
 * same as if the user had started it. */
#include "cli/bench_python.h"

#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERPRETER "python3"
#define PRESET "--preset"
/* Before the user's arguments: the interpreter, -c, the program, "run"; behind them the end. */
#define ADDED_MAX 5

/* As `python3 -m ringest.bench`, which would say "No module named ringest" without the remedy. What
 * lies in the working directory is no part of it. */
static const char program[] =
    "import importlib.util, runpy, sys\n"
    "if sys.path[:1] == ['']:\n"
    "    del sys.path[0]\n"
    "try:\n"
    "    found = importlib.util.find_spec('ringest.bench')\n"
    "except ModuleNotFoundError:\n"
    "    found = None\n"
    "if found is None:\n"
    "    sys.exit('ringest: bench: ' + sys.executable + ' has no package ringest with its "
    "benchmarks; install it there, or name the interpreter that has it in RINGEST_PYTHON')\n"
    "runpy.run_module('ringest.bench', run_name='__main__', alter_sys=True)\n";

/* Whether the first word is a command that is written in Python. */
static bool is_command(int argc, char *const *argv)
{
    static const char *const commands[] = {"run", "presets", "compare", "report"};
    for (size_t i = 0; argc > 1 && i < RG_ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Where --preset stands without a command, which then is to run it; 0: nowhere. */
static int preset_find(int argc, char *const *argv)
{
    if (is_command(argc, argv)) {
        return 0;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], PRESET, strlen(PRESET)) == 0 &&
            strchr("=", argv[i][strlen(PRESET)]) != NULL) {
            return i;
        }
    }
    return 0;
}

bool bench_python_is_asked(int argc, char *const *argv)
{
    return is_command(argc, argv) || preset_find(argc, argv) > 0;
}

int bench_python_run(int argc, char *const *argv)
{
    const char *named = getenv("RINGEST_PYTHON");
    const char *interpreter = named != NULL && *named != '\0' ? named : INTERPRETER;
    int preset = preset_find(argc, argv), count = 0;
    const char **arguments = calloc((size_t)argc + ADDED_MAX, sizeof(*arguments));
    if (arguments == NULL) {
        return cli_fail("no memory");
    }
    arguments[count++] = interpreter;
    arguments[count++] = "-c";
    arguments[count++] = program;
    if (preset > 0) {
        arguments[count++] = "run";
    }
    for (int i = 1; i < argc; i++) {
        if (i != preset) {
            arguments[count++] = argv[i];
        } else if (argv[i][strlen(PRESET)] == '=') {
            arguments[count++] = argv[i] + strlen(PRESET "=");
        } else if (i + 1 == argc) {
            free(arguments);
            return cli_usage("--preset needs a value");
        }
    }
    signal(SIGPIPE, SIG_DFL);
    execvp(interpreter, (char *const *)arguments);
    int error = errno;
    free(arguments);
    return cli_fail("%s cannot be run: %s; presets, comparisons and reports need Python 3 with the "
                    "package ringest, which RINGEST_PYTHON names",
                    interpreter, strerror(error));
}
