/* See flow.h. */
#include "dataset/flow.h"

#include "dataset/offers.h"
#include "gcs/request/client.h"
#include "runtime/baton.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdlib.h>

/* The place of the record that ends the epoch. */
#define PLACE_OF_END UINT64_MAX

enum flow_state { FLOWING, ENDED, CLOSED };

struct rg_flow {
    struct rg_cq_source source;     /* in the caller's queue */
    struct rg_cq_listener listener; /* of the intake's queue */
    struct rg_client_user user;
    struct rg_baton baton;
    _Atomic uint64_t holders; /* the reader, and each record in the caller's queue */
    struct rg_offers offers;
    uint64_t user_data;
    struct rg_cq *cq;
    struct rg_loop *loop; /* of the alarm */
    struct rg_alarm alarm;
    struct rg_mail alarm_mail;
    uint64_t alarm_ns;
    _Atomic bool is_ticking; /* the alarm is set, or about to be */
    _Atomic bool has_ticked; /* since the pump was last run */
    _Atomic bool end_is_taken;
    _Atomic uint64_t seen;   /* completions that the pump has noted */
    _Atomic uint64_t due_at; /* with so many the pump is due, even if nobody waits */
    /* Of the holder of the baton: */
    enum flow_state state;
    struct rg_intake *intake; /* NULL: closed */
    uint64_t noted;           /* by the intake, at the last tick */
    bool is_stuck;            /* for want of memory, which what is in the queue may hold */
};

static struct rg_flow *of_source(struct rg_cq_source *source)
{
    return RG_CONTAINER_OF(source, struct rg_flow, source);
}

static const char *const state_names[] = {"FLOWING", "ENDED", "CLOSED"};

/* The only place that changes the state. */
static void flow_become(struct rg_flow *self, enum flow_state state)
{
    RG_ASSERT(state > self->state);
    rg_log(RG_LOG_DEBUG, "flow of a reader: %s", state_names[state]);
    self->state = state;
}

static void flow_free(struct rg_flow *self)
{
    rg_offers_fini(&self->offers);
    free(self);
}

static void holders_drop(struct rg_flow *self, uint64_t count)
{
    if (atomic_fetch_sub_explicit(&self->holders, count, memory_order_acq_rel) == count) {
        rg_baton_fini(&self->baton);
        flow_free(self);
    }
}

static void taken_note(struct rg_flow *self)
{
    uint64_t numbers[RG_INTAKE_AT_ONCE];
    uint32_t count;
    do {
        count = rg_offers_collect(&self->offers, numbers, RG_INTAKE_AT_ONCE);
        for (uint32_t i = 0; i < count; i++) {
            rg_window_taken(&self->intake->window, numbers[i]);
        }
    } while (count == RG_INTAKE_AT_ONCE);
}

static void records_publish(struct rg_flow *self, struct rg_completion *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        records[i].user_data = self->user_data;
        records[i].sample_index = (uintptr_t)&self->source;
    }
    atomic_fetch_add_explicit(&self->holders, count, memory_order_relaxed);
    rg_cq_publish(self->cq, records, count);
}

/* Offers a batch of samples. False: there are no more, or no slots, or no places: the thread that
 * holds those up by a sample that it has taken runs the pump when it has marked it. */
static bool samples_offer_some(struct rg_flow *self)
{
    struct rg_window *window = &self->intake->window;
    uint32_t places = RG_MIN(rg_offers_room(&self->offers), (uint32_t)RG_INTAKE_AT_ONCE);
    uint32_t count = rg_window_offerable(window, places);
    int reserved = count > 0 ? rg_cq_source_reserve(self->cq, count) : 0;
    struct rg_completion records[RG_INTAKE_AT_ONCE];
    for (int i = 0; i < reserved; i++) {
        struct rg_sample sample;
        bool is_offered = rg_window_offer(window, &sample);
        RG_ASSERT(is_offered);
        records[i] = sample.completion;
        records[i].sample_number = rg_offers_add(&self->offers, sample.index, sample.number);
    }
    if (reserved > 0) {
        /* That it comes to rest afterwards is told to who waits for more. */
        rg_cq_source_become(self->cq, &self->source, RG_CQ_SOURCE_FLOWING);
        records_publish(self, records, (uint32_t)reserved);
    }
    return count > 0 && (uint32_t)reserved == count;
}

