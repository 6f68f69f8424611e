/* An object as a file that is read (<ringest/checkpoint.h>).
 *
 * Reads that are submitted are operations of their own (checkpoint/read.h). This file is for the
 * call that waits. It thinks of the object as blocks of BLOCK_SIZE. A slot holds one of them:
 *
 *   FREE --a get--> OUT --a lease--> HERE --read to its end, or its slot is wanted--> FREE
 *                    +--failed, or behind the object's end, or of another generation--> FREE
 *
 * There is no thread: reading takes completions, and asks for the blocks that come next before it
 * returns. A large piece is no block: it is submitted as any other read, straight into the caller's
 * memory, and waited for. A call that reached its deadline continues when it is made again:
 *
 *   NONE -> BLOCKS <-> DIRECT (the large piece is out)
 *     ^       |
 *     +-------+ all was read, the object has ended, or the reader has failed
 *
 * Invariant: no two slots have the same block; as many requests are out as slots and the large
 * piece say. */
#include "checkpoint/read.h"
#include "gcs/request/client.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
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
    int64_t asked;                   /* the generation that its get names; 0: the newest */
    struct rg_completion completion; /* while here: its lease is ours */
};

struct rg_checkpoint_reader {
    struct rg_checkpoint_object object; /* that reads of all kinds share */
    /* All else is of the call that waits. */
    struct rg_cq *cq;
    struct block blocks[BLOCKS_MAX];
    uint32_t block_count, out_count, ahead;
    bool is_known; /* `facts` are there */
    struct rg_checkpoint_facts facts;
    enum call_state call; /* that is being made, or is to be continued */
    uint64_t done;
    uint64_t direct_offset;
    uint64_t next_offset; /* where the last call ended */
    uint64_t summed;      /* bytes from the first on, in order */
    uint32_t crc;         /* of those */
    bool failed;
    struct rg_completion failure;
    char text[256];
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
           (!reader->is_known || reader->summed <= reader->facts.size);
}

/* The only place that changes the state of the call. */
static void call_become(struct rg_checkpoint_reader *reader, enum call_state state)
{
    static const enum call_state before[] = {
        [CALL_NONE] = CALL_BLOCKS, [CALL_DIRECT] = CALL_BLOCKS};
    RG_ASSERT(state == CALL_BLOCKS ? reader->call != CALL_BLOCKS : reader->call == before[state]);
    reader->call = state;
}

/* Whether it is known what object is read, which other threads may find out. */
static bool is_known(struct rg_checkpoint_reader *reader)
{
    if (!reader->is_known) {
        reader->is_known = rg_checkpoint_object_facts(&reader->object, &reader->facts);
    }
    return reader->is_known;
}

