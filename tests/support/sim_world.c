/* See sim_world.h. */
#include "tests/support/sim_world.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LATENCY_NS_DEFAULT (100 * RG_NS_PER_US)
#define WINDOW_DEFAULT RG_KIB(256)

static struct rg_list all_sims = {&all_sims, &all_sims};

static const char *const fault_names[] = {
#define XX(name) #name,
    RG_SIM_FAULTS(XX)
#undef XX
};

uint64_t rg_sim_hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

void rg_sim_trace(struct rg_sim *sim, const char *what, uint32_t id, int64_t value)
{
    struct rg_sim_trace_entry *entry = &sim->trace[sim->trace_count++ % RG_SIM_TRACE_LEN];
    *entry = (struct rg_sim_trace_entry){sim->now_ns, what, id, value};
    sim->hash = rg_sim_hash_bytes(sim->hash, &entry->at_ns, sizeof(entry->at_ns));
    sim->hash = rg_sim_hash_bytes(sim->hash, what, strlen(what));
    sim->hash = rg_sim_hash_bytes(sim->hash, &entry->id, sizeof(entry->id));
    sim->hash = rg_sim_hash_bytes(sim->hash, &entry->value, sizeof(entry->value));
}

void rg_sim_print_trace(const struct rg_sim *sim, FILE *file)
{
    uint64_t first = sim->trace_count > RG_SIM_TRACE_LEN ? sim->trace_count - RG_SIM_TRACE_LEN : 0;
    fprintf(file, "simulation with seed %" PRIu64 ": the last %" PRIu64 " of %" PRIu64 " events\n",
            sim->options.seed, sim->trace_count - first, sim->trace_count);
    for (uint64_t i = first; i < sim->trace_count; i++) {
        const struct rg_sim_trace_entry *entry = &sim->trace[i % RG_SIM_TRACE_LEN];
        fprintf(file, "  %14.6f ms  end %-4" PRIu32 " %-16s %" PRId64 "\n",
                (double)entry->at_ns / (double)RG_NS_PER_MS, entry->id, entry->what, entry->value);
    }
}

static void print_all_traces(void)
{
    fflush(stdout);
    for (struct rg_list *node = all_sims.next; node != &all_sims; node = node->next) {
        rg_sim_print_trace(RG_CONTAINER_OF(node, struct rg_sim, node), stderr);
    }
    fflush(stderr);
}

static void print_at_abort(int number)
{
    print_all_traces();
    signal(number, SIG_DFL);
}

/* Defined by the sanitizers' run-time library, where there is one. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void print_traces_of_failures(void)
{
    static bool installed;
    if (!installed) {
        installed = true;
        atexit(print_all_traces);
        signal(SIGABRT, print_at_abort);
        if (__sanitizer_set_death_callback != NULL) {
            __sanitizer_set_death_callback(print_all_traces);
        }
    }
}

static uint64_t random_next(struct rg_sim *sim)
{
    uint64_t z = (sim->random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t rg_sim_random_below(struct rg_sim *sim, uint64_t bound)
{
    RG_ASSERT(bound > 0);
    return random_next(sim) % bound;
}

bool rg_sim_strikes(struct rg_sim *sim, enum rg_sim_fault fault)
{
    if (sim->options.faults[fault] == 0) {
        return false;
    }
    bool struck = rg_sim_random_below(sim, RG_SIM_ALWAYS) < sim->options.faults[fault];
    if (struck) {
        sim->fault_counts[fault]++;
        rg_sim_trace(sim, fault_names[fault], 0, 0);
    }
    return struck;
}

static bool event_before(const struct rg_sim_event *a, const struct rg_sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void rg_sim_event_add(struct rg_sim *sim, struct rg_sim_event event)
{
    if (sim->event_count == sim->event_room) {
        sim->event_room = RG_MAX(2 * sim->event_room, (size_t)64);
        sim->events = realloc(sim->events, sim->event_room * sizeof(*sim->events));
        RG_ASSERT(sim->events != NULL);
    }
    event.order = sim->event_order++;
    size_t i = sim->event_count++;
    while (i > 0 && event_before(&event, &sim->events[(i - 1) / 2])) {
        sim->events[i] = sim->events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->events[i] = event;
}

struct rg_sim_event rg_sim_event_take(struct rg_sim *sim)
{
    RG_ASSERT(sim->event_count > 0);
    struct rg_sim_event first = sim->events[0], last = sim->events[--sim->event_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < sim->event_count &&
            event_before(&sim->events[child + 1], &sim->events[child])) {
            child++;
        }
        if (child >= sim->event_count || !event_before(&sim->events[child], &last)) {
            break;
        }
        sim->events[i] = sim->events[child];
        i = child;
    }
    sim->events[i] = last;
    return first;
}

struct rg_sim *rg_sim_create(const struct rg_sim_options *options)
{
    struct rg_sim *sim = calloc(1, sizeof(*sim));
    RG_ASSERT(sim != NULL);
    sim->options = *options;
    if (sim->options.latency_ns == 0) {
        sim->options.latency_ns = LATENCY_NS_DEFAULT;
    }
    if (sim->options.window == 0) {
        sim->options.window = WINDOW_DEFAULT;
    }
    sim->random_state = options->seed;
    sim->now_ns = RG_NS_PER_S;
    sim->hash = UINT64_C(0xcbf29ce484222325);
    rg_list_init(&sim->ends);
    rg_list_init(&sim->loops);
    rg_list_push_back(&all_sims, &sim->node);
    print_traces_of_failures();
    return sim;
}

void rg_sim_world_free(struct rg_sim *sim)
{
    while (sim->event_count > 0) {
        free(rg_sim_event_take(sim).owned);
    }
    free(sim->events);
    rg_list_remove(&sim->node);
    free(sim);
}

uint64_t rg_sim_now_ns(const struct rg_sim *sim)
{
    return sim->now_ns;
}

static void after_run(struct rg_sim *sim, const struct rg_sim_event *event)
{
    RG_ASSERT(sim->now_ns >= event->at_ns);
    event->function(event->target);
}

void rg_sim_after(struct rg_sim *sim, uint64_t delay_ns, void (*function)(void *context),
                  void *context)
{
    rg_sim_event_add(sim, (struct rg_sim_event){.at_ns = sim->now_ns + delay_ns,
                                                .run = after_run,
                                                .function = function,
                                                .target = context});
}

uint32_t rg_sim_socket_count(const struct rg_sim *sim)
{
    return sim->socket_count;
}

uint64_t rg_sim_fault_count(const struct rg_sim *sim, enum rg_sim_fault fault)
{
    RG_ASSERT(fault < RG_SIM_FAULT_COUNT);
    return sim->fault_counts[fault];
}

uint64_t rg_sim_hash(const struct rg_sim *sim)
{
    return sim->hash;
}
