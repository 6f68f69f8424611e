/* What the commands share: see cli.h. */
#include "cli/cli.h"

#include "cli/habits.h"
#include "cli/nearest.h"
#include "runtime/uri.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUCKET_NAME_SIZE_MIN 3
#define OPTIONS_MAX 64

const struct cli_command *cli_current;

/* How many bytes the character has that begins here; 0: these bytes are not UTF-8. */
static size_t character_size(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t size = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    for (size_t i = 1; i < size; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return c[0] > 0xf4 ? 0 : size;
}

/* Whatever a name holds, a message is one line of text and cannot drive a terminal. */
void cli_make_printable(char *text)
{
    while (*text != '\0') {
        size_t size = character_size(text);
        bool is_control =
            iscntrl((unsigned char)*text) ||
            (size == 2 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0);
        if (size == 0 || is_control) {
            memset(text, '?', RG_MAX(size, (size_t)1));
        }
        text += RG_MAX(size, (size_t)1);
    }
}

const char *cli_shown(const char *text)
{
    static enum { UNKNOWN, TERMINAL, ELSEWHERE } output;
    static char *copies[2];
    static unsigned next;
    if (output == UNKNOWN) {
        output = isatty(STDOUT_FILENO) ? TERMINAL : ELSEWHERE;
    }
    if (output == ELSEWHERE) {
        return text;
    }
    char **copy = &copies[next++ % RG_ARRAY_LEN(copies)];
    free(*copy);
    *copy = strdup(text);
    if (*copy == NULL) {
        return "?";
    }
    cli_make_printable(*copy);
    return *copy;
}

static bool is_quiet;

void cli_quiet_set(void)
{
    is_quiet = true;
}

static int log_fd = -1;

/* In one call, as lines of several threads and programs may come at once. */
static void log_line(const char *level, const char *place, const char *text)
{
    struct timespec now;
    struct tm utc;
    char time_text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc) != NULL &&
        strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", &utc) > 0) {
        dprintf(log_fd, "%s.%06ldZ ringest %s %s [%d] %s\n", time_text, now.tv_nsec / 1000, level,
                place, (int)getpid(), text);
    }
}

static void log_take(enum rg_log_level level, const char *place, const char *text)
{
    static const char *const names[] = {"", "error", "warn", "info", "debug"};
    log_line(names[RG_MIN((size_t)level, RG_ARRAY_LEN(names) - 1)], place, text);
}

bool cli_log_file_set(const char *path, enum rg_log_level level)
{
    if (log_fd >= 0) {
        return true;
    }
    log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (log_fd < 0) {
        cli_usage("--log-file %s: %s", path, strerror(errno));
        return false;
    }
    RG_ASSERT(rg_log_to(level, log_take) == 0);
    return true;
}

/* In one call, so that lines of several threads do not mix; a progress line makes way. */
static void line_print(const char *beginning, const char *text, const char *ending)
{
    if (log_fd >= 0) {
        log_line("said", cli_current != NULL ? cli_current->name : "-", text);
    }
    fprintf(stderr, "%s%s%s%s\n", cli_shows_progress() ? "\r\033[K" : "", beginning, text, ending);
}

static void message(const char *kind, const char *ending, const char *format, va_list args)
{
    char *text;
    if (vasprintf(&text, format, args) < 0) {
        return;
    }
    cli_make_printable(text);
    char beginning[64];
    snprintf(beginning, sizeof(beginning), "ringest: %s%s%s",
             cli_current != NULL ? cli_current->name : "", cli_current != NULL ? ": " : "", kind);
    line_print(beginning, text, ending);
    free(text);
}

void cli_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!is_quiet) {
        message("note: ", "", format, args);
    }
    va_end(args);
}

void cli_summary(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    if (size < 0) {
        return;
    }
    if (!is_quiet) {
        cli_make_printable(text);
        line_print("", text, "");
    }
    free(text);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message("", "", format, args);
    va_end(args);
    return CLI_FAILED;
}

int cli_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char hint[64];
    bool asks = format[0] != '\0' && format[strlen(format) - 1] == '?';
    snprintf(hint, sizeof(hint), "%s `ringest %s%s--help`", asks ? " See" : "; see",
             cli_current != NULL ? cli_current->name : "", cli_current != NULL ? " " : "");
    message("", hint, format, args);
    va_end(args);
    return CLI_USAGE;
}

/* The option with that letter or that name; NULL: there is none. */
static const struct option *option_find(const struct option *options, int letter, const char *name)
{
    while (options->name != NULL &&
           (letter != 0 ? options->val != letter : strcmp(options->name, name) != 0)) {
        options++;
    }
    return options->name != NULL ? options : NULL;
}

static void habit_tell(const char *given, const char *habit)
{
    size_t size = strlen(habit);
    bool asks = size > 0 && habit[size - 1] == '?';
    cli_usage(asks ? "there is no option %s%.*s?" : "there is no option %s%.*s", given,
              (int)(size - asks), habit);
}

