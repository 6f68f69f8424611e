/* yyjson over a pool in the caller's block: first its copy of the body, in which it ends strings
 * with a NUL, then its values, then our arrays. See list_parser.h. */
#include "gcs/wire/list_parser.h"

#include "gcs/wire/json.h"

/* The shortest object and prefix that are accepted: {"name":"x"} and "x" */
#define ITEM_SIZE_MIN 12
#define PREFIX_SIZE_MIN 3
/* yyjson_read_max_memory_usage reckons with a value for every two bytes of the body, of 16 bytes
 * each and with a growth factor of 1.5. The three values of an object and the one of a prefix need
 * less, and leave room for our arrays. */
#define ROOM_PER_BYTE 12
#define ROOM_PER_VALUE 24
static_assert(ITEM_SIZE_MIN * ROOM_PER_BYTE - 3 * ROOM_PER_VALUE >= sizeof(struct rg_object),
              "an object's values leave room for it");
static_assert(PREFIX_SIZE_MIN * ROOM_PER_BYTE - ROOM_PER_VALUE >= sizeof(char *),
              "a prefix's value leaves room for it");
/* The page, alignment, and the pool's headers. */
#define MEMORY_OVERHEAD 512

struct parser {
    yyjson_alc pool;
    size_t body_size;
    const char *problem; /* why the last step failed, unless with -ENOSPC */
};

size_t rg_list_page_size_bound(size_t body_size)
{
    RG_ASSERT(body_size <= RG_LIST_BODY_SIZE_MAX);
    return yyjson_read_max_memory_usage(body_size, YYJSON_READ_NOFLAG) + MEMORY_OVERHEAD;
}

static int bad(struct parser *parser, const char *problem)
{
    parser->problem = problem;
    return -EBADMSG;
}

/* NULL when the pool is used up. The pool does not take 0. */
static void *allocate(struct parser *parser, size_t size)
{
    return parser->pool.malloc(parser->pool.ctx, RG_MAX(size, sizeof(void *)));
}

/* The document's root is an object. With a NULL pool yyjson allocates. */
static int parse_json(struct parser *parser, const char *body, yyjson_alc *pool,
                      yyjson_doc **out_doc)
{
    yyjson_read_err error;
    /* Without YYJSON_READ_INSITU the text is only read. */
    char *text = (char *)(uintptr_t)body;
    yyjson_doc *doc = yyjson_read_opts(text, parser->body_size, YYJSON_READ_NOFLAG, pool, &error);
    if (doc == NULL) {
        return error.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION ? -ENOSPC
                                                                 : bad(parser, "is not JSON");
    }
    if (!yyjson_is_obj(yyjson_doc_get_root(doc))) {
        yyjson_doc_free(doc);
        return bad(parser, "is not a JSON object");
    }
    *out_doc = doc;
    return 0;
}

static int read_object(struct parser *parser, yyjson_val *resource, struct rg_object *object)
{
    *object = (struct rg_object){0};
    if (!yyjson_is_obj(resource)) {
        return bad(parser, "has an object that is not a JSON object");
    }
    size_t i, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(resource, i, count, key, value)
    {
        if (yyjson_is_null(value)) {
            continue;
        }
        if (rg_json_key_is(key, "name")) {
            if (!rg_json_read_text(value, &object->name) || object->name[0] == '\0') {
                return bad(parser, "has an object whose name is no text");
            }
        } else if (rg_json_key_is(key, "size")) {
            if (!rg_json_read_u64(value, &object->size)) {
                return bad(parser, "has an object whose size is no number");
            }
        } else if (rg_json_key_is(key, "generation")) {
            if (!rg_json_read_i64(value, &object->generation)) {
                return bad(parser, "has an object whose generation is no number");
            }
        } else if (rg_json_key_is(key, "crc32c")) {
            if (!rg_json_read_crc32c(value, &object->crc32c)) {
                return bad(parser, "has an object whose CRC32C is not one");
            }
            object->has_crc32c = true;
        } else if (rg_json_key_is(key, "updated")) {
            if (!rg_json_read_text(value, &object->updated)) {
                return bad(parser, "has an object whose time is no text");
            }
        }
    }
    return 0;
}

static int read_items(struct parser *parser, yyjson_val *items, struct rg_list_page *page)
{
    if (!yyjson_is_arr(items)) {
        return bad(parser, "has items that are no array");
    }
    size_t i, count = yyjson_arr_size(items);
    if (count > parser->body_size / ITEM_SIZE_MIN) {
        return bad(parser, "has an object without a name");
    }
    struct rg_object *objects = allocate(parser, count * sizeof(*objects));
    if (objects == NULL) {
        return -ENOSPC;
    }
    yyjson_val *item;
    yyjson_arr_foreach(items, i, count, item)
    {
        int error = read_object(parser, item, &objects[i]);
        if (error < 0) {
            return error;
        }
        if (objects[i].name == NULL) {
            return bad(parser, "has an object without a name");
        }
    }
    page->objects = objects;
    page->object_count = count;
    return 0;
}

