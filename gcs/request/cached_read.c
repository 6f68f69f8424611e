/* See cached_read.h.
 *
 * Which records there are. Whole blocks have their number for a key. A range that is only a part of
 * a block is kept as it came, with the byte that it begins at for a key (RG_CACHE_PART): samples of
 * a tar shard and row groups of a table are read by the same ranges in each epoch. */
#include "gcs/request/cached_read.h"

#include "cache/cache.h"
#include "cache/memory.h"
#include "gcs/request/cached_body.h"
#include "gcs/request/cached_look.h"
#include "gcs/request/client_loop.h"
#include "gcs/request/memory_read.h"
#include "gcs/request/newest.h"
#include "gcs/request/request_type.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A record is read at once, unless it is larger, and more than half of it is not wanted. */
#define AT_ONCE_SIZE RG_KIB(256)

/* Larger bodies that go to several buffers are not copied for the cache. */
#define KEPT_SIZE_MAX RG_MIB(16)

/* Where the body lies that is read behind its header: room for that, and for what aligns it. */
#define BODY_AT (2 * RG_CACHE_ALIGNMENT)
static_assert(BODY_AT >= RG_CACHE_HEADER_SIZE_MAX + RG_CACHE_ALIGNMENT, "a header fits before it");

enum step { STEP_RECORD = 0, STEP_HEADER, STEP_BODY };

struct rg_cached_read {
    struct rg_op op;
    struct rg_cached_reads *reads;
    struct rg_request *request; /* NULL: it was abandoned */
    struct rg_cached_read *next_free;
    struct rg_cache_place place;
    struct rg_cache_record record;
    struct rg_lease *lease;
    enum step step;
    uint64_t block, begin; /* of the record: its key, and its first byte in the object */
    uint32_t first;        /* of the body: what was read begins there */
    size_t at;             /* in the lease: what this step has read, behind what aligns it */
    size_t wanted, came;   /* bytes of this step; an op may bring fewer than are wanted */
    size_t needed;         /* of them; the file may end behind these */
    size_t body_size;      /* STEP_BODY: bytes of the body */
    size_t held;           /* bytes of the lease, also when it has been handed out */
    bool is_late;          /* its get was sent meanwhile */
};

struct rg_cached_reads {
    struct rg_client_loop *client_loop;
    void (*ended)(struct rg_request *request, bool is_answered);
    struct rg_cached_read *free;
    uint32_t late; /* reads that are out, and took too long */
    size_t held;   /* bytes of memory of all reads that are out */
};

int rg_cached_reads_create(struct rg_cached_reads **out_reads, struct rg_client_loop *client_loop,
                           void (*ended)(struct rg_request *request, bool is_answered))
{
    struct rg_cached_reads *reads = calloc(1, sizeof(*reads));
    if (reads == NULL) {
        return -ENOMEM;
    }
    reads->client_loop = client_loop;
    reads->ended = ended;
    *out_reads = reads;
    return 0;
}

void rg_cached_reads_destroy(struct rg_cached_reads *reads)
{
    if (reads == NULL) {
        return;
    }
    RG_ASSERT(reads->client_loop->reads_out == 0 && reads->held == 0);
    struct rg_cached_read *next;
    for (struct rg_cached_read *read = reads->free; read != NULL; read = next) {
        next = read->next_free;
        free(read);
    }
    free(reads);
}

static struct rg_cache *cache_of(const struct rg_cached_read *read)
{
    return read->reads->client_loop->client->cache;
}

static struct rg_metrics *metrics_of(const struct rg_request *request)
{
    return &request->client_loop->loop->metrics;
}

static void read_done(struct rg_op *op);

/* NULL: no memory. */
static struct rg_cached_read *read_take(struct rg_cached_reads *reads)
{
    struct rg_cached_read *read = reads->free;
    if (read != NULL) {
        reads->free = read->next_free;
    } else {
        read = calloc(1, sizeof(*read));
        if (read == NULL) {
            return NULL;
        }
        read->reads = reads;
        rg_op_init(&read->op, read_done);
    }
    reads->client_loop->reads_out++;
    return read;
}

