/* What the commands of the `ringest` program share: usage and errors, numbers and URIs among the
 * arguments, signals, output. */
#ifndef RG_CLI_CLI_H
#define RG_CLI_CLI_H

#include "cli/quantity.h"
#include "runtime/base.h"

#include <ringest/ringest.h>

#include <getopt.h>
#include <stdio.h>

/* Exit statuses; beside them 128 and its number for a signal that ended the work. */
enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_SIGNALLED = 128 };

struct cli_command {
    const char *name;
    const char *arguments; /* behind the name in the usage line */
    const char *summary;   /* one line */
    const char *help;      /* options and remarks */
    int (*run)(int argc, char **argv);
};

extern const struct cli_command cli_bench, cli_cache, cli_cat, cli_ckpt, cli_cp, cli_doctor, cli_du,
    cli_emulate, cli_explain, cli_hash, cli_ls, cli_manifest, cli_mv, cli_rm, cli_rsync,
    cli_signurl, cli_stat, cli_tar, cli_top;

/* The command that is running, for messages. */
extern const struct cli_command *cli_current;

/* One line on standard error: "ringest: cat: ...". Returns CLI_FAILED. */
int cli_fail(const char *format, ...) RG_PRINTF(1, 2);
/* The same with a hint at --help. Returns CLI_USAGE. */
int cli_usage(const char *format, ...) RG_PRINTF(1, 2);
/* Prints the help of the running command to standard output. Returns CLI_DONE. */
int cli_help(void);

/* getopt_long, with messages of ours: '?' comes after one. `shorts` begins with a colon. */
int cli_getopt(int argc, char **argv, const char *shorts, const struct option *options);

/* Numbers of options; both print what is wrong and return false. */
bool cli_parse_u64(const char *option, const char *text, uint64_t min, uint64_t max,
                   uint64_t *out_value);
bool cli_parse_double(const char *option, const char *text, double min, double *out_value);
/* A size in bytes, with an optional suffix K, M, G (1024) or KiB, MiB, GiB. */
bool cli_parse_size(const char *option, const char *text, uint64_t min, uint64_t max,
                    uint64_t *out_value);

/* --if-generation-match: a generation, or 0, which becomes RG_GENERATION_ABSENT. */
bool cli_parse_match(const char *text, int64_t *out_generation);

/* gs://BUCKET/NAME; the name may be empty. Both are copied into the struct. */
struct cli_uri {
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
};
/* Whether the text is meant as one: it begins with gs://. */
bool cli_is_uri(const char *text);
/* Whether it names a file to be written; false after printing why not. */
bool cli_file_check(const char *text);
/* False after saying why not. */
bool cli_parse_uri(const char *text, struct cli_uri *out_uri);

/* The arguments of commands that take objects: CLI_DONE, or CLI_USAGE after saying why they are
 * none, or none at all. */
int cli_objects_check(char *const *arguments, int count);

/* -q: from here on neither progress nor summaries nor notes. */
void cli_quiet_set(void);
/* True if standard error is a terminal that wants progress shown. */
bool cli_shows_progress(void);
/* What was done, in one line on standard error, without the name of the command. */
void cli_summary(const char *format, ...) RG_PRINTF(1, 2);
/* From here on everything that is said on standard error is appended to the file, too, and what the
 * library logs up to `level`. The first file counts. False after saying why it cannot be written.
 */
bool cli_log_file_set(const char *path, enum rg_log_level level);
/* Something to know that is no error: "ringest: cp: note: ...". */
void cli_note(const char *format, ...) RG_PRINTF(1, 2);

/* Flushes standard output and gives the exit status: `status`, unless writing failed. A reader that
 * went away is no reason for a message. */
int cli_output_end(int status);
int cli_output_fail(int error);

/* Puts "?" in the place of what is not UTF-8, and of control characters. */
void cli_make_printable(char *text);
/* A name or a path on its way to standard output: as it is, but on a terminal, which it must not
 * drive, with "?" in the place of control characters. Valid until the call after the next; by one
 * thread. */
const char *cli_shown(const char *text);

/* From here on SIGINT, SIGTERM and SIGHUP are only noted, the first time. */
void cli_interrupt_catch(void);
bool cli_interrupted(void);
/* The exit status of the program whose command gave `status`: work that a signal cut short tells
 * the shell so, as if the signal had ended the program. */
int cli_exit_status(int status);

/* Strings in JSON: quoted and escaped, to standard output. */
void cli_json_string(const char *text);
void cli_json_string_or_null(const char *text);

#endif
