/* What a get takes from a record of the cache, wherever that lies: on a disk or in memory. On the
 * loop. */
#ifndef RG_GCS_REQUEST_CACHED_BODY_H
#define RG_GCS_REQUEST_CACHED_BODY_H

#include "cache/format.h"

struct rg_get_state;
struct rg_lease;
struct rg_request;

/* The key of a block of the object that the get reads, in the generation that it found. Borrows the
 * request's texts. */
struct rg_cache_key rg_cached_key(const struct rg_request *request, uint64_t block);
/* Where what was asked for ends, in the object; UINT64_MAX: where the object does. */
uint64_t rg_cached_end(const struct rg_get_state *get);
bool rg_cached_is_complete(const struct rg_get_state *get);
/* Any object's newest generation may be another by now. */
bool rg_cached_is_guess(const struct rg_get_state *get);
/* True: the record is of the object that the records before it are of, and has the next byte.
 * `begin`: its first byte, in the object. */
bool rg_cached_fits(const struct rg_get_state *get, const struct rg_cache_record *record,
                    uint64_t begin);
/* Takes note of the object. */
void rg_cached_note(struct rg_get_state *get, const struct rg_cache_record *record);
/* Whether that many bytes are all of the answer, which nobody has given memory for: then the lease
 * that they lie in becomes the answer's. */
bool rg_cached_is_answer(const struct rg_get_state *get, size_t size);
/* Hands out the next bytes, which were checked. They lie in *lease, which is taken if they are the
 * answer; then it is NULL. `size` of the record's, all of which are there if that is body_size.
 * False: there is no room for them. */
bool rg_cached_hand_out(struct rg_request *request, const struct rg_cache_record *record,
                        const uint8_t *data, size_t size, struct rg_lease **lease);

#endif
