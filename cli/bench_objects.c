/* The objects that a benchmark writes, and their removal: see bench_objects.h. */
#include "cli/bench_objects.h"

#include "cli/bench_folder.h"
#include "cli/lister.h"
#include "cli/lookup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_DIGITS 8
/* Bytes that a name needs behind the prefix: the folder's name, that of a process, and an index. */
#define NAME_ROOM (BENCH_FOLDER_SIZE + 1 + 11 + 20)
/* Folders of others: each that is looked for costs a request. */
#define LOOKED_AT_MAX 64
#define TOLD_MAX 5
#define BATCHES_INFLIGHT 16
#define OBJECT_NONE (-1)

int bench_objects_folder(const struct cli_uri *prefix, char out_folder[RG_OBJECT_NAME_SIZE_MAX + 1])
{
    char name[BENCH_FOLDER_SIZE];
    int rc = bench_folder_name(name);
    if (rc < 0) {
        return cli_fail("no random name for the benchmark's folder: %s", strerror(-rc));
    }
    if (strlen(prefix->name) + NAME_ROOM > RG_OBJECT_NAME_SIZE_MAX) {
        return cli_usage("the prefix leaves no room for the names of objects; it may have %zu "
                         "bytes at most",
                         (size_t)RG_OBJECT_NAME_SIZE_MAX - NAME_ROOM);
    }
    snprintf(out_folder, RG_OBJECT_NAME_SIZE_MAX + 1, "%s%s/", prefix->name, name);
    return CLI_DONE;
}

void bench_objects_open(struct bench_objects *objects, const struct cli_uri *prefix,
                        const char *folder, int process)
{
    *objects = (struct bench_objects){.bucket = prefix->bucket};
    int size = snprintf(objects->folder, sizeof(objects->folder),
                        process == BENCH_OBJECTS_WHOLE ? "%s" : "%s%d/", folder, process);
    RG_ASSERT(size > 0 && (size_t)size < sizeof(objects->folder));
}

/* Says of a folder that it is left, or may be. False: it is somebody's who is at work. */
static bool folder_tell(const char *bucket, const char *folder, const char *name)
{
    switch (bench_folder_owner(name)) {
    case BENCH_FOLDER_RUNS:
        return false;
    case BENCH_FOLDER_GONE:
        cli_note(
            "gs://%s/%s/ is left by a benchmark that was killed, or had --keep; `ringest rm -r` "
            "removes it",
            bucket, folder);
        return true;
    default:
        cli_note("gs://%s/%s/ is of a benchmark of another machine or container, which is running "
                 "or has left it",
                 bucket, folder);
        return true;
    }
}

int bench_objects_tell_left(const struct cli_uri *prefix, struct cli_session *session)
{
    char beginning[RG_OBJECT_NAME_SIZE_MAX + 1], from[RG_OBJECT_NAME_SIZE_MAX + 2];
    snprintf(beginning, sizeof(beginning), "%.*s" BENCH_FOLDER_PREFIX, (int)strlen(prefix->name),
             prefix->name);
    snprintf(from, sizeof(from), "%s", beginning);
    struct lookup lookup = {0};
    int told = 0, status = lookup_open(&lookup, session, prefix->bucket, 1);
    for (int i = 0; status == CLI_DONE && i < LOOKED_AT_MAX && told < TOLD_MAX; i++) {
        struct there there;
        status = lookup_find(&lookup, from, &there);
        const struct rg_list_page *page = lookup.page;
        const char *name = status == CLI_DONE && there.is_known && lookup.index < page->object_count
                               ? page->objects[lookup.index].name
                               : "";
        if (strncmp(name, beginning, strlen(beginning)) != 0) {
            break;
        }
        /* The next one is behind all that is in this folder: "0" follows "/". */
        size_t size = strcspn(name + strlen(prefix->name), "/") + strlen(prefix->name);
        bool is_folder = name[size] == '/';
        snprintf(from, sizeof(from), "%.*s", (int)size, name);
        told += is_folder && folder_tell(prefix->bucket, from, from + strlen(prefix->name));
        strcat(from, is_folder ? "0" : "!");
    }
    lookup_close(&lookup);
    return status;
}

