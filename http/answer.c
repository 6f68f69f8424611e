/* See answer.h. */
#include "http/answer.h"

/* RFC 9110 section 15, and what Cloud Storage says of its codes ("Retry strategy": 408, 429 and 5xx
 * may be tried again). A code that is not here means what its class does. */
static const struct row {
    uint16_t code;
    uint16_t status; /* enum rg_status */
    bool throttles;
} rows[] = {
    {304, RG_STATUS_PRECONDITION, false},    /* of a read */
    {401, RG_STATUS_UNAUTHENTICATED, false}, /* the token is missing, unknown or old */
    {403, RG_STATUS_PERMISSION, false},      /* the token is good, and not enough */
    {404, RG_STATUS_NOT_FOUND, false},       /* the object or the bucket */
    {408, RG_STATUS_SERVER, false},          /* it waited in vain for the request: not again */
    {410, RG_STATUS_NOT_FOUND, false},       /* it was there once */
    {412, RG_STATUS_PRECONDITION, false},    /* of a write, or a read that wants a generation */
    {416, RG_STATUS_RANGE, false},           /* behind the end */
    {429, RG_STATUS_THROTTLED, true},        /* too many requests */
    {503, RG_STATUS_SERVER, true},           /* it is overloaded, or says so of a bucket */
};
static const enum rg_status classes[] = {
    RG_STATUS_BAD_RESPONSE, RG_STATUS_BAD_RESPONSE, RG_STATUS_OK,
    RG_STATUS_BAD_RESPONSE, RG_STATUS_BAD_REQUEST,  RG_STATUS_SERVER,
};

static const struct row *row_of(unsigned code)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (rows[i].code == code) {
            return &rows[i];
        }
    }
    return NULL;
}

enum rg_status rg_answer_status(unsigned code)
{
    const struct row *row = row_of(code);
    if (row != NULL) {
        return (enum rg_status)row->status;
    }
    unsigned class = code / 100;
    return class < RG_ARRAY_LEN(classes) ? classes[class] : RG_STATUS_BAD_RESPONSE;
}

bool rg_answer_throttles(unsigned code)
{
    /* Asked for each request, nearly all of which succeed. */
    if (RG_LIKELY(code < 400)) {
        return false;
    }
    const struct row *row = row_of(code);
    return row != NULL && row->throttles;
}
