/* See source.h. */
#include "dataset/source.h"

#include "gcs/request/client.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* So many objects stand for all of them in a fingerprint. */
#define FINGERPRINT_SAMPLES 64

static const char *bucket_of(const struct rg_reader_options *options)
{
    if (options->tar != NULL) {
        return rg_tar_index_bucket(options->tar);
    }
    return options->manifest != NULL ? rg_manifest_bucket(options->manifest) : options->bucket;
}

static uint64_t count_of(const struct rg_reader_options *options)
{
    if (options->tar != NULL) {
        return rg_tar_index_count(options->tar);
    }
    return options->manifest != NULL ? rg_manifest_count(options->manifest) : options->object_count;
}

int rg_source_open(struct rg_source *source, const struct rg_reader_options *options, char *error,
                   size_t error_size)
{
    *source = (struct rg_source){.count = count_of(options)};
    const char *bucket = bucket_of(options);
    bool has_array = options->manifest == NULL && options->tar == NULL;
    if (bucket == NULL || (has_array && options->objects == NULL && source->count != 0)) {
        return rg_explain(error, error_size, -EINVAL,
                          "there is nothing to read: give manifest, tar, or bucket and objects");
    }
    if (options->tar != NULL) {
        int rc = rg_tar_cursor_open(&source->cursor, options->tar, options->tar_members,
                                    options->tar_member_count);
        if (rc < 0) {
            return rg_explain(
                error, error_size, rc,
                "tar_members has more than %d extensions, or one of more than %d bytes",
                RG_TAR_MEMBERS_MAX, RG_TAR_EXTENSION_SIZE_MAX);
        }
    } else if (options->manifest != NULL) {
        if (rg_manifest_cursor_open(&source->manifest, options->manifest) < 0) {
            return rg_explain(error, error_size, -ENOMEM, "no memory");
        }
    } else {
        source->objects = options->objects;
    }
    source->bucket = strdup(bucket);
    return source->bucket != NULL ? 0 : rg_explain(error, error_size, -ENOMEM, "no memory");
}

static int tar_at(const struct rg_source *source, uint64_t index, struct rg_source_item *out_item)
{
    struct rg_tar_cursor *cursor = source->cursor;
    const struct rg_tar_sample *sample;
    int rc = rg_tar_cursor_get(cursor, index, &sample);
    if (rc == 0) {
        *out_item = (struct rg_source_item){
            .name = cursor->block.name,
            .generation = cursor->block.generation,
            .size = sample->size,
            .pieces = cursor->pieces,
            .piece_count = cursor->piece_count,
            .is_range = true,
        };
    }
    return rc;
}

int rg_source_at(const struct rg_source *source, uint64_t index, struct rg_source_item *out_item,
                 char *name)
{
    RG_ASSERT(index < source->count);
    if (source->cursor != NULL) {
        return tar_at(source, index, out_item);
    }
    struct rg_object object;
    int rc = 0;
    if (source->manifest != NULL) {
        rc = rg_manifest_cursor_get(source->manifest, index, &object);
        if (rc == 0) {
            object.name = strcpy(name, object.name);
        }
    } else {
        object = source->objects[index];
    }
    if (rc == 0) {
        *out_item = (struct rg_source_item){
            .name = object.name, .generation = object.generation, .size = object.size};
    }
    return rc;
}

static uint32_t item_add(const struct rg_source *source, uint32_t crc,
                         const struct rg_source_item *item)
{
    crc = rg_crc32c(crc, item->name, strlen(item->name) + 1);
    uint64_t size = item->is_range ? source->cursor->whole.size : item->size;
    crc = rg_crc32c(crc, &size, sizeof(size));
    crc = rg_crc32c(crc, &item->generation, sizeof(item->generation));
    if (item->is_range) {
        /* Where all members begin, whichever of them are wanted. */
        const struct rg_tar_sample *whole = &source->cursor->whole;
        crc = rg_crc32c(crc, &whole->offset, sizeof(whole->offset));
    }
    return crc;
}

int rg_source_fingerprint(const struct rg_source *source, uint32_t *out_fingerprint)
{
    uint64_t count = source->count;
    uint32_t crc = rg_crc32c(0, &count, sizeof(count));
    uint64_t samples = RG_MIN(count, (uint64_t)FINGERPRINT_SAMPLES);
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t index = samples > 1 ? (count - 1) / (samples - 1) * i : 0;
        struct rg_source_item item;
        int rc = rg_source_at(source, index, &item, name);
        if (rc < 0) {
            return rc;
        }
        crc = item_add(source, crc, &item);
    }
    *out_fingerprint = crc;
    return 0;
}

void rg_source_close(struct rg_source *source)
{
    rg_tar_cursor_close(source->cursor);
    rg_manifest_cursor_close(source->manifest);
    free(source->bucket);
    *source = (struct rg_source){0};
}
