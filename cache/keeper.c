/* See keeper.h. */
#include "cache/keeper.h"

#include "cache/policy.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"
#include "runtime/log.h"
#include "runtime/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

/* Segments that one decision may remove. */
#define REMOVALS_MAX 64
/* Entries that are put into the index while the memory for one comes. */
#define PREFETCHED 4
/* After a write that failed, none is tried for so long. */
#define FAILED_NS (10 * RG_NS_PER_S)

static const char *const troubles[] = {
    [RG_CACHE_TROUBLE_FOLDER] = "its folder cannot be read",
    [RG_CACHE_TROUBLE_WRITE] = "it cannot be written",
    [RG_CACHE_TROUBLE_READ] = "a segment cannot be read",
    [RG_CACHE_TROUBLE_DAMAGE] = "a record is damaged, and is read from the bucket again",
    [RG_CACHE_TROUBLE_VERSION] = "it has a segment that this version cannot read",
};
static_assert(RG_ARRAY_LEN(troubles) == RG_CACHE_TROUBLE_COUNT, "each is said in words");

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

void rg_cache_keeper_trouble(struct rg_cache_keeper *keeper, enum rg_cache_trouble trouble,
                             int error)
{
    struct rg_cache_counters *counters = keeper->counters;
    count(&counters->errors, 1);
    if (!atomic_exchange_explicit(&counters->said[trouble], true, memory_order_relaxed)) {
        rg_log(RG_LOG_WARN, "cache %s: %s (%s); what it has not is read from the bucket",
               keeper->path, troubles[trouble], rg_error_text(-error));
    }
}

static uint64_t clock_now(struct rg_cache_keeper *keeper)
{
    uint64_t bytes = atomic_exchange_explicit(&keeper->looked_up, 0, memory_order_relaxed);
    uint64_t now = rg_cache_index_tick(keeper->index, bytes);
    atomic_store_explicit(&keeper->clock, now, memory_order_relaxed);
    return now;
}

/* When a numbered segment was used last by anybody, as far as is known. */
static uint64_t last_use(struct rg_cache_keeper *keeper, uint32_t number)
{
    const struct rg_cache_numbered *numbered = rg_cache_index_at(keeper->index, number);
    uint64_t own = rg_cache_segments_use(keeper->segments, number, &numbered->nonce);
    return RG_MAX(own, numbered->last_use);
}

/* Tells the others what this process has used. */
static void uses_note(struct rg_cache_keeper *keeper)
{
    for (uint32_t i = 1; i < rg_cache_index_numbers(keeper->index); i++) {
        const struct rg_cache_numbered *numbered = rg_cache_index_at(keeper->index, i);
        uint64_t use = last_use(keeper, i);
        if (numbered->state != RG_CACHE_SEGMENT_NONE && use > numbered->last_use) {
            rg_cache_index_set_use(keeper->index, i, use);
        }
    }
}

/* Puts records into the index; it grows on the way. */
static void contents_insert(struct rg_cache_keeper *keeper, uint32_t number,
                            const struct rg_cache_content *contents, uint32_t count_all)
{
    for (uint32_t i = 0; i < count_all; i++) {
        if (i + PREFETCHED < count_all) {
            rg_cache_index_prefetch(keeper->index, contents[i + PREFETCHED].hash);
        }
        rg_cache_index_insert(keeper->index, number, &contents[i]);
        if (i % 1024 == 1023) {
            rg_cache_index_grow(keeper->index);
        }
    }
    rg_cache_index_grow(keeper->index);
}

static struct rg_cache_file *file_of(struct rg_cache_keeper *keeper,
                                     const struct rg_cache_nonce *nonce)
{
    return rg_cache_files_find(&keeper->files, nonce);
}

static bool is_own(const struct rg_cache_keeper *keeper, const struct rg_cache_nonce *nonce)
{
    return rg_cache_writer_is_open(&keeper->writer) &&
           memcmp(&keeper->writer.nonce, nonce, sizeof(*nonce)) == 0;
}

/* Whether the number that this process's segment got is still its own: others drop what they do not
 * find in the folder, and give the number to another segment. */
static bool has_number(const struct rg_cache_keeper *keeper)
{
    const struct rg_cache_numbered *numbered =
        rg_cache_index_at(keeper->index, keeper->writer_number);
    return numbered->state != RG_CACHE_SEGMENT_NONE &&
           memcmp(&numbered->nonce, &keeper->writer.nonce, sizeof(numbered->nonce)) == 0;
}

