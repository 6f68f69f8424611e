/* Memory of the caller's that is about to be filled. What was never touched, as every new tensor,
 * gets its pages while bytes are received into it, and a page fault for each 4 KiB costs twice as
 * much as receiving, opening and comparing them. With huge pages it is one for 2 MiB. Linux's
 * default is to give them to those who ask (/sys/kernel/mm/transparent_hugepage/enabled: madvise).
 */
#include "core.h"

#include <sys/mman.h>

#define HUGE_PAGE_SIZE (UINT64_C(2) << 20)
/* Each advice may cut the kernel's list of mappings in two more, of which a process has 65,530. */
#define ADVISED_SIZE_MIN (UINT64_C(4) << 20)

void core_pages_advise(void *memory, uint64_t size)
{
    uintptr_t begin = ((uintptr_t)memory + HUGE_PAGE_SIZE - 1) & ~(uintptr_t)(HUGE_PAGE_SIZE - 1);
    uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)(HUGE_PAGE_SIZE - 1);
    if (size >= ADVISED_SIZE_MIN && begin < end) {
        /* Where there are none, or for memory of another kind, this fails, and small ones serve. */
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    }
}
