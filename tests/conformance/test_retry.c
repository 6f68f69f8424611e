/* The retry conformance tests of Google's client libraries; see README.md beside this file.
 *
 * Every case of every scenario is run once for each way in which our API can call its method: the
 * resources are made without our client, then a client whose requests carry x-retry-test-id does
 * the one thing, and then the emulator is asked whether every instruction was met. */
#include "emulator/emulator.h"
#include "emulator/request/reply.h"
#include "emulator/wire/checksum.h"
#include "runtime/clock.h"
#include "tests/support/client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <ringest/listing.h>
#include <ringest/objects.h>
#include <ringest/upload.h>
#include <yyjson.h>

#define SMALL_SIZE RG_KIB(4)
#define DOWNLOAD_SIZE RG_MIB(3)
#define DATA_SIZE RG_MIB(9)
#define OBJECT "a folder/object"
#define OBJECT_ESCAPED "a%20folder%2Fobject"
#define TESTS_MAX 1024
#define NAME_SIZE_MAX 512
#define INSTRUCTIONS_SIZE_MAX 256

/* What a way works on. */
struct run {
    struct rg_test_client client;
    char bucket[32];
    bool guarded;    /* A precondition is to be given. */
    bool has_object; /* OBJECT exists: the first object_size bytes of `data`. */
    uint64_t object_size;
    int64_t generation;
    struct rg_completion done;
};

struct way {
    const char *method, *group, *name;
    void (*run)(struct run *run);
    bool only_guarded;   /* With a precondition it is another way than without. */
    bool only_unguarded; /* Knows none. */
    bool harmless;       /* May be repeated without one, and is. */
};

/* A method that nothing of our API calls. */
static const struct {
    const char *method, *reason;
} absent[] = {
    {"storage.objects.copy", "objects are copied by storage.objects.rewrite"},
    {"storage.objects.update", "objects are changed by storage.objects.patch"},
};

static struct rg_emulator *emulator;
static uint16_t port;
static uint8_t data[DATA_SIZE];

static void take(struct run *run)
{
    run->done = rg_test_take(&run->client);
}

static void check_body(const struct run *run, uint64_t offset, uint64_t size)
{
    if (run->done.status == RG_STATUS_OK) {
        RG_CHECK_MEM(run->done.data, run->done.size, data + offset, size);
    }
}

static void get_whole(struct run *run)
{
    rg_test_get(&run->client, &(struct rg_get){.bucket = run->bucket, .object = OBJECT});
    take(run);
    check_body(run, 0, run->object_size);
}

static void get_range(struct run *run)
{
    uint64_t size = run->object_size - 1000;
    rg_test_get(
        &run->client,
        &(struct rg_get){.bucket = run->bucket, .object = OBJECT, .offset = 7, .length = size});
    take(run);
    check_body(run, 7, size);
}

static void get_into_memory(struct run *run)
{
    uint8_t *buf = malloc(run->object_size);
    rg_test_get(&run->client, &(struct rg_get){.bucket = run->bucket,
                                               .object = OBJECT,
                                               .buf = buf,
                                               .buf_size = run->object_size});
    take(run);
    check_body(run, 0, run->object_size);
    free(buf);
}

static void get_generation(struct run *run)
{
    rg_test_get(
        &run->client,
        &(struct rg_get){.bucket = run->bucket, .object = OBJECT, .generation = run->generation});
    take(run);
    check_body(run, 0, run->object_size);
}

