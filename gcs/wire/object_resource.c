/* yyjson over a pool in the caller's block, as in list_parser.c. See object_resource.h. */
#include "gcs/wire/object_resource.h"

#include "gcs/wire/json.h"

#include <stdlib.h>

/* The shortest pair of metadata: "a":"", of which each gets one of our structs. */
#define PAIR_SIZE_MIN 6
/* The structs themselves, alignment, and the pool's headers. */
#define MEMORY_OVERHEAD 1024

struct parser {
    yyjson_alc pool;
    const char *problem; /* why the last step failed */
};

size_t rg_object_info_size_bound(size_t body_size)
{
    RG_ASSERT(body_size <= RG_RESOURCE_BODY_SIZE_MAX);
    return yyjson_read_max_memory_usage(body_size, YYJSON_READ_NOFLAG) +
           body_size / PAIR_SIZE_MIN * sizeof(struct rg_metadata) + MEMORY_OVERHEAD;
}

static int bad(struct parser *parser, const char *problem)
{
    parser->problem = problem;
    return -EBADMSG;
}

/* NULL only for bodies that need more values than text can have. */
static void *allocate(struct parser *parser, size_t size)
{
    void *memory = parser->pool.malloc(parser->pool.ctx, size);
    if (memory == NULL) {
        parser->problem = "is not JSON";
    }
    return memory;
}

/* The fields that are text, and where they go. */
static const struct {
    const char *key;
    size_t offset;
} texts[] = {
#define TEXT(key, field)                                                                           \
    {                                                                                              \
        key, offsetof(struct rg_object_info, field)                                                \
    }
    TEXT("bucket", bucket),
    TEXT("name", object.name),
    TEXT("updated", object.updated),
    TEXT("contentType", content_type),
    TEXT("contentEncoding", content_encoding),
    TEXT("cacheControl", cache_control),
    TEXT("storageClass", storage_class),
    TEXT("etag", etag),
    TEXT("timeCreated", time_created),
    TEXT("md5Hash", md5),
#undef TEXT
};

static int read_metadata(struct parser *parser, yyjson_val *value, struct rg_object_info *info)
{
    if (!yyjson_is_obj(value)) {
        return bad(parser, "has metadata that is no JSON object");
    }
    size_t i, count = yyjson_obj_size(value);
    if (count == 0) {
        return 0;
    }
    struct rg_metadata *pairs = allocate(parser, count * sizeof(*pairs));
    if (pairs == NULL) {
        return -EBADMSG;
    }
    yyjson_val *key, *text;
    yyjson_obj_foreach(value, i, count, key, text)
    {
        if (!rg_json_read_text(key, &pairs[i].key) || !rg_json_read_text(text, &pairs[i].value)) {
            return bad(parser, "has metadata that is no text");
        }
    }
    info->metadata = pairs;
    info->metadata_count = count;
    return 0;
}

static int read_number(struct parser *parser, yyjson_val *key, yyjson_val *value,
                       struct rg_object_info *info)
{
    uint64_t number;
    if (rg_json_key_is(key, "size")) {
        return rg_json_read_u64(value, &info->object.size)
                   ? 0
                   : bad(parser, "has a size that is no number");
    }
    if (rg_json_key_is(key, "generation")) {
        return rg_json_read_i64(value, &info->object.generation)
                   ? 0
                   : bad(parser, "has a generation that is no number");
    }
    if (rg_json_key_is(key, "metageneration")) {
        return rg_json_read_i64(value, &info->metageneration)
                   ? 0
                   : bad(parser, "has a metageneration that is no number");
    }
    if (rg_json_key_is(key, "componentCount")) {
        if (!rg_json_read_u64(value, &number) || number > UINT32_MAX) {
            return bad(parser, "has a count of components that is no number");
        }
        info->component_count = (uint32_t)number;
    }
    return 0;
}

static int read_field(struct parser *parser, yyjson_val *key, yyjson_val *value,
                      struct rg_object_info *info)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        if (rg_json_key_is(key, texts[i].key)) {
            const char **text = (const char **)((char *)info + texts[i].offset);
            return rg_json_read_text(value, text)
                       ? 0
                       : bad(parser, "has a field that is no text but should be");
        }
    }
    if (rg_json_key_is(key, "crc32c")) {
        if (!rg_json_read_crc32c(value, &info->object.crc32c)) {
            return bad(parser, "has a CRC32C that is not one");
        }
        info->object.has_crc32c = true;
        return 0;
    }
    if (rg_json_key_is(key, "metadata")) {
        return read_metadata(parser, value, info);
    }
    return read_number(parser, key, value, info);
}

