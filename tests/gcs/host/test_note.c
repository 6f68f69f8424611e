/* Notes: found by who has the secret only, whole or not at all whatever is done to the region, and
 * whatever processes are killed. */
#include "gcs/host/note.h"
#include "tests/gcs/host/region_case.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define KILLS 150
#define WRITERS 3
#define KEYS 3

static void key_make(struct rg_note_key *key, unsigned number)
{
    uint8_t secret[32] = {(uint8_t)number, (uint8_t)(number >> 8), 7};
    rg_note_key_derive(key, secret);
}

/* A text that says itself whether it is whole: all of one letter, and as long as another number. */
static void note_fill(struct rg_note *note, unsigned key, unsigned number)
{
    *note = (struct rg_note){
        .made_ns = number + 1,
        .stale_ns = key,
        .expires_ns = number,
        .kind = RG_NOTE_TOKEN,
        .text_size = number * 37 % RG_NOTE_TEXT_MAX,
    };
    memset(note->text, 'a' + (int)((key + number) % 26), note->text_size);
}

static bool note_is_whole(const struct rg_note *got, unsigned key)
{
    static _Thread_local struct rg_note want;
    note_fill(&want, key, (unsigned)got->expires_ns);
    return got->made_ns == want.made_ns && got->stale_ns == want.stale_ns &&
           got->kind == want.kind && got->text_size == want.text_size &&
           memcmp(got->text, want.text, want.text_size) == 0 && got->text[want.text_size] == '\0';
}

/* As soon as no other process is writing. */
static int note_write(const struct rg_host_region *region, const struct rg_note_key *key,
                      const struct rg_note *note)
{
    int rc;
    while ((rc = rg_note_write(region, key, note)) == -EAGAIN) {
        sched_yield();
    }
    return rc;
}

static void note_put(const struct rg_host_region *region, unsigned key, unsigned number)
{
    static struct rg_note note;
    struct rg_note_key derived;
    key_make(&derived, key);
    note_fill(&note, key, number);
    RG_CHECK_EQ(note_write(region, &derived, &note), 0);
}

/* The number of the note; -1: there is none. */
static int note_number(const struct rg_host_region *region, unsigned key)
{
    static struct rg_note note;
    struct rg_note_key derived;
    key_make(&derived, key);
    int rc = rg_note_read(region, &derived, &note);
    if (rc < 0) {
        RG_CHECK_EQ(rc, -ENOENT);
        return -1;
    }
    RG_CHECK(note_is_whole(&note, key));
    return (int)note.expires_ns;
}

static void test_a_note_is_found_by_its_key(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c), other = region_case_get(&c);
    RG_CHECK_EQ(note_number(&region, 1), -1);
    note_put(&region, 1, 10);
    note_put(&other, 2, 20);
    RG_CHECK_EQ(note_number(&other, 1), 10);
    RG_CHECK_EQ(note_number(&region, 2), 20);
    RG_CHECK_EQ(note_number(&region, 3), -1);
    note_put(&other, 1, 11);
    RG_CHECK_EQ(note_number(&region, 1), 11);
    /* The longest, and one without text. */
    static struct rg_note note;
    struct rg_note_key key;
    key_make(&key, 1);
    note = (struct rg_note){.kind = RG_NOTE_REFUSED, .text_size = RG_NOTE_TEXT_MAX};
    memset(note.text, 'x', RG_NOTE_TEXT_MAX);
    RG_CHECK_EQ(rg_note_write(&region, &key, &note), 0);
    RG_CHECK_EQ(rg_note_read(&region, &key, &note), 0);
    RG_CHECK_EQ(strlen(note.text), RG_NOTE_TEXT_MAX);
    note = (struct rg_note){.kind = RG_NOTE_TOKEN};
    RG_CHECK_EQ(rg_note_write(&region, &key, &note), 0);
    RG_CHECK_EQ(rg_note_read(&region, &key, &note), 0);
    RG_CHECK_EQ(note.text_size, 0);
    rg_host_region_close(&region);
    rg_host_region_close(&other);
    region_case_close(&c);
}