/* Nothing is out. */
static void read_give(struct rg_cached_read *read)
{
    struct rg_cached_reads *reads = read->reads;
    rg_cache_place_drop(cache_of(read), &read->place);
    rg_lease_release(read->lease);
    read->lease = NULL;
    reads->held -= read->held;
    read->held = 0;
    read->request = NULL;
    reads->late -= read->is_late;
    read->is_late = false;
    read->next_free = reads->free;
    reads->free = read;
    reads->client_loop->reads_out--;
}

/* Conditions are the service's to judge, but for one that can only be true. */
static bool is_eligible(const struct rg_get_state *get)
{
    const struct rg_conditions *conditions = &get->conditions;
    bool is_met = conditions->if_generation_match == 0 ||
                  (conditions->if_generation_match == get->want_generation);
    return is_met && conditions->if_generation_not_match == 0 &&
           conditions->if_metageneration_match == 0 &&
           conditions->if_metageneration_not_match == 0 && !get->is_fresh;
}

/* Finds the record that has the next byte, and the block of its key. Who wants all has its
 * beginning as a block, or not at all. */
static bool place_find(const struct rg_request *request, struct rg_cache_place *out_place,
                       struct rg_cache_key *out_key)
{
    const struct rg_get_state *get = &request->get;
    uint64_t at = get->offset + get->received;
    bool is_whole = at == 0 && get->length == RG_WHOLE;
    unsigned ways = is_whole ? RG_CACHE_BY_BLOCK : RG_CACHE_BY_ANY;
    *out_key = rg_cached_key(request, 0);
    return rg_cache_find_byte(request->client->cache, out_key, at, ways, out_place);
}

static size_t round_up(size_t size)
{
    return (size + RG_CACHE_ALIGNMENT - 1) / RG_CACHE_ALIGNMENT * RG_CACHE_ALIGNMENT;
}

/* Bytes of a file before that offset, which are read as well so that the disk can do it. */
static size_t lead_of(const struct rg_cached_read *read, uint64_t offset)
{
    return read->place.fd_direct >= 0 ? (size_t)(offset % RG_CACHE_ALIGNMENT) : 0;
}

/* Reads bytes [from, from + size) of the record to the lease, from `to` on, which is aligned. */
static void read_start(struct rg_cached_read *read, enum step step, uint64_t from, size_t size,
                       size_t to)
{
    struct rg_loop *loop = read->reads->client_loop->loop;
    const struct rg_cache_place *place = &read->place;
    uint64_t offset = place->offset + from;
    size_t lead = lead_of(read, offset);
    uint8_t *data = read->lease->data + to;
    read->step = step;
    read->at = to + lead;
    read->came = 0;
    read->needed = lead + size;
    read->wanted = read->needed;
    if (place->fd_direct >= 0 && (uintptr_t)data % RG_CACHE_ALIGNMENT == 0) {
        read->wanted = round_up(read->needed);
        rg_op_read_file_direct(loop, &read->op, place->fd, place->fd_direct, offset - lead, data,
                               read->wanted, lead, read->needed);
    } else {
        rg_op_read_file(loop, &read->op, place->fd, offset - lead, data, read->wanted);
    }
}

/* Memory for a read; false: there is none. Reads have at most half of it: a disk that hangs keeps
 * what they have, and the gets that are sent then need some, too. */
static bool lease_take(struct rg_cached_read *read, size_t size)
{
    struct rg_cached_reads *reads = read->reads;
    struct rg_slab_arena *slabs = reads->client_loop->loop->slabs;
    if (reads->held + size <= rg_slab_size_max(slabs) / 2 || reads->held == 0) {
        read->lease = size <= rg_slab_size_max(slabs) ? rg_slab_take(slabs, size) : NULL;
    }
    if (read->lease == NULL) {
        return false;
    }
    read->held = read->lease->capacity;
    reads->held += read->held;
    return true;
}

/* Begins to read the record that has the next byte; false: there is none, or no memory. While a
 * read is late the disk hangs, and whatever was begun would wait as long, with its memory. */
