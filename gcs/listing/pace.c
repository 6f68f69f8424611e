/* See pace.h. */
#include "gcs/listing/pace.h"

/* More connections are opened when pages have taken this many times as long as the first one waited
 * for its connection: as much again is then likely to come. */
#define CONNECTS_WORTH 2
/* For each page that has come, so many more requests may be out at most. */
#define GROWTH_PER_PAGE 3
/* Pages must have taken this long for each further request. It is many times the CPU time that
 * opening a connection costs its two ends. */
#define GROWTH_NS (16 * RG_NS_PER_MS)

void rg_pace_page_came(struct rg_pace *pace, uint64_t waited_ns)
{
    if (pace->page_count == 0) {
        pace->connect_ns = waited_ns;
    }
    pace->page_count++;
}

void rg_pace_page_took(struct rg_pace *pace, uint64_t took_ns)
{
    RG_ASSERT(pace->page_count > 0);
    pace->page_ns = pace->page_ns > 0 ? RG_MIN(pace->page_ns, took_ns) : took_ns;
}

uint64_t rg_pace_requests(const struct rg_pace *pace)
{
    uint64_t spent_ns = pace->page_count * pace->page_ns;
    if (spent_ns < CONNECTS_WORTH * pace->connect_ns) {
        return 1;
    }
    return 1 + RG_MIN(spent_ns / GROWTH_NS, GROWTH_PER_PAGE * pace->page_count);
}
