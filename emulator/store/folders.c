/* A sorted array, and the log from which it is restored; see folders.h.
 *
 * Lines of the log, with percent-encoded names: "folder CREATED UPDATED METAGENERATION NAME"
 * says that a folder is there, and describes it; "gone NAME"; "rename UPDATED FROM TO" begins a
 * rename, and "renamed" ends it. A log that has become much longer than the table is written
 * anew. */
#include "emulator/store/folders.h"

#include "emulator/store/model/clock.h"
#include "http/url.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A log with fewer lines is never written anew. */
#define LOG_LINES_MIN 1024
/* The longest line: "folder", three numbers and a name. */
#define WORDS_MAX 5

struct folder {
    struct rg_folder_info info;
    uint32_t name_size;
    char name[];
};

struct rg_folders {
    pthread_rwlock_t lock; /* guards the array */
    const struct rg_store_backend *backend;
    void *written; /* The backend's bucket. */
    struct folder **sorted;
    size_t count, capacity;
    size_t line_count; /* in the log */
    bool renaming;
    bool recovering; /* The last process died in the rename. */
    char from[RG_STORE_FOLDER_SIZE_MAX], to[RG_STORE_FOLDER_SIZE_MAX];
    uint32_t from_size, to_size;
};

static struct rg_h1_slice folder_name(const struct folder *folder)
{
    return (struct rg_h1_slice){folder->name, folder->name_size};
}

