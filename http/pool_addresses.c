/* See pool_addresses.h. */
#include "http/pool_addresses.h"

#include "runtime/errors.h"
#include "runtime/log.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define BIT(state) (1u << (state))

static const uint8_t states_after[] = {
    [RG_POOL_ADDRESSES_UNKNOWN] = BIT(RG_POOL_ADDRESSES_LOOKING_UP),
    [RG_POOL_ADDRESSES_LOOKING_UP] = BIT(RG_POOL_ADDRESSES_KNOWN) | BIT(RG_POOL_ADDRESSES_UNKNOWN),
    [RG_POOL_ADDRESSES_KNOWN] = BIT(RG_POOL_ADDRESSES_LOOKING_UP),
};
static_assert(RG_ARRAY_LEN(states_after) == RG_POOL_ADDRESSES_STATE_COUNT, "every state is listed");

static bool invariants(const struct rg_pool_addresses *addresses)
{
    return rg_pool_addresses_looking_up(addresses) ||
           rg_pool_addresses_known(addresses) == (addresses->state == RG_POOL_ADDRESSES_KNOWN);
}

static void addresses_enter(struct rg_pool_addresses *addresses, enum rg_pool_addresses_state state)
{
    RG_ASSERT(states_after[addresses->state] & BIT(state));
    uint32_t *looking_up = &addresses->loop->stages.opening[RG_OPENING_DNS];
    *looking_up += state == RG_POOL_ADDRESSES_LOOKING_UP;
    *looking_up -= addresses->state == RG_POOL_ADDRESSES_LOOKING_UP;
    addresses->state = (uint8_t)state;
    RG_ASSERT(invariants(addresses));
}

static void look_up_fail(struct rg_pool_addresses *addresses, int error)
{
    struct rg_resolver_failure meaning = rg_resolver_failure(error, addresses->resolve.os_error);
    const char *via = addresses->via != NULL ? addresses->via : "";
    char text[RG_TUNNEL_TEXT_SIZE];
    snprintf(text, sizeof(text), "%s%s%s", via, *via != '\0' ? ": " : "", meaning.text);
    struct rg_transport_failure failure = {
        .status = meaning.status,
        .os_error = addresses->resolve.os_error,
        .text = text,
        .final = meaning.final,
    };
    addresses->looked_up(addresses, &failure);
}

static void resolve_done(struct rg_resolve *resolve, int error, struct rg_addresses *found)
{
    struct rg_pool_addresses *addresses =
        RG_CONTAINER_OF(resolve, struct rg_pool_addresses, resolve);
    uint64_t now_ns = addresses->loop->now_ns;
    rg_histogram_record(&addresses->loop->metrics.phases[RG_PHASE_DNS],
                        now_ns - addresses->started_ns);
    if (error == 0 && rg_candidates_set(&addresses->candidates, found, addresses->local) < 0) {
        rg_addresses_unref(found);
        error = EAI_MEMORY;
    }
    addresses->resolved_ns = now_ns;
    addresses_enter(addresses, rg_pool_addresses_known(addresses) ? RG_POOL_ADDRESSES_KNOWN
                                                                  : RG_POOL_ADDRESSES_UNKNOWN);
    if (error != 0) {
        look_up_fail(addresses, error);
    } else {
        addresses->looked_up(addresses, NULL);
    }
}

void rg_pool_addresses_init(struct rg_pool_addresses *addresses)
{
    RG_ASSERT(addresses->host != NULL && addresses->looked_up != NULL);
    addresses->is_address = rg_resolver_is_address(addresses->host);
    addresses->resolve = (struct rg_resolve){.loop = addresses->loop, .done = resolve_done};
}

void rg_pool_addresses_fini(struct rg_pool_addresses *addresses)
{
    RG_ASSERT(!rg_pool_addresses_looking_up(addresses));
    rg_candidates_fini(&addresses->candidates);
}

