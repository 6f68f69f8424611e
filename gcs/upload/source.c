/* Where the bytes of an upload come from. A part is filled piece by piece, and each piece is added
 * to the part's CRC32C before the next: what was read is still in the cache then, and summing up a
 * large part does not hold up the loop. */
#include "gcs/request/part_memory.h"
#include "gcs/upload/upload.h"

#include <inttypes.h>

/* Read at once from the page cache, and summed up before the next: some of a second-level cache.
 * From a disk it is as much as an op takes. */
#define READ_CACHED_SIZE_MAX RG_KIB(256)
/* How much memory is summed up in one pass of the loop: less than a millisecond. */
#define SUM_SIZE_MAX RG_MIB(4)

static struct rg_loop *loop_of(const struct rg_upload_part *part)
{
    return part->op->operation.request->client_loop->loop;
}

static struct rg_part_memory *memory_of(const struct rg_upload_part *part)
{
    return &part->op->operation.request->client_loop->part_memory;
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
    part->op->records[part->number].crc = part->crc;
    part->state = RG_PART_FILLED;
    rg_operation_wake(&part->op->operation);
    return true;
}

static void read_next(struct rg_upload_part *part)
{
    struct rg_upload_op *op = part->op;
    uint64_t left = part->size - part->filled;
    uint64_t most = op->disk_waits ? RG_OP_SIZE_MAX : READ_CACHED_SIZE_MAX;
    rg_operation_child_started(&op->operation);
    rg_op_read_file(loop_of(part), &part->reading, op->fd,
                    op->file_offset + part->offset + part->filled, part->memory + part->filled,
                    (size_t)RG_MIN(left, most));
}

void rg_upload_source_read(struct rg_op *reading)
{
    struct rg_upload_part *part = RG_CONTAINER_OF(reading, struct rg_upload_part, reading);
    struct rg_upload_op *op = part->op;
    rg_operation_child_ended(&op->operation, NULL);
    if (!rg_upload_is_running(op)) {
        return;
    }
    if (reading->waited && !op->disk_waits) {
        op->disk_waits = true;
        rg_operation_wake(&op->operation);
    }
    if (reading->result <= 0) {
        op->operation.request->failure.os_error = -reading->result;
        rg_operation_fail(&op->operation, RG_STATUS_SOURCE,
                          reading->result < 0 ? "the file cannot be read at byte %" PRIu64
                                              : "the file ends at byte %" PRIu64
                                                "; it was longer when it was opened",
                          op->file_offset + part->offset + part->filled);
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
        rg_operation_fail(&part->op->operation, RG_STATUS_NO_RESOURCES,
                          "no memory for a part of %" PRIu64 " bytes", part->size);
    }
}

void rg_upload_source_run(struct rg_task *task)
{
    struct rg_upload_part *part = RG_CONTAINER_OF(task, struct rg_upload_part, task);
    RG_ASSERT(part->state == RG_PART_FILLING && rg_upload_is_running(part->op));
    if (part->op->source == RG_UPLOAD_SOURCE_FILE) {
        memory_take(part);
        return;
    }
    part_sum(part, (size_t)RG_MIN(part->size - part->filled, (uint64_t)SUM_SIZE_MAX));
    if (!part_finish(part)) {
        rg_loop_defer(loop_of(part), &part->task);
    }
}

void rg_upload_source_fill(struct rg_upload_part *part)
{
    const struct rg_upload_op *op = part->op;
    RG_ASSERT(part->state == RG_PART_FILLING && part->filled == 0 && part->memory == NULL);
    part->data = op->data != NULL ? op->data + part->offset : NULL;
    if (part_finish(part)) {
        return;
    }
    if (op->source == RG_UPLOAD_SOURCE_FILE) {
        memory_take(part);
    } else {
        rg_loop_defer(loop_of(part), &part->task);
    }
}

void rg_upload_source_drop(struct rg_upload_part *part)
{
    RG_ASSERT(rg_op_idle(&part->reading));
    if (part->memory != NULL) {
        rg_part_memory_give(memory_of(part), part->memory, (size_t)part->size);
        part->memory = NULL;
    } else if (part->buffer != NULL) {
        rg_stream_give(part->op->stream, part->buffer, loop_of(part)->now_ns);
        part->buffer = NULL;
    }
    part->data = NULL;
}
