/* A thin layer over expat; see xml.h. */
#include "emulator/wire/xml.h"

#include <expat.h>
#include <string.h>

struct reader {
    const struct rg_xml_sink *sink;
    XML_Parser parser;
    int rc;
    uint32_t depth, text_size;
    char text[RG_XML_TEXT_SIZE_MAX];
};

static void stop(struct reader *reader, int rc)
{
    reader->rc = rc;
    XML_StopParser(reader->parser, XML_FALSE);
}

static const char *local_name(const XML_Char *name)
{
    const char *colon = strrchr(name, ':');
    return colon != NULL ? colon + 1 : name;
}

static void on_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *reader = context;
    (void)attributes;
    if (reader->rc != 0) {
        return;
    }
    reader->text_size = 0;
    int rc = ++reader->depth > RG_XML_DEPTH_MAX ? -EBADMSG : 0;
    rc = rc == 0 && reader->sink->start != NULL
             ? reader->sink->start(reader->sink->context, local_name(name))
             : rc;
    if (rc != 0) {
        stop(reader, rc);
    }
}

static void on_end(void *context, const XML_Char *name)
{
    struct reader *reader = context;
    if (reader->rc != 0) {
        return;
    }
    struct rg_h1_slice text = {reader->text, reader->text_size};
    reader->depth--;
    int rc = reader->sink->end(reader->sink->context, local_name(name), text);
    reader->text_size = 0;
    if (rc != 0) {
        stop(reader, rc);
    }
}

static void on_text(void *context, const XML_Char *text, int size)
{
    struct reader *reader = context;
    if (reader->rc != 0) {
        return;
    }
    if ((size_t)size > sizeof(reader->text) - reader->text_size) {
        stop(reader, -EBADMSG);
        return;
    }
    memcpy(reader->text + reader->text_size, text, (size_t)size);
    reader->text_size += (uint32_t)size;
}

static void on_doctype(void *context, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_internal_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_internal_subset;
    stop(context, -EBADMSG);
}

int rg_xml_read(struct rg_h1_slice document, const struct rg_xml_sink *sink)
{
    struct reader reader = {.sink = sink, .parser = XML_ParserCreate(NULL)};
    if (reader.parser == NULL) {
        return -ENOMEM;
    }
    XML_SetUserData(reader.parser, &reader);
    XML_SetElementHandler(reader.parser, on_start, on_end);
    XML_SetCharacterDataHandler(reader.parser, on_text);
    XML_SetStartDoctypeDeclHandler(reader.parser, on_doctype);
    bool parsed =
        document.size <= INT32_MAX &&
        XML_Parse(reader.parser, document.data, (int)document.size, XML_TRUE) == XML_STATUS_OK;
    XML_ParserFree(reader.parser);
    return reader.rc != 0 ? reader.rc : parsed ? 0 : -EBADMSG;
}
