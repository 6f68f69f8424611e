/* One store of the emulator, with objects in memory, and short names for what is done to it. */
#ifndef RG_TESTS_EMULATOR_STORE_CASE_H
#define RG_TESTS_EMULATOR_STORE_CASE_H

#include "emulator/store/store.h"
#include "emulator/store/writer.h"
#include "emulator/wire/text.h"
#include "tests/support/test.h"

static struct rg_store *store;

static inline void open_store(const char *const *synthetic, size_t count)
{
    char error[512] = "";
    struct rg_store_options options = {.synthetic = synthetic, .synthetic_count = count};
    if (rg_store_open(&store, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

static inline int put(const char *bucket, const char *name, const void *data, size_t size,
                      struct rg_store_object_info *info)
{
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info attributes = {.content_type = "text/plain"};
    int rc = rg_store_writer_create(&writer, store, rg_text_slice(bucket), rg_text_slice(name), 0);
    if (rc < 0) {
        return rc;
    }
    rc = rg_store_writer_append(writer, data, size);
    if (rc < 0) {
        rg_store_writer_abort(writer);
        return rc;
    }
    return rg_store_writer_commit(writer, &none, &attributes, info);
}

static inline void put_text(const char *name, const char *text)
{
    struct rg_store_object_info info;
    RG_CHECK_EQ(put("bucket", name, text, strlen(text), &info), 0);
}

static inline int get(const char *name, struct rg_store_object *object)
{
    struct rg_bucket *bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    RG_CHECK(bucket != NULL);
    return rg_bucket_open_object(bucket, rg_text_slice(name), object);
}

static inline int remove_object(const char *name)
{
    struct rg_store_conditions none = {0};
    struct rg_bucket *bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    return rg_bucket_remove_object(bucket, rg_text_slice(name), &none);
}

#endif
