/* Answers of the XML API to multipart uploads: a document of a few elements, of which some are of
 * interest. Namespaces and prefixes do not matter, and a document type is refused. */
#ifndef RG_GCS_WIRE_XML_ANSWER_H
#define RG_GCS_WIRE_XML_ANSWER_H

#include "runtime/base.h"

#define RG_XML_NAME_SIZE_MAX 64
/* The longest text that is kept; the service makes upload ids of about a hundred characters. */
#define RG_XML_TEXT_SIZE_MAX 1024
#define RG_XML_DEPTH_MAX 32

struct rg_xml_answer {
    char root[RG_XML_NAME_SIZE_MAX];
    /* The texts of the first elements of these names, "" where there are none. */
    char upload_id[RG_XML_TEXT_SIZE_MAX];
    char code[RG_XML_TEXT_SIZE_MAX], message[RG_XML_TEXT_SIZE_MAX]; /* of an Error */
};

/* 0; -EBADMSG: not well-formed, or a text is too long; -ENOMEM. */
int rg_xml_answer_parse(const char *body, size_t size, struct rg_xml_answer *out_answer);

/* Appends `text` to out[*size] with what XML reserves written as references. False: it does not
 * fit. */
bool rg_xml_append_text(char *out, size_t capacity, size_t *size, const char *text);

#endif
