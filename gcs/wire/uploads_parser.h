/* Answers of the XML API that list multipart uploads: a page of them, in one block of the caller's.
 * Namespaces, prefixes and unknown elements do not matter, and a document type is refused. */
#ifndef RG_GCS_WIRE_UPLOADS_PARSER_H
#define RG_GCS_WIRE_UPLOADS_PARSER_H

#include "runtime/base.h"

#include <errno.h>
#include <ringest/upload.h>

/* A thousand uploads whose names have a thousand bytes, each of them written as a reference. */
#define RG_UPLOADS_BODY_SIZE_MAX RG_MIB(8)

/* A block of this size is enough for any body of at most RG_UPLOADS_BODY_SIZE_MAX. */
size_t rg_uploads_page_size_bound(size_t body_size);

/* Parses a page. *out_page and all it points to lie in `memory`, of at least
 * rg_uploads_page_size_bound(body_size) bytes, aligned as malloc does it; the body may go then.
 * -ENOMEM, or -EBADMSG: the body is no such page, and *out_problem says why, in words that follow
 * "the answer" (static storage). */
int rg_uploads_page_parse(const char *body, size_t body_size, void *memory, size_t memory_size,
                          struct rg_uploads_page **out_page, const char **out_problem);

#endif
