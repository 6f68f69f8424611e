/* A hierarchical bucket on disk below a temporary root, and short names for what is done to it. */
#ifndef RG_TESTS_EMULATOR_STORE_FOLDERS_CASE_H
#define RG_TESTS_EMULATOR_STORE_FOLDERS_CASE_H

#include "emulator/store/bucket_folders.h"
#include "emulator/store/folders.h"
#include "emulator/store/writer.h"
#include "tests/emulator/root_case.h"

#include <errno.h>

static struct rg_bucket *bucket;

/* A hierarchical bucket below a new root. */
static inline void begin(void)
{
    struct rg_bucket_info info;
    make_root();
    RG_CHECK_EQ(rg_store_create_bucket(store, rg_text_slice("bucket"), &bucket), 0);
    rg_bucket_get_info(bucket, &info);
    info.hierarchical = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket, &info, 0), 0);
}

static inline void restart(void)
{
    reopen_store();
    bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
}

static inline void put(const char *name, const char *text)
{
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {.content_type = "text/x"};
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice(name), 0), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, text, strlen(text)), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
}

static inline int rename_folder(const char *from, const char *to)
{
    struct rg_store_conditions none = {0};
    struct rg_folder_info info;
    return rg_bucket_rename_folder(bucket, rg_text_slice(from), rg_text_slice(to), &none, &info);
}

static inline const char *list(void)
{
    static char names[4096];
    struct rg_folder_entry entry;
    char from[RG_STORE_FOLDER_SIZE_MAX + 1] = "";
    uint32_t from_size = 0;
    names[0] = '\0';
    while (rg_bucket_seek_folder(bucket, (struct rg_h1_slice){from, from_size}, &entry) == 0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ",
                 (int)entry.name_size, entry.name);
        memcpy(from, entry.name, entry.name_size);
        from[entry.name_size] = '\0';
        from_size = entry.name_size + 1;
    }
    return names;
}

static inline const char *log_path(void)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/bucket/.ringest/%%folders", root);
    return path;
}

/* As a process leaves it that is killed in the middle of writing. */
static inline void append_to_log(const char *text)
{
    write_file(log_path(), O_APPEND, text);
}

#endif
