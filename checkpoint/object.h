/* The object that a reader reads: what its answers have told of it, which of its bytes were
 * compared, and how many reads of it are out. All threads, the loops' too, share it under its lock.
 *
 *   UNKNOWN -> FIXED -> DAMAGED
 *
 *   UNKNOWN  no answer has come; who has found nothing at some byte knows that it ends before
 *   FIXED    the first answer has told generation, size and CRC32C, and all others must tell the
 *            same
 *   DAMAGED  all bytes were read, and together do not have its CRC32C; or bytes that were read
 *            again do not have that of their first reading. From now on reads fail
 *
 * Invariant: nothing is known of a smaller object than somebody was told that it is. */
#ifndef RG_CHECKPOINT_OBJECT_H
#define RG_CHECKPOINT_OBJECT_H

#include "checkpoint/coverage.h"

#include <pthread.h>
#include <ringest/gcs.h>

enum rg_checkpoint_object_state {
    RG_CHECKPOINT_OBJECT_UNKNOWN = 0,
    RG_CHECKPOINT_OBJECT_FIXED,
    RG_CHECKPOINT_OBJECT_DAMAGED,
};

struct rg_checkpoint_facts {
    int64_t generation;
    uint64_t size;
    uint32_t crc32c;
    bool has_crc32c;
};

struct rg_checkpoint_object {
    struct rg_client *client;
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1], object[RG_OBJECT_NAME_SIZE_MAX + 1];
    bool checks; /* CRC32Cs are computed and compared */
    pthread_mutex_t lock;
    pthread_cond_t idle; /* `out` has become 0 */
    /* Guarded by the lock. */
    enum rg_checkpoint_object_state state; /* changed in object.c alone */
    int64_t wanted;                        /* the generation that is asked for; 0: the newest */
    uint64_t size_max;                     /* while UNKNOWN */
    struct rg_checkpoint_facts facts;      /* once it is FIXED; they stay */
    struct rg_coverage coverage;
    struct rg_coverage_span damaged; /* while DAMAGED: what came, instead of this CRC32C */
    uint32_t damaged_expected;
    uint32_t out; /* reads */
};

/* What an answer is to the object. */
enum rg_checkpoint_answer {
    RG_CHECKPOINT_SAME = 0,
    RG_CHECKPOINT_OTHER,    /* the request named no generation, and the answer is of another one */
    RG_CHECKPOINT_REPLACED, /* somebody was told that it ends before */
    RG_CHECKPOINT_UNTOLD,   /* it does not say of which generation it is, or how large that is */
    RG_CHECKPOINT_WRONG,    /* of the same generation it tells another size */
};

/* 0, or -EINVAL: the names. */
int rg_checkpoint_object_init(struct rg_checkpoint_object *object, struct rg_client *client,
                              const char *bucket, const char *name, int64_t generation);
/* No read is out. */
void rg_checkpoint_object_fini(struct rg_checkpoint_object *object);

/* What a request has to name: 0 is the newest. */
int64_t rg_checkpoint_object_wanted(struct rg_checkpoint_object *object);
/* False: UNKNOWN. */
bool rg_checkpoint_object_facts(struct rg_checkpoint_object *object,
                                struct rg_checkpoint_facts *out_facts);
/* Its size, or while that is not known where it ends at most: UINT64_MAX. */
uint64_t rg_checkpoint_object_end(struct rg_checkpoint_object *object);
/* A request that named the generation `asked` was answered. */
enum rg_checkpoint_answer rg_checkpoint_object_answered(struct rg_checkpoint_object *object,
                                                        int64_t asked,
                                                        const struct rg_completion *answer);
/* For people, of anything but SAME. */
const char *rg_checkpoint_answer_text(enum rg_checkpoint_answer answer);
/* Somebody is told that there is nothing from this byte on. False: since then an answer has told
 * otherwise. */
bool rg_checkpoint_object_ends(struct rg_checkpoint_object *object, uint64_t offset);

/* Bytes of an object that is not UNKNOWN were read. */
void rg_checkpoint_object_cover(struct rg_checkpoint_object *object, uint64_t offset,
                                const void *data, uint64_t size, uint32_t crc);
/* All of its bytes together have this CRC32C. */
void rg_checkpoint_object_compare(struct rg_checkpoint_object *object, uint32_t crc);
/* True: DAMAGED, and why, for people. */
bool rg_checkpoint_object_is_damaged(struct rg_checkpoint_object *object, char *text, size_t size);

void rg_checkpoint_object_read_begun(struct rg_checkpoint_object *object);
/* It may be gone when this returns, if somebody waits for that. */
void rg_checkpoint_object_read_ended(struct rg_checkpoint_object *object);
bool rg_checkpoint_object_is_read(struct rg_checkpoint_object *object);
/* Returns when no read is out. */
void rg_checkpoint_object_await(struct rg_checkpoint_object *object);

#endif