/* Whether no sample will come any more: the epoch is over, or its client was closed. */
static bool is_at_end(const struct rg_flow *self)
{
    const struct rg_intake *intake = self->intake;
    return rg_window_is_offered(&intake->window) ||
           (intake->client == NULL && rg_intake_out(intake) == 0 &&
            !rg_window_can_take(&intake->window));
}

static void end_offer(struct rg_flow *self)
{
    if (self->state != FLOWING || !is_at_end(self) || rg_cq_source_reserve(self->cq, 1) == 0) {
        return;
    }
    bool is_over = rg_window_is_offered(&self->intake->window);
    flow_become(self, ENDED);
    struct rg_completion end = {
        .status = is_over ? RG_STATUS_END : RG_STATUS_CLOSED,
        .detail = is_over ? NULL : "the client was closed before the epoch was over",
        .sample_number = PLACE_OF_END,
    };
    rg_cq_source_become(self->cq, &self->source, RG_CQ_SOURCE_FLOWING);
    records_publish(self, &end, 1);
}

/* Where what is out waits for memory, and nothing has come since the last tick: makes room, or lets
 * a thread have what is there that waits for more. */
static void memory_look(struct rg_flow *self)
{
    struct rg_intake *intake = self->intake;
    bool is_quiet = intake->noted == self->noted;
    self->noted = intake->noted;
    if (!is_quiet || intake->client == NULL || rg_intake_out(intake) == 0 ||
        !rg_runtime_is_starved(intake->client->runtime)) {
        return;
    }
    bool is_awaited = rg_cq_is_awaited(self->cq);
    if (intake->window.counts[RG_SLOT_OFFERED] == 0 || is_awaited) {
        self->is_stuck = !rg_intake_relieve(intake) && is_awaited;
    }
}

/* Whether something happens to the window without anything being taken. */
static bool is_flowing(const struct rg_flow *self)
{
    const struct rg_intake *intake = self->intake;
    bool is_waiting = rg_window_can_take(&intake->window);
    bool wants_mark = is_waiting && rg_offers_room(&self->offers) == 0;
    bool will_come = !is_waiting &&
                     (rg_intake_out(intake) > 0 || (intake->client != NULL && intake->is_refused));
    return self->state == FLOWING && !self->is_stuck && (wants_mark || will_come);
}

static enum rg_cq_source_state source_state(const struct rg_flow *self)
{
    if (atomic_load(&self->end_is_taken)) {
        return RG_CQ_SOURCE_AWAY;
    }
    return is_flowing(self) ? RG_CQ_SOURCE_FLOWING : RG_CQ_SOURCE_RESTING;
}

/* Sets the alarm where the pump may have to run though nothing comes and nothing is taken. */
static void alarm_look(struct rg_flow *self)
{
    const struct rg_intake *intake = self->intake;
    bool waits_for_client = intake->is_refused && rg_intake_out(intake) == 0;
    bool may_starve = rg_intake_out(intake) > 0;
    if (self->state == FLOWING && (waits_for_client || may_starve) &&
        !atomic_exchange(&self->is_ticking, true)) {
        self->alarm_ns = waits_for_client ? RG_INTAKE_FULL_PAUSE_NS : RG_INTAKE_QUIET_NS;
        rg_loop_post(self->loop, &self->alarm_mail);
    }
}

/* Until so many completions are there, loops go on without running the pump for each. What has come
 * meanwhile is found here, or by the loop that publishes it. */
static void due_set(struct rg_flow *self)
{
    const struct rg_intake *intake = self->intake;
    uint64_t due_at = intake->noted + rg_intake_portion(intake);
    atomic_store(&self->seen, intake->noted);
    atomic_store(&self->due_at, due_at);
    if (rg_cq_published(intake->cq) >= due_at) {
        rg_baton_pass(&self->baton);
    }
}

/* By the holder of the baton. */
static void pump(void *context)
{
    struct rg_flow *self = context;
    if (self->intake == NULL) {
        return;
    }
    uint64_t noted = self->intake->noted;
    taken_note(self);
    rg_intake_poll(self->intake);
    self->is_stuck = self->is_stuck && noted == self->intake->noted;
    if (atomic_exchange(&self->has_ticked, false)) {
        memory_look(self);
    }
    rg_intake_refill(self->intake);
    while (samples_offer_some(self)) {
    }
    end_offer(self);
    rg_cq_source_become(self->cq, &self->source, source_state(self));
    alarm_look(self);
    due_set(self);
}

