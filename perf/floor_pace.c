/* What a thread costs a step of training by taking CPU time beside it in small pieces: nothing of
 * ours, no network, no other process. For each line on its standard input it goes through so many
 * bytes at a rate, piece by piece: copies a piece of memory that is in no cache, as sealing does,
 * computes until the piece has taken as much CPU time as it would in an upload, and sleeps until
 * the next one is due. Then it prints a line. perf/async_save.py runs it on the step's CPU.
 *
 *     floor_pace MEGABYTES BYTES_PER_S PIECE_KIB CPU_US_PER_MB */
#include "runtime/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Where the copies go, which stays in the cache as a buffer to be sent does. */
#define BUFFER_SIZE RG_KIB(256)

static uint64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * RG_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / RG_NS_PER_S),
                          .tv_nsec = (long)(at_ns % RG_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static void piece_take(const uint8_t *from, size_t size, uint64_t cpu_ns)
{
    static uint8_t buffer[BUFFER_SIZE];
    uint64_t end_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + cpu_ns;
    for (size_t done = 0; done < size; done += BUFFER_SIZE) {
        memcpy(buffer, from + done, RG_MIN(size - done, (size_t)BUFFER_SIZE));
        __asm__ volatile("" : : "r"(buffer) : "memory");
    }
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns) {
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "floor_pace MEGABYTES BYTES_PER_S PIECE_KIB CPU_US_PER_MB\n");
        return 2;
    }
    size_t size = strtoul(argv[1], NULL, 10) * 1000000, piece = strtoul(argv[3], NULL, 10) << 10;
    uint64_t rate = strtoul(argv[2], NULL, 10);
    uint64_t cpu_ns = (uint64_t)(strtod(argv[4], NULL) * 1000 * (double)piece / 1e6);
    if (size == 0 || piece == 0 || rate == 0) {
        return 2;
    }
    uint8_t *memory = mmap(NULL, size + piece, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("floor_pace");
        return 1;
    }
    while (getchar() == '\n') {
        uint64_t due_ns = clock_ns(CLOCK_MONOTONIC);
        for (size_t at = 0; at < size; at += piece) {
            piece_take(memory + at, piece, cpu_ns);
            due_ns += piece * RG_NS_PER_S / rate;
            sleep_until(due_ns);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