static void number_drop(struct rg_cache_keeper *keeper, uint32_t number)
{
    rg_cache_segments_let_go(keeper->segments, number);
    rg_cache_index_drop(keeper->index, number);
}

/* Numbers of segments that are no more. The table was read before the folder was, so that each of
 * its segments had been made by then. */
static void gone_drop(struct rg_cache_keeper *keeper)
{
    for (uint32_t i = 1; i < rg_cache_index_numbers(keeper->index); i++) {
        const struct rg_cache_numbered *numbered = rg_cache_index_at(keeper->index, i);
        if (numbered->state != RG_CACHE_SEGMENT_NONE && !is_own(keeper, &numbered->nonce) &&
            file_of(keeper, &numbered->nonce) == NULL) {
            number_drop(keeper, i);
        }
    }
}

/* Puts all records of a sealed segment into the index. */
static int segment_list(struct rg_cache_keeper *keeper, uint32_t number,
                        const struct rg_cache_nonce *nonce)
{
    struct rg_cache_content *contents = NULL;
    uint32_t records = 0;
    int fd = rg_cache_file_open(keeper->folder, nonce, 0);
    if (fd < 0) {
        return fd;
    }
    int rc = rg_cache_file_contents(fd, nonce, &contents, &records);
    rg_fd_drop(fd);
    if (rc < 0) {
        return rc;
    }
    contents_insert(keeper, number, contents, records);
    free(contents);
    rg_cache_index_set_listed(keeper->index, number, nonce);
    return 0;
}

static void segment_look(struct rg_cache_keeper *keeper, const struct rg_cache_nonce *nonce)
{
    uint32_t number = rg_cache_index_number(keeper->index, nonce);
    if (number == 0 || rg_cache_index_at(keeper->index, number)->state == RG_CACHE_SEGMENT_LISTED ||
        !rg_cache_index_hold(keeper->index, number)) {
        return;
    }
    int rc = segment_list(keeper, number, nonce);
    rg_cache_index_release(keeper->index, number);
    if (rc < 0 && rc != -ENOENT) {
        bool foreign = rc == -EPROTONOSUPPORT || rc == -EBADMSG || rc == -EPERM;
        rg_cache_keeper_trouble(keeper, foreign ? RG_CACHE_TROUBLE_VERSION : RG_CACHE_TROUBLE_READ,
                                rc);
        /* It counts for the size, and is not looked at again before the index is another. */
        rg_cache_index_set_listed(keeper->index, number, nonce);
    }
}

/* `read`: lists them all, or what is new. */
static int files_read(struct rg_cache_keeper *keeper, int (*read)(int, struct rg_cache_files *))
{
    int rc = read(keeper->folder, &keeper->files);
    if (rc < 0) {
        rg_cache_keeper_trouble(keeper, RG_CACHE_TROUBLE_FOLDER, rc);
        return rc;
    }
    atomic_store_explicit(&keeper->counters->size, keeper->files.size, memory_order_relaxed);
    atomic_store_explicit(&keeper->counters->segments, keeper->files.count, memory_order_relaxed);
    return 0;
}

/* What this process has written and is not sealed, into an index that does not have it. */
static void index_retell(struct rg_cache_keeper *keeper)
{
    const struct rg_cache_writer *writer = &keeper->writer;
    if (!rg_cache_writer_is_open(writer)) {
        return;
    }
    keeper->writer_number = rg_cache_index_number(keeper->index, &writer->nonce);
    if (keeper->writer_number != 0) {
        contents_insert(keeper, keeper->writer_number, writer->contents, writer->count);
    }
}

static void index_refresh(struct rg_cache_keeper *keeper)
{
    if (rg_cache_index_refresh(keeper->index) || !has_number(keeper)) {
        index_retell(keeper);
    }
    uint64_t objects, bytes;
    rg_cache_index_measure(keeper->index, &objects, &bytes);
    atomic_store_explicit(&keeper->counters->objects, objects, memory_order_relaxed);
}

