/* See peers.h. The table lies behind that of the notes. Most looks end a little behind the last
 * record that was live, because places are claimed from the first on; once in a second all of it is
 * read, and the file is opened anew if it was removed or could not be had. */
#include "gcs/host/peers.h"

#include "gcs/wire/digest.h"
#include "runtime/fork.h"

#include <errno.h>
#include <ringest/gcs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TABLE_OFFSET (RG_HOST_HEADER_SIZE + RG_HOST_NOTES_SIZE)
#define PLACE_SIZE (RG_HOST_PEERS_SIZE / RG_PEERS_COUNT)
/* Places that are read at once, and how far behind the last live one. */
#define PLACES_PER_READ 32
#define LOOK_AT_ALL_NS RG_NS_PER_S
/* A region that could not be had is tried again. */
#define OPEN_AGAIN_NS (10 * RG_NS_PER_S)

/* In the number of a record, above that of its place. */
#define OPENINGS_SHIFT 16
#define OPENINGS_MASK 0x7fffu

struct place {
    uint32_t crc32c; /* of the record */
    uint32_t zero;
    struct rg_peer peer;
};

static_assert(sizeof(struct place) <= PLACE_SIZE, "a record fits into its place");
static_assert(RG_PEERS_COUNT % PLACES_PER_READ == 0, "the last read is a whole one");

/* What is claimed is locked in a region that is open, and somebody is there: this process. */
static bool invariants(const struct rg_peers *peers)
{
    bool claims = false;
    for (unsigned i = 0; i < RG_ARRAY_LEN(peers->claimed); i++) {
        claims |= peers->claimed[i] != 0;
    }
    return (!claims || peers->region.fd >= 0) && peers->processes >= 1 && peers->siblings >= 1 &&
           peers->end <= RG_PEERS_COUNT;
}

/* The lower half is the fork's generation: a child draws another number. */
static uint64_t process_number(void)
{
    static _Atomic uint64_t number;
    uint32_t random, generation = rg_fork_generation();
    uint64_t now = atomic_load(&number);
    while ((uint32_t)now != generation) {
        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
            random = (uint32_t)rg_now_ns();
        }
        uint64_t mine = (uint64_t)random << 32 | generation;
        if (atomic_compare_exchange_strong(&number, &now, mine)) {
            return mine;
        }
    }
    return now;
}

static uint64_t hash(uint64_t key, const char *text)
{
    uint8_t digest[RG_SHA256_SIZE];
    uint64_t number;
    rg_hmac_sha256(&key, sizeof(key), text, strlen(text), digest);
    memcpy(&number, digest, sizeof(number));
    return RG_MAX(number, 1u);
}

void rg_peers_init(struct rg_peers *peers, const char *folder, const char *endpoint)
{
    *peers = (struct rg_peers){
        .region.fd = -1,
        .folder = folder,
        .process = process_number(),
        .endpoint = hash(0, endpoint),
        .siblings = 1,
        .processes = 1,
    };
}

uint64_t rg_peers_hash(const struct rg_peers *peers, const char *bucket)
{
    return hash(peers->endpoint, bucket);
}

static uint64_t place_offset(uint32_t place)
{
    return TABLE_OFFSET + (uint64_t)place * PLACE_SIZE;
}

/* Of a region that was opened before, a number means nothing. */
static uint32_t record_number(const struct rg_peers *peers, uint32_t place)
{
    return (peers->openings & OPENINGS_MASK) << OPENINGS_SHIFT | place;
}

static uint32_t place_number(uint32_t record)
{
    return record & ((1u << OPENINGS_SHIFT) - 1);
}

static bool place_is_claimed(const struct rg_peers *peers, uint32_t place)
{
    return (peers->claimed[place / 64] >> place % 64 & 1) != 0;
}

static bool is_claimed(const struct rg_peers *peers, uint32_t record)
{
    uint32_t place = place_number(record);
    return record != RG_PEER_NONE && record == record_number(peers, place) &&
           place_is_claimed(peers, place);
}

