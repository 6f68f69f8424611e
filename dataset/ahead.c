/* See ahead.h. */
#include "dataset/ahead.h"

#include "dataset/plan.h"
#include "dataset/reader_options.h"
#include "gcs/request/cached_look.h"
#include "gcs/request/client.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdlib.h>

/* Completions that are taken off at a time. */
#define AT_ONCE 64

enum ahead_state { WAITING, ASKING, ASKED };

struct rg_ahead {
    struct rg_client *client; /* borrowed, as is this: */
    const struct rg_sampler *present;
    struct rg_cq *cq; /* owned; of the requests */
    struct rg_source source;
    struct rg_sampler sampler;
    struct rg_window window;
    struct rg_plan plan;
    uint64_t refused; /* by the cache, when the present epoch began */
    uint32_t out;     /* requests */
    enum ahead_state state;
    char name[RG_OBJECT_NAME_SIZE_MAX + 1]; /* of the object that is being asked for */
};

static bool invariants(const struct rg_ahead *ahead)
{
    return ahead->out <= ahead->window.counts[RG_SLOT_OUT] &&
           (ahead->state != WAITING || ahead->window.next == 0);
}

static const char *const state_names[] = {"WAITING", "ASKING", "ASKED"};

/* The only place that changes the state. */
static void ahead_become(struct rg_ahead *self, enum ahead_state state)
{
    RG_ASSERT(state > self->state);
    rg_log(RG_LOG_DEBUG, "beginning of the next epoch: %s", state_names[state]);
    self->state = state;
}

static int order_open(struct rg_ahead *self, const struct rg_reader_options *options)
{
    struct rg_sampler_options assignment = rg_reader_options_assignment(options);
    assignment.epoch++;
    return rg_sampler_init(&self->sampler, &assignment);
}

/* Requests have the sizes that they will have in the next epoch, and half of its window. */
static int plan_open(struct rg_ahead *self, const struct rg_reader_options *options,
                     uint64_t memory_max)
{
    const struct rg_window_options window = {
        .total = RG_MIN(self->sampler.total, (uint64_t)(options->window_requests + 1) / 2),
        .requests_max = options->window_requests,
        .bytes_max = RG_MIN(options->window_bytes, memory_max / 2),
    };
    int rc = rg_window_init(&self->window, &window, 0, NULL, 0);
    if (rc == 0) {
        self->plan = (struct rg_plan){
            .window = &self->window, .source = &self->source, .sampler = &self->sampler};
        rg_plan_limit(&self->plan, options->tar_request_bytes);
        self->window.options.bytes_max /= 2;
    }
    return rc;
}

static int ahead_setup(struct rg_ahead *self, const struct rg_reader_options *options, char *error,
                       size_t error_size)
{
    int rc = rg_source_open(&self->source, options, error, error_size);
    rc = rc == 0 ? order_open(self, options) : rc;
    rc = rc == 0 ? plan_open(self, options, self->client->runtime->memory_max) : rc;
    return rc == 0 ? rg_cq_open(&self->cq, self->client->runtime, self->window.capacity) : rc;
}

int rg_ahead_open(struct rg_ahead **out_ahead, struct rg_client *client,
                  const struct rg_reader_options *options, const struct rg_sampler *present,
                  char *error, size_t error_size)
{
    uint64_t refused = rg_cached_refused(client);
    *out_ahead = NULL;
    if (refused == UINT64_MAX || options->world_size == 1) {
        return 0;
    }
    struct rg_ahead *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return -ENOMEM;
    }
    self->client = client;
    self->present = present;
    self->refused = refused;
    int rc = ahead_setup(self, options, error, error_size);
    if (rc < 0) {
        rg_ahead_close(self, NULL, true);
        return rc;
    }
    RG_VERIFY(invariants(self));
    *out_ahead = self;
    return 0;
}

static void bodies_drop(struct rg_ahead *self)
{
    struct rg_completion done[AT_ONCE];
    int count = 1;
    while (self->out > 0 && count > 0) {
        count = rg_cq_poll(self->cq, done, AT_ONCE);
        for (int i = 0; i < count; i++) {
            rg_lease_release(done[i].lease);
            self->out--;
        }
    }
}

static int request_submit(struct rg_ahead *self, const struct rg_get *get,
                          const struct rg_source_item *item)
{
    if (item->piece_count <= 1) {
        return rg_submit_get(self->client, self->cq, get);
    }
    struct rg_range ranges[RG_TAR_MEMBERS_MAX];
    struct rg_get_ranges all = rg_plan_ranges(get, item, ranges);
    return rg_submit_get_ranges(self->client, self->cq, &all);
}

/* Whether a planned request would bring something that the cache neither has nor gets anyway. */
static bool is_of_use(const struct rg_ahead *self, const struct rg_get *get,
                      const struct rg_source_item *item)
{
    bool is_own = true;
    uint64_t last = get->user_data + rg_window_slot(&self->window, get->user_data)->followers;
    for (uint64_t number = get->user_data; is_own && number <= last; number++) {
        is_own = rg_sampler_is_ranks(self->present, rg_window_slot(&self->window, number)->index);
    }
    return !is_own && rg_cached_is_missing(self->client, get,
                                           get->length == RG_WHOLE ? item->size : get->length);
}

/* False: the client has no room for more now. */
static bool requests_make(struct rg_ahead *self)
{
    struct rg_get get;
    struct rg_source_item item;
    while (rg_plan_next(&self->plan, self->name, &get, &item)) {
        int rc = is_of_use(self, &get, &item) ? request_submit(self, &get, &item) : -EALREADY;
        if (rc >= 0) {
            self->out++;
        } else if (rc == -EALREADY || rc == -EINVAL) {
            rg_plan_refuse(&self->plan, get.user_data, RG_STATUS_OK);
        } else {
            rg_window_postpone(&self->window, get.user_data);
            return false;
        }
    }
    return true;
}

void rg_ahead_step(struct rg_ahead *self, const struct rg_window *present)
{
    bodies_drop(self);
    if (self->state == WAITING && rg_window_is_ending(present)) {
        ahead_become(self, ASKING);
    }
    if (self->state == ASKING &&
        (rg_cached_refused(self->client) != self->refused || requests_make(self))) {
        ahead_become(self, ASKED);
    }
    RG_VERIFY(invariants(self));
}

/* Ends what is out. */
static void requests_cancel(struct rg_ahead *self, struct rg_client *client)
{
    if (client != NULL) {
        rg_client_cancel_all(client, self->cq);
    }
    while (self->out > 0) {
        struct rg_completion done;
        if (rg_cq_wait(self->cq, &done, 1, 1, RG_FOREVER) == 1) {
            rg_lease_release(done.lease);
            self->out--;
        }
    }
}

void rg_ahead_close(struct rg_ahead *self, struct rg_client *client, bool is_owner)
{
    if (self == NULL) {
        return;
    }
    if (self->cq != NULL && is_owner) {
        requests_cancel(self, client);
    }
    rg_cq_close(self->cq);
    rg_window_fini(&self->window, NULL);
    rg_source_close(&self->source);
    free(self);
}
