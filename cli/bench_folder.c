/* Whose folder a benchmark's is: see bench_folder.h. */
#include "cli/bench_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define NAMESPACE "/proc/self/ns/pid"
/* Digits of a boot's name that are used, of 32. */
#define HERE_DIGITS 12
/* Of /proc/PID/stat behind the name in brackets, counted from 0: when it was started, in ticks. */
#define START_FIELD 19

/* The first bytes of a file, as a text. False: there is no such file. */
static bool file_read(const char *path, char *out_text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, out_text, size - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (got < 0) {
        return false;
    }
    out_text[got] = '\0';
    return true;
}

/* This boot of this machine, and its namespace of processes: random digits of the one with the
 * number of the other in them. */
static uint64_t here_number(void)
{
    char boot[64] = "";
    char digits[HERE_DIGITS + 1] = "";
    struct stat namespace = {0};
    size_t count = 0;
    (void)file_read(BOOT_ID, boot, sizeof(boot));
    for (const char *at = boot; *at != '\0' && count < HERE_DIGITS; at++) {
        if (*at != '-') {
            digits[count++] = *at;
        }
    }
    (void)stat(NAMESPACE, &namespace);
    return strtoull(digits, NULL, 16) ^ namespace.st_ino;
}

/* 0: there is no such process. */
static uint64_t process_started(uint64_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%" PRIu64 "/stat", pid);
    if (!file_read(path, text, sizeof(text))) {
        return 0;
    }
    /* The name may have spaces and brackets. */
    char *field = strrchr(text, ')'), *rest = NULL;
    field = field != NULL ? strtok_r(field + 1, " ", &rest) : NULL;
    for (int i = 0; i < START_FIELD && field != NULL; i++) {
        field = strtok_r(NULL, " ", &rest);
    }
    return field != NULL ? strtoull(field, NULL, 10) : 0;
}

int bench_folder_name(char out_name[BENCH_FOLDER_SIZE])
{
    uint64_t number, pid = (uint64_t)getpid();
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
        return -errno;
    }
    int size = snprintf(out_name, BENCH_FOLDER_SIZE,
                        BENCH_FOLDER_PREFIX "%012" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%016" PRIx64,
                        here_number(), pid, process_started(pid), number);
    RG_ASSERT(size > 0 && (size_t)size < BENCH_FOLDER_SIZE);
    return 0;
}

/* Hexadecimal digits, and a "-" behind them. NULL: something else. */
static const char *field_read(const char *text, uint64_t *out_number)
{
    size_t digits = strspn(text, "0123456789abcdef");
    if (digits == 0 || digits > 16 || text[digits] != '-') {
        return NULL;
    }
    *out_number = strtoull(text, NULL, 16);
    return text + digits + 1;
}

enum bench_folder_owner bench_folder_owner(const char *name)
{
    size_t prefix = strlen(BENCH_FOLDER_PREFIX);
    uint64_t here = 0, pid = 0, started = 0;
    const char *rest = strncmp(name, BENCH_FOLDER_PREFIX, prefix) == 0 ? name + prefix : NULL;
    bool is_long = rest != NULL && strcspn(rest, "-") == HERE_DIGITS;
    rest = is_long ? field_read(rest, &here) : NULL;
    rest = rest != NULL ? field_read(rest, &pid) : NULL;
    rest = rest != NULL ? field_read(rest, &started) : NULL;
    if (rest == NULL || *rest == '\0' || here != here_number()) {
        return BENCH_FOLDER_ELSEWHERE;
    }
    return process_started(pid) == started ? BENCH_FOLDER_RUNS : BENCH_FOLDER_GONE;
}