static void test_the_oldest_note_makes_room(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    for (unsigned i = 0; i < RG_NOTES_COUNT; i++) {
        note_put(&region, i, 100 + i);
    }
    note_put(&region, 0, 200);
    note_put(&region, 50, 201);
    RG_CHECK_EQ(note_number(&region, 1), -1);
    RG_CHECK_EQ(note_number(&region, 0), 200);
    RG_CHECK_EQ(note_number(&region, 50), 201);
    for (unsigned i = 2; i < RG_NOTES_COUNT; i++) {
        RG_CHECK_EQ(note_number(&region, i), 100 + (int)i);
    }
    rg_host_region_close(&region);
    region_case_close(&c);
}

/* Of a clock that is ahead of ours: it would otherwise stay for as long. */
static void test_a_note_of_the_future_makes_room(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    static struct rg_note note;
    struct rg_note_key key;
    key_make(&key, 50);
    note_fill(&note, 50, 1);
    note.made_ns = UINT64_MAX - 1;
    RG_CHECK_EQ(rg_note_write(&region, &key, &note), 0);
    for (unsigned i = 0; i < RG_NOTES_COUNT; i++) {
        note_put(&region, i, 100 + i);
    }
    RG_CHECK_EQ(note_number(&region, 50), -1);
    for (unsigned i = 0; i < RG_NOTES_COUNT; i++) {
        RG_CHECK_EQ(note_number(&region, i), 100 + (int)i);
    }
    rg_host_region_close(&region);
    region_case_close(&c);
}

/* A process that is stopped while it writes holds up no reader, and a writer only as long as that
 * likes. */
static void test_a_writer_that_is_stopped(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c), stopped = region_case_get(&c);
    static struct rg_note note;
    struct rg_note_key key;
    note_put(&region, 1, 10);
    RG_CHECK_EQ(rg_host_region_lock(&stopped, 0), 0);
    RG_CHECK_EQ(note_number(&region, 1), 10);
    key_make(&key, 1);
    note_fill(&note, 1, 11);
    RG_CHECK_EQ(rg_note_write(&region, &key, &note), -EAGAIN);
    rg_host_region_close(&stopped);
    note_put(&region, 1, 11);
    RG_CHECK_EQ(note_number(&region, 1), 11);
    rg_host_region_close(&region);
    region_case_close(&c);
}

static void *region_load(const struct region_case *c)
{
    int fd = open(c->path, O_RDONLY | O_CLOEXEC);
    void *all = malloc(RG_HOST_REGION_SIZE);
    RG_CHECK(all != NULL);
    RG_CHECK_EQ(pread(fd, all, RG_HOST_REGION_SIZE, 0), RG_HOST_REGION_SIZE);
    close(fd);
    return all;
}

static void test_no_text_can_be_read_without_the_secret(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    static struct rg_note note = {.kind = RG_NOTE_TOKEN, .text_size = 12, .text = "ya29.secret."};
    struct rg_note_key key;
    key_make(&key, 1);
    RG_CHECK_EQ(rg_note_write(&region, &key, &note), 0);
    void *all = region_load(&c);
    RG_CHECK(memmem(all, RG_HOST_REGION_SIZE, "ya29", 4) == NULL);
    RG_CHECK(memmem(all, RG_HOST_REGION_SIZE, key.seal, sizeof(key.seal)) == NULL);
    free(all);
    rg_host_region_close(&region);
    region_case_close(&c);
}

static void region_damage(const struct rg_host_region *region)
{
    uint8_t bytes[256];
    uint64_t size = 1 + rg_test_random_below(sizeof(bytes));
    uint64_t room = RG_HOST_REGION_SIZE - RG_HOST_HEADER_SIZE - size;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)rg_test_random();
    }
    /* Often in the head of a place, where sizes are. */
    uint64_t at = rg_test_random_below(room);
    at = rg_test_random_below(2) == 0 ? at / RG_KIB(16) * RG_KIB(16) : at;
    RG_CHECK_EQ(rg_host_region_write(region, RG_HOST_HEADER_SIZE + at, bytes, size), 0);
}

