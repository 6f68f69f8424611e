/* A store on disk below a temporary root, and short names for what is done to it. */
#ifndef RG_TESTS_EMULATOR_DISK_CASE_H
#define RG_TESTS_EMULATOR_DISK_CASE_H

#include "emulator/store/writer.h"
#include "emulator/wire/checksum.h"
#include "emulator/wire/text.h"
#include "tests/emulator/root_case.h"

static inline const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static inline bool exists(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static inline void write_by_hand(const char *name, const char *text)
{
    write_file(path_of(name), O_TRUNC, text);
}

static inline struct rg_store_object_info put_slice(struct rg_h1_slice name, const char *text)
{
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {
        .content_type = "text/x y", .content_encoding = "gzip", .md5 = "jXd/OF09/siBXSD3SWAm3A=="};
    RG_CHECK_EQ(rg_store_writer_create(&writer, store, rg_text_slice("bucket"), name, 0), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, text, strlen(text)), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
    return info;
}

static inline struct rg_store_object_info put(const char *name, const char *text)
{
    return put_slice(rg_text_slice(name), text);
}

static inline struct rg_bucket *bucket(void)
{
    struct rg_bucket *found = rg_store_find_bucket(store, rg_text_slice("bucket"));
    RG_CHECK(found != NULL);
    return found;
}

static inline int remove_object(const char *name)
{
    struct rg_store_conditions none = {0};
    return rg_bucket_remove_object(bucket(), rg_text_slice(name), &none);
}

/* Checks the bytes and hands out the facts. */
static inline struct rg_store_object_info check_object(struct rg_h1_slice name, const char *text)
{
    struct rg_store_object object;
    const uint8_t *data;
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), name, &object), 0);
    RG_CHECK_EQ(object.info.size, strlen(text));
    if (object.info.size > 0) {
        size_t size = rg_store_object_read(&object, 0, &data);
        RG_CHECK_MEM(data, size, text, strlen(text));
    }
    RG_CHECK_EQ(object.info.crc32c, rg_checksum_extend(0, text, strlen(text)));
    rg_store_object_close(&object);
    return object.info;
}

static inline struct rg_store_object_info check(const char *name, const char *text)
{
    return check_object(rg_text_slice(name), text);
}

static inline int open_status(const char *name)
{
    struct rg_store_object object;
    int rc = rg_bucket_open_object(bucket(), rg_text_slice(name), &object);
    if (rc == 0) {
        rg_store_object_close(&object);
    }
    return rc;
}

static inline const char *list(void)
{
    static char names[4096];
    static struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX + 1];
    uint32_t from_size = 0;
    names[0] = '\0';
    while (rg_bucket_seek_object(bucket(), (struct rg_h1_slice){from, from_size}, &entry) == 0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ",
                 (int)entry.name_size, entry.name);
        memcpy(from, entry.name, entry.name_size);
        from[entry.name_size] = '\0';
        from_size = entry.name_size + 1;
    }
    return names;
}

static inline void enable_versioning(void)
{
    struct rg_bucket_info info;
    rg_bucket_get_info(bucket(), &info);
    info.versioning = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket(), &info, 0), 0);
}

/* "name:size" of each version, with "!" where it is noncurrent. */
static inline const char *list_versions(void)
{
    static char names[4096];
    static struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX + 1];
    uint32_t from_size = 0;
    int64_t after = 0;
    names[0] = '\0';
    while (rg_bucket_seek_version(bucket(), (struct rg_h1_slice){from, from_size}, after, &entry) ==
           0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s:%d%s ",
                 (int)entry.name_size, entry.name, (int)entry.info.size,
                 entry.info.deleted_us != 0 ? "!" : "");
        memcpy(from, entry.name, entry.name_size);
        from_size = entry.name_size;
        after = entry.info.generation;
    }
    return names;
}

#endif