/* Ranges far enough apart to be requests of their own, but for the last two. */
static void get_ranges(struct run *run)
{
    uint64_t size = run->object_size;
    const struct rg_range ranges[] = {
        {.offset = 0, .length = size / 2},
        {.offset = size - size / 4, .length = size / 8},
        {.offset = size - size / 8 + 1, .length = size / 8 - 1},
    };
    RG_CHECK_EQ(rg_submit_get_ranges(run->client.client, run->client.cq,
                                     &(struct rg_get_ranges){.bucket = run->bucket,
                                                             .object = OBJECT,
                                                             .ranges = ranges,
                                                             .count = RG_ARRAY_LEN(ranges),
                                                             .gap_max = 1}),
                0);
    take(run);
    const struct rg_range_result *results = run->done.data;
    for (size_t i = 0; i < RG_ARRAY_LEN(ranges) && run->done.status == RG_STATUS_OK; i++) {
        RG_CHECK_MEM(results[i].data, results[i].size, data + ranges[i].offset, ranges[i].length);
    }
}

static void list_page(struct run *run)
{
    RG_CHECK_EQ(rg_submit_list(run->client.client, run->client.cq,
                               &(struct rg_list_request){.bucket = run->bucket}),
                0);
    take(run);
    if (run->done.status == RG_STATUS_OK) {
        const struct rg_list_page *page = run->done.data;
        RG_CHECK_EQ(page->object_count, 1);
        RG_CHECK_STR(page->objects[0].name, OBJECT);
    }
}

/* What is there is what was sent, and is what the completion tells of. */
static void check_stored(const struct run *run, uint64_t size)
{
    char target[128], want[128], crc32c[RG_REPLY_CRC32C_SIZE];
    struct rg_talk talk;
    if (run->done.status != RG_STATUS_OK) {
        return;
    }
    RG_CHECK_EQ(run->done.object_size, size);
    snprintf(target, sizeof(target), "/%s/new", run->bucket);
    rg_talk(&talk, port, &(struct rg_talk_request){.method = "HEAD", .target = target});
    rg_reply_format_crc32c(crc32c, rg_checksum_extend(0, data, size));
    snprintf(want, sizeof(want), "x-goog-hash: crc32c=%.8s", crc32c);
    RG_CHECK(strstr(talk.head, want) != NULL);
    snprintf(want, sizeof(want), "x-goog-stored-content-length: %" PRIu64 "\r\n", size);
    RG_CHECK(strstr(talk.head, want) != NULL);
    snprintf(want, sizeof(want), "x-goog-generation: %" PRId64 "\r\n", run->done.generation);
    RG_CHECK(strstr(talk.head, want) != NULL);
}

static void put(struct run *run)
{
    RG_CHECK_EQ(rg_submit_put(run->client.client, run->client.cq,
                              &(struct rg_put){.bucket = run->bucket,
                                               .object = "new",
                                               .data = data,
                                               .size = SMALL_SIZE,
                                               .if_generation_match =
                                                   run->guarded ? RG_GENERATION_ABSENT : 0}),
                0);
    take(run);
    check_stored(run, SMALL_SIZE);
}

static void put_over(struct run *run)
{
    char target[128];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/%s/new", run->bucket);
    rg_talk(&talk, port, &(struct rg_talk_request){"PUT", target, NULL, "old", 3});
    const char *generation = strstr(talk.head, "x-goog-generation: ");
    RG_CHECK(talk.status == 200 && generation != NULL);
    RG_CHECK_EQ(rg_submit_put(run->client.client, run->client.cq,
                              &(struct rg_put){.bucket = run->bucket,
                                               .object = "new",
                                               .data = data,
                                               .size = SMALL_SIZE,
                                               .if_generation_match =
                                                   strtoll(strchr(generation, ' '), NULL, 10)}),
                0);
    take(run);
    check_stored(run, SMALL_SIZE);
}

static void stat_object(struct run *run)
{
    RG_CHECK_EQ(rg_submit_stat(run->client.client, run->client.cq,
                               &(struct rg_stat){.bucket = run->bucket, .object = OBJECT}),
                0);
    take(run);
    if (run->done.status == RG_STATUS_OK) {
        const struct rg_object_info *info = run->done.data;
        RG_CHECK_STR(info->object.name, OBJECT);
        RG_CHECK_EQ(info->object.size, run->object_size);
        RG_CHECK_EQ(info->object.generation, run->generation);
    }
}

