/* XML documents that clients send, read element by element with expat. Small ones only, and without
 * a document type, so that nothing in them can grow. */
#ifndef RG_EMULATOR_WIRE_XML_H
#define RG_EMULATOR_WIRE_XML_H

#include "http/h1_decoder.h"

/* Of the text in one element, and of elements inside each other. */
#define RG_XML_TEXT_SIZE_MAX 4096
#define RG_XML_DEPTH_MAX 8

struct rg_xml_sink {
    void *context;
    /* Each gets the name without its prefix; `end` also the text directly inside, which is empty
     * for elements that have others inside. What they return other than 0 ends the reading. */
    int (*start)(void *context, const char *name);
    int (*end)(void *context, const char *name, struct rg_h1_slice text);
};

/* 0; -EBADMSG for what is not well-formed or over a limit; -ENOMEM; or what the sink returned. */
int rg_xml_read(struct rg_h1_slice document, const struct rg_xml_sink *sink);

#endif