/* The place of the first one at or behind `name`. */
static size_t find_place(const struct rg_folders *folders, struct rg_h1_slice name)
{
    size_t low = 0, high = folders->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rg_text_compare(folder_name(folders->sorted[middle]), name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct folder *find(const struct rg_folders *folders, struct rg_h1_slice name)
{
    size_t at = find_place(folders, name);
    return at < folders->count && rg_text_compare(folder_name(folders->sorted[at]), name) == 0
               ? folders->sorted[at]
               : NULL;
}

/* Larger tables are checked around what has changed. */
#define CHECK_COUNT_MAX 256

static bool is_inside(const struct folder *folder, struct rg_h1_slice outer)
{
    return rg_text_starts_with(folder_name(folder), outer);
}

/* What lies above a folder; empty for the topmost. */
static struct rg_h1_slice parent_of(struct rg_h1_slice name)
{
    uint32_t size = name.size - 1; /* Without its own slash. */
    while (size > 0 && name.data[size - 1] != '/') {
        size--;
    }
    return (struct rg_h1_slice){name.data, size};
}

/* Folders are sorted, and above each is another one that is there, or nothing. */
static bool folder_valid(const struct rg_folders *folders, size_t at)
{
    struct rg_h1_slice name = folder_name(folders->sorted[at]);
    struct rg_h1_slice parent = parent_of(name);
    return (at == 0 || rg_text_compare(folder_name(folders->sorted[at - 1]), name) < 0) &&
           (parent.size == 0 || find(folders, parent) != NULL);
}

static bool invariants(const struct rg_folders *folders, struct rg_h1_slice changed)
{
    if (folders->count > CHECK_COUNT_MAX) {
        size_t at = find_place(folders, changed);
        return at == folders->count || folder_valid(folders, at);
    }
    for (size_t at = 0; at < folders->count; at++) {
        if (!folder_valid(folders, at)) {
            return false;
        }
    }
    return folders->count <= folders->capacity && (folders->renaming || !folders->recovering);
}

static struct folder *folder_create(struct rg_h1_slice name, const struct rg_folder_info *info)
{
    struct folder *folder = malloc(sizeof(*folder) + name.size);
    if (folder != NULL) {
        folder->info = *info;
        folder->name_size = name.size;
        memcpy(folder->name, name.data, name.size);
    }
    return folder;
}

/* Makes room for `added` more, so that putting them in cannot fail. */
static int reserve(struct rg_folders *folders, size_t added)
{
    size_t wanted = folders->count + added;
    if (wanted > RG_FOLDERS_MAX) {
        return -ENOSPC;
    }
    if (wanted <= folders->capacity) {
        return 0;
    }
    size_t capacity = RG_MAX(RG_MAX(folders->capacity * 2, wanted), (size_t)64);
    struct folder **sorted = reallocarray(folders->sorted, capacity, sizeof(struct folder *));
    if (sorted == NULL) {
        return -ENOMEM;
    }
    folders->sorted = sorted;
    folders->capacity = capacity;
    return 0;
}

/* Takes the folder, in the place of one of the same name. */
static void put(struct rg_folders *folders, struct folder *folder)
{
    size_t at = find_place(folders, folder_name(folder));
    if (at < folders->count &&
        rg_text_compare(folder_name(folders->sorted[at]), folder_name(folder)) == 0) {
        free(folders->sorted[at]);
        folders->sorted[at] = folder;
        return;
    }
    RG_ASSERT(folders->count < folders->capacity);
    memmove(&folders->sorted[at + 1], &folders->sorted[at],
            (folders->count - at) * sizeof(struct folder *));
    folders->sorted[at] = folder;
    folders->count++;
}

static void take_out(struct rg_folders *folders, struct rg_h1_slice name)
{
    size_t at = find_place(folders, name);
    RG_ASSERT(at < folders->count);
    free(folders->sorted[at]);
    folders->count--;
    memmove(&folders->sorted[at], &folders->sorted[at + 1],
            (folders->count - at) * sizeof(struct folder *));
}

static int compare_folders(const void *a, const void *b)
{
    const struct folder *const *first = a, *const *second = b;
    return rg_text_compare(folder_name(*first), folder_name(*second));
}

/* Gives `from` and all folders in it their new names. On failure nothing is changed. */
static int rename_all(struct rg_folders *folders, struct rg_h1_slice from, struct rg_h1_slice to,
                      int64_t now_us)
{
    size_t first = find_place(folders, from), end = first;
    while (end < folders->count && is_inside(folders->sorted[end], from)) {
        end++;
    }
    struct folder **renamed = calloc(end - first + 1, sizeof(struct folder *));
    int rc = renamed != NULL ? 0 : -ENOMEM;
    for (size_t i = first; i < end && rc == 0; i++) {
        const struct folder *old = folders->sorted[i];
        uint32_t rest = old->name_size - from.size;
        char name[RG_STORE_NAME_SIZE_MAX];
        if (to.size + rest > RG_STORE_FOLDER_SIZE_MAX) {
            rc = -ENAMETOOLONG;
            break;
        }
        memcpy(name, to.data, to.size);
        memcpy(name + to.size, old->name + from.size, rest);
        renamed[i - first] = folder_create((struct rg_h1_slice){name, to.size + rest}, &old->info);
        rc = renamed[i - first] != NULL ? 0 : -ENOMEM;
    }
    for (size_t i = first; i < end; i++) {
        struct folder *kept = rc == 0 ? renamed[i - first] : folders->sorted[i];
        free(rc == 0 ? folders->sorted[i] : renamed[i - first]);
        folders->sorted[i] = kept;
    }
    free(renamed);
    if (rc == 0) {
        qsort(folders->sorted, folders->count, sizeof(struct folder *), compare_folders);
        struct folder *folder = find(folders, to);
        folder->info.updated_us = now_us;
        folder->info.metageneration++;
    }
    return rc;
}

static void append_folder(struct rg_text *text, struct rg_h1_slice name,
                          const struct rg_folder_info *info)
{
    rg_text_printf(text, "folder %" PRId64 " %" PRId64 " %" PRId64 " ", info->created_us,
                   info->updated_us, info->metageneration);
    rg_text_append_percent(text, name.data, name.size);
    rg_text_append_str(text, "\n");
}

/* Writes the table as a new log. On failure the old log stays, which says the same. */
static int rewrite_log(struct rg_folders *folders)
{
    struct rg_text text = {0};
    for (size_t i = 0; i < folders->count; i++) {
        append_folder(&text, folder_name(folders->sorted[i]), &folders->sorted[i]->info);
    }
    int rc = text.failed ? -ENOMEM : folders->backend->replace_folders(folders->written, &text);
    rg_text_fini(&text);
    if (rc == 0) {
        folders->line_count = folders->count;
    }
    return rc;
}

/* Ends `text`. */
static int append_log(struct rg_folders *folders, struct rg_text *text, size_t line_count)
{
    int rc = text->failed ? -ENOMEM : 0;
    if (rc == 0 && folders->backend->append_folders != NULL) {
        rc = folders->backend->append_folders(folders->written, text);
        folders->line_count += line_count;
    }
    rg_text_fini(text);
    return rc;
}

static void shorten_log(struct rg_folders *folders)
{
    if (folders->backend->replace_folders != NULL && !folders->renaming &&
        folders->line_count > LOG_LINES_MIN + 2 * folders->count) {
        (void)rewrite_log(folders);
    }
}

static void note_rename(struct rg_folders *folders, struct rg_h1_slice from, struct rg_h1_slice to)
{
    memcpy(folders->from, from.data, from.size);
    memcpy(folders->to, to.data, to.size);
    folders->from_size = from.size;
    folders->to_size = to.size;
    folders->renaming = true;
}

/* A name of the log, decoded in place. */
static bool take_name(char *word, struct rg_h1_slice *out)
{
    struct rg_h1_slice encoded = rg_text_slice(word);
    int size = rg_url_percent_decode(encoded, RG_URL_PATH, word, encoded.size);
    *out = (struct rg_h1_slice){word, (uint32_t)RG_MAX(size, 0)};
    return size > 0 && rg_store_folder_name_valid(*out);
}

static bool take_number(const char *word, int64_t *out)
{
    return rg_text_parse_int64(rg_text_slice(word), out) == 0;
}

/* Does what a line says. -EBADMSG: we would never have written it. */
static int take_words(struct rg_folders *folders, char *words[WORDS_MAX], size_t count)
{
    struct rg_h1_slice name, to;
    struct rg_folder_info info;
    int64_t now_us;
    if (count == 5 && strcmp(words[0], "folder") == 0 && take_number(words[1], &info.created_us) &&
        take_number(words[2], &info.updated_us) && take_number(words[3], &info.metageneration) &&
        take_name(words[4], &name)) {
        int rc = reserve(folders, 1);
        struct folder *folder = rc == 0 ? folder_create(name, &info) : NULL;
        if (folder != NULL) {
            put(folders, folder);
        }
        return rc == 0 && folder == NULL ? -ENOMEM : rc;
    }
    if (count == 2 && strcmp(words[0], "gone") == 0 && take_name(words[1], &name)) {
        if (find(folders, name) != NULL) {
            take_out(folders, name);
        }
        return 0;
    }
    if (count == 4 && strcmp(words[0], "rename") == 0 && take_number(words[1], &now_us) &&
        take_name(words[2], &name) && take_name(words[3], &to) && find(folders, name) != NULL) {
        note_rename(folders, name, to);
        return rename_all(folders, name, to, now_us);
    }
    if (count == 1 && strcmp(words[0], "renamed") == 0) {
        folders->renaming = false;
        return 0;
    }
    return -EBADMSG;
}

static int read_log(struct rg_folders *folders, char *text)
{
    int rc = 0;
    /* A last line without an end was being written when the process died. */
    for (char *end; rc == 0 && (end = strchr(text, '\n')) != NULL; text = end + 1) {
        char *words[WORDS_MAX], *rest = text;
        size_t count = 0;
        *end = '\0';
        for (char *word; count < WORDS_MAX && (word = strsep(&rest, " ")) != NULL;) {
            words[count++] = word;
        }
        rc = rest == NULL ? take_words(folders, words, count) : -EBADMSG;
        folders->line_count++;
    }
    return rc;
}

int rg_folders_open(struct rg_folders **out_folders, const struct rg_store_backend *backend,
                    void *written)
{
    struct rg_folders *folders = calloc(1, sizeof(*folders));
    if (folders == NULL) {
        return -ENOMEM;
    }
    pthread_rwlock_init(&folders->lock, NULL);
    folders->backend = backend;
    folders->written = written;
    struct rg_text text = {0};
    int rc = 0;
    if (backend->load_folders != NULL) {
        rc = backend->load_folders(written, &text);
        rg_text_append(&text, "", 1);
        rc = rc == 0 && text.failed ? -ENOMEM : rc;
        rc = rc == 0 ? read_log(folders, text.data) : rc;
        folders->recovering = folders->renaming;
        /* The log is written anew, because the next line would continue one that is not
         * complete. */
        rc = rc == 0 && !folders->renaming ? rewrite_log(folders) : rc;
    }
    rg_text_fini(&text);
    if (rc < 0) {
        rg_folders_close(folders);
        return rc;
    }
    *out_folders = folders;
    return 0;
}

void rg_folders_close(struct rg_folders *folders)
{
    if (folders == NULL) {
        return;
    }
    for (size_t i = 0; i < folders->count; i++) {
        free(folders->sorted[i]);
    }
    free(folders->sorted);
    pthread_rwlock_destroy(&folders->lock);
    free(folders);
}

int rg_folders_get(struct rg_folders *folders, struct rg_h1_slice name,
                   struct rg_folder_info *out_info)
{
    pthread_rwlock_rdlock(&folders->lock);
    const struct folder *folder = find(folders, name);
    if (folder != NULL) {
        *out_info = folder->info;
    }
    pthread_rwlock_unlock(&folders->lock);
    return folder != NULL ? 0 : -ENOENT;
}

int rg_folders_seek(struct rg_folders *folders, struct rg_h1_slice from,
                    struct rg_folder_entry *out_entry)
{
    pthread_rwlock_rdlock(&folders->lock);
    size_t at = find_place(folders, from);
    bool found = at < folders->count;
    if (found) {
        const struct folder *folder = folders->sorted[at];
        out_entry->info = folder->info;
        out_entry->name_size = folder->name_size;
        memcpy(out_entry->name, folder->name, folder->name_size);
    }
    pthread_rwlock_unlock(&folders->lock);
    return found ? 0 : -ENOENT;
}

static bool exists(struct rg_folders *folders, struct rg_h1_slice name)
{
    struct rg_folder_info info;
    return rg_folders_get(folders, name, &info) == 0;
}

/* Adds one folder, to the log before the table. */
static int add(struct rg_folders *folders, struct rg_h1_slice name)
{
    int64_t now_us = rg_store_now_us();
    struct rg_folder_info info = {.created_us = now_us, .updated_us = now_us, .metageneration = 1};
    struct rg_text text = {0};
    struct folder *folder = folder_create(name, &info);
    if (folder == NULL) {
        return -ENOMEM;
    }
    pthread_rwlock_wrlock(&folders->lock);
    int rc = reserve(folders, 1);
    if (rc == 0) {
        append_folder(&text, name, &info);
        rc = append_log(folders, &text, 1);
    }
    if (rc == 0) {
        put(folders, folder);
        shorten_log(folders);
        RG_VERIFY(invariants(folders, name));
    }
    pthread_rwlock_unlock(&folders->lock);
    if (rc < 0) {
        free(folder);
    }
    return rc;
}

int rg_folders_add(struct rg_folders *folders, struct rg_h1_slice name)
{
    RG_ASSERT(rg_store_folder_name_valid(name));
    struct rg_h1_slice parent = parent_of(name);
    if (exists(folders, name)) {
        return -EEXIST;
    }
    return parent.size > 0 && !exists(folders, parent) ? -ENOTDIR : add(folders, name);
}

int rg_folders_add_path(struct rg_folders *folders, struct rg_h1_slice name)
{
    const char *last = memrchr(name.data, '/', name.size);
    struct rg_h1_slice deepest = {name.data, last != NULL ? (uint32_t)(last - name.data) + 1 : 0};
    if (deepest.size == 0 || exists(folders, deepest)) {
        return 0;
    }
    int rc = 0;
    for (uint32_t i = 0; i < deepest.size && rc == 0; i++) {
        struct rg_h1_slice folder = {deepest.data, i + 1};
        if (deepest.data[i] == '/' && !exists(folders, folder)) {
            rc = add(folders, folder);
        }
    }
    return rc;
}

/* Whether another folder lies in it. */
static bool has_folder(struct rg_folders *folders, struct rg_h1_slice name)
{
    pthread_rwlock_rdlock(&folders->lock);
    size_t at = find_place(folders, name) + 1; /* Behind itself. */
    bool has = at < folders->count && is_inside(folders->sorted[at], name);
    pthread_rwlock_unlock(&folders->lock);
    return has;
}

int rg_folders_remove(struct rg_folders *folders, struct rg_h1_slice name)
{
    struct rg_text text = {0};
    if (!exists(folders, name)) {
        return -ENOENT;
    }
    if (has_folder(folders, name)) {
        return -ENOTEMPTY;
    }
    rg_text_append_str(&text, "gone ");
    rg_text_append_percent(&text, name.data, name.size);
    rg_text_append_str(&text, "\n");
    pthread_rwlock_wrlock(&folders->lock);
    int rc = append_log(folders, &text, 1);
    if (rc == 0) {
        take_out(folders, name);
        shorten_log(folders);
        RG_VERIFY(invariants(folders, name));
    }
    pthread_rwlock_unlock(&folders->lock);
    return rc;
}

int rg_folders_begin_rename(struct rg_folders *folders, struct rg_h1_slice from,
                            struct rg_h1_slice to)
{
    RG_ASSERT(rg_store_folder_name_valid(from) && rg_store_folder_name_valid(to));
    struct rg_h1_slice parent = parent_of(to);
    struct rg_text text = {0};
    if (!exists(folders, from)) {
        return -ENOENT;
    }
    if (exists(folders, to)) {
        return -EEXIST;
    }
    if (rg_text_starts_with(to, from)) {
        return -EINVAL;
    }
    if (parent.size > 0 && !exists(folders, parent)) {
        return -ENOTDIR;
    }
    int64_t now_us = rg_store_now_us();
    rg_text_printf(&text, "rename %" PRId64 " ", now_us);
    rg_text_append_percent(&text, from.data, from.size);
    rg_text_append_str(&text, " ");
    rg_text_append_percent(&text, to.data, to.size);
    rg_text_append_str(&text, "\n");
    pthread_rwlock_wrlock(&folders->lock);
    int rc = rename_all(folders, from, to, now_us);
    if (rc == 0) {
        rc = append_log(folders, &text, 1);
        if (rc < 0) {
            (void)rename_all(folders, to, from, now_us);
        }
    } else {
        rg_text_fini(&text);
    }
    if (rc == 0) {
        note_rename(folders, from, to);
    }
    RG_VERIFY(invariants(folders, to));
    pthread_rwlock_unlock(&folders->lock);
    return rc;
}

int rg_folders_end_rename(struct rg_folders *folders)
{
    struct rg_text text = {0};
    int rc;
    pthread_rwlock_wrlock(&folders->lock);
    if (folders->recovering) {
        rc = rewrite_log(folders);
    } else {
        rg_text_append_str(&text, "renamed\n");
        rc = append_log(folders, &text, 1);
    }
    if (rc == 0) {
        folders->renaming = folders->recovering = false;
        shorten_log(folders);
    }
    pthread_rwlock_unlock(&folders->lock);
    return rc;
}

bool rg_folders_unfinished(const struct rg_folders *folders, struct rg_h1_slice *out_from,
                           struct rg_h1_slice *out_to)
{
    *out_from = (struct rg_h1_slice){folders->from, folders->from_size};
    *out_to = (struct rg_h1_slice){folders->to, folders->to_size};
    return folders->renaming;
}
