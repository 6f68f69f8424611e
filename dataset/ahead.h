/* The beginning of the next epoch, which is read for the client's cache while the present epoch
 * ends.
 *
 *   WAITING -> ASKING    nothing more is to be asked for in this epoch, and half of its window is
 *      |         |       empty: the other half is what the next epoch's beginning may have
 *      +---------+--> ASKED    all of that was asked for, or is in the cache, or the cache is full
 *
 * Its bodies are given back as they come, so that nothing is held between epochs. No state counts
 * it. Nothing is read that the cache has, or that this rank reads in the present epoch: that is on
 * its way to the cache. What remains are objects that other hosts read now. A cache that has
 * refused a block since the epoch began would refuse these, too, and they would be sent twice; then
 * nothing is asked for.
 *
 * Requests are planned as the next epoch's reader will plan them, so that the ranges of tar samples
 * are the same. The window only keeps the plan: nothing is ever taken from it.
 *
 * Invariant: requests that are out have a slot that is OUT, and so does what has come; together the
 * slots are charged at most half of the bytes of the reader's window, and one request.
 *
 * One thread at a time, which never waits but in close. */
#ifndef RG_DATASET_AHEAD_H
#define RG_DATASET_AHEAD_H

#include "dataset/sampler.h"
#include "dataset/window.h"

struct rg_ahead;

/* For the options of the present epoch's reader, as rg_reader_options_read has made them; what they
 * borrow for that reader's life is borrowed, as is the sampler. *out_ahead is NULL where the client
 * has no cache, or the rank reads everything. 0, -ENOMEM, or an error of rg_source_open. */
int rg_ahead_open(struct rg_ahead **out_ahead, struct rg_client *client,
                  const struct rg_reader_options *options, const struct rg_sampler *present,
                  char *error, size_t error_size);
/* Asks for what may be asked for, and gives back what has come. `present`: this epoch's. */
void rg_ahead_step(struct rg_ahead *ahead, const struct rg_window *present);
/* Cancels what is out, and waits for that. `client`: NULL if it is being closed, which cancels as
 * well. Not the owner is a child of fork(). NULL is fine. */
void rg_ahead_close(struct rg_ahead *ahead, struct rg_client *client, bool is_owner);

#endif
