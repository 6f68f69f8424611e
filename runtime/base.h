/* Small things every file needs: assertions that stay on, array and container macros, checked
 * arithmetic, errors as text, intrusive lists. No state lives here. */
#ifndef RG_RUNTIME_BASE_H
#define RG_RUNTIME_BASE_H

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define RG_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define RG_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RG_MAX(a, b) ((a) > (b) ? (a) : (b))

#define RG_LIKELY(x) __builtin_expect(!!(x), 1)
#define RG_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RG_PRINTF(format_index, args_index)                                                        \
    __attribute__((format(printf, format_index, args_index)))

#define RG_NS_PER_US UINT64_C(1000)
#define RG_NS_PER_MS UINT64_C(1000000)
#define RG_NS_PER_S UINT64_C(1000000000)
#define RG_KIB(n) ((size_t)(n) << 10)
#define RG_MIB(n) ((size_t)(n) << 20)

/* The cache line of x86-64 and of most arm64 servers: what two threads write lives on two lines. */
#define RG_CACHE_LINE 64

/* Always on: a broken invariant of ours ends the process before it can damage data. */
#define RG_ASSERT(condition)                                                                       \
    do {                                                                                           \
        if (RG_UNLIKELY(!(condition))) {                                                           \
            rg_assert_fail(#condition, __FILE__, __LINE__, __func__);                              \
        }                                                                                          \
    } while (0)

/* For checks that cost more than O(1): only in builds configured with -Dverify=true. */
#ifdef RG_VERIFY_ENABLED
#define RG_VERIFY(condition) RG_ASSERT(condition)
#else
#define RG_VERIFY(condition) ((void)(false && (condition)))
#endif

__attribute__((noreturn, cold)) void rg_assert_fail(const char *condition, const char *file,
                                                    int line, const char *function);

/* What an errno means, in English whatever the locale. Safe in threads; never NULL; not to be
 * freed, and for a number that means nothing valid until the thread's next call. */
const char *rg_error_text(int error);

/* Sizes that came from the network are added and multiplied through these. True on overflow. */
#define rg_add_overflow(a, b, out_sum) __builtin_add_overflow((a), (b), (out_sum))
#define rg_mul_overflow(a, b, out_product) __builtin_mul_overflow((a), (b), (out_product))

/* A circular doubly linked list with a sentinel; a node that is in no list points at itself or is
 * zero. Nodes are embedded in their owners, so nothing is allocated. */
struct rg_list {
    struct rg_list *next, *prev;
};

static inline void rg_list_init(struct rg_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool rg_list_empty(const struct rg_list *list)
{
    return list->next == list;
}

/* True if the node is in a list. Also valid for a zeroed node. */
static inline bool rg_list_linked(const struct rg_list *node)
{
    return node->next != NULL && node->next != node;
}

static inline void rg_list_insert_between(struct rg_list *node, struct rg_list *prev,
                                          struct rg_list *next)
{
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static inline void rg_list_push_back(struct rg_list *list, struct rg_list *node)
{
    RG_ASSERT(!rg_list_linked(node));
    rg_list_insert_between(node, list->prev, list);
}

static inline void rg_list_push_front(struct rg_list *list, struct rg_list *node)
{
    RG_ASSERT(!rg_list_linked(node));
    rg_list_insert_between(node, list, list->next);
}

/* Harmless for a node that is in no list. */
static inline void rg_list_remove(struct rg_list *node)
{
    if (rg_list_linked(node)) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
    }
    rg_list_init(node);
}

/* NULL when the list is empty. */
static inline struct rg_list *rg_list_pop_front(struct rg_list *list)
{
    struct rg_list *node = list->next;
    if (node == list) {
        return NULL;
    }
    rg_list_remove(node);
    return node;
}

/* Moves every node of `from` to the end of `to`. */
static inline void rg_list_splice_back(struct rg_list *to, struct rg_list *from)
{
    if (rg_list_empty(from)) {
        return;
    }
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    rg_list_init(from);
}

#endif
