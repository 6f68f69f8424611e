/* See writer.h. */
#include "emulator/store/memory/writer.h"

#include <errno.h>
#include <stdlib.h>

#define SEGMENT_CAPACITY_MIN RG_KIB(64)
/* A writer that does not know how much will come doubles its segment up to this. */
#define SEGMENT_CAPACITY_MAX RG_MIB(64)

struct rg_memory_writer {
    struct rg_memory_budget *budget;
    uint64_t size;
    bool growing; /* The last segment is ours alone and takes more. */
    size_t piece_count, piece_capacity;
    struct rg_piece *pieces;
};

void rg_memory_writer_destroy(struct rg_memory_writer *writer)
{
    for (size_t i = 0; i < writer->piece_count; i++) {
        rg_segment_unref(writer->pieces[i].segment);
    }
    free(writer->pieces);
    free(writer);
}

/* Takes the reference to the segment on success. */
static int add_piece(struct rg_memory_writer *writer, struct rg_segment *segment, uint64_t end)
{
    if (writer->piece_count == writer->piece_capacity) {
        size_t capacity = RG_MAX(writer->piece_capacity * 2, (size_t)4);
        struct rg_piece *pieces = reallocarray(writer->pieces, capacity, sizeof(*pieces));
        if (pieces == NULL) {
            return -ENOMEM;
        }
        writer->pieces = pieces;
        writer->piece_capacity = capacity;
    }
    writer->pieces[writer->piece_count++] = (struct rg_piece){segment, end};
    return 0;
}

/* A new last segment. */
static int add_segment(struct rg_memory_writer *writer, uint64_t capacity)
{
    struct rg_segment *segment;
    int rc = rg_segment_create(&segment, writer->budget, capacity);
    if (rc < 0) {
        return rc;
    }
    rc = add_piece(writer, segment, writer->size);
    if (rc < 0) {
        rg_segment_unref(segment);
        return rc;
    }
    writer->growing = true;
    return 0;
}

static struct rg_segment *last_segment(const struct rg_memory_writer *writer)
{
    return writer->pieces[writer->piece_count - 1].segment;
}

int rg_memory_writer_create(struct rg_memory_writer **out_writer, struct rg_memory_budget *budget,
                            uint64_t size_hint)
{
    struct rg_memory_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return -ENOMEM;
    }
    writer->budget = budget;
    int rc = size_hint > 0 ? add_segment(writer, size_hint) : 0;
    if (rc < 0) {
        rg_memory_writer_destroy(writer);
        return rc;
    }
    *out_writer = writer;
    return 0;
}

/* Makes room for some of `size` more bytes at the end of the last segment. */
static int make_room(struct rg_memory_writer *writer, uint64_t size)
{
    if (!writer->growing) {
        int rc = add_segment(writer, RG_MAX(size, (uint64_t)SEGMENT_CAPACITY_MIN));
        return rc == -ENOSPC ? add_segment(writer, size) : rc;
    }
    struct rg_segment *segment = last_segment(writer);
    uint64_t needed = segment->size + size;
    if (needed <= segment->capacity) {
        return 0;
    }
    if (segment->capacity >= SEGMENT_CAPACITY_MAX) {
        if (segment->size < segment->capacity) {
            return 0;
        }
        int rc = add_segment(writer, SEGMENT_CAPACITY_MAX);
        return rc == -ENOSPC ? add_segment(writer, size) : rc;
    }
    int rc = rg_segment_resize(
        segment, RG_MAX(needed, RG_MAX(segment->capacity * 2, (uint64_t)SEGMENT_CAPACITY_MIN)));
    return rc == -ENOSPC ? rg_segment_resize(segment, needed) : rc;
}

int rg_memory_writer_append(struct rg_memory_writer *writer, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        int rc = make_room(writer, size);
        if (rc < 0) {
            return rc;
        }
        struct rg_segment *segment = last_segment(writer);
        size_t count = (size_t)RG_MIN(segment->capacity - segment->size, (uint64_t)size);
        memcpy(segment->data + segment->size, bytes, count);
        segment->size += count;
        writer->size += count;
        writer->pieces[writer->piece_count - 1].end = writer->size;
        bytes += count;
        size -= count;
    }
    return 0;
}

/* Gives back the room that doubling took beyond what was needed. A failure to shrink changes
 * nothing. */
static void stop_growing(struct rg_memory_writer *writer)
{
    if (!writer->growing) {
        return;
    }
    struct rg_segment *segment = last_segment(writer);
    writer->growing = false;
    if (segment->size == 0) {
        rg_segment_unref(segment);
        writer->piece_count--;
    } else if (segment->size < segment->capacity) {
        (void)rg_segment_resize(segment, segment->size);
    }
}

int rg_memory_writer_append_version(struct rg_memory_writer *writer,
                                    const struct rg_version *version)
{
    uint64_t base = writer->size;
    stop_growing(writer);
    for (size_t i = 0; i < version->piece_count; i++) {
        int rc = add_piece(writer, version->pieces[i].segment, base + version->pieces[i].end);
        if (rc < 0) {
            return rc;
        }
        rg_segment_ref(version->pieces[i].segment);
        writer->size = base + version->pieces[i].end;
    }
    return 0;
}

struct rg_version *rg_memory_writer_finish(struct rg_memory_writer *writer,
                                           const struct rg_store_object_info *info)
{
    stop_growing(writer);
    RG_ASSERT(info->size == writer->size);
    struct rg_version *version = rg_version_create(info, writer->pieces, writer->piece_count);
    rg_memory_writer_destroy(writer); /* Its references; the version has its own. */
    return version;
}