static bool next_start(struct rg_request *request)
{
    const struct rg_get_state *get = &request->get;
    struct rg_cached_reads *reads = request->client_loop->cached;
    struct rg_cache_place place;
    struct rg_cache_key key;
    bool may = request->client->cache != NULL && reads->late == 0;
    if (!may || !place_find(request, &place, &key)) {
        return false;
    }
    struct rg_cached_read *read = read_take(reads);
    if (read == NULL) {
        rg_cache_place_drop(request->client->cache, &place);
        return false;
    }
    read->place = place;
    read->block = key.block;
    read->begin = rg_cache_key_first(&key);
    uint64_t at = get->offset + get->received;
    uint64_t wanted = RG_MIN(rg_cached_end(get), read->begin + RG_CACHE_BLOCK_SIZE);
    wanted -= RG_MIN(wanted, at);
    bool is_apart =
        read->place.size > AT_ONCE_SIZE && wanted < (read->place.size - AT_ONCE_SIZE / 2) / 2;
    size_t room = round_up(read->place.size + lead_of(read, read->place.offset)) +
                  (is_apart ? BODY_AT + RG_CACHE_ALIGNMENT : 0);
    if (read->place.size > RG_CACHE_BLOCK_SIZE + RG_CACHE_HEADER_SIZE_MAX ||
        !lease_take(read, room)) {
        read_give(read);
        return false;
    }
    read->request = request;
    request->get.cached_read = read;
    size_t size = is_apart ? RG_CACHE_HEADER_SIZE_MAX : read->place.size;
    read_start(read, is_apart ? STEP_HEADER : STEP_RECORD, 0, size, 0);
    return true;
}

/* What the service has sent that the cache has not, in a body of which the cache had more: what
 * came last is not among it. */
#define GAPS_MAX 4

struct rg_cached_gaps {
    uint32_t count;
    struct {
        uint64_t from, to; /* of what was received */
    } all[GAPS_MAX];
};

/* Notes how far is to be sent for, from here on. */
static void gap_find(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    bool may_have_more = get->gaps == NULL || get->gaps->count < GAPS_MAX;
    get->sent_from = get->received;
    get->gap_end = 0;
    if (request->client->cache != NULL && get->generation > 0 && may_have_more && !get->is_fresh) {
        struct rg_cache_key key = rg_cached_key(request, 0);
        uint64_t end = rg_cached_gap_end(request->client->cache, &key, get->offset + get->received,
                                         rg_cached_end(get));
        get->gap_end = end == UINT64_MAX ? 0 : end;
    }
}

/* What this process has seen, or another one. */
static int64_t newest_find(const struct rg_request *request)
{
    struct rg_client *client = request->client;
    struct rg_cache_key key = rg_cached_key(request, 0);
    int64_t known = rg_newest_find(client->newest, request->bucket, request->object);
    bool asks = known == 0 && client->cache != NULL;
    return asks ? rg_cache_newest(client->cache, &key) : known;
}

/* What was asked for is there, or is to be sent for from here on. True: it is answered. */
static bool settle(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    bool is_there = rg_cached_is_complete(get);
    if (!is_there) {
        if (get->received == 0) {
            rg_get_state_restart(get);
        }
        gap_find(request);
    }
    get->is_doubted = is_there && rg_get_state_is_doubtful(get);
    return is_there && !get->is_doubted;
}

enum rg_cached_begun rg_cached_read_begin(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    if (!is_eligible(get)) {
        return RG_CACHED_NOTHING;
    }
    get->generation = get->want_generation;
    if (rg_cached_is_guess(get)) {
        get->generation = newest_find(request);
    }
    if (get->generation > 0) {
        rg_memory_read_take(request);
        if (!rg_cached_is_complete(get) && next_start(request)) {
            return RG_CACHED_READING;
        }
    }
    return settle(request) ? RG_CACHED_ANSWERED : RG_CACHED_NOTHING;
}

/* Without memory for a note of it, what came is not kept. */
static void gap_note(struct rg_get_state *get)
{
    if (get->gaps == NULL) {
        get->gaps = calloc(1, sizeof(*get->gaps));
    }
    if (get->gaps != NULL) {
        RG_ASSERT(get->gaps->count < GAPS_MAX);
        get->gaps->all[get->gaps->count].from = get->sent_from;
        get->gaps->all[get->gaps->count].to = get->received;
        get->gaps->count++;
    }
    get->sent_from = get->received;
}

