/* The removal of many objects by one request (Cloud Storage, "Batch requests"): a multipart/mixed
 * body with a DELETE in each part, and an answer with a status for each. gcs/object/delete_many.c
 * is the operation that sends it.
 *
 * Life: zeroed -> rg_batch_prepare, as a child of the operation -> sent, and done ->
 * rg_batch_outcome says what came of it as a whole -> where it was answered, rg_batch_take what
 * came of each part. */
#ifndef RG_GCS_OBJECT_BATCH_H
#define RG_GCS_OBJECT_BATCH_H

#include "gcs/request/request.h"
#include "gcs/wire/batch_answer.h"

#include <ringest/objects.h>

struct rg_batch {
    struct rg_request request;
    const struct rg_delete *deletes; /* borrowed until it is done and taken */
    uint32_t count;
    uint16_t http_statuses[RG_DELETES_MAX];  /* of the parts of the answer; 0: there was none */
    char *messages;                          /* see rg_batch_message; owned */
    char boundary[RG_BOUNDARY_SIZE_MAX + 1]; /* of the answer */
};

enum rg_batch_outcome {
    RG_BATCH_ANSWERED,   /* each part has its own status, or none */
    RG_BATCH_UNKNOWN,    /* the server knows no batches: nothing was removed */
    RG_BATCH_UNREADABLE, /* it may have been carried out, wholly or in part: nothing says which */
    RG_BATCH_FAILED,     /* and all that it asked for with it */
};

/* 0 or -ENOMEM; `done` as in rg_request_init_child. */
int rg_batch_prepare(struct rg_batch *batch, struct rg_request *parent,
                     const struct rg_delete *deletes, uint32_t count,
                     void (*done)(struct rg_request *request, struct rg_completion *completion));
/* What the completion of a batch says. */
enum rg_batch_outcome rg_batch_outcome(const struct rg_completion *completion);
/* Writes what came of one removal into a zeroed result. True: it is to be tried again, alone. */
bool rg_batch_take(const struct rg_batch *batch, uint32_t index, struct rg_delete_result *result);
/* What the service says about the refusal of one removal, or "". */
const char *rg_batch_message(const struct rg_batch *batch, uint32_t index);
void rg_batch_fini(struct rg_batch *batch);

#endif