/* Where the object ends at most. */
static uint64_t end_of(struct rg_checkpoint_reader *reader)
{
    return is_known(reader) ? reader->facts.size : rg_checkpoint_object_end(&reader->object);
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
    block->asked = rg_checkpoint_object_wanted(&reader->object);
    struct rg_get get = {
        .bucket = reader->object.bucket,
        .object = reader->object.object,
        .generation = block->asked,
        .offset = number * BLOCK_SIZE,
        .length = BLOCK_SIZE,
        .user_data = (uint64_t)(block - reader->blocks),
    };
    int rc = rg_submit_get(reader->object.client, reader->cq, &get);
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
    const struct rg_checkpoint_read read = {
        .offset = at, .buf = data, .size = size, .user_data = DIRECT};
    int rc = rg_checkpoint_read_submit(&reader->object, reader->cq, &read,
                                       RG_CHECKPOINT_READ_WAITED_FOR);
    if (rc == 0) {
        call_become(reader, CALL_DIRECT);
        reader->direct_offset = at;
        reader->out_count++;
    }
    return rc;
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

/* Fails with the reader's own text. */
static void fail_with_text(struct rg_checkpoint_reader *reader, enum rg_status status)
{
    const struct rg_completion failure = {
        .status = status,
        .generation = is_known(reader) ? reader->facts.generation : 0,
        .object_size = is_known(reader) ? reader->facts.size : 0,
        .detail = reader->text,
    };
    reader_fail(reader, &failure);
}

static void damage_look(struct rg_checkpoint_reader *reader)
{
    if (!reader->failed &&
        rg_checkpoint_object_is_damaged(&reader->object, reader->text, sizeof(reader->text))) {
        fail_with_text(reader, RG_STATUS_CHECKSUM);
    }
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
    if (reader->summed == reader->facts.size) {
        rg_checkpoint_object_compare(&reader->object, reader->crc);
        damage_look(reader);
    }
}

static void direct_end(struct rg_checkpoint_reader *reader, const struct rg_completion *completion)
{
    call_become(reader, CALL_BLOCKS);
    if (completion->status != RG_STATUS_OK) {
        reader_fail(reader, completion);
        return;
    }
    if (completion->size > 0) {
        RG_ASSERT(is_known(reader));
        bytes_note(reader, reader->direct_offset, completion->crc32c, completion->size);
    }
    rg_lease_release(completion->lease);
}

/* A block has come. */
static void block_came(struct rg_checkpoint_reader *reader, struct block *block,
                       const struct rg_completion *completion)
{
    enum rg_checkpoint_answer answer =
        rg_checkpoint_object_answered(&reader->object, block->asked, completion);
    if (answer == RG_CHECKPOINT_SAME) {
        RG_ASSERT(is_known(reader));
        block->state = BLOCK_HERE;
        block->completion = *completion;
        return;
    }
    rg_lease_release(completion->lease);
    if (answer != RG_CHECKPOINT_OTHER) {
        snprintf(reader->text, sizeof(reader->text), "%s", rg_checkpoint_answer_text(answer));
        fail_with_text(reader, answer == RG_CHECKPOINT_REPLACED ? RG_STATUS_TRUNCATED
                                                                : RG_STATUS_BAD_RESPONSE);
    }
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
    bool ends = completion.status == RG_STATUS_RANGE &&
                rg_checkpoint_object_ends(&reader->object, block_begin(block));
    bool is_old = is_known(reader) && block->asked != reader->facts.generation;
    if (completion.status == RG_STATUS_OK) {
        block_came(reader, block, &completion);
    } else if (block->number == needed && !ends && !is_old) {
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
    if (!is_known(reader)) {
        return;
    }
    for (uint64_t number = first + 1; number <= last; number++) {
        if (number * BLOCK_SIZE >= reader->facts.size ||
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
    bytes_note(reader, at, reader->object.checks ? rg_crc32c(0, data, (size_t)piece) : 0, piece);
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
    if (rg_runtime_check(reader->object.client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    if (reader->call == CALL_NONE) {
        damage_look(reader);
        read_begin(reader, offset);
    }
    /* What is received straight into the caller's memory is waited for in any case. */
    while (reader->call == CALL_DIRECT || (!reader->failed && reader->done < size)) {
        uint64_t at = offset + reader->done;
        if (at >= end_of(reader) && reader->call != CALL_DIRECT) {
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

int rg_submit_checkpoint_read_sized(struct rg_checkpoint_reader *reader, struct rg_cq *cq,
                                    const struct rg_checkpoint_read *read, size_t struct_size)
{
    struct rg_checkpoint_read own = {0};
    memcpy(&own, read, RG_MIN(struct_size, sizeof(own)));
    return rg_checkpoint_read_submit(&reader->object, cq, &own, RG_CHECKPOINT_READ_SUBMITTED);
}

int64_t rg_checkpoint_reader_generation(struct rg_checkpoint_reader *reader)
{
    return rg_runtime_check(reader->object.client->runtime) < 0
               ? 0
               : rg_checkpoint_object_wanted(&reader->object);
}

void rg_checkpoint_reader_close(struct rg_checkpoint_reader *reader)
{
    if (reader == NULL || rg_runtime_check(reader->object.client->runtime) < 0) {
        return;
    }
    rg_checkpoint_read_end_all(&reader->object);
    for (uint64_t user_data = 0; user_data < DIRECT && reader->out_count > 0; user_data++) {
        (void)rg_cancel(reader->object.client, reader->cq, user_data);
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
    rg_checkpoint_object_fini(&reader->object);
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
    struct rg_checkpoint_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return -ENOMEM;
    }
    int rc =
        rg_checkpoint_object_init(&reader->object, client, own.bucket, own.object, own.generation);
    if (rc < 0) {
        free(reader);
        return rc;
    }
    uint64_t window = own.window_bytes != 0 ? own.window_bytes : BLOCKS_MAX * SLAB_SIZE;
    /* What is read ahead must leave room for what is needed now, of others too. */
    window = RG_MIN(window, client->runtime->memory_max / 4) / SLAB_SIZE;
    reader->block_count = (uint32_t)RG_MAX(RG_MIN(window, (uint64_t)BLOCKS_MAX), UINT64_C(1));
    reader->next_offset = UINT64_MAX;
    rc = rg_cq_open(&reader->cq, client->runtime, 2 * BLOCKS_MAX);
    if (rc < 0) {
        rg_checkpoint_object_fini(&reader->object);
        free(reader);
        return rc;
    }
    *out_reader = reader;
    return 0;
}