static void test_random_bytes_are_no_note(void)
{
    struct region_case c;
    region_case_open(&c);
    struct rg_host_region region = region_case_get(&c);
    unsigned lost = 0;
    for (unsigned i = 0; i < 3000; i++) {
        unsigned key = (unsigned)rg_test_random_below(RG_NOTES_COUNT);
        int number = note_number(&region, key);
        lost += number < 0;
        if (number < 0 || i % 16 == 0) {
            note_put(&region, key, i);
            RG_CHECK_EQ(note_number(&region, key), (int)i);
        }
        region_damage(&region);
    }
    RG_CHECK(lost > 10);
    rg_host_region_close(&region);
    region_case_close(&c);
}

struct writer {
    pid_t pid;
    _Atomic uint32_t *count; /* of its rounds, in memory that it shares with the test */
};

static void writer_main(struct region_case *c, struct writer *writer, unsigned first)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned number = first;; number++) {
        struct rg_host_region region;
        static struct rg_note note;
        struct rg_note_key key;
        unsigned which = number % KEYS;
        if (region_case_try(c, &region) < 0) {
            _exit(1);
        }
        key_make(&key, which);
        int rc = rg_note_read(&region, &key, &note);
        if ((rc < 0 && rc != -ENOENT) || (rc == 0 && !note_is_whole(&note, which))) {
            _exit(2);
        }
        note_fill(&note, which, number);
        if (rg_host_region_lock(&region, key.lock) == 0 && note_write(&region, &key, &note) < 0) {
            _exit(3);
        }
        rg_host_region_close(&region);
        atomic_fetch_add(writer->count, 1);
    }
}

static void writer_start(struct region_case *c, struct writer *writer)
{
    atomic_store(writer->count, 0);
    unsigned first = (unsigned)rg_test_random_below(100000);
    pid_t pid = fork();
    RG_CHECK(pid >= 0);
    writer->pid = pid;
    if (pid == 0) {
        writer_main(c, writer, first);
    }
}

static void writer_kill(struct writer *writer)
{
    int status = 0;
    RG_CHECK_EQ(kill(writer->pid, SIGKILL), 0);
    RG_CHECK_EQ(waitpid(writer->pid, &status, 0), writer->pid);
    /* Nothing else ended it. */
    RG_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Each is killed wherever it happens to be, and the region must be as good as before. */
static void test_processes_that_are_killed_harm_nobody(void)
{
    struct region_case c;
    region_case_open(&c);
    struct writer writers[WRITERS];
    _Atomic uint32_t *counts = mmap(NULL, sizeof(*counts) * WRITERS, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    RG_CHECK(counts != MAP_FAILED);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].count = &counts[i];
        writer_start(&c, &writers[i]);
    }
    for (unsigned i = 0; i < KILLS; i++) {
        struct writer *writer = &writers[i % WRITERS];
        uint32_t until = 1 + (uint32_t)rg_test_random_below(8);
        RG_AWAIT(atomic_load(writer->count) >= until);
        writer_kill(writer);
        struct rg_host_region region = region_case_get(&c);
        for (unsigned key = 0; key < KEYS; key++) {
            (void)note_number(&region, key);
        }
        note_put(&region, 99, i);
        RG_CHECK_EQ(note_number(&region, 99), (int)i);
        rg_host_region_close(&region);
        writer_start(&c, writer);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        writer_kill(&writers[i]);
    }
    /* No lock is left. */
    struct rg_host_region region = region_case_get(&c);
    for (unsigned key = 0; key < KEYS; key++) {
        struct rg_note_key derived;
        key_make(&derived, key);
        RG_CHECK_EQ(rg_host_region_lock(&region, derived.lock), 0);
    }
    rg_host_region_close(&region);
    RG_CHECK_EQ(munmap(counts, sizeof(*counts) * WRITERS), 0);
    region_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_note_is_found_by_its_key),
        RG_TEST(test_the_oldest_note_makes_room),
        RG_TEST(test_a_note_of_the_future_makes_room),
        RG_TEST(test_a_writer_that_is_stopped),
        RG_TEST(test_no_text_can_be_read_without_the_secret),
        RG_TEST(test_random_bytes_are_no_note),
        RG_TEST(test_processes_that_are_killed_harm_nobody),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
