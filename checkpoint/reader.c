/* An object as a file that is read (<ringest/checkpoint.h>).
 *
 * The object is thought of as blocks of BLOCK_SIZE. A slot holds one of them:
 *
 *   FREE --a get--> OUT --a lease--> HERE --read to its end, or its slot is wanted--> FREE
 *                    +--failed, or behind the object's end--> FREE
 *
 * There is no thread: reading takes completions, and asks for the blocks that come next
 * before it returns. A large piece is no block: it is one set of ranges, straight into the caller's
 * memory. A call that reached its deadline continues when it is made again:
 *
 *   NONE -> BLOCKS <-> DIRECT (the large piece is out)
 *     ^       |
 *     +-------+ all was read, the object has ended, or the reader has failed
 *
 * Invariant: no two slots have the same block; as many requests are out as slots and the large
 * piece say. */
#include "gcs/request/client.h"
#include "gcs/wire/checksum.h"

#include <ringest/checkpoint.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With the head of its answer, a block fits a slab of 2 MiB. */
#define BLOCK_SIZE (RG_MIB(2) - RG_KIB(64))
#define SLAB_SIZE RG_MIB(2)
#define BLOCKS_MAX 16
/* user_data of the large piece; those of blocks are their slots. */
#define DIRECT BLOCKS_MAX

enum block_state { BLOCK_FREE = 0, BLOCK_OUT, BLOCK_HERE };

enum call_state { CALL_NONE = 0, CALL_BLOCKS, CALL_DIRECT };

struct block {
    enum block_state state;
    uint64_t number;
    struct rg_completion completion; /* while here: its lease is ours */
};

struct rg_checkpoint_reader {
    struct rg_client *client;
    struct rg_cq *cq;
    struct block blocks[BLOCKS_MAX];
    uint32_t block_count, out_count, ahead;
    int64_t generation;
    uint64_t object_size; /* UINT64_MAX: not known */
    uint32_t object_crc;
    bool has_object_crc, checks;
    enum call_state call; /* that is being made, or is to be continued */
    uint64_t done;
    struct rg_range range;
    uint64_t next_offset; /* where the last call ended */
    uint64_t summed;      /* bytes from the first on, in order */
    uint32_t crc;         /* of those */
    bool failed;
    struct rg_completion failure;
    char text[256];
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1], object[RG_OBJECT_NAME_SIZE_MAX + 1];
};

/* The invariant above. O(slots squared): for RG_VERIFY. */
static bool invariants(const struct rg_checkpoint_reader *reader)
{
    uint32_t out = reader->call == CALL_DIRECT;
    for (uint32_t i = 0; i < reader->block_count; i++) {
        const struct block *block = &reader->blocks[i];
        if (block->state == BLOCK_FREE) {
            continue;
        }
        out += block->state == BLOCK_OUT;
        for (uint32_t k = 0; k < i; k++) {
            if (reader->blocks[k].state != BLOCK_FREE &&
                reader->blocks[k].number == block->number) {
                return false;
            }
        }
    }
    return out == reader->out_count && reader->block_count >= 1 &&
           reader->block_count <= BLOCKS_MAX && reader->ahead < reader->block_count &&
           reader->summed <= reader->object_size;
}

/* The only place that changes the state of the call. */
static void call_become(struct rg_checkpoint_reader *reader, enum call_state state)
{
    static const enum call_state before[] = {
        [CALL_NONE] = CALL_BLOCKS, [CALL_DIRECT] = CALL_BLOCKS};
    RG_ASSERT(state == CALL_BLOCKS ? reader->call != CALL_BLOCKS : reader->call == before[state]);
    reader->call = state;
}

static uint64_t block_begin(const struct block *block)
{
    return block->number * BLOCK_SIZE;
}

static void block_free(struct block *block)
{
    if (block->state == BLOCK_HERE) {
        rg_lease_release(block->completion.lease);
    }
    block->state = BLOCK_FREE;
}

static struct block *block_find(struct rg_checkpoint_reader *reader, uint64_t number)
{
    for (uint32_t i = 0; i < reader->block_count; i++) {
        struct block *block = &reader->blocks[i];
        if (block->state != BLOCK_FREE && block->number == number) {
            return block;
        }
    }
    return NULL;
}

