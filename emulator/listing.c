/* Pages, prefixes and tokens; see listing.h. A token is the base64 of the name to go on from. */
#include "emulator/listing.h"

#include <errno.h>
#include <stdlib.h>

static void seek_to(struct rg_api_listing *listing, struct rg_h1_slice key)
{
    RG_ASSERT(key.size <= sizeof(listing->next));
    if (key.size > 0) {
        memmove(listing->next, key.data, key.size);
    }
    listing->next_size = key.size;
}

/* To the first name behind this one. */
static void seek_behind(struct rg_api_listing *listing, struct rg_h1_slice name)
{
    RG_ASSERT(name.size < sizeof(listing->next));
    seek_to(listing, name);
    listing->next[listing->next_size++] = '\0';
}

/* To the first name that does not start so. There is none behind a prefix of bytes 0xff. */
static void seek_behind_prefix(struct rg_api_listing *listing, struct rg_h1_slice prefix)
{
    seek_to(listing, prefix);
    while (listing->next_size > 0 && (uint8_t)listing->next[listing->next_size - 1] == 0xff) {
        listing->next_size--;
    }
    if (listing->next_size == 0) {
        listing->finished = true;
    } else {
        listing->next[listing->next_size - 1]++;
    }
}

static struct rg_h1_slice seek_key(const struct rg_api_listing *listing)
{
    return (struct rg_h1_slice){listing->next, listing->next_size};
}

/* The part of the name that the delimiter collapses it into; empty when there is none. */
static struct rg_h1_slice group_of(const struct rg_api_listing_query *query,
                                   struct rg_h1_slice name)
{
    struct rg_h1_slice delimiter = query->delimiter;
    if (delimiter.size == 0 || !rg_text_starts_with(name, query->prefix)) {
        return (struct rg_h1_slice){NULL, 0};
    }
    const char *found = memmem(name.data + query->prefix.size, name.size - query->prefix.size,
                               delimiter.data, delimiter.size);
    if (found == NULL) {
        return (struct rg_h1_slice){NULL, 0};
    }
    return (struct rg_h1_slice){name.data, (uint32_t)(found - name.data) + delimiter.size};
}

static struct rg_h1_slice clip(struct rg_h1_slice key)
{
    return (struct rg_h1_slice){key.data, RG_MIN(key.size, (uint32_t)RG_STORE_NAME_SIZE_MAX)};
}

int rg_api_listing_start(struct rg_api_listing *listing, struct rg_bucket *bucket,
                         const struct rg_api_listing_query *query)
{
    listing->bucket = bucket;
    listing->query = *query;
    listing->count = 0;
    listing->finished = listing->more = listing->group_pending = false;
    struct rg_h1_slice start = query->start;
    if (rg_text_compare(start, query->prefix) < 0) {
        start = query->prefix;
    }
    seek_to(listing, clip(start));
    if (query->after.size > 0 && rg_text_compare(query->after, start) >= 0) {
        struct rg_h1_slice after = clip(query->after);
        if (group_of(query, after).size == after.size) {
            seek_behind_prefix(listing, after);
        } else {
            seek_behind(listing, after);
        }
    }
    if (query->token.size > 0) {
        uint8_t key[RG_STORE_NAME_SIZE_MAX];
        int size = rg_text_parse_base64(query->token, key, sizeof(key));
        if (size <= 0) {
            return -EINVAL;
        }
        seek_to(listing, (struct rg_h1_slice){(const char *)key, (uint32_t)size});
    }
    return 0;
}

static int finish(struct rg_api_listing *listing)
{
    listing->finished = true;
    return RG_LISTING_END;
}

int rg_api_listing_next(struct rg_api_listing *listing)
{
    const struct rg_api_listing_query *query = &listing->query;
    if (listing->group_pending) {
        listing->group_pending = false;
        return RG_LISTING_PREFIX;
    }
    if (listing->finished) {
        return RG_LISTING_END;
    }
    int rc = rg_bucket_seek_object(listing->bucket, seek_key(listing), &listing->entry);
    if (rc < 0) {
        return rc == -ENOENT ? finish(listing) : rc;
    }
    struct rg_h1_slice name = {listing->entry.name, listing->entry.name_size};
    if (!rg_text_starts_with(name, query->prefix) ||
        (query->end.size > 0 && rg_text_compare(name, query->end) >= 0)) {
        return finish(listing);
    }
    if (listing->count >= query->page_max) {
        seek_to(listing, name);
        listing->more = true;
        return finish(listing);
    }
    listing->count++;
    listing->group = group_of(query, name);
    if (listing->group.size == 0) {
        seek_behind(listing, name);
        return RG_LISTING_OBJECT;
    }
    seek_behind_prefix(listing, listing->group);
    if (query->trailing_delimiter && listing->group.size == name.size) {
        /* Both results in one page, be it one too many. */
        listing->group_pending = true;
        listing->count++;
        return RG_LISTING_OBJECT;
    }
    return RG_LISTING_PREFIX;
}

void rg_api_listing_append_token(const struct rg_api_listing *listing, struct rg_text *text)
{
    char token[RG_TEXT_BASE64_SIZE(RG_STORE_NAME_SIZE_MAX + 1)];
    RG_ASSERT(listing->more);
    rg_text_format_base64(token, (const uint8_t *)listing->next, listing->next_size);
    rg_text_append(text, token, RG_TEXT_BASE64_SIZE((size_t)listing->next_size));
}
