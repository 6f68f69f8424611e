/* See parts.h. */
#include "gcs/upload/parts.h"

#include "gcs/wire/checksum.h"

#include <errno.h>
#include <stdlib.h>

#define RECORDS_MIN 16

/* Parts that have slots were begun, lie below what was begun, and have a record of their size. A
 * slot without bytes (it joins or removes something) is numbered otherwise. */
static bool invariants(const struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        const struct rg_upload_part *part = &parts->slots[i];
        bool has_bytes = part->state == RG_PART_FILLING || part->state == RG_PART_FILLED;
        if (has_bytes &&
            (part->number >= parts->next || part->offset + part->size > parts->offset ||
             parts->records[part->number].size != part->size)) {
            return false;
        }
    }
    return parts->next <= parts->record_capacity;
}

static void part_filled(struct rg_upload_part *part)
{
    struct rg_upload_parts *parts = RG_CONTAINER_OF(part->source, struct rg_upload_parts, source);
    parts->records[part->number].crc = part->crc;
    rg_operation_wake(parts->source.operation);
}

int rg_upload_parts_init(struct rg_upload_parts *parts, struct rg_operation *operation,
                         uint32_t slot_count)
{
    parts->source = (struct rg_upload_source){
        .operation = operation, .filled = part_filled, .size = UINT64_MAX, .fd = -1};
    parts->slots = calloc(slot_count, sizeof(*parts->slots));
    if (parts->slots == NULL) {
        return -ENOMEM;
    }
    parts->slot_count = slot_count;
    for (uint32_t i = 0; i < slot_count; i++) {
        rg_upload_source_prepare(&parts->source, &parts->slots[i]);
    }
    return 0;
}

void rg_upload_parts_fini(struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        RG_ASSERT(parts->slots[i].state == RG_PART_FREE);
        rg_gcs_call_fini(&parts->slots[i].call);
    }
    free(parts->slots);
    free(parts->records);
}

void rg_upload_parts_start(struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        rg_gcs_call_init(&parts->slots[i].call, parts->source.operation->request);
    }
}

static bool is_running(const struct rg_upload_parts *parts)
{
    return parts->source.operation->state == RG_OPERATION_RUNNING;
}

static bool source_ended(const struct rg_upload_parts *parts)
{
    return parts->next > 0 && parts->offset == parts->source.size;
}

static bool records_reserve(struct rg_upload_parts *parts, uint32_t count)
{
    if (count <= parts->record_capacity) {
        return true;
    }
    uint32_t capacity = RG_MAX(RG_MAX(2 * parts->record_capacity, count), (uint32_t)RECORDS_MIN);
    struct rg_upload_record *records =
        reallocarray(parts->records, capacity, sizeof(*parts->records));
    if (records == NULL) {
        return false;
    }
    parts->records = records;
    parts->record_capacity = capacity;
    return true;
}

/* Gives the slot the next part. False: there is none for now. */
static bool part_begin(struct rg_upload_parts *parts, struct rg_upload_part *part)
{
    if (source_ended(parts)) {
        return false;
    }
    if (!records_reserve(parts, parts->next + 1)) {
        rg_operation_fail(parts->source.operation, RG_STATUS_NO_RESOURCES,
                          "no memory for the list of parts");
        return false;
    }
    part->number = parts->next;
    part->offset = parts->offset;
    if (!rg_upload_source_begin(part, parts->part_size)) {
        return false;
    }
    parts->records[part->number] = (struct rg_upload_record){.size = part->size, .crc = part->crc};
    parts->next++;
    parts->offset += part->size;
    RG_VERIFY(invariants(parts));
    return true;
}

static bool is_filling(const struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        if (parts->slots[i].state == RG_PART_FILLING) {
            return true;
        }
    }
    return false;
}

/* A disk is asked for many parts at once. The page cache is not: part by part, the first is sent
 * while the second is read, and fewer are in memory than may be where the network keeps up. */
static bool fills_one_by_one(const struct rg_upload_parts *parts)
{
    return parts->source.kind == RG_UPLOAD_SOURCE_FILE && !parts->source.disk_waits;
}

void rg_upload_parts_fill(struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count && is_running(parts); i++) {
        if (fills_one_by_one(parts) && is_filling(parts)) {
            break;
        }
        struct rg_upload_part *part = &parts->slots[i];
        if (part->state != RG_PART_FREE) {
            continue;
        }
        if (!part_begin(parts, part)) {
            break;
        }
        if (part->state == RG_PART_FILLING) {
            rg_upload_source_fill(part);
        }
    }
}

void rg_upload_parts_call_off(struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        rg_upload_source_call_off(&parts->slots[i]);
    }
}

struct rg_upload_part *rg_upload_parts_filled(struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        if (parts->slots[i].state == RG_PART_FILLED) {
            return &parts->slots[i];
        }
    }
    return NULL;
}

struct rg_upload_part *rg_upload_parts_at(struct rg_upload_parts *parts, uint64_t offset)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        struct rg_upload_part *part = &parts->slots[i];
        if (part->state != RG_PART_FREE && offset >= part->offset &&
            offset - part->offset < part->size) {
            return part;
        }
    }
    return NULL;
}

void rg_upload_part_free(struct rg_upload_part *part)
{
    RG_ASSERT(!part->call.out);
    if (part->state == RG_PART_FREE) {
        return;
    }
    rg_upload_source_call_off(part);
    rg_upload_source_drop(part);
    free(part->lead);
    free(part->trail);
    part->lead = part->trail = NULL;
    rg_upload_part_become(part, RG_PART_FREE);
}

void rg_upload_parts_free_all(struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        rg_upload_part_free(&parts->slots[i]);
    }
}

void rg_upload_parts_restart(struct rg_upload_parts *parts)
{
    rg_upload_parts_free_all(parts);
    parts->next = 0;
    parts->offset = 0;
}

bool rg_upload_parts_all_filled(const struct rg_upload_parts *parts)
{
    return source_ended(parts) && !is_filling(parts);
}

bool rg_upload_parts_done(const struct rg_upload_parts *parts)
{
    for (uint32_t i = 0; i < parts->slot_count; i++) {
        if (parts->slots[i].state != RG_PART_FREE) {
            return false;
        }
    }
    return source_ended(parts);
}

uint64_t rg_upload_parts_total(const struct rg_upload_parts *parts)
{
    return parts->source.size != UINT64_MAX ? parts->source.size : parts->offset;
}

uint32_t rg_upload_parts_crc(const struct rg_upload_parts *parts)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < parts->next; i++) {
        crc = rg_crc32c_combine(crc, parts->records[i].crc, parts->records[i].size);
    }
    return crc;
}