/* A slot for a block: a free one, or that of a block which is not among those wanted now. */
static struct block *slot_take(struct rg_checkpoint_reader *reader, uint64_t first, uint64_t last)
{
    struct block *found = NULL;
    for (uint32_t i = 0; i < reader->block_count; i++) {
        struct block *block = &reader->blocks[i];
        if (block->state == BLOCK_FREE) {
            return block;
        }
        if (block->state == BLOCK_HERE && (block->number < first || block->number > last)) {
            found = block;
        }
    }
    if (found != NULL) {
        block_free(found);
    }
    return found;
}

/* Asks for a block that is neither out nor here. 0, or -EAGAIN where there is no slot or no room.
 */
static int block_submit(struct rg_checkpoint_reader *reader, uint64_t number, uint64_t first,
                        uint64_t last)
{
    struct block *block = slot_take(reader, first, last);
    if (block == NULL) {
        return -EAGAIN;
    }
    struct rg_get get = {
        .bucket = reader->bucket,
        .object = reader->object,
        .generation = reader->generation,
        .offset = number * BLOCK_SIZE,
        .length = BLOCK_SIZE,
        .user_data = (uint64_t)(block - reader->blocks),
    };
    int rc = rg_submit_get(reader->client, reader->cq, &get);
    if (rc == 0) {
        block->state = BLOCK_OUT;
        block->number = number;
        reader->out_count++;
    }
    return rc;
}

static int direct_submit(struct rg_checkpoint_reader *reader, uint64_t at, uint8_t *data,
                         uint64_t size)
{
    reader->range = (struct rg_range){.offset = at, .length = size, .buf = data};
    struct rg_get_ranges get = {
        .bucket = reader->bucket,
        .object = reader->object,
        .generation = reader->generation,
        .ranges = &reader->range,
        .count = 1,
        .user_data = DIRECT,
    };
    int rc = rg_submit_get_ranges(reader->client, reader->cq, &get);
    if (rc == 0) {
        call_become(reader, CALL_DIRECT);
        reader->out_count++;
    }
    return rc;
}

/* The first answer pins the generation; before it there is only one request. */
static void object_note(struct rg_checkpoint_reader *reader, const struct rg_completion *completion)
{
    if (reader->object_size == UINT64_MAX) {
        reader->generation = completion->generation;
        reader->object_size = completion->object_size;
        reader->object_crc = completion->object_crc32c;
        reader->has_object_crc = completion->has_object_crc32c;
    }
}

static void reader_fail(struct rg_checkpoint_reader *reader, const struct rg_completion *completion)
{
    if (!reader->failed) {
        reader->failed = true;
        reader->failure = *completion;
    } else {
        rg_lease_release(completion->lease);
    }
}

static void checksum_check(struct rg_checkpoint_reader *reader)
{
    if (!reader->has_object_crc || !reader->checks || reader->crc == reader->object_crc) {
        return;
    }
    snprintf(reader->text, sizeof(reader->text),
             "bytes 0 to %" PRIu64 " of generation %" PRId64 " have the CRC32C %s instead of %s",
             reader->object_size - 1, reader->generation, rg_crc32c_text(reader->crc).text,
             rg_crc32c_text(reader->object_crc).text);
    struct rg_completion failure = {
        .status = RG_STATUS_CHECKSUM,
        .generation = reader->generation,
        .object_size = reader->object_size,
        .detail = reader->text,
    };
    reader_fail(reader, &failure);
}

/* Bytes have reached the caller. */
static void bytes_note(struct rg_checkpoint_reader *reader, uint64_t at, uint32_t crc,
                       uint64_t size)
{
    reader->done += size;
    if (at == 0) {
        reader->crc = 0;
        reader->summed = 0;
    }
    if (at != reader->summed || size == 0) {
        return;
    }
    reader->crc = rg_crc32c_combine(reader->crc, crc, size);
    reader->summed += size;
    if (reader->summed == reader->object_size) {
        checksum_check(reader);
    }
}

/* The object was found to end here, or before. */
static void end_note(struct rg_checkpoint_reader *reader, uint64_t at,
                     const struct rg_completion *completion)
{
    reader->object_size = RG_MIN(reader->object_size, at);
    rg_lease_release(completion->lease);
}

