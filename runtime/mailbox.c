/* The mailbox of an event loop: see mailbox.h.
 *
 * Memory orders. A post releases (the mail's contents, and its link); a drain acquires. Every
 * change of the word is a read-modify-write, so the releases of all mail in the stack reach the
 * drain that takes its top. A poster does not look at the mail below its own, hence needs no
 * acquire, and there is no ABA: the only way off the stack is to take it whole. The sleeping mark
 * carries no data, hence relaxed; that it cannot cross with a post follows from both being changes
 * of one word. */
#include "runtime/mailbox.h"

/* Only its address is used, and it is never run. */
static struct rg_mail sleeping;

/* Mail that was taken is in the chain once, can be run, and is not the mark. */
static bool invariants(const struct rg_mail *first)
{
    /* Where the chain has a ring, `fast` catches up. */
    const struct rg_mail *fast = first;
    for (const struct rg_mail *slow = first; slow != NULL; slow = slow->next) {
        if (slow->run == NULL || slow == &sleeping) {
            return false;
        }
        for (int step = 0; step < 2 && fast != NULL; step++) {
            fast = fast->next;
            if (fast == slow) {
                return false;
            }
        }
    }
    return true;
}

static struct rg_mail *reverse(struct rg_mail *mail)
{
    struct rg_mail *reversed = NULL;
    while (mail != NULL) {
        struct rg_mail *next = mail->next;
        mail->next = reversed;
        reversed = mail;
        mail = next;
    }
    return reversed;
}

void rg_mailbox_init(struct rg_mailbox *mailbox)
{
    atomic_init(&mailbox->newest, NULL);
}

/* `top` down to `bottom` is linked newest first, as the stack is. */
static bool push(struct rg_mailbox *mailbox, struct rg_mail *top, struct rg_mail *bottom)
{
    struct rg_mail *old = atomic_load_explicit(&mailbox->newest, memory_order_relaxed);
    do {
        RG_ASSERT(old != top);
        bottom->next = old == &sleeping ? NULL : old;
    } while (!atomic_compare_exchange_weak_explicit(&mailbox->newest, &old, top,
                                                    memory_order_release, memory_order_relaxed));
    return old == &sleeping;
}

bool rg_mailbox_post(struct rg_mailbox *mailbox, struct rg_mail *mail)
{
    RG_ASSERT(mail->run != NULL);
    return push(mailbox, mail, mail);
}

bool rg_mailbox_post_chain(struct rg_mailbox *mailbox, struct rg_mail *first)
{
    RG_ASSERT(first != NULL);
    struct rg_mail *last = reverse(first);
    RG_ASSERT(first->next == NULL);
    return push(mailbox, last, first);
}

struct rg_mail *rg_mailbox_drain(struct rg_mailbox *mailbox)
{
    if (atomic_load_explicit(&mailbox->newest, memory_order_relaxed) == NULL) {
        return NULL;
    }
    struct rg_mail *newest = atomic_exchange_explicit(&mailbox->newest, NULL, memory_order_acquire);
    RG_ASSERT(newest != &sleeping);
    RG_VERIFY(invariants(newest));
    return reverse(newest);
}

bool rg_mailbox_sleep_begin(struct rg_mailbox *mailbox)
{
    struct rg_mail *old = NULL;
    bool empty = atomic_compare_exchange_strong_explicit(
        &mailbox->newest, &old, &sleeping, memory_order_relaxed, memory_order_relaxed);
    RG_ASSERT(old != &sleeping);
    return empty;
}

void rg_mailbox_sleep_end(struct rg_mailbox *mailbox)
{
    /* Fails when mail came, which took the mark away. */
    struct rg_mail *old = &sleeping;
    atomic_compare_exchange_strong_explicit(&mailbox->newest, &old, NULL, memory_order_relaxed,
                                            memory_order_relaxed);
    RG_ASSERT(old != NULL);
}