static void name_make(const struct bench_objects *objects, uint64_t index,
                      char out_name[RG_OBJECT_NAME_SIZE_MAX + 1])
{
    int size = snprintf(out_name, RG_OBJECT_NAME_SIZE_MAX + 1, "%s%0*" PRIu64, objects->folder,
                        INDEX_DIGITS, index);
    RG_ASSERT(size > 0 && size <= RG_OBJECT_NAME_SIZE_MAX);
}

int bench_objects_add(struct bench_objects *objects, char out_name[RG_OBJECT_NAME_SIZE_MAX + 1])
{
    if (objects->count == objects->capacity) {
        size_t capacity = 2 * objects->capacity + 4096;
        int64_t *grown = reallocarray(objects->generations, capacity, sizeof(*grown));
        if (grown == NULL) {
            return -ENOMEM;
        }
        objects->generations = grown;
        objects->capacity = capacity;
    }
    objects->generations[objects->count] = 0;
    name_make(objects, objects->count++, out_name);
    return 0;
}

void bench_objects_drop(struct bench_objects *objects)
{
    RG_ASSERT(objects->count > 0);
    objects->count--;
}

/* The only answer says that nothing was written. Any other failure may have come after the write.
 */
static bool is_refusal(const struct rg_completion *completion)
{
    if (completion->attempts > 1) {
        return false;
    }
    switch (completion->status) {
    case RG_STATUS_NOT_FOUND:
    case RG_STATUS_PERMISSION:
    case RG_STATUS_UNAUTHENTICATED:
    case RG_STATUS_PRECONDITION:
    case RG_STATUS_RESOLVE:
    case RG_STATUS_TLS_CERTIFICATE:
    case RG_STATUS_CREDENTIALS:
        return true;
    default:
        return false;
    }
}

void bench_objects_take(struct bench_objects *objects, uint64_t index,
                        const struct rg_completion *completion)
{
    RG_ASSERT(index < objects->count && objects->generations[index] == 0);
    if (completion->status == RG_STATUS_OK) {
        objects->generations[index] = completion->generation;
    } else if (is_refusal(completion)) {
        objects->generations[index] = OBJECT_NONE;
    }
}

/* Requests that remove a hundred objects each: sent in order, answered in any. */
struct removal {
    struct bench_objects *objects;
    struct cli_session *session;
    uint64_t next; /* index of the first object that no request was sent for */
    uint32_t out;
    uint64_t failed;
    bool is_forbidden;
    char reason[256]; /* of the first failure; empty: none */
};

static void failed(struct removal *removal, uint64_t count, const char *reason)
{
    removal->failed += count;
    if (removal->reason[0] == '\0') {
        snprintf(removal->reason, sizeof(removal->reason), "%s", reason);
    }
}

/* Sends a request for the next objects whose generations are known. False: there are none left. */
static bool batch_send(struct removal *removal)
{
    struct bench_objects *objects = removal->objects;
    static struct rg_delete deletes[RG_DELETES_MAX];
    static char names[RG_DELETES_MAX][RG_OBJECT_NAME_SIZE_MAX + 1];
    struct rg_delete_many many = {.deletes = deletes};
    while (removal->next < objects->count && many.count < RG_DELETES_MAX) {
        uint64_t index = removal->next++;
        if (objects->generations[index] > 0) {
            name_make(objects, index, names[many.count]);
            deletes[many.count] = (struct rg_delete){.bucket = objects->bucket,
                                                     .object = names[many.count],
                                                     .generation = objects->generations[index]};
            many.count++;
        }
    }
    many.user_data = many.count;
    if (many.count == 0) {
        return false;
    }
    int rc = rg_submit_delete_many(removal->session->client, removal->session->cq, &many);
    if (rc < 0) {
        failed(removal, many.count, strerror(-rc));
    } else {
        removal->out++;
    }
    return true;
}

