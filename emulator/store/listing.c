/* Pages, prefixes and tokens; see listing.h. A token is the base64 of the name to go on from, and
 * where it is one of several versions, a dot and the generation before. */
#include "emulator/store/listing.h"

#include "emulator/store/bucket_folders.h"
#include "emulator/store/glob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static void seek_to(struct rg_api_listing *listing, struct rg_h1_slice key)
{
    RG_ASSERT(key.size <= sizeof(listing->next));
    if (key.size > 0) {
        memmove(listing->next, key.data, key.size);
    }
    listing->next_size = key.size;
    listing->next_after = 0;
}

/* Goes on at the first name behind this one. */
static void seek_behind(struct rg_api_listing *listing, struct rg_h1_slice name)
{
    RG_ASSERT(name.size < sizeof(listing->next));
    seek_to(listing, name);
    listing->next[listing->next_size++] = '\0';
}

/* Goes on at the first name that does not start with the prefix. The listing is finished when the
 * prefix is only bytes 0xff: nothing is behind it. */
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

/* The prefix that the delimiter collapses the name into; empty: none. */
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

static int take_token(struct rg_api_listing *listing, struct rg_h1_slice token)
{
    uint8_t key[RG_STORE_NAME_SIZE_MAX];
    const char *dot = memchr(token.data, '.', token.size);
    uint32_t key_size = dot != NULL ? (uint32_t)(dot - token.data) : token.size;
    int size = rg_text_parse_base64((struct rg_h1_slice){token.data, key_size}, key, sizeof(key));
    if (size <= 0) {
        return -EINVAL;
    }
    seek_to(listing, (struct rg_h1_slice){(const char *)key, (uint32_t)size});
    if (dot == NULL) {
        return 0;
    }
    return rg_text_parse_int64((struct rg_h1_slice){dot + 1, token.size - key_size - 1},
                               &listing->next_after);
}

