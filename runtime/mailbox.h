/* How other threads hand work to an event loop: a queue of many posters and one owner.
 *
 * A mailbox is one word: empty, the mark of a sleeping owner, or a stack of mail. Because the mark
 * and the mail share it, the order in which the word changed decides everything: the poster whose
 * mail replaced the mark, and no other, wakes the owner, and an owner cannot put the mark over
 * mail.
 *
 * The owner's loop:
 *
 *     struct rg_mail *mail = rg_mailbox_drain(mailbox);    run each
 *     if (rg_mailbox_sleep_begin(mailbox)) {               no mail, and posters know
 *         wait for the ring, which an eventfd of the loop can end
 *         rg_mailbox_sleep_end(mailbox);
 *     }
 *
 * Mail belongs to the poster until it is posted and to the owner afterwards; it is embedded in what
 * it is about, so posting allocates nothing and cannot fail. */
#ifndef RG_RUNTIME_MAILBOX_H
#define RG_RUNTIME_MAILBOX_H

#include "runtime/base.h"

#include <stdalign.h>
#include <stdatomic.h>

struct rg_mail {
    struct rg_mail *next;
    void (*run)(struct rg_mail *mail); /* by the owner; it may free or post the mail again */
};

/* On a cache line of its own: every poster writes it. A zeroed one is empty and awake. */
struct rg_mailbox {
    alignas(RG_CACHE_LINE) _Atomic(struct rg_mail *) newest;
};

void rg_mailbox_init(struct rg_mailbox *mailbox);

/* Any thread. True when the owner sleeps and the caller must wake it now: exactly one post per
 * sleep gets true. The mail may have run before this returns. */
bool rg_mailbox_post(struct rg_mailbox *mailbox, struct rg_mail *mail);

/* The same for a chain linked by `next`, ending in NULL, in the order in which it shall run. It is
 * posted as a whole: no other mail gets in between. */
bool rg_mailbox_post_chain(struct rg_mailbox *mailbox, struct rg_mail *first);

/* Owner only. Takes everything, oldest first, linked by `next`; NULL when there is none. */
struct rg_mail *rg_mailbox_drain(struct rg_mailbox *mailbox);

/* Owner only. False: there is mail, do not sleep. True: the next post will say that the owner must
 * be woken; call rg_mailbox_sleep_end after waiting, whatever ended the wait. */
bool rg_mailbox_sleep_begin(struct rg_mailbox *mailbox);
void rg_mailbox_sleep_end(struct rg_mailbox *mailbox);

#endif