/* Only what was removed is counted: the folder's listing tells which are left. */
static void batch_take(struct removal *removal, const struct rg_completion *completion)
{
    const struct rg_delete_result *results = completion->data;
    uint64_t count = completion->user_data;
    removal->out--;
    if (completion->status != RG_STATUS_OK) {
        failed(removal, count, cli_completion_text(completion));
    }
    for (uint64_t i = 0; completion->status == RG_STATUS_OK && i < count; i++) {
        if (results[i].status == RG_STATUS_OK || results[i].status == RG_STATUS_NOT_FOUND) {
            removal->objects->removed++;
        } else {
            failed(removal, 1, rg_status_text(results[i].status));
        }
    }
    rg_lease_release(completion->lease);
}

static void known_remove(struct removal *removal)
{
    uint32_t most = RG_MIN((uint32_t)BATCHES_INFLIGHT, removal->session->cq_capacity);
    bool more = true;
    while (more || removal->out > 0) {
        while (more && removal->out < most) {
            more = batch_send(removal);
        }
        struct rg_completion completion;
        if (removal->out > 0 && cli_wait_one(removal->session, &completion)) {
            batch_take(removal, &completion);
        }
    }
}

static void listed_remove(struct removal *removal, const struct listed *object)
{
    struct cli_session *session = removal->session;
    struct rg_delete del = {.bucket = removal->objects->bucket,
                            .object = object->name,
                            .generation = object->generation};
    struct rg_completion completion;
    int rc = rg_submit_delete(session->client, session->cq, &del);
    if (rc < 0) {
        failed(removal, 1, strerror(-rc));
        return;
    }
    while (!cli_wait_one(session, &completion)) {
    }
    if (completion.status == RG_STATUS_OK || completion.status == RG_STATUS_NOT_FOUND) {
        removal->objects->removed++;
    } else {
        removal->is_forbidden = completion.status == RG_STATUS_PERMISSION;
        failed(removal, 1, cli_completion_text(&completion));
    }
    rg_lease_release(completion.lease);
}

/* Whether we have written what was listed: of a generation that we know, or under a name of which
 * nobody knows what became. */
static bool is_ours(const struct bench_objects *objects, const struct listed *object)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    uint64_t index = strtoull(object->name + strlen(objects->folder), NULL, 10);
    if (index >= objects->count) {
        return false;
    }
    name_make(objects, index, name);
    int64_t generation = objects->generations[index];
    return strcmp(name, object->name) == 0 && (generation == 0 || generation == object->generation);
}

/* Looks for what nobody knows of, and tries once more what could not be removed. One that may not
 * be removed stands for all that follow. */
static void rest_remove(struct removal *removal, uint64_t unknown)
{
    struct bench_objects *objects = removal->objects;
    struct listed *rest = NULL;
    size_t count = 0;
    uint64_t failed_before = removal->failed;
    removal->failed = 0;
    if (lister_all(removal->session, objects->bucket, objects->folder, &rest, &count) != CLI_DONE) {
        removal->failed = failed_before + unknown;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_ours(objects, &rest[i]) && removal->is_forbidden) {
            removal->failed++;
        } else if (is_ours(objects, &rest[i])) {
            listed_remove(removal, &rest[i]);
        }
    }
    listed_free(rest, count);
}

static uint64_t count_unknown(const struct bench_objects *objects)
{
    uint64_t unknown = 0;
    for (size_t i = 0; i < objects->count; i++) {
        unknown += objects->generations[i] == 0;
    }
    return unknown;
}

int bench_objects_remove(struct bench_objects *objects, struct cli_session *session)
{
    struct removal removal = {.objects = objects, .session = session};
    uint64_t unknown = count_unknown(objects);
    known_remove(&removal);
    if (unknown > 0 || removal.failed > 0) {
        rest_remove(&removal, unknown);
    }
    objects->left = removal.failed;
    if (removal.failed == 0) {
        return CLI_DONE;
    }
    return cli_fail("%" PRIu64 " objects could not be removed: all that is in gs://%s/%s%s%s; "
                    "remove them with `ringest rm -r gs://%s/%s`",
                    removal.failed, objects->bucket, objects->folder,
                    removal.reason[0] != '\0' ? ": " : "", removal.reason, objects->bucket,
                    objects->folder);
}

void bench_objects_free(struct bench_objects *objects)
{
    free(objects->generations);
}
