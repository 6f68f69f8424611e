/* Decompressing objects that are stored with gzip for clients that do not accept it. */
#ifndef RG_EMULATOR_API_GUNZIP_H
#define RG_EMULATOR_API_GUNZIP_H

#include "emulator/store/model/object.h"
#include "emulator/wire/text.h"

/* Limit of the decompressed size: all of it is in memory while it is sent. */
#define RG_GUNZIP_SIZE_MAX (UINT64_C(1) << 30)

/* Appends the bytes of an open object, decompressed, to `out`. 0; -EBADMSG when they are not gzip;
 * -EMSGSIZE; -ENOMEM. */
int rg_gunzip(struct rg_store_object *object, struct rg_text *out);

#endif