enum rg_cached_begun rg_cached_read_go_on(struct rg_request *request)
{
    gap_note(&request->get);
    if (next_start(request)) {
        request->get.gap_end = 0;
        return RG_CACHED_READING;
    }
    gap_find(request);
    return RG_CACHED_NOTHING;
}

void rg_cached_read_abandon(struct rg_request *request)
{
    struct rg_cached_read *read = request->get.cached_read;
    RG_ASSERT(read != NULL && read->request == request);
    read->request = NULL;
    request->get.cached_read = NULL;
    if (request->get.received == 0) {
        rg_get_state_restart(&request->get);
    }
}

void rg_cached_read_give_up(struct rg_request *request)
{
    struct rg_cached_read *read = request->get.cached_read;
    rg_cached_read_abandon(request);
    read->is_late = true;
    read->reads->late++;
    rg_cache_place_failed(cache_of(read), &read->place, -ETIMEDOUT);
}

/* Opens the header that was read; false: it is damaged, or of something else. */
static bool header_take(struct rg_cached_read *read)
{
    struct rg_request *request = read->request;
    struct rg_get_state *get = &request->get;
    struct rg_cache_key key = rg_cached_key(request, read->block);
    int rc = rg_cache_record_open(cache_of(read), &read->place, &key, read->lease->data + read->at,
                                  read->needed - lead_of(read, read->place.offset), &read->record);
    if (rc == -EBADMSG) {
        rg_metric_add(&metrics_of(request)->cache_bad, 1);
    }
    if (rc < 0 || !rg_cached_fits(get, &read->record, read->begin) ||
        read->record.header_size + (uint64_t)read->record.body_size > read->place.size) {
        return false;
    }
    rg_cached_note(get, &read->record);
    return true;
}

/* Reads the pieces that are wanted, and no others. */
static void body_start(struct rg_cached_read *read)
{
    const struct rg_cache_record *record = &read->record;
    const struct rg_get_state *get = &read->request->get;
    uint64_t at = get->offset + get->received - read->begin;
    uint64_t end = RG_MIN(rg_cached_end(get) - read->begin, (uint64_t)record->body_size);
    uint64_t pieces = (end + record->piece_size - 1) / record->piece_size;
    read->first = (uint32_t)(at / record->piece_size) * record->piece_size;
    uint64_t last = RG_MIN(pieces * record->piece_size, (uint64_t)record->body_size);
    /* The header stays in front, with the CRC32Cs. */
    read_start(read, STEP_BODY, record->header_size + read->first, (size_t)(last - read->first),
               BODY_AT);
    read->body_size = (size_t)(last - read->first);
}

/* The bytes that are wanted were read: checks them, and hands them out. */
static bool body_take(struct rg_cached_read *read)
{
    struct rg_request *request = read->request;
    struct rg_get_state *get = &request->get;
    const struct rg_cache_record *record = &read->record;
    bool is_all = read->step == STEP_RECORD;
    uint8_t *body = read->lease->data + read->at + (is_all ? record->header_size : 0);
    size_t size = is_all ? record->body_size : read->body_size;
    read->first = is_all ? 0 : read->first;
    if (rg_cache_record_check(cache_of(read), &read->place, record, read->first, body, size) < 0) {
        rg_metric_add(&metrics_of(request)->cache_bad, 1);
        return false;
    }
    uint64_t at = get->offset + get->received, end = rg_cached_end(get);
    uint64_t begin = read->begin + read->first;
    if (at < begin || at >= RG_MIN(end, begin + size)) {
        return false;
    }
    size_t wanted = (size_t)(RG_MIN(end, begin + size) - at);
    return rg_cached_hand_out(request, record, body + (at - begin), wanted, &read->lease);
}

/* Reads what is left of the step; false: there is nothing left, or nothing comes. */
static bool rest_start(struct rg_cached_read *read)
{
    struct rg_op *op = &read->op;
    read->came += op->result > 0 ? (size_t)op->result : 0;
    if (op->result <= 0 || read->came >= read->needed) {
        return false;
    }
    rg_op_read_file(read->reads->client_loop->loop, op, op->file, op->offset + (size_t)op->result,
                    (uint8_t *)op->data + op->result, read->wanted - read->came);
    return true;
}

