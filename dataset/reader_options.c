/* See reader_options.h. */
#include "dataset/reader_options.h"

#include "gcs/request/client.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void rg_reader_options_init_sized(struct rg_reader_options *options, size_t struct_size)
{
    RG_ASSERT(struct_size >= sizeof(size_t));
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

static void defaults_set(struct rg_reader_options *own)
{
    own->world_size = own->world_size != 0 ? own->world_size : 1;
    own->worker_count = own->worker_count != 0 ? own->worker_count : 1;
    own->batch_size = own->batch_size != 0 ? own->batch_size : 1;
    if (own->window_requests == 0) {
        own->window_requests = RG_WINDOW_REQUESTS_DEFAULT;
    }
    if (own->window_bytes == 0) {
        own->window_bytes = RG_WINDOW_BYTES_DEFAULT;
    }
    if (own->tar_request_bytes == 0) {
        own->tar_request_bytes = RG_TAR_REQUEST_BYTES_DEFAULT;
    }
}

int rg_reader_options_read(struct rg_reader_options *own, const struct rg_reader_options *given,
                           char *error, size_t error_size)
{
    rg_reader_options_init(own);
    memcpy(own, given, RG_MIN(given->struct_size, sizeof(*own)));
    own->struct_size = sizeof(*own);
    defaults_set(own);
    if (own->tar != NULL && own->changed == RG_CHANGED_NEWEST) {
        return rg_explain(error, error_size, -EINVAL,
                          "changed is RG_CHANGED_NEWEST, which a tar index cannot serve: scan the "
                          "shards again to read their newest generations");
    }
    if (own->window_requests > RG_WINDOW_REQUESTS_MAX) {
        return rg_explain(error, error_size, -EINVAL,
                          "window_requests is %u, above the limit of %d", own->window_requests,
                          RG_WINDOW_REQUESTS_MAX);
    }
    if (own->changed > RG_CHANGED_NEWEST) {
        return rg_explain(error, error_size, -EINVAL,
                          "changed is %d, not a value of enum rg_changed", own->changed);
    }
    if (own->prefetch_next && own->indices != NULL) {
        return rg_explain(error, error_size, -EINVAL,
                          "prefetch_next cannot be combined with indices");
    }
    if (own->tar == NULL && own->tar_member_count > 0) {
        return rg_explain(error, error_size, -EINVAL, "tar_members is given without tar");
    }
    return 0;
}

int rg_reader_options_check_indices(const struct rg_reader_options *own, char *error,
                                    size_t error_size)
{
    if (own->state != NULL || own->base != NULL) {
        return rg_explain(error, error_size, -EINVAL,
                          "indices cannot be combined with state or base");
    }
    for (uint64_t i = 0; i < own->index_count; i++) {
        if (own->indices[i] >= own->object_count) {
            return rg_explain(error, error_size, -EINVAL,
                              "indices has %" PRIu64 ", and there are %" PRIu64 " samples",
                              own->indices[i], own->object_count);
        }
    }
    return 0;
}

struct rg_sampler_options rg_reader_options_assignment(const struct rg_reader_options *own)
{
    return (struct rg_sampler_options){
        .count = own->indices != NULL ? own->index_count : own->object_count,
        .seed = own->seed,
        .epoch = own->epoch,
        .shuffle = own->shuffle,
        .rank = own->rank,
        .world_size = own->world_size,
        .worker = own->worker,
        .worker_count = own->worker_count,
        .block_size = own->batch_size,
        .remainder = own->remainder,
    };
}

/* Nothing else in the sampler's options is the caller's. */
int rg_reader_options_refuse_assignment(const struct rg_reader_options *own, char *error,
                                        size_t error_size)
{
    if (own->rank >= own->world_size) {
        return rg_explain(error, error_size, -EINVAL,
                          "rank is %u, and must be below world_size, which is %u", own->rank,
                          own->world_size);
    }
    if (own->worker >= own->worker_count) {
        return rg_explain(error, error_size, -EINVAL,
                          "worker is %u, and must be below worker_count, which is %u", own->worker,
                          own->worker_count);
    }
    return rg_explain(error, error_size, -EINVAL,
                      "remainder is %d, not a value of enum rg_remainder", (int)own->remainder);
}