static void list_all(struct run *run)
{
    struct rg_listing *listing;
    struct rg_listing_options options = {.bucket = run->bucket};
    RG_CHECK_EQ(rg_listing_open(&listing, run->client.client, &options), 0);
    size_t count = 0, page_count = 1;
    while (page_count > 0) {
        rg_lease_release(run->done.lease);
        RG_CHECK_EQ(rg_listing_next(listing, run->client.cq, 0), 0);
        take(run);
        const struct rg_list_page *page = run->done.data;
        page_count = run->done.status == RG_STATUS_OK ? page->object_count : 0;
        count += page_count;
        if (page_count > 0) {
            RG_CHECK_STR(page->objects[0].name, OBJECT);
        }
    }
    RG_CHECK_EQ(count, run->done.status == RG_STATUS_OK ? 1 : 0);
    rg_listing_close(listing);
}

static void check_gone(const struct run *run)
{
    char target[128];
    struct rg_talk talk;
    if (run->done.status != RG_STATUS_OK) {
        return;
    }
    snprintf(target, sizeof(target), "/%s/%s", run->bucket, OBJECT_ESCAPED);
    rg_talk(&talk, port, &(struct rg_talk_request){.method = "HEAD", .target = target});
    RG_CHECK_EQ(talk.status, 404);
}

static void delete_with(struct run *run, const struct rg_delete *del)
{
    RG_CHECK_EQ(rg_submit_delete(run->client.client, run->client.cq, del), 0);
    take(run);
    check_gone(run);
}

static void delete_newest(struct run *run)
{
    delete_with(run, &(struct rg_delete){.bucket = run->bucket, .object = OBJECT});
}

static void delete_generation(struct run *run)
{
    delete_with(run, &(struct rg_delete){
                         .bucket = run->bucket, .object = OBJECT, .generation = run->generation});
}

static void delete_if_matching(struct run *run)
{
    delete_with(run, &(struct rg_delete){.bucket = run->bucket,
                                         .object = OBJECT,
                                         .conditions.if_generation_match = run->generation});
}

static void update(struct run *run)
{
    const struct rg_metadata pair = {"color", "green"};
    RG_CHECK_EQ(
        rg_submit_update(run->client.client, run->client.cq,
                         &(struct rg_update){.bucket = run->bucket,
                                             .object = OBJECT,
                                             .content_type = "text/x-test",
                                             .metadata = &pair,
                                             .metadata_count = 1,
                                             .conditions.if_metageneration_match = run->guarded}),
        0);
    take(run);
    if (run->done.status == RG_STATUS_OK) {
        const struct rg_object_info *info = run->done.data;
        RG_CHECK_STR(info->content_type, "text/x-test");
        RG_CHECK_EQ(info->metageneration, 2);
        RG_CHECK_EQ(info->metadata_count, 1);
    }
}

static struct rg_conditions absent_if_guarded(const struct run *run)
{
    return (struct rg_conditions){.if_generation_match = run->guarded ? RG_GENERATION_ABSENT : 0};
}

static void check_info(const struct run *run, uint64_t size)
{
    if (run->done.status == RG_STATUS_OK) {
        const struct rg_object_info *info = run->done.data;
        RG_CHECK_STR(info->object.name, "new");
        RG_CHECK_EQ(info->object.size, size);
    }
}

static void compose(struct run *run)
{
    const struct rg_compose_source sources[] = {{.object = OBJECT},
                                                {.object = OBJECT, .generation = run->generation}};
    uint32_t crc = rg_checksum_extend(0, data, run->object_size);
    RG_CHECK_EQ(rg_submit_compose(
                    run->client.client, run->client.cq,
                    &(struct rg_compose){.bucket = run->bucket,
                                         .object = "new",
                                         .sources = sources,
                                         .source_count = RG_ARRAY_LEN(sources),
                                         .crc32c = rg_crc32c_combine(crc, crc, run->object_size),
                                         .has_crc32c = true,
                                         .conditions = absent_if_guarded(run)}),
                0);
    take(run);
    check_info(run, 2 * run->object_size);
}