static void read_done(struct rg_op *op)
{
    struct rg_cached_read *read = RG_CONTAINER_OF(op, struct rg_cached_read, op);
    struct rg_request *request = read->request;
    struct rg_client_loop *client_loop = read->reads->client_loop;
    if (request == NULL) {
        read_give(read);
        rg_client_check_closed(client_loop);
        return;
    }
    if (rest_start(read)) {
        return;
    }
    bool came = read->came >= read->needed;
    if (!came) {
        rg_cache_place_failed(cache_of(read), &read->place, op->result < 0 ? op->result : -EIO);
    }
    came = came && (read->step == STEP_BODY || header_take(read));
    if (came && read->step == STEP_HEADER) {
        body_start(read);
        return;
    }
    came = came && body_take(read);
    request->get.cached_read = NULL;
    read_give(read);
    if (came) {
        rg_memory_read_take(request);
    }
    if (!came || rg_cached_is_complete(&request->get) || !next_start(request)) {
        client_loop->cached->ended(request, settle(request));
    }
}

void rg_cached_read_doubt(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    if (get->cached > 0) {
        get->is_fresh = true;
        rg_metric_add(&metrics_of(request)->cache_bad, 1);
    }
}

/* All that a get of these bytes would find in memory. */
static void memory_forget(struct rg_memory *memory, const struct rg_cache_key *of, uint64_t at,
                          uint64_t end)
{
    struct rg_cache_key key = *of;
    while (at < end) {
        key.block = at / RG_CACHE_BLOCK_SIZE;
        rg_memory_forget(memory, &key);
        uint64_t next = (key.block + 1) * RG_CACHE_BLOCK_SIZE;
        key.block = RG_CACHE_PART | at;
        rg_memory_forget(memory, &key);
        at = next;
    }
}

/* What the cache has of bytes [at, end): blocks, and parts that have the first byte of a granule.
 */
static void bytes_forget(struct rg_request *request, int64_t generation, uint64_t at, uint64_t end)
{
    struct rg_cache *cache = request->client->cache;
    struct rg_cache_extent extent;
    struct rg_cache_key key = rg_cached_key(request, 0);
    key.generation = generation;
    if (request->client->memory != NULL) {
        memory_forget(request->client->memory, &key, at, end);
    }
    for (unsigned i = 0; cache != NULL && at < end;) {
        /* One block, and a part by its beginning or by a note. */
        if (i++ < 3 && rg_cache_look(cache, &key, at, RG_CACHE_BY_ANY, &extent)) {
            key.block = extent.block;
            rg_cache_forget(cache, &key);
        } else {
            at = (at / RG_CACHE_GRANULE_SIZE + 1) * RG_CACHE_GRANULE_SIZE;
            i = 0;
        }
    }
}

/* Of bytes from *at to `end` the first that one record has: its key's block. *at moves behind them.
 */
static uint64_t block_of(const struct rg_get_state *get, uint64_t end, uint64_t *at)
{
    uint64_t block = *at / RG_CACHE_BLOCK_SIZE;
    uint64_t begin = block * RG_CACHE_BLOCK_SIZE, first = *at;
    *at = RG_MIN(end, begin + RG_CACHE_BLOCK_SIZE);
    bool is_block =
        first == begin && (*at == get->object_size || *at == begin + RG_CACHE_BLOCK_SIZE);
    return is_block ? block : RG_CACHE_PART | first;
}

/* Gives a record to both tiers; true: one has taken it. */
static bool block_write(struct rg_client *client, const struct rg_cache_key *key,
                        const struct rg_cache_record *record, const uint8_t *body, size_t size)
{
    bool taken = client->memory != NULL && rg_memory_put(client->memory, key, record, body, size);
    bool kept = client->cache != NULL && rg_cache_write(client->cache, key, record, body, size);
    return taken || kept;
}

static struct rg_cache_record record_of(const struct rg_get_state *get)
{
    return (struct rg_cache_record){.object_size = get->object_size,
                                    .object_crc32c = get->object_crc,
                                    .has_object_crc32c = get->has_object_crc};
}

