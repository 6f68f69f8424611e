/* Chunked bodies. Byte 0 is the largest step in which the body arrives, the rest is the body:
 * arriving in steps and whole must yield the same payload, the same end and the same error. */
#include "http/h1_chunked.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    char *payload;
    size_t payload_size, consumed;
    int result;
    struct rg_h1_chunked chunked;
};

static struct outcome decode(const uint8_t *body, size_t size, size_t step)
{
    struct outcome outcome = {.payload = malloc(size + 1)};
    rg_h1_chunked_init(&outcome.chunked);
    while (outcome.consumed < size && !outcome.chunked.finished) {
        size_t arrived = RG_MIN(step, size - outcome.consumed);
        char *block = malloc(arrived);
        memcpy(block, body + outcome.consumed, arrived);
        struct rg_h1_slice piece;
        outcome.result = rg_h1_chunked_decode(&outcome.chunked, block, arrived, &piece);
        if (outcome.result < 0) {
            free(block);
            return outcome;
        }
        RG_ASSERT(outcome.result > 0);
        RG_ASSERT(piece.data >= block);
        RG_ASSERT(piece.data + piece.size <= block + outcome.result);
        memcpy(outcome.payload + outcome.payload_size, piece.data, piece.size);
        outcome.payload_size += piece.size;
        outcome.consumed += (size_t)outcome.result;
        free(block);
    }
    outcome.result = 0;
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct outcome whole = decode(data + 1, size - 1, size);
    struct outcome steps = decode(data + 1, size - 1, 1 + data[0] % 32);
    RG_ASSERT(whole.result == steps.result);
    RG_ASSERT(whole.chunked.error == steps.chunked.error);
    RG_ASSERT(whole.chunked.finished == steps.chunked.finished);
    if (whole.result == 0) {
        RG_ASSERT(whole.consumed == steps.consumed);
        RG_ASSERT(whole.payload_size == steps.payload_size);
        RG_ASSERT(memcmp(whole.payload, steps.payload, whole.payload_size) == 0);
    }
    free(whole.payload);
    free(steps.payload);
    return 0;
}