/* Its records are nobody's from now on. */
static void region_close(struct rg_peers *peers)
{
    rg_host_region_close(&peers->region);
    memset(peers->claimed, 0, sizeof(peers->claimed));
    peers->processes = peers->siblings = 1;
    peers->end = 0;
}

static void be_alone(struct rg_peers *peers, const char *why)
{
    region_close(peers);
    rg_host_say_alone("each process finds out by itself what its buckets allow", why);
}

static void be_alone_after(struct rg_peers *peers, const char *what, int rc)
{
    char path[RG_HOST_PATH_SIZE_MAX], why[RG_HOST_PATH_SIZE_MAX + 100];
    rg_host_path_write(peers->folder, path, sizeof(path));
    snprintf(why, sizeof(why), "%s cannot be %s: %s", path, what, rg_error_text(-rc));
    be_alone(peers, why);
}

static bool region_is_open(struct rg_peers *peers, uint64_t now_ns)
{
    char why[RG_HOST_PATH_SIZE_MAX + 100];
    bool is_due = peers->opened_ns == 0 || now_ns - peers->opened_ns >= OPEN_AGAIN_NS;
    if (peers->region.fd >= 0 || peers->folder == NULL || !is_due) {
        return peers->region.fd >= 0;
    }
    peers->opened_ns = now_ns;
    if (rg_host_region_open(&peers->region, peers->folder, why, sizeof(why)) < 0) {
        be_alone(peers, why);
        return false;
    }
    peers->openings++;
    peers->looked_ns = peers->looked_at_all_ns = 0;
    return true;
}

void rg_peers_close(struct rg_peers *peers)
{
    for (uint32_t place = 0; place < RG_PEERS_COUNT && peers->region.fd >= 0; place++) {
        rg_peers_release(peers, record_number(peers, place));
    }
    region_close(peers);
    peers->folder = NULL;
}

/* The first place that is free. */
static uint32_t place_claim(struct rg_peers *peers)
{
    for (uint32_t place = 0; place < RG_PEERS_COUNT; place++) {
        int rc = place_is_claimed(peers, place)
                     ? -EAGAIN
                     : rg_host_region_lock(&peers->region, RG_HOST_PLACE_LOCKS + place);
        if (rc == 0) {
            peers->claimed[place / 64] |= UINT64_C(1) << place % 64;
            /* What one that was killed has left there is not this one's. */
            (void)rg_account_tell(&peers->region, place, NULL);
            RG_VERIFY(invariants(peers));
            return record_number(peers, place);
        }
        if (rc != -EAGAIN) {
            be_alone_after(peers, "locked", rc);
            break;
        }
    }
    return RG_PEER_NONE;
}

void rg_peers_release(struct rg_peers *peers, uint32_t record)
{
    const struct place nothing = {0};
    if (is_claimed(peers, record)) {
        uint32_t place = place_number(record);
        (void)rg_host_region_write(&peers->region, place_offset(place), &nothing, sizeof(nothing));
        (void)rg_account_tell(&peers->region, place, NULL);
        rg_host_region_unlock(&peers->region, RG_HOST_PLACE_LOCKS + place);
        peers->claimed[place / 64] &= ~(UINT64_C(1) << place % 64);
    }
}

static void place_write(struct rg_peers *peers, uint32_t record, const struct rg_peer *peer)
{
    struct place place;
    memset(&place, 0, sizeof(place));
    place.peer = *peer;
    place.crc32c = rg_crc32c(0, &place.peer, sizeof(place.peer));
    int rc = rg_host_region_write(&peers->region, place_offset(place_number(record)), &place,
                                  sizeof(place));
    if (rc < 0) {
        be_alone_after(peers, "written", rc);
    }
}

uint32_t rg_peers_tell(struct rg_peers *peers, uint32_t record, struct rg_peer *peer,
                       uint64_t now_ns)
{
    if (!is_claimed(peers, record)) {
        /* Where all places are taken, a free one is looked for as often as all are looked at. */
        bool is_due = peers->region.fd >= 0 && peers->looked_ns == peers->looked_at_all_ns;
        record = is_due ? place_claim(peers) : RG_PEER_NONE;
    }
    if (record != RG_PEER_NONE) {
        peer->told_ns = now_ns;
        peer->process = peers->process;
        peer->endpoint = peers->endpoint;
        peer->siblings = peers->siblings;
        place_write(peers, record, peer);
    }
    return is_claimed(peers, record) ? record : RG_PEER_NONE;
}

