/* The body of a multipart upload (RFC 2387) while it is received: a part of JSON, then a part of
 * data, which is handed on where it lies. A protocol core: no clock, no fd. Lines may end in LF
 * alone, as those of some clients do and as the service accepts. */
#ifndef RG_EMULATOR_WIRE_MULTIPART_H
#define RG_EMULATOR_WIRE_MULTIPART_H

#include "emulator/wire/text.h"

#define RG_MULTIPART_BOUNDARY_SIZE_MAX 200
/* Everything before the data. */
#define RG_MULTIPART_PREFACE_SIZE_MAX RG_KIB(64)
/* "\n--" and the boundary. */
#define RG_MULTIPART_DELIMITER_SIZE_MAX (RG_MULTIPART_BOUNDARY_SIZE_MAX + 3)

struct rg_multipart_sink {
    void *context;
    /* The JSON, and the Content-Type of the data (empty without one); once, before any data. What
     * it returns other than 0 ends the feed. */
    int (*metadata)(void *context, struct rg_h1_slice json, struct rg_h1_slice content_type);
    int (*data)(void *context, const uint8_t *data, size_t size);
};

struct rg_multipart {
    enum { RG_MULTIPART_PREFACE, RG_MULTIPART_DATA, RG_MULTIPART_END } stage;
    bool crlf; /* Whether lines of this body end in CRLF, which tells whether a CR is data. */
    uint32_t delimiter_size;
    char delimiter[RG_MULTIPART_DELIMITER_SIZE_MAX];
    struct rg_text preface;
    /* The last bytes of data are held back: the delimiter, with the line end before it, may
     * start in them. */
    uint32_t held_size;
    uint8_t held[RG_MULTIPART_DELIMITER_SIZE_MAX];
};

/* The boundary that a content type names; empty without one. */
struct rg_h1_slice rg_multipart_boundary(struct rg_h1_slice content_type);
/* -EINVAL when the content type names no boundary that can be one. */
int rg_multipart_init(struct rg_multipart *multipart, struct rg_h1_slice content_type);
void rg_multipart_fini(struct rg_multipart *multipart);
/* 0; -EMSGSIZE, -EBADMSG or -ENOMEM; or what the sink returned. When `stage` is RG_MULTIPART_END
 * the data is complete. */
int rg_multipart_feed(struct rg_multipart *multipart, const uint8_t *data, size_t size,
                      const struct rg_multipart_sink *sink);

#endif
