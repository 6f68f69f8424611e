/* See transport_input.h. */
#include "http/transport_input.h"

#include <errno.h>
#include <stdlib.h>

#define BIT(state) (1u << (state))

static const uint8_t states_after[] = {
    [RG_TRANSPORT_FLOWING] = BIT(RG_TRANSPORT_DELIVERING) | BIT(RG_TRANSPORT_BLOCKED),
    [RG_TRANSPORT_DELIVERING] = BIT(RG_TRANSPORT_FLOWING) | BIT(RG_TRANSPORT_PAUSED),
    [RG_TRANSPORT_PAUSED] = BIT(RG_TRANSPORT_RESUMING),
    [RG_TRANSPORT_RESUMING] = BIT(RG_TRANSPORT_DELIVERING),
    [RG_TRANSPORT_BLOCKED] = BIT(RG_TRANSPORT_FLOWING),
};
static_assert(RG_ARRAY_LEN(states_after) == RG_TRANSPORT_INPUT_STATE_COUNT,
              "every state is listed");

/* Between two calls. */
static bool invariants(const struct rg_transport_input *input)
{
    bool kept = input->stash != NULL && input->in.data >= input->stash;
    return input->state == RG_TRANSPORT_FLOWING ? input->stash == NULL && input->in.size == 0
                                                : input->in.size == 0 || kept;
}

void rg_transport_input_enter(struct rg_transport_input *input, enum rg_transport_input_state state)
{
    RG_ASSERT(states_after[input->state] & BIT(state));
    input->state = (uint8_t)state;
}

void rg_transport_input_drop(struct rg_transport_input *input)
{
    free(input->stash);
    input->stash = NULL;
    input->in = (struct rg_tls_in){0};
}

int rg_transport_input_end(struct rg_transport_input *input)
{
    RG_ASSERT(input->state != RG_TRANSPORT_DELIVERING);
    if (input->state == RG_TRANSPORT_FLOWING) {
        rg_transport_input_drop(input);
    } else if (input->in.size > 0 && input->stash == NULL) {
        uint8_t *stash = malloc(input->in.size);
        if (stash == NULL) {
            input->in = (struct rg_tls_in){0};
            return -ENOMEM;
        }
        memcpy(stash, input->in.data, input->in.size);
        input->in.data = stash;
        input->stash = stash;
    }
    RG_VERIFY(invariants(input));
    return 0;
}
