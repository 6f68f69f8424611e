/* Memory of the caller's that is about to be filled. What was never touched, as every new tensor,
 * gets its pages while bytes are received into it, and a page fault for each 4 KiB costs twice as
 * much as receiving, opening and comparing them. With huge pages it is one for 2 MiB. Linux's
 * default is to give them to those who ask (/sys/kernel/mm/transparent_hugepage/enabled: madvise).
 *
 * That is only for 2 MiB of which nothing was touched, and malloc writes a head of 16 bytes before
 * each piece: so every small tensor, and both ends of a large one, would still have small pages.
 * Where less than half of 2 MiB has some, the kernel is asked to move them into a huge page at once
 * (MADV_COLLAPSE). That copies what is there and clears the rest, which takes a third of what the
 * faults would, and content stays what it was, whoever reads or writes it meanwhile. */
#include "core.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE_SIZE (UINT64_C(2) << 20)
#define PAGE_SIZE_MIN 4096
/* Each advice may cut the kernel's list of mappings in two more, of which a process has 65,530. */
#define ADVISED_SIZE_MIN (UINT64_C(4) << 20)
/* What lies between two pieces, and is not filled: heads, and small things of others. */
#define GAP_MAX (UINT64_C(64) << 10)
/* Moved by one call, each of which has the kernel look at all CPUs; and not so much that bytes come
 * meanwhile to what is last. */
#define COLLAPSED_MAX 8

struct span {
    uintptr_t begin, end;
};

/* The huge pages that are inside of it as a whole; none: false. */
static bool span_whole(struct span span, struct span *out_whole)
{
    *out_whole = (struct span){(span.begin + HUGE_PAGE_SIZE - 1) & ~(HUGE_PAGE_SIZE - 1),
                               span.end & ~(HUGE_PAGE_SIZE - 1)};
    return span.end - span.begin >= ADVISED_SIZE_MIN && out_whole->begin < out_whole->end;
}

/* Where there are none, or for memory of another kind, these two fail, and small ones serve. */
static void span_advise(struct span span)
{
    struct span whole;
    if (span_whole(span, &whole)) {
        (void)madvise((void *)whole.begin, whole.end - whole.begin, MADV_HUGEPAGE);
    }
}

void core_pages_advise(void *memory, uint64_t size)
{
    span_advise((struct span){(uintptr_t)memory, (uintptr_t)memory + size});
}

static bool collapse(struct span span)
{
    return span.begin == span.end ||
           madvise((void *)span.begin, span.end - span.begin, MADV_COLLAPSE) == 0;
}

/* Whether it has small pages, but so few that clearing the others at once costs less. */
static bool is_sparse(uintptr_t huge_page)
{
    unsigned char present[HUGE_PAGE_SIZE / PAGE_SIZE_MIN];
    size_t pages = HUGE_PAGE_SIZE / (size_t)sysconf(_SC_PAGESIZE), count = 0;
    if (mincore((void *)huge_page, HUGE_PAGE_SIZE, present) < 0) {
        return false;
    }
    for (size_t i = 0; i < pages; i++) {
        count += present[i] & 1;
    }
    return count > 0 && count < pages / 2;
}

static void span_collapse(struct span span)
{
    struct span whole;
    bool goes_on = span_whole(span, &whole);
    struct span next = {whole.begin, whole.begin};
    for (uintptr_t at = whole.begin; goes_on && at < whole.end; at += HUGE_PAGE_SIZE) {
        if (is_sparse(at)) {
            next.end = at + HUGE_PAGE_SIZE;
        }
        if (next.end <= at || next.end - next.begin == COLLAPSED_MAX * HUGE_PAGE_SIZE) {
            goes_on = collapse(next);
            next = (struct span){at + HUGE_PAGE_SIZE, at + HUGE_PAGE_SIZE};
        }
    }
    if (goes_on) {
        (void)collapse(next);
    }
}

static int span_compare(const void *a, const void *b)
{
    const struct span *left = a, *right = b;
    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* Whoever administers the machine may want none; MADV_COLLAPSE does not ask. */
static bool are_allowed(void)
{
    char text[64] = "";
    int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    return size > 0 && strstr(text, "[never]") == NULL;
}

void core_pages_prepare(const struct rg_range *ranges, size_t count, bool collapses)
{
    uint64_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += ranges[i].length;
    }
    if (size < ADVISED_SIZE_MIN || !are_allowed()) {
        return;
    }
    struct span *spans = malloc(count * sizeof(*spans));
    for (size_t i = 0; i < count && spans != NULL; i++) {
        uintptr_t begin = (uintptr_t)ranges[i].buf;
        spans[i] = (struct span){begin, begin + ranges[i].length};
    }
    if (spans != NULL) {
        qsort(spans, count, sizeof(*spans), span_compare);
    }
    for (size_t i = 0; i < count && spans != NULL;) {
        struct span span = spans[i++];
        while (i < count && spans[i].begin <= span.end + GAP_MAX) {
            span.end = spans[i].end > span.end ? spans[i].end : span.end;
            i++;
        }
        span_advise(span);
        if (collapses) {
            span_collapse(span);
        }
    }
    free(spans);
}