/* The sealed segment that is of no more use, or else was used the longest time ago. */
static bool oldest_find(struct rg_cache_keeper *keeper, struct rg_cache_file *out_file,
                        uint32_t *out_number, struct rg_cache_look *look)
{
    bool found = false;
    for (uint32_t i = 1; i < rg_cache_index_numbers(keeper->index); i++) {
        const struct rg_cache_numbered *numbered = rg_cache_index_at(keeper->index, i);
        struct rg_cache_file *file =
            numbered->state == RG_CACHE_SEGMENT_NONE ? NULL : file_of(keeper, &numbered->nonce);
        if (file == NULL || file->is_open || file->size == 0) {
            continue;
        }
        uint64_t use = last_use(keeper, i);
        bool is_spent = rg_cache_index_forgotten(keeper->index, i) > file->size / 2;
        if (!found || (is_spent && !look->is_spent) ||
            (is_spent == look->is_spent && use < look->oldest_use)) {
            *out_file = *file;
            *out_number = i;
            look->oldest_use = use;
            look->is_spent = is_spent;
            found = true;
        }
    }
    return found;
}

static uint64_t space_free(const struct rg_cache_keeper *keeper)
{
    struct statvfs system;
    if (fstatvfs(keeper->folder, &system) < 0) {
        return 0;
    }
    uint64_t free = (uint64_t)system.f_bavail * system.f_frsize;
    uint64_t reserve = rg_cache_reserve((uint64_t)system.f_blocks * system.f_frsize);
    return free > reserve ? free - reserve : 0;
}

static void segment_evict(struct rg_cache_keeper *keeper, const struct rg_cache_file *file,
                          uint32_t number)
{
    int rc = rg_cache_file_remove(keeper->folder, file);
    if (rc < 0 && rc != -ENOENT) {
        rg_cache_keeper_trouble(keeper, RG_CACHE_TROUBLE_VERSION, rc);
    } else {
        count(&keeper->counters->evicted, 1);
    }
    number_drop(keeper, number);
    /* Left out from now on, also where it could not be removed. */
    struct rg_cache_file *listed = file_of(keeper, &file->nonce);
    if (rc == 0 || rc == -ENOENT) {
        keeper->files.size -= listed->size;
    }
    listed->size = 0;
}

/* What the rule says of one more segment. The files were read. */
static enum rg_cache_verdict decide(struct rg_cache_keeper *keeper, struct rg_cache_file *out_file,
                                    uint32_t *out_number)
{
    struct rg_cache_look look = {
        .size_max = keeper->size_max,
        .segment_size = keeper->segment_size,
        .used = keeper->files.size,
        .free = space_free(keeper),
        .clock = clock_now(keeper),
    };
    look.has_oldest = oldest_find(keeper, out_file, out_number, &look);
    return rg_cache_decide(&look);
}

/* Removes what is out of use until a segment may be made. False: it may not. */
static bool room_make(struct rg_cache_keeper *keeper)
{
    for (unsigned i = 0; i < REMOVALS_MAX; i++) {
        struct rg_cache_file oldest;
        uint32_t number;
        enum rg_cache_verdict verdict = decide(keeper, &oldest, &number);
        if (verdict != RG_CACHE_REPLACE) {
            return verdict == RG_CACHE_ROOM;
        }
        segment_evict(keeper, &oldest, number);
    }
    return false;
}

/* Nothing is removed before there is something to write in its place. */
static void admit(struct rg_cache_keeper *keeper)
{
    struct rg_cache_file oldest;
    uint32_t number;
    bool admits =
        rg_cache_writer_is_open(&keeper->writer) ||
        (rg_now_ns() >= keeper->failed_ns && decide(keeper, &oldest, &number) != RG_CACHE_FULL);
    atomic_store_explicit(&keeper->admits, admits, memory_order_relaxed);
}

/* Segments that a host of its own sealed, or that were there before the index. */
static void files_look(struct rg_cache_keeper *keeper)
{
    struct rg_cache_files *files = &keeper->files;
    for (size_t i = 0; i < files->count; i++) {
        struct rg_cache_file *file = &files->files[i];
        if (is_own(keeper, &file->nonce)) {
            continue;
        }
        if (file->is_open && rg_cache_file_adopt(keeper->folder, file, &keeper->writer.host)) {
            file->is_open = false;
        }
        if (!file->is_open) {
            segment_look(keeper, &file->nonce);
        }
    }
}

static void segments_open(struct rg_cache_keeper *keeper)
{
    for (uint32_t i = 1; i < rg_cache_index_numbers(keeper->index); i++) {
        const struct rg_cache_numbered *numbered = rg_cache_index_at(keeper->index, i);
        if (numbered->state != RG_CACHE_SEGMENT_NONE) {
            rg_cache_segments_open_ahead(keeper->segments, i, &numbered->nonce);
        }
    }
}