static void copy(struct run *run)
{
    RG_CHECK_EQ(rg_submit_copy(run->client.client, run->client.cq,
                               &(struct rg_copy){.source_bucket = run->bucket,
                                                 .source_object = OBJECT,
                                                 .bucket = run->bucket,
                                                 .object = "new",
                                                 .conditions = absent_if_guarded(run)}),
                0);
    take(run);
    check_info(run, run->object_size);
}

#define UPLOAD_SIZE RG_MIB(3) /* In parts of 1 MiB. */

static void upload_with(struct run *run, struct rg_upload upload)
{
    upload.bucket = run->bucket;
    upload.object = "new";
    upload.conditions = absent_if_guarded(run);
    RG_CHECK_EQ(rg_submit_upload(run->client.client, run->client.cq, &upload), 0);
    take(run);
    check_stored(run, upload.size);
}

static void upload_single(struct run *run)
{
    upload_with(run,
                (struct rg_upload){.method = RG_UPLOAD_SINGLE, .data = data, .size = UPLOAD_SIZE});
}

static void upload_resumable(struct run *run)
{
    upload_with(run,
                (struct rg_upload){.method = RG_UPLOAD_RESUMABLE, .data = data, .size = DATA_SIZE});
}

static void upload_composed(struct run *run)
{
    upload_with(run, (struct rg_upload){.method = RG_UPLOAD_COMPOSE,
                                        .data = data,
                                        .size = UPLOAD_SIZE,
                                        .part_size = RG_MIB(1)});
}

static void upload_multipart(struct run *run)
{
    upload_with(run, (struct rg_upload){.method = RG_UPLOAD_MULTIPART,
                                        .data = data,
                                        .size = DATA_SIZE,
                                        .part_size = RG_MIB(5)});
}

static void upload_file(struct run *run, enum rg_upload_method method, uint64_t part_size)
{
    FILE *file = tmpfile();
    RG_CHECK_EQ(fwrite(data, 1, DATA_SIZE, file), DATA_SIZE);
    RG_CHECK_EQ(fflush(file), 0);
    upload_with(
        run, (struct rg_upload){
                 .method = method, .fd = fileno(file), .size = DATA_SIZE, .part_size = part_size});
    fclose(file);
}

static void upload_file_single(struct run *run)
{
    upload_file(run, RG_UPLOAD_SINGLE, 0);
}

static void upload_file_resumable(struct run *run)
{
    upload_file(run, RG_UPLOAD_RESUMABLE, RG_MIB(4));
}

static void write_stream(struct run *run)
{
    struct rg_writer *writer;
    struct rg_writer_options options = {.bucket = run->bucket,
                                        .object = "new",
                                        .method = RG_UPLOAD_RESUMABLE,
                                        .conditions = absent_if_guarded(run),
                                        .part_size = RG_MIB(4)};
    RG_CHECK_EQ(rg_writer_open(&writer, run->client.client, &options), 0);
    uint64_t offset = 0;
    while (offset < DATA_SIZE) {
        int64_t taken =
            rg_writer_write(writer, data + offset, RG_MIN(DATA_SIZE - offset, UINT64_C(100000)));
        if (taken == -EIO) {
            break;
        }
        if (taken == -EAGAIN) {
            int rc = rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS);
            RG_CHECK(rc == 0 || rc == -EIO);
            continue;
        }
        RG_CHECK(taken > 0);
        offset += (uint64_t)taken;
    }
    RG_CHECK_EQ(rg_writer_finish(writer, run->client.cq, 0), 0);
    take(run);
    check_stored(run, DATA_SIZE);
    rg_writer_close(writer);
}