/* "--recusrive": what was meant is said. */
static void option_unknown(const char *text, const struct option *options)
{
    const char *names[OPTIONS_MAX], *end = strchr(text, '=');
    char given[64];
    size_t count = 0;
    snprintf(given, sizeof(given), "%.*s", end != NULL ? (int)(end - text) : (int)strlen(text),
             text);
    for (; options[count].name != NULL; count++) {
        RG_ASSERT(count < OPTIONS_MAX);
        names[count] = options[count].name;
    }
    const char *habit = habit_option(cli_current->name, given);
    if (habit != NULL) {
        habit_tell(given, habit);
        return;
    }
    const char *nearest = nearest_word(given + 2, names, count);
    cli_usage(nearest != NULL ? "there is no option %s; did you mean --%s?"
                              : "there is no option %s",
              given, nearest);
}

static void letter_unknown(int letter)
{
    char given[] = {'-', (char)letter, '\0'};
    const char *habit = habit_option(cli_current->name, given);
    habit_tell(given, habit != NULL ? habit : "");
}

int cli_getopt(int argc, char **argv, const char *shorts, const struct option *options)
{
    RG_ASSERT(shorts[0] == ':');
    char all[32];
    bool has_quiet = option_find(options, 'q', NULL) != NULL;
    bool helps = strchr(shorts, 'h') == NULL;
    snprintf(all, sizeof(all), "%s%s%s", shorts, has_quiet ? "q" : "", helps ? "h" : "");
    opterr = 0;
    int option = getopt_long(argc, argv, all, options, NULL);
    const char *text = option == '?' || option == ':' ? argv[optind - 1] : "";
    if (option == 'h' && helps) {
        return option_find(options, 0, "help")->val;
    }
    if (option == ':') {
        cli_usage("%s needs a value", text);
    } else if (option == '?' && text[0] == '-' && text[1] == '-' && optopt != 0) {
        cli_usage("%.*s takes no value, got \"%s\"", (int)strcspn(text, "="), text, text);
    } else if (option == '?' && text[0] == '-' && text[1] == '-') {
        option_unknown(text, options);
    } else if (option == '?') {
        letter_unknown(optopt);
    }
    return option == ':' ? '?' : option;
}

int cli_help(void)
{
    const struct cli_command *command = cli_current;
    printf("Usage: ringest %s %s\n\n%s\n\n%s", command->name, command->arguments, command->summary,
           command->help);
    return cli_output_end(CLI_DONE);
}

/* From here on a limit is none that anybody meets, and is not told. */
#define SIZE_UNBOUNDED (UINT64_C(1) << 50)

bool cli_parse_u64(const char *option, const char *text, uint64_t min, uint64_t max,
                   uint64_t *out_value)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = isdigit((unsigned char)*text) && *end == '\0' && errno == 0;
    if (!is_number || value < min || value > max) {
        if (max >= UINT32_MAX) {
            cli_usage("%s must be a whole number of at least %" PRIu64 ", got \"%s\"", option, min,
                      text);
        } else {
            cli_usage("%s must be a number from %" PRIu64 " to %" PRIu64 ", got \"%s\"", option,
                      min, max, text);
        }
        return false;
    }
    *out_value = value;
    return true;
}

bool cli_parse_double(const char *option, const char *text, double min, double *out_value)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= min) || value > 1e12) {
        cli_usage("%s must be a number of at least %g, got \"%s\"", option, min, text);
        return false;
    }
    *out_value = value;
    return true;
}

bool cli_parse_size(const char *option, const char *text, uint64_t min, uint64_t max,
                    uint64_t *out_value)
{
    static const char suffixes[] = "KMGT";
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    bool is_valid = isdigit((unsigned char)*text) && errno == 0;
    const char *suffix = *end != '\0' ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix != NULL) {
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        is_valid = is_valid && value <= UINT64_MAX >> shift;
        value <<= shift;
        end++;
        end += strcmp(end, "iB") == 0 ? 2 : strcmp(end, "B") == 0 ? 1 : 0;
    }
    if (!is_valid || *end != '\0' || value < min || value > max) {
        char least[32], most[32];
        if (max >= SIZE_UNBOUNDED) {
            cli_usage("%s must be a size of at least %s (such as 100000, 100K or 64MiB), got "
                      "\"%s\"",
                      option, cli_format_size(min, least), text);
        } else {
            cli_usage("%s must be a size from %s to %s (such as 100000, 100K or 64MiB), got "
                      "\"%s\"",
                      option, cli_format_size(min, least), cli_format_size(max, most), text);
        }
        return false;
    }
    *out_value = value;
    return true;
}