static void direct_end(struct rg_checkpoint_reader *reader, const struct rg_completion *completion)
{
    call_become(reader, CALL_BLOCKS);
    if (completion->status == RG_STATUS_RANGE) {
        end_note(reader, reader->range.offset, completion);
        return;
    }
    if (completion->status != RG_STATUS_OK) {
        reader_fail(reader, completion);
        return;
    }
    const struct rg_range_result *result = completion->data;
    object_note(reader, completion);
    if (result->size < reader->range.length) {
        /* It said where the object ends. */
        reader->object_size = RG_MIN(reader->object_size, reader->range.offset + result->size);
    }
    bytes_note(reader, reader->range.offset, result->crc32c, result->size);
    rg_lease_release(completion->lease);
}

/* Whether an answer has told that the object reaches into this block: it cannot end before it,
 * then, whatever an answer for the block says. */
static bool is_within(const struct rg_checkpoint_reader *reader, const struct block *block)
{
    return reader->object_size != UINT64_MAX && block_begin(block) < reader->object_size;
}

/* Takes one completion off, or says why there is none. `needed`: the block that is waited for. */
static int completion_take(struct rg_checkpoint_reader *reader, uint64_t needed,
                           uint64_t deadline_ns)
{
    struct rg_completion completion;
    int count = rg_cq_wait(reader->cq, &completion, 1, 1, deadline_ns);
    if (count != 1) {
        return count;
    }
    reader->out_count--;
    if (completion.user_data == DIRECT) {
        direct_end(reader, &completion);
        return 0;
    }
    struct block *block = &reader->blocks[completion.user_data];
    RG_ASSERT(block->state == BLOCK_OUT);
    block->state = BLOCK_FREE;
    if (completion.status == RG_STATUS_OK) {
        object_note(reader, &completion);
        block->state = BLOCK_HERE;
        block->completion = completion;
    } else if (completion.status == RG_STATUS_RANGE && !is_within(reader, block)) {
        end_note(reader, block_begin(block), &completion);
    } else if (block->number == needed) {
        reader_fail(reader, &completion);
    } else {
        rg_lease_release(completion.lease); /* asked for again when it is needed */
    }
    return 0;
}

/* Asks for what will be wanted behind `at`. */
static void ahead_submit(struct rg_checkpoint_reader *reader, uint64_t at)
{
    uint64_t first = at / BLOCK_SIZE, last = first + reader->ahead;
    if (reader->generation == 0 || reader->object_size == UINT64_MAX) {
        return;
    }
    for (uint64_t number = first + 1; number <= last; number++) {
        if (number * BLOCK_SIZE >= reader->object_size ||
            (block_find(reader, number) == NULL && block_submit(reader, number, first, last) < 0)) {
            return;
        }
    }
}

static void block_copy(struct rg_checkpoint_reader *reader, struct block *block, uint64_t at,
                       uint8_t *data, uint64_t size)
{
    uint64_t within = at - block_begin(block);
    uint64_t piece = RG_MIN(size, block->completion.size - RG_MIN(block->completion.size, within));
    memcpy(data, (const uint8_t *)block->completion.data + within, (size_t)piece);
    bytes_note(reader, at, reader->checks ? rg_crc32c(0, data, (size_t)piece) : 0, piece);
    if (within + piece >= block->completion.size) {
        block_free(block);
    }
}

/* One step: takes bytes that are here, or asks for what is missing and waits for something. */
static int read_step(struct rg_checkpoint_reader *reader, uint64_t at, uint8_t *data, uint64_t size,
                     uint64_t deadline_ns)
{
    uint64_t number = at / BLOCK_SIZE;
    struct block *block = block_find(reader, number);
    bool direct_is_out = reader->call == CALL_DIRECT;
    if (!direct_is_out && block != NULL && block->state == BLOCK_HERE) {
        block_copy(reader, block, at, data, size);
        return 0;
    }
    int rc = 0;
    if (!direct_is_out && block == NULL) {
        rc = size >= RG_CHECKPOINT_DIRECT_SIZE
                 ? direct_submit(reader, at, data, size)
                 : block_submit(reader, number, number, number + reader->ahead);
    }
    if (rc < 0 && (rc != -EAGAIN || reader->out_count == 0)) {
        return rc;
    }
    if (rc == 0 && reader->call != CALL_DIRECT) {
        ahead_submit(reader, at);
    }
    return completion_take(reader, number, deadline_ns);
}