#define DOWNLOAD "storage.objects.download"
#define RESUMABLE "storage.resumable.upload"

#define GET .method = "storage.objects.get"
#define LIST .method = "storage.objects.list"
#define INSERT .method = "storage.objects.insert"
#define DELETE .method = "storage.objects.delete"

static const struct way ways[] = {
    {GET, .name = "get", .run = get_whole},
    {GET, .name = "get of a range", .run = get_range},
    {GET, .name = "get into memory", .run = get_into_memory},
    {GET, .name = "get of a generation", .run = get_generation},
    {GET, .name = "get of ranges", .run = get_ranges},
    {GET, .name = "stat", .run = stat_object},
    {GET, .group = DOWNLOAD, .name = "get", .run = get_whole},
    {GET, .group = DOWNLOAD, .name = "get of a range", .run = get_range},
    {GET, .group = DOWNLOAD, .name = "get into memory", .run = get_into_memory},
    {GET, .group = DOWNLOAD, .name = "get of a generation", .run = get_generation},
    {GET, .group = DOWNLOAD, .name = "get of ranges", .run = get_ranges},
    {LIST, .name = "list of a page", .run = list_page},
    {LIST, .name = "listing", .run = list_all},
    {INSERT, .name = "put", .run = put},
    {INSERT, .name = "put over an object", .run = put_over, .only_guarded = true},
    {INSERT, .name = "upload in one request", .run = upload_single},
    {INSERT, .name = "upload in a session", .run = upload_resumable},
    {INSERT, .name = "upload of a file in one request", .run = upload_file_single},
    {INSERT, .name = "upload of a file in a session", .run = upload_file_resumable},
    {INSERT, .name = "writer in a session", .run = write_stream},
    {INSERT, .name = "upload in composed parts", .run = upload_composed, .harmless = true},
    {INSERT, .name = "upload in parts of the XML API", .run = upload_multipart,
     .only_unguarded = true, .harmless = true},
    {INSERT, .group = RESUMABLE, .name = "upload in a session", .run = upload_resumable},
    {INSERT, .group = RESUMABLE, .name = "upload of a file in a session",
     .run = upload_file_resumable},
    {INSERT, .group = RESUMABLE, .name = "writer in a session", .run = write_stream},
    {DELETE, .name = "delete", .run = delete_newest, .only_unguarded = true},
    {DELETE, .name = "delete of a generation", .run = delete_generation, .only_guarded = true},
    {DELETE, .name = "delete on a condition", .run = delete_if_matching, .only_guarded = true},
    {.method = "storage.objects.patch", .name = "update", .run = update},
    {.method = "storage.objects.compose", .name = "compose", .run = compose},
    {.method = "storage.objects.rewrite", .name = "copy", .run = copy},
};

/* A case in a way. */
struct job {
    char name[NAME_SIZE_MAX];
    char instructions[INSTRUCTIONS_SIZE_MAX]; /* JSON strings and commas. */
    const char *last_instruction, *method, *group;
    const struct way *way; /* NULL: `reason` says why there is none. */
    const char *reason;
    bool wants_success, guarded, has_object;
};

static struct job jobs[TESTS_MAX];
static struct rg_test tests[TESTS_MAX];
static size_t job_count;
static unsigned case_count;

static bool is(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static enum rg_status status_wanted(const struct job *job)
{
    static const struct {
        const char *instruction;
        enum rg_status status;
    } rows[] = {
        {"return-503", RG_STATUS_SERVER},
        {"return-broken-stream", RG_STATUS_TRUNCATED},
        {"return-reset-connection", RG_STATUS_CONNECTION_LOST},
        {"return-400", RG_STATUS_BAD_REQUEST},
        {"return-401", RG_STATUS_UNAUTHENTICATED},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows) && !job->wants_success; i++) {
        if (is(job->last_instruction, rows[i].instruction)) {
            return rows[i].status;
        }
    }
    return RG_STATUS_OK;
}