bool cli_parse_match(const char *text, int64_t *out_generation)
{
    uint64_t value;
    if (!cli_parse_u64("--if-generation-match", text, 0, INT64_MAX, &value)) {
        return false;
    }
    *out_generation = value == 0 ? RG_GENERATION_ABSENT : (int64_t)value;
    return true;
}

bool cli_is_uri(const char *text)
{
    struct rg_uri uri;
    return rg_uri_split(text, strlen(text), &uri) == 0 && uri.scheme == RG_URI_GS;
}

bool cli_file_check(const char *text)
{
    if (!cli_is_uri(text)) {
        return true;
    }
    cli_usage("needs a FILE of this machine at the end, got \"%s\"", text);
    return false;
}

bool cli_parse_uri(const char *text, struct cli_uri *out_uri)
{
    struct rg_uri uri;
    if (rg_uri_split(text, strlen(text), &uri) < 0 || uri.scheme != RG_URI_GS) {
        cli_usage("needs gs://BUCKET/NAME, got \"%s\"", text);
        return false;
    }
    if (uri.bucket_size < BUCKET_NAME_SIZE_MIN || uri.bucket_size > RG_BUCKET_NAME_SIZE_MAX) {
        cli_usage("the name of a bucket has %d to %d characters, got \"%.300s\"",
                  BUCKET_NAME_SIZE_MIN, RG_BUCKET_NAME_SIZE_MAX, text);
        return false;
    }
    if (uri.name_size > RG_OBJECT_NAME_SIZE_MAX) {
        cli_usage("the name of an object has at most %d bytes, got %zu in \"%.60s...\"",
                  RG_OBJECT_NAME_SIZE_MAX, uri.name_size, text);
        return false;
    }
    if (memchr(uri.bucket, '*', uri.bucket_size) != NULL ||
        memchr(uri.bucket, '?', uri.bucket_size) != NULL) {
        cli_usage("the name of a bucket cannot have wildcards, got \"%s\"", text);
        return false;
    }
    memcpy(out_uri->bucket, uri.bucket, uri.bucket_size);
    out_uri->bucket[uri.bucket_size] = '\0';
    memcpy(out_uri->name, uri.name, uri.name_size);
    out_uri->name[uri.name_size] = '\0';
    return true;
}

int cli_objects_check(char *const *arguments, int count)
{
    struct cli_uri uri;
    for (int i = 0; i < count; i++) {
        if (!cli_parse_uri(arguments[i], &uri)) {
            return CLI_USAGE;
        }
        if (uri.name[0] == '\0') {
            return cli_usage("needs an object, gs://BUCKET/OBJECT, got the bucket \"%s\"",
                             arguments[i]);
        }
    }
    return count > 0 ? CLI_DONE : cli_usage("needs an object, gs://BUCKET/OBJECT");
}

int cli_output_end(int status)
{
    errno = 0;
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (status != CLI_DONE || !failed) {
        return status;
    }
    /* What an earlier line failed with is not known any more: the pipe tells by itself. */
    struct pollfd output = {.fd = STDOUT_FILENO};
    bool is_closed = errno == 0 && poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
    return cli_output_fail(is_closed ? EPIPE : errno);
}

int cli_output_fail(int error)
{
    return error == EPIPE ? CLI_FAILED
                          : cli_fail("standard output: %s",
                                     error != 0 ? strerror(error) : "not all could be written");
}

static atomic_int interrupted; /* the signal's number; 0: none came */

/* The second signal ends the program at once. */
static void interrupt_note(int signal_number)
{
    atomic_store(&interrupted, signal_number);
    signal(signal_number, SIG_DFL);
}

void cli_interrupt_catch(void)
{
    /* Without SA_RESTART: waiting ends. */
    struct sigaction action = {.sa_handler = interrupt_note};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

bool cli_interrupted(void)
{
    return atomic_load(&interrupted) != 0;
}

int cli_exit_status(int status)
{
    return cli_interrupted() && status != CLI_DONE ? CLI_SIGNALLED + atomic_load(&interrupted)
                                                   : status;
}

bool cli_shows_progress(void)
{
    const char *terminal = getenv("TERM");
    return !is_quiet && isatty(STDERR_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

void cli_json_string(const char *text)
{
    putchar_unlocked('"');
    const char *c = text;
    for (;;) {
        const char *start = c;
        while ((unsigned char)*c >= 0x20 && *c != '"' && *c != '\\' && *c != 0x7f) {
            c++;
        }
        fwrite_unlocked(start, 1, (size_t)(c - start), stdout);
        if (*c == '\0') {
            break;
        }
        printf(*c == '"' || *c == '\\' ? "\\%c" : "\\u%04x", *c);
        c++;
    }
    putchar_unlocked('"');
}

void cli_json_string_or_null(const char *text)
{
    if (text != NULL) {
        cli_json_string(text);
    } else {
        fputs_unlocked("null", stdout);
    }
}