int rg_api_listing_start(struct rg_api_listing *listing, struct rg_bucket *bucket,
                         const struct rg_api_listing_query *query)
{
    listing->bucket = bucket;
    listing->query = *query;
    listing->count = listing->scanned = 0;
    listing->finished = listing->more = listing->group_pending = false;
    struct rg_h1_slice start = query->start;
    const struct rg_h1_slice bounds[] = {query->prefix, rg_glob_prefix(query->glob)};
    for (size_t i = 0; i < RG_ARRAY_LEN(bounds); i++) {
        start = rg_text_compare(start, bounds[i]) < 0 ? bounds[i] : start;
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
    return query->token.size > 0 ? take_token(listing, query->token) : 0;
}

static int finish(struct rg_api_listing *listing)
{
    listing->finished = true;
    return RG_LISTING_END;
}

/* A page that is full, or has looked at enough names, ends before the entry. */
static int end_page(struct rg_api_listing *listing)
{
    int64_t after =
        listing->query.versions && !listing->is_folder ? listing->entry.info.generation - 1 : 0;
    seek_to(listing, (struct rg_h1_slice){listing->entry.name, listing->entry.name_size});
    listing->next_after = after;
    listing->more = true;
    return finish(listing);
}

/* Puts the next folder in the place of the next object, if it comes before it. `rc` is what the
 * search for an object said. */
static int seek_folder(struct rg_api_listing *listing, int rc)
{
    struct rg_folder_entry folder;
    if (rg_bucket_seek_folder(listing->bucket, seek_key(listing), &folder) < 0) {
        return rc;
    }
    struct rg_h1_slice name = {folder.name, folder.name_size};
    struct rg_h1_slice object = {listing->entry.name, listing->entry.name_size};
    if (rc == 0 && rg_text_compare(object, name) <= 0) {
        return rc;
    }
    memcpy(listing->entry.name, folder.name, folder.name_size);
    listing->entry.name_size = folder.name_size;
    listing->is_folder = true;
    return 0;
}

/* Reads the next name in the bounds. RG_LISTING_END when there is none, or a page is full. */
static int next_entry(struct rg_api_listing *listing)
{
    const struct rg_api_listing_query *query = &listing->query;
    struct rg_h1_slice literal = rg_glob_prefix(query->glob);
    int rc = query->soft_deleted ? rg_bucket_seek_soft_deleted(listing->bucket, seek_key(listing),
                                                               listing->next_after, &listing->entry)
             : query->versions
                 ? rg_bucket_seek_version(listing->bucket, seek_key(listing), listing->next_after,
                                          &listing->entry)
                 : rg_bucket_seek_object(listing->bucket, seek_key(listing), &listing->entry);
    listing->is_folder = false;
    if (query->folders && (rc == 0 || rc == -ENOENT)) {
        rc = seek_folder(listing, rc);
    }
    if (rc < 0) {
        return rc == -ENOENT ? finish(listing) : rc;
    }
    struct rg_h1_slice name = {listing->entry.name, listing->entry.name_size};
    if (!rg_text_starts_with(name, query->prefix) ||
        (query->end.size > 0 && rg_text_compare(name, query->end) >= 0) ||
        (!rg_text_starts_with(name, literal) && rg_text_compare(name, literal) > 0)) {
        return finish(listing);
    }
    if (listing->count >= query->page_max || listing->scanned++ >= RG_LISTING_SCAN_MAX) {
        return end_page(listing);
    }
    return RG_LISTING_OBJECT;
}

/* Goes on behind the entry, which is an object of its own. */
static void pass_object(struct rg_api_listing *listing)
{
    int64_t generation = listing->entry.info.generation;
    struct rg_h1_slice name = {listing->entry.name, listing->entry.name_size};
    if (listing->query.versions) {
        seek_to(listing, name);
        listing->next_after = generation;
    } else {
        seek_behind(listing, name);
    }
}

static bool is_wanted(const struct rg_api_listing_query *query, struct rg_h1_slice name)
{
    return query->glob.size == 0 || rg_glob_match(query->glob, name);
}

int rg_api_listing_next(struct rg_api_listing *listing)
{
    const struct rg_api_listing_query *query = &listing->query;
    if (listing->group_pending) {
        listing->group_pending = false;
        return RG_LISTING_PREFIX;
    }
    while (!listing->finished) {
        int kind = next_entry(listing);
        if (kind != RG_LISTING_OBJECT) {
            return kind;
        }
        struct rg_h1_slice name = {listing->entry.name, listing->entry.name_size};
        listing->group = group_of(query, name);
        if (listing->group.size == 0 && listing->is_folder) {
            seek_behind(listing, name); /* The folder is the prefix that was asked for. */
            continue;
        }
        if (listing->group.size == 0) {
            pass_object(listing);
            if (is_wanted(query, name)) {
                listing->count++;
                return RG_LISTING_OBJECT;
            }
            continue;
        }
        seek_behind_prefix(listing, listing->group);
        if (!is_wanted(query, listing->group)) {
            continue;
        }
        listing->count++;
        if (query->trailing_delimiter && !listing->is_folder && listing->group.size == name.size) {
            /* The object and its prefix stay in one page, even if that makes it one too long. */
            listing->group_pending = true;
            listing->count++;
            return RG_LISTING_OBJECT;
        }
        return RG_LISTING_PREFIX;
    }
    return RG_LISTING_END;
}

void rg_api_listing_append_token(const struct rg_api_listing *listing, struct rg_text *text)
{
    char token[RG_TEXT_BASE64_SIZE(RG_STORE_NAME_SIZE_MAX + 1)];
    RG_ASSERT(listing->more);
    rg_text_format_base64(token, (const uint8_t *)listing->next, listing->next_size);
    rg_text_append(text, token, RG_TEXT_BASE64_SIZE((size_t)listing->next_size));
    if (listing->next_after > 0) {
        rg_text_printf(text, ".%" PRId64, listing->next_after);
    }
}