/* Some thread has taken records off the caller's queue. */
static void took(struct rg_cq_source *source, struct rg_completion *records, uint32_t count)
{
    struct rg_flow *self = of_source(source);
    uint32_t samples = count;
    if (records[count - 1].sample_number == PLACE_OF_END) {
        samples--;
        records[samples].sample_index = 0;
        records[samples].sample_number = 0;
        atomic_store(&self->end_is_taken, true);
    }
    rg_offers_take(&self->offers, records, samples);
    rg_baton_pass(&self->baton);
    holders_drop(self, count);
}

static void has_room(struct rg_cq_source *source)
{
    rg_baton_pass(&of_source(source)->baton);
}

/* A loop has completed some requests. Those that nobody waits for are gathered. */
static void published(struct rg_cq_listener *listener, uint64_t count)
{
    struct rg_flow *self = RG_CONTAINER_OF(listener, struct rg_flow, listener);
    uint64_t seen = atomic_load(&self->seen);
    bool is_due = count >= atomic_load(&self->due_at);
    if (is_due || (count > seen && !rg_cq_source_keeps(self->cq, count - seen))) {
        rg_baton_pass(&self->baton);
    }
}

static void client_stop(struct rg_client_user *user)
{
    struct rg_flow *self = RG_CONTAINER_OF(user, struct rg_flow, user);
    rg_baton_take(&self->baton);
    rg_intake_leave(self->intake);
    rg_baton_give(&self->baton);
    rg_baton_pass(&self->baton);
}

static void alarm_set(struct rg_mail *mail)
{
    struct rg_flow *self = RG_CONTAINER_OF(mail, struct rg_flow, alarm_mail);
    rg_loop_set_alarm(self->loop, &self->alarm, self->loop->now_ns + self->alarm_ns);
}

static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_flow *self = RG_CONTAINER_OF(alarm, struct rg_flow, alarm);
    atomic_store(&self->is_ticking, false);
    atomic_store(&self->has_ticked, true);
    rg_baton_pass(&self->baton);
}

static void alarm_stop(void *context)
{
    struct rg_flow *self = context;
    rg_loop_cancel_alarm(self->loop, &self->alarm);
}

int rg_flow_open(struct rg_flow **out_flow, struct rg_intake *intake, struct rg_cq *cq,
                 uint64_t user_data)
{
    struct rg_flow *self = calloc(1, sizeof(*self));
    if (self == NULL || rg_offers_init(&self->offers, intake->window.capacity) < 0) {
        free(self);
        return -ENOMEM;
    }
    self->source.took = took;
    self->source.has_room = has_room;
    self->listener.published = published;
    self->user.stop = client_stop;
    self->user_data = user_data;
    self->cq = cq;
    self->loop = rg_client_next_loop(intake->client, 1)->loop;
    self->alarm_mail.run = alarm_set;
    rg_alarm_init(&self->alarm, alarm_fire);
    rg_baton_init(&self->baton, pump, self);
    atomic_init(&self->holders, 1);
    self->intake = intake;
    *out_flow = self;
    return 0;
}

void rg_flow_begin(struct rg_flow *flow)
{
    rg_client_join(flow->intake->client, &flow->user);
    rg_cq_attach(flow->cq, &flow->source);
    rg_cq_listen(flow->intake->cq, &flow->listener);
    rg_baton_pass(&flow->baton);
}

void rg_flow_hold(struct rg_flow *flow)
{
    rg_baton_take(&flow->baton);
    taken_note(flow);
}

void rg_flow_let_go(struct rg_flow *flow)
{
    rg_baton_give(&flow->baton);
}

void rg_flow_stop(struct rg_flow *flow)
{
    if (flow->intake->client != NULL) {
        rg_client_leave(flow->intake->client, &flow->user);
    }
    rg_baton_take(&flow->baton);
    taken_note(flow);
    flow_become(flow, CLOSED);
    flow->intake = NULL;
    rg_cq_source_become(flow->cq, &flow->source, RG_CQ_SOURCE_AWAY);
    rg_baton_give(&flow->baton);
    rg_cq_detach(flow->cq, &flow->source);
    rg_loop_call(flow->loop, alarm_stop, flow);
}

void rg_flow_drop(struct rg_flow *flow, bool is_owner)
{
    if (is_owner) {
        holders_drop(flow, 1);
    } else {
        flow_free(flow);
    }
}
