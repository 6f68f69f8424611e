/* See account.h. */
#include "gcs/host/account.h"

#include <errno.h>
#include <string.h>

#define TABLE_OFFSET (RG_HOST_HEADER_SIZE + RG_HOST_NOTES_SIZE + RG_HOST_PEERS_SIZE)
#define PLACE_SIZE (RG_HOST_ACCOUNTS_SIZE / RG_HOST_PLACES)
#define PLACES_PER_READ 32

struct place {
    uint32_t crc32c; /* of the account */
    uint32_t zero;
    struct rg_account account;
};

static_assert(sizeof(struct place) <= PLACE_SIZE, "an account fits into its place");
static_assert(RG_HOST_PLACES % PLACES_PER_READ == 0, "the last read is a whole one");

int rg_account_tell(const struct rg_host_region *region, uint32_t place,
                    const struct rg_account *account)
{
    struct place told;
    RG_ASSERT(place < RG_HOST_PLACES);
    memset(&told, 0, sizeof(told));
    if (account != NULL) {
        told.account = *account;
        told.crc32c = rg_crc32c(0, &told.account, sizeof(told.account));
    }
    return rg_host_region_write(region, TABLE_OFFSET + (uint64_t)place * PLACE_SIZE, &told,
                                sizeof(told));
}

/* Any process of the user may have written anything: texts end, and numbers are numbers. */
static bool place_is_whole(const struct place *place)
{
    const struct rg_account *account = &place->account;
    return account->told_ns != 0 && account->command[sizeof(account->command) - 1] == '\0' &&
           account->bucket[sizeof(account->bucket) - 1] == '\0' &&
           place->crc32c == rg_crc32c(0, account, sizeof(*account));
}

int rg_accounts_read(const struct rg_host_region *region,
                     void (*found)(void *context, const struct rg_account *account), void *context)
{
    uint8_t places[PLACES_PER_READ * PLACE_SIZE];
    for (uint32_t first = 0; first < RG_HOST_PLACES; first += PLACES_PER_READ) {
        int rc = rg_host_region_read(region, TABLE_OFFSET + (uint64_t)first * PLACE_SIZE, places,
                                     sizeof(places));
        if (rc < 0) {
            return rc;
        }
        for (uint32_t i = 0; i < PLACES_PER_READ; i++) {
            struct place place;
            memcpy(&place, places + i * PLACE_SIZE, sizeof(place));
            if (place_is_whole(&place) &&
                rg_host_region_is_locked(region, RG_HOST_PLACE_LOCKS + first + i)) {
                found(context, &place.account);
            }
        }
    }
    return 0;
}
