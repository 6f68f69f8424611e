/* See note.h. Behind the region's header is a table of places, each a head and a sealed note. One
 * process at a time writes, for microseconds, and all may read meanwhile: the seal of half a note
 * is broken. A process that is killed while it writes leaves such a place for the next writer. */
#include "gcs/host/note.h"

#include "gcs/wire/digest.h"
#include "runtime/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define PLACE_SIZE RG_KIB(16)
#define TABLE_LOCK 0
/* Where the keys' locks begin. */
#define KEY_LOCKS 16

#define NOTE_HEAD_SIZE offsetof(struct rg_note, text)
#define SEALED_SIZE_MIN (NOTE_HEAD_SIZE + RG_SEAL_OVERHEAD)
#define SEALED_SIZE_MAX (SEALED_SIZE_MIN + RG_NOTE_TEXT_MAX)

struct head {
    uint8_t id[RG_NOTE_ID_SIZE];
    uint8_t nonce[RG_SEAL_NONCE_SIZE];
    uint64_t made_ns; /* not sealed: who has not the key has to know which note is the oldest */
    uint32_t sealed_size, zero;
};

struct place {
    struct head head;
    uint8_t sealed[SEALED_SIZE_MAX];
};

static_assert(sizeof(struct place) <= PLACE_SIZE, "a note fits into its place");
static_assert(RG_NOTES_COUNT * PLACE_SIZE == RG_HOST_NOTES_SIZE, "the places are the table");

void rg_note_key_derive(struct rg_note_key *out_key, const uint8_t *secret)
{
    uint8_t digest[RG_SHA256_SIZE];
    uint64_t number;
    rg_hmac_sha256(secret, RG_SHA256_SIZE, "id", 2, digest);
    memcpy(out_key->id, digest, sizeof(out_key->id));
    memcpy(&number, digest + sizeof(out_key->id), sizeof(number));
    out_key->lock = KEY_LOCKS + (number & UINT32_MAX);
    rg_hmac_sha256(secret, RG_SHA256_SIZE, "seal", 4, out_key->seal);
}

static uint64_t place_offset(unsigned index)
{
    return RG_HOST_HEADER_SIZE + (uint64_t)index * PLACE_SIZE;
}

static bool head_is_sound(const struct head *head)
{
    return head->sealed_size >= SEALED_SIZE_MIN && head->sealed_size <= SEALED_SIZE_MAX;
}

/* Which place has the key's note; -ENOENT: none. With NULL, the one that a new note takes: free, or
 * with the oldest note. A note of a clock that is ahead of ours would never be that. */
static int place_find(const struct rg_host_region *region, const uint8_t *id)
{
    int oldest = 0;
    uint64_t oldest_ns = UINT64_MAX, now_ns = rg_now_ns();
    for (unsigned i = 0; i < RG_NOTES_COUNT; i++) {
        struct head head;
        int rc = rg_host_region_read(region, place_offset(i), &head, sizeof(head));
        if (rc < 0) {
            return rc;
        }
        bool sound = head_is_sound(&head);
        if (id != NULL && sound && memcmp(head.id, id, sizeof(head.id)) == 0) {
            return (int)i;
        }
        uint64_t made_ns = sound && head.made_ns <= now_ns ? head.made_ns : 0;
        if (made_ns < oldest_ns) {
            oldest_ns = made_ns;
            oldest = (int)i;
        }
    }
    return id != NULL ? -ENOENT : oldest;
}

static int place_read(const struct rg_host_region *region, const struct rg_note_key *key,
                      struct place *place)
{
    int index = place_find(region, key->id);
    if (index < 0) {
        return index;
    }
    uint64_t offset = place_offset((unsigned)index);
    int rc = rg_host_region_read(region, offset, &place->head, sizeof(place->head));
    if (rc == 0 && !head_is_sound(&place->head)) {
        rc = -ENOENT; /* it is just being written */
    }
    return rc < 0 ? rc
                  : rg_host_region_read(region, offset + sizeof(place->head), place->sealed,
                                        place->head.sealed_size);
}

/* What the writer says of its own note: true as the seal is, but for faults of ours. */
static bool note_is_sound(const struct rg_note *note, size_t size)
{
    return note->kind >= RG_NOTE_TOKEN && note->kind <= RG_NOTE_REFUSED &&
           note->text_size == size - NOTE_HEAD_SIZE;
}

static int note_open(const struct rg_note_key *key, const struct place *place,
                     struct rg_note *out_note)
{
    const struct rg_seal_input input = {place->sealed, place->head.sealed_size, key->id,
                                        sizeof(key->id)};
    size_t size = input.size - RG_SEAL_OVERHEAD;
    if (!rg_unseal(key->seal, place->head.nonce, &input, (uint8_t *)out_note) ||
        !note_is_sound(out_note, size)) {
        return -ENOENT;
    }
    out_note->text[out_note->text_size] = '\0';
    return 0;
}

int rg_note_read(const struct rg_host_region *region, const struct rg_note_key *key,
                 struct rg_note *out_note)
{
    struct place place;
    int rc = place_read(region, key, &place);
    return rc < 0 ? rc : note_open(key, &place, out_note);
}

static int place_fill(const struct rg_note_key *key, const struct rg_note *note,
                      struct place *out_place)
{
    const struct rg_seal_input input = {note, NOTE_HEAD_SIZE + note->text_size, key->id,
                                        sizeof(key->id)};
    struct head *head = &out_place->head;
    *head = (struct head){
        .made_ns = note->made_ns,
        .sealed_size = (uint32_t)(input.size + RG_SEAL_OVERHEAD),
    };
    memcpy(head->id, key->id, sizeof(head->id));
    if (getrandom(head->nonce, sizeof(head->nonce), 0) != (ssize_t)sizeof(head->nonce)) {
        return -EIO;
    }
    rg_seal(key->seal, head->nonce, &input, out_place->sealed);
    return 0;
}

int rg_note_write(const struct rg_host_region *region, const struct rg_note_key *key,
                  const struct rg_note *note)
{
    RG_ASSERT(note->text_size <= RG_NOTE_TEXT_MAX);
    RG_ASSERT(note_is_sound(note, NOTE_HEAD_SIZE + note->text_size));
    struct place place;
    int rc = place_fill(key, note, &place);
    if (rc < 0) {
        return rc;
    }
    rc = rg_host_region_lock(region, TABLE_LOCK);
    if (rc < 0) {
        return rc;
    }
    int index = place_find(region, key->id);
    index = index == -ENOENT ? place_find(region, NULL) : index;
    rc = index < 0 ? index
                   : rg_host_region_write(region, place_offset((unsigned)index), &place,
                                          sizeof(place.head) + place.head.sealed_size);
    rg_host_region_unlock(region, TABLE_LOCK);
    return rc;
}
