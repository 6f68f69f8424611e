/* See uploads_parser.h. The block is filled from both ends: entries of uploads from the front,
 * texts from the back. */
#include "gcs/wire/uploads_parser.h"

#include <expat.h>
#include <string.h>

#define DEPTH_MAX 32
/* The shortest upload that is accepted: "<Upload><Key>k</Key><UploadId>i</UploadId></Upload>". */
#define UPLOAD_SIZE_MIN 51

struct reader {
    XML_Parser parser;
    struct rg_uploads_page *page;
    struct rg_unfinished_upload *uploads; /* in the block, behind the page */
    uint8_t *end;                         /* of what is free of the block */
    unsigned depth;
    bool in_upload;
    const char *is_truncated; /* as the answer has it; NULL: it does not say */
    const char *
        *text_place; /* where the current element's text will be pointed to; NULL: nowhere */
    char *text;      /* it ends at the block's end; built from the front of the free space */
    size_t text_size;
    const char *problem;
};

size_t rg_uploads_page_size_bound(size_t body_size)
{
    RG_ASSERT(body_size <= RG_UPLOADS_BODY_SIZE_MAX);
    size_t count = body_size / UPLOAD_SIZE_MIN + 1;
    /* A text has fewer bytes than its element, so there is room for its NUL; and it is collected
     * before it goes to its place. */
    return sizeof(struct rg_uploads_page) + count * sizeof(struct rg_unfinished_upload) +
           2 * (body_size + 1);
}

static void reader_stop(struct reader *reader, const char *problem)
{
    reader->problem = problem;
    XML_StopParser(reader->parser, XML_FALSE);
}

static const char *local_name(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon != NULL ? colon + 1 : name;
}

/* The place of an element's text, unless there was one of the name before. */
static const char **text_place_of(struct reader *reader, const char *name)
{
    struct rg_uploads_page *page = reader->page;
    const char **place = NULL;
    if (reader->in_upload && reader->depth == 3) {
        struct rg_unfinished_upload *upload = &reader->uploads[page->count];
        place = strcmp(name, "Key") == 0         ? &upload->object
                : strcmp(name, "UploadId") == 0  ? &upload->id
                : strcmp(name, "Initiated") == 0 ? &upload->initiated
                                                 : NULL;
    } else if (reader->depth == 2) {
        place = strcmp(name, "NextKeyMarker") == 0        ? &page->next_key_marker
                : strcmp(name, "NextUploadIdMarker") == 0 ? &page->next_id_marker
                : strcmp(name, "IsTruncated") == 0        ? &reader->is_truncated
                                                          : NULL;
    }
    return place != NULL && *place == NULL ? place : NULL;
}

static void element_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *reader = context;
    const char *local = local_name(name);
    (void)attributes;
    if (++reader->depth == 1 && strcmp(local, "ListMultipartUploadsResult") != 0) {
        reader_stop(reader, "is no list of multipart uploads");
        return;
    }
    if (reader->depth > DEPTH_MAX) {
        reader_stop(reader, "is too deep");
        return;
    }
    if (reader->depth == 2 && strcmp(local, "Upload") == 0) {
        reader->in_upload = true;
        reader->uploads[reader->page->count] = (struct rg_unfinished_upload){0};
    }
    reader->text_place = text_place_of(reader, local);
    reader->text_size = 0;
}

static void element_text(void *context, const XML_Char *text, int size)
{
    struct reader *reader = context;
    if (reader->text_place != NULL) {
        memcpy(reader->text + reader->text_size, text, (size_t)size);
        reader->text_size += (size_t)size;
    }
}

static void upload_end(struct reader *reader)
{
    const struct rg_unfinished_upload *upload = &reader->uploads[reader->page->count];
    reader->in_upload = false;
    if (upload->object == NULL || upload->id == NULL) {
        reader_stop(reader, "has an upload without a name or an id");
        return;
    }
    reader->page->count++;
}

static void element_end(void *context, const XML_Char *name)
{
    struct reader *reader = context;
    (void)name;
    if (reader->text_place != NULL && reader->text_size > 0) {
        reader->end -= reader->text_size + 1;
        memcpy(reader->end, reader->text, reader->text_size);
        reader->end[reader->text_size] = '\0';
        *reader->text_place = (const char *)reader->end;
    }
    reader->text_place = NULL;
    if (--reader->depth == 1 && reader->in_upload) {
        upload_end(reader);
    }
}

static void document_type(void *context, const XML_Char *name, const XML_Char *system_id,
                          const XML_Char *public_id, int has_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_subset;
    reader_stop(context, "has a document type");
}

static int document_parse(struct reader *reader, const char *body, size_t size)
{
    reader->parser = XML_ParserCreate("UTF-8");
    if (reader->parser == NULL) {
        return -ENOMEM;
    }
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, element_start, element_end);
    XML_SetCharacterDataHandler(reader->parser, element_text);
    XML_SetStartDoctypeDeclHandler(reader->parser, document_type);
    enum XML_Status status = XML_Parse(reader->parser, body, (int)size, XML_TRUE);
    enum XML_Error error = XML_GetErrorCode(reader->parser);
    XML_ParserFree(reader->parser);
    if (status == XML_STATUS_OK && reader->problem == NULL) {
        return 0;
    }
    if (reader->problem == NULL) {
        reader->problem = "is not XML";
    }
    return error == XML_ERROR_NO_MEMORY ? -ENOMEM : -EBADMSG;
}

int rg_uploads_page_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                          struct rg_uploads_page **out_page, const char **out_problem)
{
    RG_ASSERT(memory_size >= rg_uploads_page_size_bound(body_size));
    struct rg_uploads_page *page = memory;
    struct rg_unfinished_upload *uploads = (struct rg_unfinished_upload *)(page + 1);
    *page = (struct rg_uploads_page){.uploads = uploads};
    struct reader reader = {
        .page = page,
        .uploads = uploads,
        .text = (char *)(uploads + body_size / UPLOAD_SIZE_MIN + 1),
        .end = (uint8_t *)memory + memory_size,
    };
    int rc = document_parse(&reader, body, body_size);
    if (rc < 0) {
        *out_problem = reader.problem != NULL ? reader.problem : "cannot be read";
        return rc;
    }
    const char *truncated = reader.is_truncated != NULL ? reader.is_truncated : "";
    if (strcmp(truncated, "true") == 0 && page->next_key_marker == NULL) {
        *out_problem = "is not the last page, and does not say where the next begins";
        return -EBADMSG;
    }
    if (strcmp(truncated, "false") == 0) {
        /* Where the last page ended, which leads nowhere. */
        page->next_key_marker = page->next_id_marker = NULL;
    }
    *out_page = page;
    return 0;
}
