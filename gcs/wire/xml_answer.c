/* See xml_answer.h. */
#include "gcs/wire/xml_answer.h"

#include <errno.h>
#include <expat.h>
#include <string.h>

struct reader {
    XML_Parser parser;
    struct rg_xml_answer *answer;
    unsigned depth;
    char *text; /* where the text of the current element goes; NULL: nowhere */
    size_t text_size;
    bool bad;
};

static void reader_stop(struct reader *reader)
{
    reader->bad = true;
    XML_StopParser(reader->parser, XML_FALSE);
}

/* Without its prefix. */
static const char *local_name(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon != NULL ? colon + 1 : name;
}

/* The place of an element's text, unless it has been there before. */
static char *text_of(struct rg_xml_answer *answer, const char *name)
{
    char *text = NULL;
    if (strcmp(name, "UploadId") == 0) {
        text = answer->upload_id;
    } else if (strcmp(name, "Code") == 0) {
        text = answer->code;
    } else if (strcmp(name, "Message") == 0) {
        text = answer->message;
    }
    return text != NULL && *text == '\0' ? text : NULL;
}

static void element_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *reader = context;
    (void)attributes;
    const char *local = local_name(name);
    if (reader->depth++ == 0) {
        if (strlen(local) >= RG_XML_NAME_SIZE_MAX) {
            reader_stop(reader);
            return;
        }
        strcpy(reader->answer->root, local);
    }
    if (reader->depth > RG_XML_DEPTH_MAX) {
        reader_stop(reader);
        return;
    }
    reader->text = text_of(reader->answer, local);
    reader->text_size = 0;
}

static void element_end(void *context, const XML_Char *name)
{
    struct reader *reader = context;
    (void)name;
    reader->depth--;
    reader->text = NULL;
}

static void element_text(void *context, const XML_Char *text, int size)
{
    struct reader *reader = context;
    if (reader->text == NULL) {
        return;
    }
    if ((size_t)size >= RG_XML_TEXT_SIZE_MAX - reader->text_size) {
        reader_stop(reader);
        return;
    }
    memcpy(reader->text + reader->text_size, text, (size_t)size);
    reader->text_size += (size_t)size;
    reader->text[reader->text_size] = '\0';
}

static void document_type(void *context, const XML_Char *name, const XML_Char *system_id,
                          const XML_Char *public_id, int has_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_subset;
    reader_stop(context);
}

int rg_xml_answer_parse(const char *body, size_t size, struct rg_xml_answer *out_answer)
{
    *out_answer = (struct rg_xml_answer){.root = ""};
    if (size > INT32_MAX) {
        return -EBADMSG;
    }
    struct reader reader = {.parser = XML_ParserCreate(NULL), .answer = out_answer};
    if (reader.parser == NULL) {
        return -ENOMEM;
    }
    XML_SetUserData(reader.parser, &reader);
    XML_SetElementHandler(reader.parser, element_start, element_end);
    XML_SetCharacterDataHandler(reader.parser, element_text);
    XML_SetStartDoctypeDeclHandler(reader.parser, document_type);
    enum XML_Status status = XML_Parse(reader.parser, body, (int)size, XML_TRUE);
    enum XML_Error error = XML_GetErrorCode(reader.parser);
    XML_ParserFree(reader.parser);
    if (status != XML_STATUS_OK || reader.bad) {
        return error == XML_ERROR_NO_MEMORY ? -ENOMEM : -EBADMSG;
    }
    return 0;
}

bool rg_xml_append_text(char *out, size_t capacity, size_t *size, const char *text)
{
    static const struct {
        char character;
        const char *reference;
    } references[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}};
    for (; *text != '\0'; text++) {
        char plain[2] = {*text, '\0'};
        const char *piece = plain;
        for (size_t i = 0; i < RG_ARRAY_LEN(references); i++) {
            piece = *text == references[i].character ? references[i].reference : piece;
        }
        size_t piece_size = strlen(piece);
        if (piece_size > capacity - *size) {
            return false;
        }
        memcpy(out + *size, piece, piece_size);
        *size += piece_size;
    }
    return true;
}