static void folder_look(struct rg_cache_keeper *keeper)
{
    clock_now(keeper);
    uses_note(keeper);
    index_refresh(keeper);
    if (files_read(keeper, rg_cache_files_list) == 0) {
        gone_drop(keeper);
        files_look(keeper);
        (void)files_read(keeper, rg_cache_files_update);
    }
    rg_cache_segments_retry(keeper->segments);
    segments_open(keeper);
    admit(keeper);
    keeper->looked_ns = rg_now_ns();
    keeper->noted_ns = keeper->looked_ns;
}

static void note(struct rg_cache_keeper *keeper)
{
    clock_now(keeper);
    uses_note(keeper);
    index_refresh(keeper);
    keeper->noted_ns = rg_now_ns();
}

static void write_failed(struct rg_cache_keeper *keeper, int error)
{
    rg_cache_keeper_trouble(keeper, RG_CACHE_TROUBLE_WRITE, error);
    keeper->failed_ns = rg_now_ns() + FAILED_NS;
    atomic_store_explicit(&keeper->admits, false, memory_order_relaxed);
}

/* Ends the segment. Its number stays, or goes with it. */
static void writer_seal(struct rg_cache_keeper *keeper)
{
    if (!rg_cache_writer_is_open(&keeper->writer)) {
        return;
    }
    uint32_t number = has_number(keeper) ? keeper->writer_number : 0;
    int rc = keeper->writer.count > 0 ? rg_cache_writer_seal(&keeper->writer) : 0;
    rg_cache_writer_abandon(&keeper->writer);
    keeper->writer_number = 0;
    if (rc < 0) {
        write_failed(keeper, rc);
        if (number != 0) {
            number_drop(keeper, number);
        }
    } else if (number != 0) {
        rg_cache_index_set_listed(keeper->index, number, &keeper->writer.nonce);
    }
}

/* A segment to write to. False: there is none now. */
static bool writer_open(struct rg_cache_keeper *keeper)
{
    if (rg_cache_writer_is_open(&keeper->writer)) {
        return true;
    }
    bool may = rg_now_ns() >= keeper->failed_ns && files_read(keeper, rg_cache_files_update) == 0 &&
               room_make(keeper);
    int rc = may ? rg_cache_writer_begin(&keeper->writer, keeper->segment_size) : -EAGAIN;
    if (rc == -EAGAIN) {
        atomic_store_explicit(&keeper->admits, false, memory_order_relaxed);
        return false;
    }
    if (rc < 0) {
        write_failed(keeper, rc);
        return false;
    }
    keeper->writer_number = rg_cache_index_number(keeper->index, &keeper->writer.nonce);
    if (keeper->writer_number != 0) {
        rg_cache_segments_open_ahead(keeper->segments, keeper->writer_number,
                                     &keeper->writer.nonce);
    }
    return true;
}

/* What the index does not learn of now, because another has the table, it learns when the segment
 * is sealed and looked at. */
static void batch_write(struct rg_cache_keeper *keeper, const struct rg_cache_batch *batch)
{
    const struct rg_cache_content *placed;
    if (!writer_open(keeper)) {
        count(&keeper->counters->not_admitted, batch->records);
        return;
    }
    int rc = rg_cache_writer_append(&keeper->writer, batch->data, batch->size, batch->contents,
                                    batch->count, &placed);
    if (rc < 0) {
        write_failed(keeper, rc);
        writer_seal(keeper);
        return;
    }
    if (has_number(keeper)) {
        contents_insert(keeper, keeper->writer_number, placed, batch->count);
    }
    count(&keeper->counters->written, batch->records);
    count(&keeper->counters->written_bytes, batch->size);
    if (keeper->writer.offset >= keeper->segment_size) {
        writer_seal(keeper);
    }
}

/* With the lock, which is given up meanwhile. True: something was done. */
static bool batch_step(struct rg_cache_keeper *keeper)
{
    struct rg_cache_batches *batches = keeper->batches;
    struct rg_cache_batch *batch = rg_cache_batches_take_locked(batches);
    if (batch == NULL) {
        return false;
    }
    pthread_mutex_unlock(&batches->lock);
    batch_write(keeper, batch);
    pthread_mutex_lock(&batches->lock);
    rg_cache_batches_give_locked(batches, batch);
    return true;
}

