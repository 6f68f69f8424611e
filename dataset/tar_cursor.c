/* See tar_cursor.h. */
#include "dataset/tar_cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int members_copy(struct rg_tar_cursor *cursor, const char *const *members, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size_t one = strlen(members[i]);
        if (one > RG_TAR_EXTENSION_SIZE_MAX) {
            return -EINVAL;
        }
        size += one + 1;
    }
    cursor->members = malloc(size + 1);
    if (cursor->members == NULL) {
        return -ENOMEM;
    }
    char *at = cursor->members;
    for (size_t i = 0; i < count; i++) {
        at = stpcpy(at, members[i]) + 1;
    }
    cursor->member_count = (uint32_t)count;
    return 0;
}

int rg_tar_cursor_open(struct rg_tar_cursor **out_cursor, const struct rg_tar_index *index,
                       const char *const *members, size_t member_count)
{
    if (member_count > RG_TAR_MEMBERS_MAX) {
        return -EINVAL;
    }
    struct rg_tar_cursor *cursor = malloc(sizeof(*cursor));
    if (cursor == NULL) {
        return -ENOMEM;
    }
    cursor->index = index;
    cursor->next = 0;
    cursor->block.begin = cursor->block.end = 0;
    int rc = members_copy(cursor, members, member_count);
    if (rc < 0) {
        free(cursor);
        return rc;
    }
    *out_cursor = cursor;
    return 0;
}

void rg_tar_cursor_close(struct rg_tar_cursor *cursor)
{
    if (cursor != NULL) {
        free(cursor->members);
        free(cursor);
    }
}

/* Decodes up to the sample, from the last one on where that is possible. */
static int whole_find(struct rg_tar_cursor *cursor, uint64_t number)
{
    struct rg_tar_block *block = &cursor->block;
    if (number >= block->begin && number < block->end && number + 1 == cursor->next) {
        return 0;
    }
    if (number < cursor->next || number >= block->end) {
        block->end = 0;
        int rc = rg_tar_index_block(cursor->index, number, block);
        if (rc < 0) {
            return rc;
        }
        cursor->next = block->begin;
        cursor->whole.shard = block->shard;
        cursor->whole.key_size = 0;
        cursor->whole.part_count = 0;
    }
    while (cursor->next <= number) {
        if (!rg_tar_decode(&block->decoder, &cursor->whole)) {
            block->end = 0;
            return -EBADMSG;
        }
        cursor->next++;
    }
    return 0;
}

static bool is_wanted(const struct rg_tar_cursor *cursor, const struct rg_tar_part *part)
{
    const char *member = cursor->members;
    for (uint32_t i = 0; i < cursor->member_count; i++) {
        size_t size = strlen(member);
        if (size == part->extension_size && memcmp(member, part->extension, size) == 0) {
            return true;
        }
        member += size + 1;
    }
    return false;
}

/* The piece that a part is read with, which becomes larger or is a new one. */
static struct rg_tar_piece *piece_for(struct rg_tar_cursor *cursor, uint64_t offset, uint64_t size)
{
    struct rg_tar_piece *last = &cursor->pieces[RG_MAX(cursor->piece_count, 1u) - 1];
    uint64_t place = 0;
    if (cursor->piece_count > 0) {
        if (offset - (last->offset + last->size) <= RG_TAR_GAP_MAX) {
            last->size = offset + size - last->offset;
            return last;
        }
        place = (last->place + last->size + RG_CACHE_LINE - 1) / RG_CACHE_LINE * RG_CACHE_LINE;
    }
    struct rg_tar_piece *piece = &cursor->pieces[cursor->piece_count++];
    *piece = (struct rg_tar_piece){.offset = offset, .size = size, .place = place};
    return piece;
}

/* Makes `chosen` and the pieces of what is wanted of `whole`. A part without bytes is in none. */
static void parts_choose(struct rg_tar_cursor *cursor)
{
    const struct rg_tar_sample *whole = &cursor->whole;
    struct rg_tar_sample *chosen = &cursor->chosen;
    cursor->piece_count = 0;
    chosen->part_count = 0;
    for (uint32_t i = 0; i < whole->part_count; i++) {
        struct rg_tar_part part = whole->parts[i];
        uint64_t offset = whole->offset + part.offset;
        if (!is_wanted(cursor, &part)) {
            continue;
        }
        part.offset = 0;
        if (part.size > 0) {
            const struct rg_tar_piece *piece = piece_for(cursor, offset, part.size);
            part.offset = piece->place + (offset - piece->offset);
        }
        chosen->parts[chosen->part_count++] = part;
    }
    const struct rg_tar_piece *last = &cursor->pieces[RG_MAX(cursor->piece_count, 1u) - 1];
    chosen->shard = whole->shard;
    chosen->offset = cursor->piece_count > 0 ? cursor->pieces[0].offset : whole->offset;
    chosen->size = cursor->piece_count > 0 ? last->place + last->size : 0;
    chosen->key_size = whole->key_size;
    memcpy(chosen->key, whole->key, whole->key_size + 1);
}

static bool invariants(const struct rg_tar_cursor *cursor)
{
    const struct rg_tar_block *block = &cursor->block;
    for (uint32_t i = 1; i < cursor->piece_count; i++) {
        const struct rg_tar_piece *last = &cursor->pieces[i - 1], *piece = &cursor->pieces[i];
        uint64_t end = last->place + last->size;
        if (piece->offset <= last->offset + last->size + RG_TAR_GAP_MAX || piece->place < end ||
            piece->place - end >= RG_CACHE_LINE || piece->place % RG_CACHE_LINE != 0) {
            return false;
        }
    }
    return cursor->next > block->begin && cursor->next <= block->end &&
           cursor->piece_count <= RG_TAR_MEMBERS_MAX && cursor->pieces[0].place == 0;
}

int rg_tar_cursor_get(struct rg_tar_cursor *cursor, uint64_t number,
                      const struct rg_tar_sample **out_sample)
{
    int rc = whole_find(cursor, number);
    if (rc < 0) {
        return rc;
    }
    if (cursor->member_count > 0) {
        parts_choose(cursor);
        RG_VERIFY(cursor->piece_count == 0 || invariants(cursor));
        *out_sample = &cursor->chosen;
        return 0;
    }
    const struct rg_tar_sample *whole = &cursor->whole;
    cursor->piece_count = whole->size > 0;
    cursor->pieces[0] = (struct rg_tar_piece){.offset = whole->offset, .size = whole->size};
    RG_VERIFY(invariants(cursor));
    *out_sample = whole;
    return 0;
}