static void read_begin(struct rg_checkpoint_reader *reader, uint64_t offset)
{
    bool goes_on = offset == reader->next_offset;
    call_become(reader, CALL_BLOCKS);
    reader->done = 0;
    reader->ahead = goes_on ? RG_MIN(2 * reader->ahead + 1, reader->block_count - 1) : 0;
}

int64_t rg_checkpoint_reader_read(struct rg_checkpoint_reader *reader, uint64_t offset, void *buf,
                                  uint64_t size, uint64_t deadline_ns)
{
    if (rg_runtime_check(reader->client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (reader->call == CALL_NONE) {
        read_begin(reader, offset);
    }
    while (!reader->failed && reader->done < size) {
        uint64_t at = offset + reader->done;
        /* What is received straight into the caller's memory is waited for in any case. */
        if (at >= reader->object_size && reader->call != CALL_DIRECT) {
            break;
        }
        int rc =
            read_step(reader, at, (uint8_t *)buf + reader->done, size - reader->done, deadline_ns);
        RG_VERIFY(invariants(reader));
        if (rc == -EINTR) {
            rc = -ETIME;
        }
        if (rc < 0) {
            return rc;
        }
    }
    call_become(reader, CALL_NONE);
    reader->next_offset = offset + reader->done;
    if (reader->failed) {
        return -EIO;
    }
    if (reader->ahead > 0 && size < RG_CHECKPOINT_DIRECT_SIZE) {
        ahead_submit(reader, reader->next_offset);
    }
    return (int64_t)reader->done;
}

void rg_checkpoint_reader_interrupt(struct rg_checkpoint_reader *reader)
{
    rg_cq_interrupt(reader->cq);
}

const struct rg_completion *rg_checkpoint_reader_failure(const struct rg_checkpoint_reader *reader)
{
    return reader->failed ? &reader->failure : NULL;
}

int64_t rg_checkpoint_reader_generation(const struct rg_checkpoint_reader *reader)
{
    return reader->generation;
}

void rg_checkpoint_reader_close(struct rg_checkpoint_reader *reader)
{
    if (reader == NULL || rg_runtime_check(reader->client->runtime) < 0) {
        return;
    }
    for (uint64_t user_data = 0; user_data <= DIRECT && reader->out_count > 0; user_data++) {
        (void)rg_cancel(reader->client, reader->cq, user_data);
    }
    while (reader->out_count > 0) {
        (void)completion_take(reader, UINT64_MAX, RG_FOREVER);
    }
    for (uint32_t i = 0; i < reader->block_count; i++) {
        block_free(&reader->blocks[i]);
    }
    if (reader->failed) {
        rg_lease_release(reader->failure.lease);
    }
    rg_cq_close(reader->cq);
    free(reader);
}

int rg_checkpoint_reader_open_sized(struct rg_checkpoint_reader **out_reader,
                                    struct rg_client *client,
                                    const struct rg_checkpoint_reader_options *options,
                                    size_t struct_size)
{
    struct rg_checkpoint_reader_options own = {0};
    memcpy(&own, options, RG_MIN(struct_size, sizeof(own)));
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (own.bucket == NULL || own.object == NULL || own.generation < 0 ||
        strlen(own.bucket) > RG_BUCKET_NAME_SIZE_MAX ||
        strlen(own.object) > RG_OBJECT_NAME_SIZE_MAX) {
        return -EINVAL;
    }
    struct rg_checkpoint_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return -ENOMEM;
    }
    uint64_t window = own.window_bytes != 0 ? own.window_bytes : BLOCKS_MAX * SLAB_SIZE;
    /* What is read ahead must leave room for what is needed now, of others too. */
    window = RG_MIN(window, client->runtime->memory_max / 4) / SLAB_SIZE;
    reader->client = client;
    reader->block_count = (uint32_t)RG_MAX(RG_MIN(window, (uint64_t)BLOCKS_MAX), UINT64_C(1));
    reader->generation = own.generation;
    reader->object_size = UINT64_MAX;
    reader->next_offset = UINT64_MAX;
    reader->checks = !client->options.no_checksum;
    strcpy(reader->bucket, own.bucket);
    strcpy(reader->object, own.object);
    int rc = rg_cq_open(&reader->cq, client->runtime, 2 * BLOCKS_MAX);
    if (rc < 0) {
        free(reader);
        return rc;
    }
    *out_reader = reader;
    return 0;
}