static void flush_step(struct rg_cache_keeper *keeper)
{
    uint64_t wanted = keeper->flushes_wanted;
    pthread_mutex_unlock(&keeper->batches->lock);
    folder_look(keeper);
    pthread_mutex_lock(&keeper->batches->lock);
    keeper->flushes_done = wanted;
    pthread_cond_broadcast(&keeper->flushed);
}

/* What is due by time. */
static bool time_step(struct rg_cache_keeper *keeper, uint64_t now_ns)
{
    bool looks = now_ns >= keeper->looked_ns + RG_CACHE_LOOK_NS || keeper->looked_ns == 0;
    bool notes = now_ns >= keeper->noted_ns + RG_CACHE_NOTE_NS;
    if (!looks && !notes) {
        return false;
    }
    pthread_mutex_unlock(&keeper->batches->lock);
    if (looks) {
        folder_look(keeper);
    } else {
        note(keeper);
    }
    pthread_mutex_lock(&keeper->batches->lock);
    return true;
}

static void wait_until(struct rg_cache_keeper *keeper, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / RG_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % RG_NS_PER_S),
    };
    pthread_cond_timedwait(&keeper->batches->more, &keeper->batches->lock, &deadline);
}

/* Batches go first, then whoever waits for a flush, then what is due. False: it is to stop. */
static bool step(struct rg_cache_keeper *keeper)
{
    struct rg_cache_batches *batches = keeper->batches;
    bool hurry = keeper->stopping || keeper->flushes_done < keeper->flushes_wanted;
    uint64_t now_ns = rg_now_ns();
    uint64_t begun_before_ns = now_ns > RG_CACHE_WAIT_NS ? now_ns - RG_CACHE_WAIT_NS : 0;
    rg_cache_batches_close_locked(batches, hurry ? UINT64_MAX : begun_before_ns);
    if (rg_cache_batches_prepare_locked(batches) || batch_step(keeper)) {
        return true;
    }
    if (hurry && rg_cache_batches_are_empty_locked(batches)) {
        if (keeper->flushes_done < keeper->flushes_wanted) {
            flush_step(keeper);
            return true;
        }
        return false;
    }
    if (!time_step(keeper, now_ns)) {
        uint64_t patience_ns = batches->filling != NULL ? RG_CACHE_WAIT_NS : RG_CACHE_NOTE_NS;
        wait_until(keeper, now_ns + patience_ns);
    }
    return true;
}

static void *keeper_main(void *context)
{
    struct rg_cache_keeper *keeper = context;
    pthread_mutex_lock(&keeper->batches->lock);
    while (step(keeper)) {
    }
    pthread_mutex_unlock(&keeper->batches->lock);
    writer_seal(keeper);
    uses_note(keeper);
    return NULL;
}

int rg_cache_keeper_start(struct rg_cache_keeper *keeper)
{
    pthread_cond_init(&keeper->flushed, NULL);
    rg_cache_writer_init(&keeper->writer, keeper->folder);
    atomic_store_explicit(&keeper->admits, true, memory_order_relaxed);
    int rc = rg_thread_start(&keeper->thread, 0, keeper_main, keeper);
    if (rc < 0) {
        rg_cache_writer_fini(&keeper->writer);
        pthread_cond_destroy(&keeper->flushed);
    }
    return rc;
}

void rg_cache_keeper_stop(struct rg_cache_keeper *keeper)
{
    pthread_mutex_lock(&keeper->batches->lock);
    keeper->stopping = true;
    pthread_cond_broadcast(&keeper->batches->more);
    pthread_mutex_unlock(&keeper->batches->lock);
    pthread_join(keeper->thread, NULL);
    rg_cache_writer_fini(&keeper->writer);
    rg_cache_files_fini(&keeper->files);
    pthread_cond_destroy(&keeper->flushed);
}

void rg_cache_keeper_flush(struct rg_cache_keeper *keeper)
{
    struct rg_cache_batches *batches = keeper->batches;
    pthread_mutex_lock(&batches->lock);
    uint64_t mine = ++keeper->flushes_wanted;
    pthread_cond_broadcast(&batches->more);
    while (keeper->flushes_done < mine) {
        pthread_cond_wait(&keeper->flushed, &batches->lock);
    }
    pthread_mutex_unlock(&batches->lock);
}
