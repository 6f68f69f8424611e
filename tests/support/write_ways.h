/* Every way in which the library writes or removes an object, against the emulator: how it is asked
 * for, which request does it, and what is there then. Tests of lost answers go through all of them;
 * the faults/table test sees to it that each function stands here. */
#ifndef RG_TESTS_SUPPORT_WRITE_WAYS_H
#define RG_TESTS_SUPPORT_WRITE_WAYS_H

#include "tests/support/client.h"
#include "tests/support/talk.h"

#include <ringest/objects.h>
#include <ringest/upload.h>

#define RG_WRITE_SMALL_SIZE 5
#define RG_WRITE_PART_SIZE RG_MIB(5)
#define RG_WRITE_LARGE_SIZE (RG_WRITE_PART_SIZE + 1000)

/* The bucket has the object "old" of RG_WRITE_SMALL_SIZE bytes; what is written is "new". */
struct rg_write_run {
    struct rg_test_client client;
    uint16_t port; /* of the emulator */
    char bucket[32];
    bool exclusive; /* as far as the way knows it */
    struct rg_writer *writer;
};

enum rg_write_effect {
    RG_WRITE_MAKES,   /* "new", of `size` bytes */
    RG_WRITE_CHANGES, /* what is stored about "old" */
    RG_WRITE_REMOVES, /* "old" */
    RG_WRITE_ENDS,    /* the unfinished upload of "begun" */
    RG_WRITE_LEAVES,  /* all as it is */
};

struct rg_write_way {
    const char *name;
    const char *request; /* members of a fault rule for the request that has the effect */
    void (*submit)(struct rg_write_run *run);
    /* Somebody else has the same done; NULL: nobody can. */
    void (*other)(const struct rg_write_run *run);
    enum rg_write_effect effect;
    uint64_t size;
    bool unguarded; /* a lost answer may make it fail */
    bool unproven;  /* so may a request that is sent twice on its way */
};

extern const struct rg_write_way rg_write_ways[];
extern const size_t rg_write_way_count;

/* Makes the bucket of that number, with what is to be there, and opens the client. */
void rg_write_run_open(struct rg_write_run *run, const struct rg_write_way *way, size_t number);
void rg_write_run_close(struct rg_write_run *run);
/* The completion; of a batch, with the status of its one result. */
struct rg_completion rg_write_run_take(struct rg_write_run *run);
/* Whether what the way does is done, wholly; the case fails where it is half done. */
bool rg_write_run_is_done(const struct rg_write_run *run, const struct rg_write_way *way);
/* Objects in the bucket beside "old" and "new", and unfinished uploads. */
size_t rg_write_run_leftovers(const struct rg_write_run *run, size_t *out_uploads);

#endif
