/* XML documents that clients send, read element by element with expat. They are small, and have
 * no document type, so that no entity can expand. */
#ifndef RG_EMULATOR_WIRE_XML_H
#define RG_EMULATOR_WIRE_XML_H

#include "http/h1_decoder.h"

/* Limits of the text in one element, and of the depth of elements. */
#define RG_XML_TEXT_SIZE_MAX 4096
#define RG_XML_DEPTH_MAX 8

struct rg_xml_sink {
    void *context;
    /* Both get an element's name without its prefix. `end` also gets the text directly inside,
     * which is empty for an element with others inside. Reading ends when one returns anything
     * but 0. */
    int (*start)(void *context, const char *name);
    int (*end)(void *context, const char *name, struct rg_h1_slice text);
};

/* 0; -EBADMSG for what is not well-formed or over a limit; -ENOMEM; or what the sink returned. */
int rg_xml_read(struct rg_h1_slice document, const struct rg_xml_sink *sink);

#endif