static int read_info(struct parser *parser, yyjson_val *resource, struct rg_object_info **out_info)
{
    if (!yyjson_is_obj(resource)) {
        return bad(parser, "is not a JSON object");
    }
    struct rg_object_info *info = allocate(parser, sizeof(*info));
    if (info == NULL) {
        return -EBADMSG;
    }
    *info = (struct rg_object_info){0};
    size_t i, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(resource, i, count, key, value)
    {
        int rc = yyjson_is_null(value) ? 0 : read_field(parser, key, value, info);
        if (rc < 0) {
            return rc;
        }
    }
    if (info->object.name == NULL || info->object.name[0] == '\0') {
        return bad(parser, "has no name of an object");
    }
    *out_info = info;
    return 0;
}

/* The body's root, an object, with all of it in the block. */
static int parse_json(struct parser *parser, const char *body, size_t body_size, void *memory,
                      size_t memory_size, yyjson_val **out_root)
{
    RG_ASSERT(memory_size >= rg_object_info_size_bound(body_size));
    bool has_pool = yyjson_alc_pool_init(&parser->pool, memory, memory_size);
    RG_ASSERT(has_pool);
    /* Without YYJSON_READ_INSITU the text is only read. */
    char *text = (char *)(uintptr_t)body;
    yyjson_doc *doc = yyjson_read_opts(text, body_size, YYJSON_READ_NOFLAG, &parser->pool, NULL);
    *out_root = yyjson_doc_get_root(doc);
    return yyjson_is_obj(*out_root) ? 0 : bad(parser, "is not a JSON object");
}

int rg_object_info_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                         struct rg_object_info **out_info, const char **out_problem)
{
    struct parser parser = {0};
    yyjson_val *root;
    int rc = parse_json(&parser, body, body_size, memory, memory_size, &root);
    if (rc == 0) {
        rc = read_info(&parser, root, out_info);
    }
    if (rc < 0) {
        *out_problem = parser.problem;
    }
    return rc;
}

/* A text of the object's, NULL: none, is what the change makes of it: a null removes. */
static bool has_text(const char *text, yyjson_val *value)
{
    return text == NULL ? yyjson_is_null(value) : yyjson_equals_str(value, text);
}

static bool has_pair(const struct rg_object_info *info, yyjson_val *key, yyjson_val *value)
{
    const char *text = NULL;
    for (size_t i = 0; i < info->metadata_count; i++) {
        if (rg_json_key_is(key, info->metadata[i].key)) {
            text = info->metadata[i].value;
        }
    }
    return has_text(text, value);
}

static bool has_field(const struct rg_object_info *info, yyjson_val *key, yyjson_val *value)
{
    size_t i, count;
    yyjson_val *pair_key, *pair_value;
    bool has = rg_json_key_is(key, "metadata");
    if (has) {
        yyjson_obj_foreach(value, i, count, pair_key, pair_value)
        {
            has &= has_pair(info, pair_key, pair_value);
        }
        return has;
    }
    for (i = 0; i < RG_ARRAY_LEN(texts) && !has; i++) {
        const char *const *text = (const char *const *)((const char *)info + texts[i].offset);
        has = rg_json_key_is(key, texts[i].key) && has_text(*text, value);
    }
    return has;
}

bool rg_object_info_has(const struct rg_object_info *info, const char *change, size_t change_size)
{
    yyjson_doc *doc = yyjson_read(change, change_size, YYJSON_READ_NOFLAG);
    bool has = doc != NULL;
    size_t i, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(yyjson_doc_get_root(doc), i, count, key, value)
    {
        has &= has_field(info, key, value);
    }
    yyjson_doc_free(doc);
    return has;
}

/* Who has which role; the rest of an entry is only told. */
static void say_acl(struct rg_json_writer *writer, yyjson_val *acl)
{
    static const char *const members[] = {"entity", "role"};
    size_t i, count;
    yyjson_val *entry;
    if (yyjson_arr_size(acl) == 0) {
        return; /* not told, or access is by the bucket's policy */
    }
    yyjson_mut_val *list = rg_json_add(writer, writer->root, "acl", yyjson_mut_arr(writer->doc));
    yyjson_arr_foreach(acl, i, count, entry)
    {
        yyjson_mut_val *said = yyjson_mut_arr_add_obj(writer->doc, list);
        for (size_t m = 0; m < RG_ARRAY_LEN(members); m++) {
            rg_json_add_text(writer, said, members[m],
                             yyjson_get_str(yyjson_obj_get(entry, members[m])));
        }
    }
}

/* The key without its version, of which the service takes the newest. 0 or -ENOMEM. */
static int kms_key_copy(yyjson_val *value, char **out_key)
{
    const char *name = yyjson_get_str(value);
    const char *version = name != NULL ? strstr(name, "/cryptoKeyVersions/") : NULL;
    if (name == NULL) {
        return 0;
    }
    *out_key = version != NULL ? strndup(name, (size_t)(version - name)) : strdup(name);
    return *out_key != NULL ? 0 : -ENOMEM;
}

