/* What a get asks the client's cache for before anything is sent (cache/cache.h).
 *
 *   begin -> a block is found, or there is none -> its record is read -> checked -> handed out
 *         -> the next block ... -> the whole body is there, or what lacks is sent for: up to the
 *            next bytes that the cache may have, where it goes on, or all of the rest
 *
 * Only what names a generation can be answered by the cache alone. A get of the newest one takes
 * the generation that was seen last for a guess, by this process (gcs/request/newest.h) or by
 * another one that has the cache's index, and reads that from the cache. If that is all, it asks
 * the service whether there is another: 304 means that the guess was right. Else the answer for
 * what lacks tells the generation. What was read of another one is dropped then, and all is sent
 * for.
 *
 * A get never waits for the cache. A cancel, a deadline, or too long a read ends its part there and
 * then; the record, which the kernel may still be writing to memory, is dropped when it has come.
 * So records are read to memory of their own, and from there to the caller's.
 *
 * On the loop. request.c calls, and is told the end. */
#ifndef RG_GCS_REQUEST_CACHED_READ_H
#define RG_GCS_REQUEST_CACHED_READ_H

#include "runtime/base.h"

/* How long a get is read from the cache before it is sent instead. */
#define RG_CACHED_READ_PATIENCE_NS (2 * RG_NS_PER_S)

struct rg_cached_reads;
struct rg_client_loop;
struct rg_request;

/* The reads of one loop. `ended` is told when what the cache can do for a get is done: whether its
 * body is there. 0 or -ENOMEM. */
int rg_cached_reads_create(struct rg_cached_reads **out_reads, struct rg_client_loop *client_loop,
                           void (*ended)(struct rg_request *request, bool is_answered));
/* None is out. NULL is fine. */
void rg_cached_reads_destroy(struct rg_cached_reads *reads);

enum rg_cached_begun {
    RG_CACHED_NOTHING,  /* it is to be sent, for what it has not */
    RG_CACHED_READING,  /* `ended` will be told */
    RG_CACHED_ANSWERED, /* its body is there already */
};
/* A prepared get. */
enum rg_cached_begun rg_cached_read_begin(struct rg_request *request);
/* The same, when the gap that was sent for has come. */
enum rg_cached_begun rg_cached_read_go_on(struct rg_request *request);
/* What is out for the get is not wanted any more. */
void rg_cached_read_abandon(struct rg_request *request);
/* The same, since it takes too long: until it has come, no other read of this loop begins. */
void rg_cached_read_give_up(struct rg_request *request);
/* The body of a get comes that has a sink: it is copied, if there is memory, for the cache. */
void rg_cached_read_keep(struct rg_request *request);
/* A complete body is not what the object has. If any of it came from the cache, that is not asked
 * again for this get, and forgets what it has where the right bytes have come. */
void rg_cached_read_doubt(struct rg_request *request);
/* A get whose body is complete and checked: counts it, and gives the cache what it did not have. */
void rg_cached_read_finish(struct rg_request *request);

#endif