void rg_pool_addresses_cancel(struct rg_pool_addresses *addresses)
{
    rg_resolver_cancel(addresses->resolver, &addresses->resolve);
}

void rg_pool_addresses_refresh(struct rg_pool_addresses *addresses)
{
    uint64_t now_ns = addresses->loop->now_ns;
    bool is_fresh =
        rg_pool_addresses_known(addresses) &&
        (addresses->is_address || now_ns - addresses->resolved_ns < RG_POOL_RESOLVE_INTERVAL_NS);
    if (is_fresh || rg_pool_addresses_looking_up(addresses)) {
        return;
    }
    addresses_enter(addresses, RG_POOL_ADDRESSES_LOOKING_UP);
    addresses->started_ns = now_ns;
    rg_resolver_resolve(addresses->resolver, &addresses->resolve, addresses->host, addresses->port);
}

/* A failure that every other attempt at the same address would give too. */
static bool failure_is_final(const struct rg_transport_failure *failure)
{
    return failure->final || !rg_status_retryable(failure->status);
}

/* True where nobody was there to be spoken to: what connect says of an address that a machine has
 * no way to, or at which no server listens. */
static bool failure_is_unreachable(const struct rg_transport_failure *failure)
{
    return failure->status == RG_STATUS_CONNECT && rg_errors_unreachable(failure->os_error);
}

const char *rg_pool_address_text(const struct rg_candidate_use *use,
                                 char out[static INET6_ADDRSTRLEN])
{
    const struct rg_address *address = rg_candidate_address(use);
    strcpy(out, "?");
    (void)getnameinfo((const struct sockaddr *)&address->storage, address->size, out,
                      INET6_ADDRSTRLEN, NULL, 0, NI_NUMERICHOST);
    return out;
}

/* Keeps a failure beyond the connection's life, and says which address it was of. */
static void failure_keep(struct rg_pool_addresses *addresses, const struct rg_candidate_use *use,
                         const struct rg_transport_failure *failure)
{
    struct rg_pool_failure *kept =
        failure_is_final(failure) ? &addresses->final_failure : &addresses->passing_failure;
    uint32_t count = use->addresses->count;
    const char *text = failure->text != NULL ? failure->text : "";
    char address[INET6_ADDRSTRLEN];
    kept->failure = *failure;
    kept->failure.text = failure->text != NULL ? kept->text : NULL;
    snprintf(kept->text, sizeof(kept->text), "%s", text);
    if (count > 1) {
        snprintf(kept->text, sizeof(kept->text), "%s%s%s, one of %u addresses", text,
                 *text != '\0' ? ": " : "", rg_pool_address_text(use, address), count);
        kept->failure.text = kept->text;
    }
    rg_log_some(RG_LOG_INFO, "%s: no connection to %s: %s%s%s%s%s", addresses->name,
                rg_pool_address_text(use, address), rg_status_text(failure->status),
                *kept->text != '\0' ? ": " : "", kept->text, failure->os_error != 0 ? ": " : "",
                failure->os_error != 0 ? rg_error_text(failure->os_error) : "");
}

void rg_pool_addresses_failed(struct rg_pool_addresses *addresses, struct rg_candidate_use *use,
                              const struct rg_transport_failure *failure)
{
    RG_ASSERT(failure->status != RG_STATUS_OK);
    struct rg_candidate_failure kind = {
        .final = failure_is_final(failure),
        .unreachable = failure_is_unreachable(failure),
    };
    failure_keep(addresses, use, failure);
    rg_candidates_failed(&addresses->candidates, use, &kind, addresses->loop->now_ns);
}

const struct rg_transport_failure *rg_pool_addresses_all_failed(struct rg_pool_addresses *addresses)
{
    const struct rg_transport_failure *told = rg_candidates_final(&addresses->candidates)
                                                  ? &addresses->final_failure.failure
                                                  : &addresses->passing_failure.failure;
    RG_ASSERT(told->status != RG_STATUS_OK);
    rg_candidates_round_end(&addresses->candidates);
    return told;
}
