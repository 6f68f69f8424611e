/* Notes that processes leave each other in the region: a token, or that one was refused. There is
 * room for RG_NOTES_COUNT; a new one takes the place of that which was made the longest time ago.
 *
 * A note lies under a key that is derived from a secret, and is sealed with it. So only who has the
 * secret finds the note, learns what it says, and can leave another in its place. Whatever else
 * stands there, half of a note or random bytes, is no note: the seal is a checksum as well. */
#ifndef RG_GCS_HOST_NOTE_H
#define RG_GCS_HOST_NOTE_H

#include "gcs/host/region.h"
#include "gcs/wire/seal.h"

#define RG_NOTES_COUNT 8
#define RG_NOTE_TEXT_MAX RG_KIB(12)
#define RG_NOTE_ID_SIZE 16

struct rg_note_key {
    uint8_t id[RG_NOTE_ID_SIZE];
    uint8_t seal[RG_SEAL_KEY_SIZE];
    uint64_t lock; /* its number */
};

enum rg_note_kind {
    RG_NOTE_TOKEN = 1,
    RG_NOTE_REFUSED, /* the text is a digest of the token */
};

/* Times are of CLOCK_MONOTONIC, which is the same for all processes since the machine started. */
struct rg_note {
    uint64_t made_ns;
    uint64_t stale_ns, expires_ns; /* of a token */
    uint32_t kind;                 /* enum rg_note_kind */
    uint32_t text_size;
    char text[RG_NOTE_TEXT_MAX + 1]; /* a NUL follows text_size bytes */
};

/* From a secret of 32 bytes. */
void rg_note_key_derive(struct rg_note_key *out_key, const uint8_t *secret);

/* Waits for nobody. 0 and the note; -ENOENT: there is none, or what is there is damaged or just
 * being written; or the error of reading. */
int rg_note_read(const struct rg_host_region *region, const struct rg_note_key *key,
                 struct rg_note *out_note);
/* Replaces the note of that key. 0; -EAGAIN: another process is writing; or a negative errno. */
int rg_note_write(const struct rg_host_region *region, const struct rg_note_key *key,
                  const struct rg_note *note);

#endif
