/* See source.h. */
#include "gcs/upload/source.h"

#include "gcs/request/part_memory.h"
#include "gcs/wire/checksum.h"

#include <inttypes.h>

/* Read at once from the page cache, and summed up before the next: some of a second-level cache.
 * From a disk it is as much as an op takes. */
#define READ_CACHED_SIZE_MAX RG_KIB(256)
/* How much memory is summed up in one pass of the loop: less than a millisecond. */
#define SUM_SIZE_MAX RG_MIB(4)

static struct rg_loop *loop_of(const struct rg_upload_part *part)
{
    return part->source->operation->request->client_loop->loop;
}

static struct rg_part_memory *memory_of(const struct rg_upload_part *part)
{
    return &part->source->operation->request->client_loop->part_memory;
}

static void part_sum(struct rg_upload_part *part, size_t size)
{
    part->crc = rg_crc32c(part->crc, part->data + part->filled, size);
    part->filled += size;
}

/* True when there is no more to come. */
static bool part_finish(struct rg_upload_part *part)
{
    if (part->filled < part->size) {
        return false;
    }
    rg_upload_part_become(part, RG_PART_FILLED);
    part->source->filled(part);
    return true;
}

static bool is_running(const struct rg_upload_source *source)
{
    return source->operation->state == RG_OPERATION_RUNNING;
}

static void read_next(struct rg_upload_part *part)
{
    const struct rg_upload_source *source = part->source;
    uint64_t left = part->size - part->filled;
    uint64_t most = source->disk_waits ? RG_OP_SIZE_MAX : READ_CACHED_SIZE_MAX;
    rg_operation_child_started(source->operation);
    rg_op_read_file(loop_of(part), &part->reading, source->fd,
                    source->file_offset + part->offset + part->filled, part->memory + part->filled,
                    (size_t)RG_MIN(left, most));
}

static void read_done(struct rg_op *reading)
{
    struct rg_upload_part *part = RG_CONTAINER_OF(reading, struct rg_upload_part, reading);
    struct rg_upload_source *source = part->source;
    rg_operation_child_ended(source->operation, NULL);
    if (!is_running(source)) {
        return;
    }
    if (reading->waited && !source->disk_waits) {
        source->disk_waits = true;
        rg_operation_wake(source->operation);
    }
    if (reading->result <= 0) {
        source->operation->request->failure.os_error = -reading->result;
        rg_operation_fail(source->operation, RG_STATUS_SOURCE,
                          reading->result < 0 ? "the file cannot be read at byte %" PRIu64
                                              : "the file ends at byte %" PRIu64
                                                "; it was longer when it was opened",
                          source->file_offset + part->offset + part->filled);
        return;
    }
    part_sum(part, (size_t)reading->result);
    if (!part_finish(part)) {
        read_next(part);
    }
}

static void memory_take(struct rg_upload_part *part)
{
    part->memory = rg_part_memory_take(memory_of(part), (size_t)part->size, &part->task);
    if (part->memory != NULL) {
        part->data = part->memory;
        read_next(part);
    } else if (!rg_list_linked(&part->task.node)) {
        rg_operation_fail(part->source->operation, RG_STATUS_NO_RESOURCES,
                          "no memory for a part of %" PRIu64 " bytes", part->size);
    }
}

static void part_run(struct rg_task *task)
{
    struct rg_upload_part *part = RG_CONTAINER_OF(task, struct rg_upload_part, task);
    RG_ASSERT(part->state == RG_PART_FILLING && is_running(part->source));
    if (part->source->kind == RG_UPLOAD_SOURCE_FILE) {
        memory_take(part);
        return;
    }
    part_sum(part, (size_t)RG_MIN(part->size - part->filled, (uint64_t)SUM_SIZE_MAX));
    if (!part_finish(part)) {
        rg_loop_defer(loop_of(part), &part->task);
    }
}

void rg_upload_source_prepare(struct rg_upload_source *source, struct rg_upload_part *part)
{
    part->source = source;
    part->task.run = part_run;
    rg_op_init(&part->reading, read_done);
}

static bool stream_begin(struct rg_upload_part *part)
{
    struct rg_upload_source *source = part->source;
    struct rg_stream_buffer *buffer =
        rg_stream_take(source->stream, part->number == 0, &source->size);
    if (buffer == NULL) {
        return false;
    }
    part->buffer = buffer;
    part->size = part->filled = buffer->size;
    part->crc = buffer->crc;
    rg_upload_part_become(part, RG_PART_FILLED);
    return true;
}

bool rg_upload_source_begin(struct rg_upload_part *part, uint64_t size_max)
{
    const struct rg_upload_source *source = part->source;
    if (source->kind == RG_UPLOAD_SOURCE_STREAM) {
        return stream_begin(part);
    }
    RG_ASSERT(part->offset <= source->size);
    part->size = RG_MIN(size_max, source->size - part->offset);
    part->filled = 0;
    part->crc = 0;
    rg_upload_part_become(part, RG_PART_FILLING);
    return true;
}

void rg_upload_source_fill(struct rg_upload_part *part)
{
    const struct rg_upload_source *source = part->source;
    RG_ASSERT(part->state == RG_PART_FILLING && part->filled == 0 && part->memory == NULL);
    part->data = source->data != NULL ? source->data + part->offset : NULL;
    if (part_finish(part)) {
        return;
    }
    if (source->kind == RG_UPLOAD_SOURCE_FILE) {
        memory_take(part);
    } else {
        rg_loop_defer(loop_of(part), &part->task);
    }
}

void rg_upload_source_call_off(struct rg_upload_part *part)
{
    rg_loop_undefer(&part->task);
}

void rg_upload_source_drop(struct rg_upload_part *part)
{
    RG_ASSERT(rg_op_idle(&part->reading));
    if (part->memory != NULL) {
        rg_part_memory_give(memory_of(part), part->memory, (size_t)part->size);
        part->memory = NULL;
    } else if (part->buffer != NULL && is_running(part->source)) {
        rg_stream_give(part->source->stream, part->buffer, loop_of(part)->now_ns);
        part->buffer = NULL;
    } else if (part->buffer != NULL) {
        rg_stream_drop(part->source->stream, part->buffer);
        part->buffer = NULL;
    }
    part->data = NULL;
}