static void make_resources(struct run *run, const struct job *job)
{
    struct rg_talk talk;
    char target[128];
    snprintf(run->bucket, sizeof(run->bucket), "bucket-%zu", (size_t)(job - jobs));
    snprintf(target, sizeof(target), "/%s", run->bucket);
    rg_talk(&talk, port, &(struct rg_talk_request){.method = "PUT", .target = target});
    RG_CHECK_EQ(talk.status, 200);
    run->object_size = is(job->group, DOWNLOAD) ? DOWNLOAD_SIZE : SMALL_SIZE;
    if (job->has_object) {
        snprintf(target, sizeof(target), "/%s/%s", run->bucket, OBJECT_ESCAPED);
        rg_talk(&talk, port,
                &(struct rg_talk_request){"PUT", target, NULL, data, run->object_size});
        RG_CHECK_EQ(talk.status, 200);
        const char *generation = strstr(talk.head, "x-goog-generation: ");
        RG_CHECK(generation != NULL);
        run->generation = strtoll(strchr(generation, ' '), NULL, 10);
    }
}

static void run_job(const struct job *job)
{
    char id[RG_TALK_ID_SIZE], header[128];
    struct run run = {.guarded = job->guarded};
    if (job->way == NULL) {
        rg_test_skip("%s", job->reason);
    }
    make_resources(&run, job);
    rg_talk_retry_test_begin(port, job->method, job->instructions, id);
    snprintf(header, sizeof(header), "x-retry-test-id: %s", id);
    run.client.no_server = true;
    run.client.options.endpoint = rg_emulator_endpoint(emulator);
    run.client.options.headers = header;
    rg_test_client_open(&run.client);
    job->way->run(&run);
    enum rg_status wanted = status_wanted(job);
    if (wanted == RG_STATUS_TRUNCATED && run.done.status == RG_STATUS_CONNECTION_LOST) {
        wanted = RG_STATUS_CONNECTION_LOST; /* The answer had no body that could be broken. */
    }
    rg_test_check_status(__FILE__, __LINE__, &run.done, wanted);
    rg_lease_release(run.done.lease);
    rg_test_client_close(&run.client);
    RG_CHECK(rg_talk_retry_test_is_complete(port, id));
    rg_talk_retry_test_end(port, id);
}

static void run_current(void)
{
    run_job(&jobs[rg_test_index()]);
}

static void add_job(const struct job *job, const char *scenario, unsigned number,
                    const char *way_name)
{
    RG_ASSERT(job_count < TESTS_MAX);
    struct job *own = &jobs[job_count];
    *own = *job;
    snprintf(own->name, sizeof(own->name), "scenario %s case %u [%s] %s%s%s by %s", scenario,
             number, job->instructions, job->method, job->group != NULL ? " as " : "",
             job->group != NULL ? job->group : "", way_name);
    tests[job_count++] = (struct rg_test){own->name, run_current};
}

/* One case of a method in every way. */
static void add_case(struct job *job, const char *scenario, unsigned number)
{
    bool any = false;
    case_count++;
    for (size_t i = 0; i < RG_ARRAY_LEN(ways); i++) {
        const struct way *way = &ways[i];
        bool fits = is(way->method, job->method) && is(way->group, job->group) &&
                    !(way->only_unguarded && job->guarded) &&
                    !(way->only_guarded && !job->guarded) &&
                    !(way->harmless && !job->guarded && !job->wants_success && is(scenario, "3"));
        if (fits) {
            job->way = way;
            add_job(job, scenario, number, way->name);
            any = true;
        }
    }
    job->way = NULL;
    for (size_t i = 0; i < RG_ARRAY_LEN(absent); i++) {
        if (is(absent[i].method, job->method)) {
            job->reason = absent[i].reason;
            add_job(job, scenario, number, "nothing");
            any = true;
        }
    }
    if (!any) {
        fprintf(stderr, "nothing of ours calls %s\n", job->method);
        exit(1);
    }
}