static int read_prefixes(struct parser *parser, yyjson_val *values, struct rg_list_page *page)
{
    if (!yyjson_is_arr(values)) {
        return bad(parser, "has prefixes that are no array");
    }
    size_t i, count = yyjson_arr_size(values);
    if (count > parser->body_size / PREFIX_SIZE_MIN) {
        return bad(parser, "has a prefix that is no text");
    }
    const char **prefixes = allocate(parser, count * sizeof(*prefixes));
    if (prefixes == NULL) {
        return -ENOSPC;
    }
    yyjson_val *value;
    yyjson_arr_foreach(values, i, count, value)
    {
        if (!rg_json_read_text(value, &prefixes[i]) || prefixes[i][0] == '\0') {
            return bad(parser, "has a prefix that is no text");
        }
    }
    page->prefixes = prefixes;
    page->prefix_count = count;
    return 0;
}

static int read_page(struct parser *parser, yyjson_val *root, struct rg_list_page *page)
{
    yyjson_val *items = NULL, *prefixes = NULL, *token = NULL;
    size_t i, count;
    yyjson_val *key, *value;
    yyjson_obj_foreach(root, i, count, key, value)
    {
        if (rg_json_key_is(key, "items")) {
            items = value;
        } else if (rg_json_key_is(key, "prefixes")) {
            prefixes = value;
        } else if (rg_json_key_is(key, "nextPageToken")) {
            token = value;
        }
    }
    *page = (struct rg_list_page){0};
    int error = 0;
    if (items != NULL && !yyjson_is_null(items)) {
        error = read_items(parser, items, page);
    }
    if (error == 0 && prefixes != NULL && !yyjson_is_null(prefixes)) {
        error = read_prefixes(parser, prefixes, page);
    }
    if (error == 0 && token != NULL && !yyjson_is_null(token)) {
        if (!rg_json_read_text(token, &page->next_page_token)) {
            return bad(parser, "has a page token that is no text");
        }
        if (page->next_page_token[0] == '\0') {
            page->next_page_token = NULL;
        }
    }
    return error;
}

static int parse_page(struct parser *parser, const char *body, struct rg_list_page **out_page)
{
    yyjson_doc *doc;
    int error = parse_json(parser, body, &parser->pool, &doc);
    if (error < 0) {
        return error;
    }
    struct rg_list_page *page = allocate(parser, sizeof(*page));
    if (page == NULL) {
        return -ENOSPC;
    }
    *out_page = page;
    return read_page(parser, yyjson_doc_get_root(doc), page);
}

int rg_list_page_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                       struct rg_list_page **out_page, const char **out_problem)
{
    RG_ASSERT(body_size <= RG_LIST_BODY_SIZE_MAX);
    struct parser parser = {.body_size = body_size};
    if (!yyjson_alc_pool_init(&parser.pool, memory, memory_size)) {
        return -ENOSPC;
    }
    struct rg_list_page *page = NULL;
    int error = parse_page(&parser, body, &page);
    if (error == -ENOSPC && memory_size >= rg_list_page_size_bound(body_size)) {
        /* Nested arrays that are never closed are all that yyjson needs more for. */
        error = bad(&parser, "is not JSON");
    }
    if (error == -EBADMSG) {
        *out_problem = parser.problem;
    }
    if (error == 0) {
        *out_page = page;
    }
    return error;
}

static void read_nonce(yyjson_val *resource, char out_nonce[RG_NONCE_SIZE + 1])
{
    yyjson_val *nonce = yyjson_obj_get(yyjson_obj_get(resource, "metadata"), RG_NONCE_KEY);
    if (yyjson_is_str(nonce) && yyjson_get_len(nonce) == RG_NONCE_SIZE) {
        memcpy(out_nonce, yyjson_get_str(nonce), RG_NONCE_SIZE);
    }
}

static void read_created(yyjson_val *resource, char *out, size_t capacity)
{
    const char *text = yyjson_get_str(yyjson_obj_get(resource, "timeCreated"));
    if (text != NULL && strspn(text, "0123456789-+:.TZ") == strlen(text) &&
        strlen(text) < capacity) {
        strcpy(out, text);
    }
}

int rg_object_resource_parse(const char *body, size_t body_size,
                             struct rg_object_resource *out_resource, const char **out_problem)
{
    struct parser parser = {.body_size = body_size, .problem = "needs more memory than there is"};
    struct rg_object object;
    char nonce[RG_NONCE_SIZE + 1] = "", created[sizeof(out_resource->created)] = "";
    yyjson_doc *doc = NULL;
    int error = parse_json(&parser, body, NULL, &doc);
    if (error == 0) {
        read_nonce(yyjson_doc_get_root(doc), nonce);
        read_created(yyjson_doc_get_root(doc), created, sizeof(created));
        error = read_object(&parser, yyjson_doc_get_root(doc), &object);
    }
    yyjson_doc_free(doc);
    if (error < 0) {
        *out_problem = parser.problem;
        return error == -ENOSPC ? -ENOMEM : error;
    }
    *out_resource = (struct rg_object_resource){
        .size = object.size,
        .generation = object.generation,
        .crc32c = object.crc32c,
        .has_crc32c = object.has_crc32c,
    };
    memcpy(out_resource->nonce, nonce, sizeof(nonce));
    memcpy(out_resource->created, created, sizeof(created));
    return 0;
}
