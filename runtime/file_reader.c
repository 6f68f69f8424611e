/* See file_reader.h. One lock guards both queues: a read of a megabyte outweighs it by far. */
#include "runtime/file_reader.h"

#include "runtime/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* A thread only calls pread. */
#define READER_STACK_SIZE RG_KIB(64)

struct op_queue {
    struct rg_op *head, **tail;
};

struct rg_file_reader {
    void (*wake)(void *context);
    void *wake_context;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct op_queue waiting, done;
    uint32_t thread_count, idle_count;
    bool stopping;
    pthread_t threads[RG_FILE_READER_THREADS_MAX];
};

static void queue_init(struct op_queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
}

static void queue_push(struct op_queue *queue, struct rg_op *op)
{
    op->ready_next = NULL;
    *queue->tail = op;
    queue->tail = &op->ready_next;
}

static struct rg_op *queue_pop(struct op_queue *queue)
{
    struct rg_op *op = queue->head;
    if (op != NULL) {
        queue->head = op->ready_next;
        if (queue->head == NULL) {
            queue->tail = &queue->head;
        }
    }
    return op;
}

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5; the same on all machines */
#endif

/* As in <linux/mman.h>, which older systems have without these. */
struct cache_range {
    uint64_t offset, size;
};
struct cache_pages {
    uint64_t cached, dirty, writeback, evicted, evicted_recently;
};

/* A read that must not wait would begin to read ahead into the page cache what is then read
 * directly: twice the work of the disk. Asking costs a tenth of a microsecond. */
static bool is_cached(const struct rg_op *op, uint64_t offset, size_t size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct cache_range range = {offset, size};
    struct cache_pages pages = {.cached = 0};
    return op->file >= 0 && syscall(SYS_cachestat, op->file, &range, &pages, 0) == 0 &&
           pages.cached >= (offset % page + size + page - 1) / page;
}

/* What failed is tried again where it may wait, and says there what it is. */
bool rg_file_read_cached(struct rg_op *op)
{
    uint64_t offset = op->offset + op->lead;
    size_t size = op->needed - op->lead;
    struct iovec piece = {.iov_base = (uint8_t *)op->data + op->lead, .iov_len = size};
    bool direct = op->file_direct >= 0;
    bool asks = !direct || is_cached(op, offset, size);
    ssize_t got = asks ? preadv2(op->file, &piece, 1, (off_t)offset, RWF_NOWAIT) : -1;
    /* The rest of a part would not be aligned. */
    op->waited = got < 0 || (direct && (size_t)got < size);
    if (op->waited) {
        op->file = direct ? op->file_direct : op->file;
        return false;
    }
    op->result = (int32_t)(op->lead + (size_t)got);
    return true;
}

static void op_read(struct rg_op *op)
{
    ssize_t got;
    do {
        got = pread(op->file, op->data, op->size, (off_t)op->offset);
    } while (got < 0 && errno == EINTR);
    op->result = got < 0 ? -errno : (int32_t)got;
}

static void *reader_thread(void *context)
{
    struct rg_file_reader *reader = context;
    pthread_mutex_lock(&reader->lock);
    for (;;) {
        struct rg_op *op = reader->stopping ? NULL : queue_pop(&reader->waiting);
        if (op == NULL && reader->stopping) {
            break;
        }
        if (op == NULL) {
            reader->idle_count++;
            pthread_cond_wait(&reader->more, &reader->lock);
            reader->idle_count--;
            continue;
        }
        pthread_mutex_unlock(&reader->lock);
        op_read(op);
        pthread_mutex_lock(&reader->lock);
        queue_push(&reader->done, op);
        reader->wake(reader->wake_context);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

int rg_file_reader_create(struct rg_file_reader **out_reader, void (*wake)(void *context),
                          void *context)
{
    struct rg_file_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return -ENOMEM;
    }
    reader->wake = wake;
    reader->wake_context = context;
    queue_init(&reader->waiting);
    queue_init(&reader->done);
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->more, NULL);
    *out_reader = reader;
    return 0;
}

void rg_file_reader_destroy(struct rg_file_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    pthread_mutex_lock(&reader->lock);
    reader->stopping = true;
    pthread_cond_broadcast(&reader->more);
    pthread_mutex_unlock(&reader->lock);
    for (uint32_t i = 0; i < reader->thread_count; i++) {
        pthread_join(reader->threads[i], NULL);
    }
    pthread_cond_destroy(&reader->more);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

static void thread_start(struct rg_file_reader *reader)
{
    int rc = rg_thread_start(&reader->threads[reader->thread_count], READER_STACK_SIZE,
                             reader_thread, reader);
    reader->thread_count += rc == 0;
}

void rg_file_reader_start(struct rg_file_reader *reader, struct rg_op *op)
{
    pthread_mutex_lock(&reader->lock);
    if (reader->idle_count == 0 && reader->thread_count < RG_FILE_READER_THREADS_MAX) {
        thread_start(reader);
    }
    bool served = reader->thread_count > 0;
    if (served) {
        queue_push(&reader->waiting, op);
        pthread_cond_signal(&reader->more);
    } else {
        /* No thread can be started: read here, although that blocks. */
        op_read(op);
        queue_push(&reader->done, op);
        reader->wake(reader->wake_context);
    }
    pthread_mutex_unlock(&reader->lock);
}

struct rg_op *rg_file_reader_take(struct rg_file_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    struct rg_op *first = reader->done.head;
    queue_init(&reader->done);
    pthread_mutex_unlock(&reader->lock);
    return first;
}
