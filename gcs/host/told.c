/* See told.h. The table lies behind that of the accounts. */
#include "gcs/host/told.h"

#include "runtime/fork.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <string.h>

#define TABLE_OFFSET                                                                               \
    (RG_HOST_HEADER_SIZE + RG_HOST_NOTES_SIZE + RG_HOST_PEERS_SIZE + RG_HOST_ACCOUNTS_SIZE)
#define PLACE_SIZE (RG_HOST_TOLD_SIZE / RG_HOST_TOLD_PLACES)
/* A region that could not be had, or was full, is tried again. */
#define OPEN_AGAIN_NS (10 * RG_NS_PER_S)
/* One that is just being written is read again. */
#define TRIES_MAX 10

struct record {
    uint32_t crc32c; /* of what was told */
    uint32_t zero;
    struct rg_told told;
};

static_assert(sizeof(struct record) <= PLACE_SIZE, "what is told fits into its place");

static uint64_t place_offset(uint32_t number)
{
    return TABLE_OFFSET + (uint64_t)number * PLACE_SIZE;
}

/* Takes the first place that is free. -EAGAIN: there is none; or why locks cannot be had. */
static int place_claim(struct rg_told_place *place)
{
    int rc = -EAGAIN;
    for (uint32_t i = 0; i < RG_HOST_TOLD_PLACES && rc == -EAGAIN; i++) {
        rc = rg_host_region_lock(&place->region, RG_HOST_TOLD_LOCKS + i);
        place->number = i;
    }
    return rc;
}

static bool is_ours(const struct rg_told_place *place)
{
    return place->is_open && place->generation == rg_fork_generation();
}

void rg_told_close(struct rg_told_place *place)
{
    if (is_ours(place)) {
        rg_host_region_empty(&place->region, place_offset(place->number), PLACE_SIZE);
        rg_host_region_close(&place->region);
    }
    place->is_open = false;
}

static bool place_open(struct rg_told_place *place, const char *folder, uint64_t now_ns)
{
    char why[RG_HOST_PATH_SIZE_MAX + 100];
    bool is_due = place->tried_ns == 0 || now_ns - place->tried_ns >= OPEN_AGAIN_NS;
    if (!is_due || rg_host_region_open(&place->region, folder, why, sizeof(why)) < 0) {
        place->tried_ns = is_due ? now_ns : place->tried_ns;
        return false;
    }
    place->tried_ns = now_ns;
    place->generation = rg_fork_generation();
    place->is_open = place_claim(place) == 0;
    if (!place->is_open) {
        rg_host_region_close(&place->region);
    }
    return place->is_open;
}

void rg_told_write(struct rg_told_place *place, const char *folder, const struct rg_told *told)
{
    struct record record = {.told = *told};
    if (is_ours(place) && !rg_host_region_is_named(&place->region)) {
        rg_told_close(place);
        place->tried_ns = 0;
    }
    if (!is_ours(place) && !place_open(place, folder, told->told_ns)) {
        return;
    }
    record.crc32c = rg_crc32c(0, &record.told, sizeof(record.told));
    if (rg_host_region_write(&place->region, place_offset(place->number), &record, sizeof(record)) <
        0) {
        rg_told_close(place);
    }
}

static bool ends(const char *text, size_t size)
{
    return text[size - 1] == '\0';
}

/* Any process of the user may have written anything: texts end, and numbers are numbers. */
static bool record_is_whole(const struct record *record)
{
    const struct rg_told *told = &record->told;
    return told->told_ns != 0 && record->crc32c == rg_crc32c(0, told, sizeof(*told)) &&
           ends(told->command, sizeof(told->command)) &&
           ends(told->dataset, sizeof(told->dataset)) && ends(told->source, sizeof(told->source)) &&
           ends(told->ahead, sizeof(told->ahead));
}

int rg_told_read(const struct rg_host_region *region,
                 void (*found)(void *context, const struct rg_told *told), void *context)
{
    for (uint32_t i = 0; i < RG_HOST_TOLD_PLACES; i++) {
        struct record record = {0};
        int rc = 0;
        for (int tries = 0; tries < TRIES_MAX && rc == 0 && !record_is_whole(&record); tries++) {
            bool is_used = rg_host_region_is_locked(region, RG_HOST_TOLD_LOCKS + i);
            rc = is_used ? rg_host_region_read(region, place_offset(i), &record, sizeof(record))
                         : -ENOENT;
        }
        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
        if (rc == 0 && record_is_whole(&record)) {
            found(context, &record.told);
        }
    }
    return 0;
}

void rg_told_add(struct rg_told_step *sum, const struct rg_told_step *step)
{
    sum->ended_ns = RG_MAX(sum->ended_ns, step->ended_ns);
    sum->count += step->count;
    sum->away_ns += step->away_ns;
    sum->inside_ns += step->inside_ns;
    for (unsigned i = 0; i < RG_STAGE_COUNT; i++) {
        sum->slept_ns[i] += step->slept_ns[i];
    }
}

struct rg_told_step rg_told_sum(const struct rg_told *told, uint64_t steps, uint64_t since_ns)
{
    struct rg_told_step sum = {0};
    uint64_t kept = RG_MIN(told->groups, (uint64_t)RG_TOLD_GROUPS);
    if (told->open.ended_ns >= since_ns) {
        rg_told_add(&sum, &told->open);
    }
    for (uint64_t i = 0; i < kept && sum.count < steps; i++) {
        const struct rg_told_step *group = &told->ring[(told->groups - 1 - i) % RG_TOLD_GROUPS];
        if (group->ended_ns < since_ns) {
            break;
        }
        rg_told_add(&sum, group);
    }
    return sum;
}

double rg_told_busy(const struct rg_told *told)
{
    bool is_known = told->loops > 0 && told->cpu_at_ns > told->began_ns;
    return is_known ? (double)told->cpu_ns / (double)(told->cpu_at_ns - told->began_ns) /
                          (double)told->loops
                    : 0;
}
