/* Objects are deleted while the list of them is read, each for itself; see delete.h. */
#include "emulator/api/xml/delete.h"

#include "emulator/request/body.h"
#include "emulator/wire/xml.h"

#include <errno.h>

/* Room for 1,000 names with every byte escaped. */
#define LIST_SIZE_MAX (8u << 20)
#define XML_TYPE "application/xml; charset=UTF-8"

/* The state of reading the list. */
struct deletion {
    struct rg_bucket *bucket;
    struct rg_text *text; /* the answer */
    bool quiet, has_key;
    uint32_t count;
    struct rg_store_conditions conditions; /* The object that is being read. */
    uint32_t key_size;
    char key[RG_XML_TEXT_SIZE_MAX];
};

static int on_start(void *context, const char *name)
{
    struct deletion *deletion = context;
    if (strcmp(name, "Object") == 0) {
        deletion->has_key = false;
        deletion->conditions = (struct rg_store_conditions){0};
    }
    return 0;
}

static void append_key(struct deletion *deletion)
{
    rg_text_append_str(deletion->text, "<Key>");
    rg_text_append_xml(deletion->text, deletion->key, deletion->key_size);
    rg_text_append_str(deletion->text, "</Key>");
}

/* An object that is not there counts as deleted, as with the service. */
static int delete_object(struct deletion *deletion)
{
    struct rg_h1_slice name = {deletion->key, deletion->key_size};
    if (!deletion->has_key || ++deletion->count > RG_XML_DELETE_COUNT_MAX) {
        return -EBADMSG;
    }
    int rc = rg_store_object_name_valid(name)
                 ? rg_bucket_remove_object(deletion->bucket, name, &deletion->conditions)
                 : -ENOENT;
    if (rc < 0 && rc != -ENOENT) {
        rg_text_append_str(deletion->text, "<Error>");
        append_key(deletion);
        rg_text_append_str(deletion->text, "<Code>InternalError</Code></Error>");
    } else if (!deletion->quiet) {
        rg_text_append_str(deletion->text, "<Deleted>");
        append_key(deletion);
        rg_text_append_str(deletion->text, "</Deleted>");
    }
    return 0;
}

static int on_end(void *context, const char *name, struct rg_h1_slice text)
{
    struct deletion *deletion = context;
    if (strcmp(name, "Key") == 0) {
        deletion->has_key = true;
        deletion->key_size = text.size;
        memcpy(deletion->key, text.data, text.size);
    } else if (strcmp(name, "Quiet") == 0) {
        deletion->quiet = rg_text_equals(text, "true");
    } else if (strcmp(name, "VersionId") == 0 || strcmp(name, "Generation") == 0) {
        deletion->conditions.generation.set = true;
        return rg_text_parse_int64(text, &deletion->conditions.generation.value) < 0 ? -EBADMSG : 0;
    } else if (strcmp(name, "Object") == 0) {
        return delete_object(deletion);
    }
    return 0;
}

static void finish_delete(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    struct deletion deletion = {.text = &rg_call_of(call)->text,
                                .bucket = rg_reply_find_bucket(call, request)};
    const struct rg_xml_sink sink = {&deletion, on_start, on_end};
    if (deletion.bucket == NULL) {
        return;
    }
    rg_text_append_str(deletion.text,
                       "<?xml version='1.0' encoding='UTF-8'?>"
                       "<DeleteResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>");
    if (rg_xml_read(body, &sink) < 0 || deletion.count == 0) {
        rg_reply_error(call, RG_API_XML,
                       "The XML you provided was not well-formed, or names not 1 to 1000 objects.");
        return;
    }
    rg_text_append_str(deletion.text, "</DeleteResult>");
    rg_reply_text(call, 200, XML_TYPE);
}

void rg_xml_delete_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, LIST_SIZE_MAX, finish_delete);
}