static void take_instructions(struct job *job, yyjson_val *list)
{
    size_t i, count, size = 0;
    yyjson_val *text;
    job->instructions[0] = '\0';
    yyjson_arr_foreach(list, i, count, text)
    {
        int rc = snprintf(job->instructions + size, sizeof(job->instructions) - size, "%s\"%s\"",
                          i > 0 ? "," : "", yyjson_get_str(text));
        RG_ASSERT(rc > 0 && (size_t)rc < sizeof(job->instructions) - size);
        size += (size_t)rc;
        job->last_instruction = yyjson_get_str(text);
    }
}

static void add_scenario(yyjson_val *scenario)
{
    char id[16];
    yyjson_val *number = yyjson_obj_get(scenario, "id");
    if (yyjson_is_str(number)) {
        snprintf(id, sizeof(id), "%s", yyjson_get_str(number));
    } else {
        snprintf(id, sizeof(id), "%d", yyjson_get_int(number));
    }
    size_t m, method_count, c, n, r, resource_count;
    yyjson_val *method, *one_case, *resource;
    yyjson_arr_foreach(yyjson_obj_get(scenario, "methods"), m, method_count, method)
    {
        struct job job = {
            .wants_success = yyjson_get_bool(yyjson_obj_get(scenario, "expectSuccess")),
            .guarded = yyjson_get_bool(yyjson_obj_get(scenario, "preconditionProvided")),
            .method = yyjson_get_str(yyjson_obj_get(method, "name")),
            .group = yyjson_get_str(yyjson_obj_get(method, "group")),
        };
        if (strncmp(job.method, "storage.objects.", 16) != 0) {
            continue;
        }
        yyjson_arr_foreach(yyjson_obj_get(method, "resources"), r, resource_count, resource)
        {
            job.has_object |= yyjson_equals_str(resource, "OBJECT");
        }
        yyjson_arr_foreach(yyjson_obj_get(scenario, "cases"), c, n, one_case)
        {
            take_instructions(&job, yyjson_obj_get(one_case, "instructions"));
            add_case(&job, id, (unsigned)c + 1);
        }
    }
}

/* Returns owned: jobs point into it. */
static yyjson_doc *read_scenarios(const char *name)
{
    char path[512];
    const char *folder = getenv("RINGEST_TESTS");
    snprintf(path, sizeof(path), "%s/conformance/%s", folder != NULL ? folder : "tests", name);
    yyjson_doc *document = yyjson_read_file(path, 0, NULL, NULL);
    size_t i, count;
    yyjson_val *scenario;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(document), "retryTests"), i, count,
                       scenario)
    {
        add_scenario(scenario);
    }
    return document;
}

/* How many of the 315 combinations in Google's file were found. */
static unsigned google_case_count;
static void test_all_cases_of_objects_were_found(void)
{
    RG_CHECK_EQ(google_case_count, 83);
    RG_CHECK_EQ(case_count, 83 + 4 * 4 + 2 * 2 + 3);
}

int main(int argc, char **argv)
{
    char error[256] = "";
    struct rg_emulator_options options = {.threads = 1, .plain = true, .strict_buckets = true};
    for (uint64_t i = 0; i < sizeof(data); i++) {
        data[i] = rg_script_byte(i);
    }
    yyjson_doc *google = read_scenarios("retry_tests.json");
    google_case_count = case_count;
    yyjson_doc *own = read_scenarios("lost_answers.json");
    RG_ASSERT(job_count < TESTS_MAX);
    tests[job_count] = (struct rg_test)RG_TEST(test_all_cases_of_objects_were_found);
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    port = rg_talk_port(rg_emulator_endpoint(emulator));
    int rc = rg_test_main(argc, argv, tests, job_count + 1);
    rg_emulator_close(emulator);
    yyjson_doc_free(google);
    yyjson_doc_free(own);
    return rc;
}