int rg_rewrite_say(const char *resource, size_t resource_size, const char *storage_class,
                   bool is_own_place, struct rg_rewrite_said *out_said)
{
    static const char *const members[] = {
        "contentEncoding", "contentDisposition", "contentLanguage", "cacheControl",
        "customTime",      "metadata",           "contexts",
    };
    yyjson_doc *doc = yyjson_read(resource, resource_size, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc), *value = yyjson_obj_get(root, "contentType");
    struct rg_json_writer writer;
    struct rg_rewrite_said said = {0};
    rg_json_begin(&writer);
    rg_json_add_text(&writer, writer.root, "storageClass", storage_class);
    /* The service wants one, and takes this for what has none. */
    rg_json_add_text(&writer, writer.root, "contentType",
                     yyjson_is_str(value) ? yyjson_get_str(value) : "application/octet-stream");
    for (size_t i = 0; i < RG_ARRAY_LEN(members); i++) {
        value = yyjson_obj_get(root, members[i]);
        if (value != NULL) {
            rg_json_add(&writer, writer.root, members[i], yyjson_val_mut_copy(writer.doc, value));
        }
    }
    if (is_own_place) {
        say_acl(&writer, yyjson_obj_get(root, "acl"));
    }
    int rc = rg_json_write(&writer, &said.body, &said.body_size);
    if (rc == 0 && is_own_place) {
        rc = kms_key_copy(yyjson_obj_get(root, "kmsKeyName"), &said.kms_key);
    }
    yyjson_doc_free(doc);
    if (rc < 0) {
        rg_rewrite_said_fini(&said);
        return rc;
    }
    *out_said = said;
    return 0;
}

void rg_rewrite_said_fini(struct rg_rewrite_said *said)
{
    free(said->body);
    free(said->kms_key);
    *said = (struct rg_rewrite_said){0};
}

static int read_rewrite(struct parser *parser, yyjson_val *root, struct rg_rewrite_answer *answer)
{
    yyjson_val *done = yyjson_obj_get(root, "done"), *token = yyjson_obj_get(root, "rewriteToken");
    if (!yyjson_is_bool(done)) {
        return bad(parser, "does not say whether the copy is done");
    }
    answer->done = yyjson_get_bool(done);
    if (!rg_json_read_u64(yyjson_obj_get(root, "totalBytesRewritten"), &answer->rewritten) ||
        !rg_json_read_u64(yyjson_obj_get(root, "objectSize"), &answer->object_size)) {
        return bad(parser, "does not say how far the copy is");
    }
    if (answer->done) {
        struct rg_object_info *info;
        int rc = read_info(parser, yyjson_obj_get(root, "resource"), &info);
        answer->info = rc == 0 ? info : NULL;
        return rc;
    }
    if (!rg_json_read_text(token, &answer->token) || answer->token[0] == '\0') {
        return bad(parser, "has no token to go on with");
    }
    return 0;
}

int rg_rewrite_answer_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                            struct rg_rewrite_answer *out_answer, const char **out_problem)
{
    struct parser parser = {0};
    struct rg_rewrite_answer answer = {0};
    yyjson_val *root;
    int rc = parse_json(&parser, body, body_size, memory, memory_size, &root);
    if (rc == 0) {
        rc = read_rewrite(&parser, root, &answer);
    }
    if (rc < 0) {
        *out_problem = parser.problem;
        return rc;
    }
    *out_answer = answer;
    return 0;
}

static int read_permissions(struct parser *parser, yyjson_val *value, const char *names,
                            size_t count, bool *granted)
{
    memset(granted, 0, count * sizeof(*granted));
    if (value == NULL || yyjson_is_null(value)) {
        return 0; /* none */
    }
    if (!yyjson_is_arr(value)) {
        return bad(parser, "has permissions that are no array");
    }
    for (size_t n = 0; n < count; n++, names += strlen(names) + 1) {
        size_t i, size;
        yyjson_val *name;
        yyjson_arr_foreach(value, i, size, name)
        {
            granted[n] |= yyjson_equals_str(name, names);
        }
    }
    return 0;
}

int rg_permissions_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                         const char *names, size_t count, bool *granted, const char **out_problem)
{
    struct parser parser = {0};
    yyjson_val *root;
    int rc = parse_json(&parser, body, body_size, memory, memory_size, &root);
    if (rc == 0) {
        rc = read_permissions(&parser, yyjson_obj_get(root, "permissions"), names, count, granted);
    }
    if (rc < 0) {
        *out_problem = parser.problem;
    }
    return rc;
}