/* Whoever cannot be seen works all the same. */
void rg_peers_account(struct rg_peers *peers, uint32_t record, struct rg_account *account)
{
    if (is_claimed(peers, record)) {
        account->process = peers->process;
        (void)rg_account_tell(&peers->region, place_number(record), account);
    }
}

/* Records of another clock, from before the machine started or of another namespace, are not. A
 * loop's time is that of the beginning of its pass: who told meanwhile told later than "now". */
static bool place_is_live(const struct place *place, uint64_t now_ns)
{
    const struct rg_peer *peer = &place->peer;
    uint64_t told_ns = peer->told_ns;
    uint64_t apart_ns = told_ns < now_ns ? now_ns - told_ns : told_ns - now_ns;
    return told_ns != 0 && apart_ns <= RG_PEER_LIFE_NS && peer->siblings >= 1 &&
           place->crc32c == rg_crc32c(0, peer, sizeof(*peer));
}

/* One look. */
struct look {
    struct rg_peers *peers;
    void (*found)(void *context, const struct rg_peer *peer);
    void *context;
    uint64_t now_ns;
    uint32_t end, siblings;
    double others; /* processes: each of its records is a part of it */
};

static void look_place(struct look *look, uint32_t number, const struct place *place)
{
    const struct rg_peer *peer = &place->peer;
    if (!place_is_live(place, look->now_ns)) {
        return;
    }
    look->end = number + 1;
    if (peer->endpoint != look->peers->endpoint) {
        return;
    }
    if (peer->process == look->peers->process) {
        look->siblings++;
    } else {
        look->others += 1.0 / peer->siblings;
    }
    if (!place_is_claimed(look->peers, number)) {
        look->found(look->context, peer);
    }
}

static int look_read(struct look *look, uint32_t first)
{
    uint8_t places[PLACES_PER_READ * PLACE_SIZE];
    int rc = rg_host_region_read(&look->peers->region, place_offset(first), places, sizeof(places));
    for (uint32_t i = 0; i < PLACES_PER_READ && rc == 0; i++) {
        struct place place;
        memcpy(&place, places + i * PLACE_SIZE, sizeof(place));
        look_place(look, first + i, &place);
    }
    return rc;
}

static bool is_there_still(struct rg_peers *peers, uint64_t now_ns)
{
    if (!rg_host_region_is_named(&peers->region)) {
        region_close(peers);
        peers->opened_ns = 0;
    }
    return region_is_open(peers, now_ns);
}

void rg_peers_look(struct rg_peers *peers, uint64_t now_ns,
                   void (*found)(void *context, const struct rg_peer *peer), void *context)
{
    bool all = peers->looked_at_all_ns == 0 || now_ns - peers->looked_at_all_ns >= LOOK_AT_ALL_NS;
    if (!region_is_open(peers, now_ns) || (all && !is_there_still(peers, now_ns))) {
        return;
    }
    struct look look = {.peers = peers, .found = found, .context = context, .now_ns = now_ns};
    uint32_t end = all ? RG_PEERS_COUNT : RG_MIN(peers->end + PLACES_PER_READ, RG_PEERS_COUNT);
    for (uint32_t first = 0; first < end; first += PLACES_PER_READ) {
        int rc = look_read(&look, first);
        if (rc < 0) {
            be_alone_after(peers, "read", rc);
            return;
        }
    }
    peers->looked_ns = now_ns;
    peers->looked_at_all_ns = all ? now_ns : peers->looked_at_all_ns;
    peers->end = look.end;
    peers->siblings = RG_MAX(look.siblings, 1u);
    peers->processes = 1 + (uint32_t)(look.others + 0.5);
    RG_VERIFY(invariants(peers));
}