/* Gives the cache bytes [at, end) of the object, which are at `body`. */
static void write_blocks(struct rg_request *request, uint64_t at, uint64_t end, const uint8_t *body)
{
    const struct rg_get_state *get = &request->get;
    struct rg_metrics *metrics = metrics_of(request);
    const struct rg_cache_record record = record_of(get);
    while (at < end) {
        uint64_t to = at;
        struct rg_cache_key key = rg_cached_key(request, block_of(get, end, &to));
        if (RG_UNLIKELY(get->is_fresh)) {
            bytes_forget(request, get->generation, at, to);
        }
        bool taken = block_write(request->client, &key, &record, body, (size_t)(to - at));
        rg_metric_add(taken ? &metrics->cache_writes : &metrics->cache_drops, 1);
        body += to - at;
        at = to;
    }
}

/* What came from the folder comes to memory, too, if there is room. */
static void promote_blocks(struct rg_request *request, const uint8_t *body)
{
    const struct rg_get_state *get = &request->get;
    const struct rg_cache_record record = record_of(get);
    uint64_t at = get->offset, end = get->offset + get->received;
    while (at < end) {
        uint64_t to = at;
        struct rg_cache_key key = rg_cached_key(request, block_of(get, end, &to));
        (void)rg_memory_put(request->client->memory, &key, &record, body, (size_t)(to - at));
        body += to - at;
        at = to;
    }
}

/* The newest generation came, and is noted for others where something of it was written for them.
 * What was the newest before is not asked for again. */
static void newest_note(struct rg_request *request, bool is_written)
{
    const struct rg_get_state *get = &request->get;
    struct rg_newest *newest = request->client->newest;
    int64_t before = rg_newest_find(newest, request->bucket, request->object);
    rg_newest_note(newest, request->bucket, request->object, get->generation);
    if (is_written && before != get->generation && request->client->cache != NULL) {
        struct rg_cache_key key = rg_cached_key(request, 0);
        rg_cache_note_newest(request->client->cache, &key);
    }
    if (before <= 0 || before >= get->generation) {
        return;
    }
    bytes_forget(request, before, get->offset, get->offset + get->received);
}

/* Memory that somebody waits for is not taken. If there was none when the first bytes came, the
 * copy of a rest would be one of a body without its beginning. */
void rg_cached_read_keep(struct rg_request *request)
{
    struct rg_get_state *get = &request->get;
    struct rg_slab_arena *slabs = request->client_loop->loop->slabs;
    bool fits = get->buf_size <= KEPT_SIZE_MAX && get->buf_size <= rg_slab_size_max(slabs);
    bool is_begun = get->received > get->cached;
    if (request->client->newest != NULL && get->kept == NULL && fits && !is_begun &&
        !rg_slab_arena_is_starved(slabs)) {
        get->kept = rg_slab_take(slabs, get->buf_size);
    }
}

void rg_cached_read_finish(struct rg_request *request)
{
    const struct rg_get_state *get = &request->get;
    struct rg_metrics *metrics = metrics_of(request);
    bool is_unchecked = request->client->options.checksum == RG_SWITCH_OFF;
    if (is_eligible(get) && get->received > 0) {
        rg_metric_add(get->cached == get->received ? &metrics->cache_hits : &metrics->cache_misses,
                      1);
        rg_metric_add(&metrics->cache_hit_bytes, get->cached);
    }
    if (get->generation <= 0) {
        return;
    }
    const uint8_t *body = get->buf != NULL ? get->buf : get->body;
    if (get->sink != NULL) {
        body = get->kept != NULL ? get->kept->data : NULL;
    }
    bool is_known = get->has_object_size && !get->is_gzip && !is_unchecked && body != NULL;
    bool is_hit = get->cached == get->received && get->gaps == NULL;
    if (is_known && is_hit && request->client->memory != NULL && get->from_memory < get->cached) {
        promote_blocks(request, body);
    }
    for (uint32_t i = 0; is_known && get->gaps != NULL && i < get->gaps->count; i++) {
        write_blocks(request, get->offset + get->gaps->all[i].from,
                     get->offset + get->gaps->all[i].to, body + get->gaps->all[i].from);
    }
    if (is_known && get->sent_from < get->received) {
        write_blocks(request, get->offset + get->sent_from, get->offset + get->received,
                     body + get->sent_from);
    }
    if (rg_cached_is_guess(get)) {
        newest_note(request, is_known && get->cached < get->received);
    }
}
