/* The public functions of a listing, and its operation; see listing.h. */
#include "gcs/listing/listing.h"

#include "gcs/listing/walk.h"
#include "gcs/request/client.h"
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How often the log says how far a listing has come. */
#define TELL_NS (10 * RG_NS_PER_S)

struct rg_listing {
    struct rg_client *client;
    struct rg_list_question question;
    /* The rest is the loop's. */
    struct rg_request request; /* the operation's own */
    struct rg_operation operation;
    struct rg_walk walk;
    struct rg_request *next; /* waits for a page; NULL: the caller wants none */
    bool closing;
    struct {
        uint64_t names, pages, began_ns, told_ns; /* told_ns RG_FOREVER: that it is complete */
    } log;
    struct {
        alignas(RG_CACHE_LINE) _Atomic bool busy; /* a page is wanted and its completion not made */
        _Atomic bool closed;
        sem_t closed_signal;
    } shared;
};

static struct rg_listing *listing_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct rg_listing, operation);
}

/* The request that waits for a page, for good. */
static struct rg_request *next_take(struct rg_listing *listing)
{
    struct rg_request *next = listing->next;
    listing->next = NULL;
    atomic_store_explicit(&listing->shared.busy, false, memory_order_release);
    return next;
}

/* Fails it with what the listing has failed with. */
static void next_fail(struct rg_listing *listing)
{
    struct rg_request *next = next_take(listing);
    next->failure = listing->request.failure;
    rg_request_fail(next);
}

/* How much the caller was given: now and then, and once when that is all. */
static void progress_tell(struct rg_listing *listing, const struct rg_list_page *page)
{
    const struct rg_list_request *list = &listing->question.list;
    uint64_t now_ns = listing->request.client_loop->loop->now_ns;
    size_t count = page->object_count + page->prefix_count;
    listing->log.names += count;
    listing->log.pages += count > 0;
    bool is_due = count == 0 || now_ns - listing->log.told_ns >= TELL_NS;
    if (listing->log.told_ns == RG_FOREVER || !is_due) {
        return;
    }
    listing->log.told_ns = count == 0 ? RG_FOREVER : now_ns;
    rg_log(RG_LOG_INFO, "list gs://%s/%s: %" PRIu64 " names in %" PRIu64 " pages and %.1f s%s",
           list->bucket, list->prefix != NULL ? list->prefix : "", listing->log.names,
           listing->log.pages, (double)(now_ns - listing->log.began_ns) / (double)RG_NS_PER_S,
           count == 0 ? "" : " so far");
}

/* Completes the request that waits, if there is a page for it. */
static void next_deliver(struct rg_listing *listing)
{
    struct rg_completion page;
    if (listing->next == NULL || !rg_walk_take(&listing->walk, &page)) {
        return;
    }
    if (RG_UNLIKELY(rg_log_enabled(RG_LOG_INFO))) {
        progress_tell(listing, page.data);
    }
    struct rg_request *next = next_take(listing);
    next->attempts = page.attempts;
    next->started_ns = page.started_ns;
    rg_request_finish(next, &page);
}

static void listing_advance(struct rg_operation *operation)
{
    struct rg_listing *listing = listing_of(operation);
    next_deliver(listing);
    rg_walk_advance(&listing->walk);
}

static void listing_stop(struct rg_operation *operation, bool hurry)
{
    rg_walk_cancel(&listing_of(operation)->walk, hurry ? RG_STATUS_CLOSED : RG_STATUS_CANCELLED);
}

/* The listing itself is freed when it is closed. */
static void listing_release(struct rg_operation *operation)
{
    rg_walk_drop_pages(&listing_of(operation)->walk);
}

static const struct rg_operation_ops operation_ops = {
    .advance = listing_advance,
    .stop = listing_stop,
    .free = listing_release,
};

static const struct rg_request_ops listing_ops = {
    .verb = "list",
    .operation = RG_VERB_LIST,
    .start = rg_operation_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

static void closed_tell(struct rg_listing *listing)
{
    atomic_store_explicit(&listing->shared.closed, true, memory_order_release);
    sem_post(&listing->shared.closed_signal);
}

/* The operation has ENDED. */
static void listing_ended(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_listing *listing = RG_CONTAINER_OF(request, struct rg_listing, request);
    RG_ASSERT(completion->status != RG_STATUS_OK && completion->lease == NULL);
    if (listing->closing) {
        closed_tell(listing);
    } else if (listing->next != NULL) {
        next_fail(listing);
    }
}

static void next_start(struct rg_request *request)
{
    struct rg_listing *listing = request->listing;
    RG_ASSERT(listing->next == NULL && !listing->closing);
    listing->next = request;
    if (listing->operation.state == RG_OPERATION_IDLE) {
        listing->log.began_ns = listing->log.told_ns = request->client_loop->loop->now_ns;
        bool started = rg_request_start(&listing->request);
        RG_ASSERT(started);
    } else if (listing->operation.state == RG_OPERATION_ENDED) {
        next_fail(listing);
    } else {
        rg_operation_wake(&listing->operation);
    }
}

/* The listing itself goes on: its pages are there for the next call. */
static void next_cancel(struct rg_request *request, enum rg_status status)
{
    struct rg_listing *listing = request->listing;
    RG_ASSERT(listing->next == request);
    request->failure.status = RG_STATUS_OK;
    rg_request_note(request, status, "%s", "");
    rg_request_fail(next_take(listing));
}

static void next_release(struct rg_request *request)
{
    (void)request;
}

static const struct rg_request_ops next_ops = {
    .verb = "list",
    .operation = RG_VERB_LIST,
    .release = next_release,
    .start = next_start,
    .cancel = next_cancel,
};

static void listing_free(struct rg_listing *listing)
{
    rg_walk_fini(&listing->walk);
    rg_list_question_free(&listing->question);
    sem_destroy(&listing->shared.closed_signal);
    free(listing);
}

/* Zeroed, and with its client. */
static struct rg_listing *listing_create(struct rg_client *client)
{
    size_t size = (sizeof(struct rg_listing) + RG_CACHE_LINE - 1) & ~(size_t)(RG_CACHE_LINE - 1);
    struct rg_listing *listing = aligned_alloc(RG_CACHE_LINE, size);
    if (listing == NULL) {
        return NULL;
    }
    memset(listing, 0, size);
    listing->client = client;
    sem_init(&listing->shared.closed_signal, 0, 0);
    rg_request_init_inner(&listing->request, rg_client_next_loop(client, 1), listing_ended);
    rg_request_prepare(&listing->request, &listing_ops, 0, 0);
    rg_operation_init(&listing->operation, &operation_ops, &listing->request);
    return listing;
}

int rg_listing_open_sized(struct rg_listing **out_listing, struct rg_client *client,
                          const struct rg_listing_options *options, size_t struct_size)
{
    struct rg_listing_options own = {0};
    memcpy(&own, options, RG_MIN(struct_size, sizeof(own)));
    if (rg_runtime_check(client->runtime) < 0) {
        return -EOWNERDEAD;
    }
    struct rg_listing *listing = listing_create(client);
    if (listing == NULL) {
        return -ENOMEM;
    }
    int rc = rg_list_question_copy(&listing->question, &own);
    if (rc == 0) {
        rc = rg_walk_init(&listing->walk, &listing->operation, &listing->question, &own);
    }
    if (rc < 0) {
        listing_free(listing);
        return rc;
    }
    *out_listing = listing;
    return 0;
}

int rg_listing_next(struct rg_listing *listing, struct rg_cq *cq, uint64_t user_data)
{
    struct rg_request *request;
    if (atomic_exchange_explicit(&listing->shared.busy, true, memory_order_acquire)) {
        return -EBUSY;
    }
    int rc = rg_client_reserve(listing->client, cq, &request);
    if (rc < 0) {
        atomic_store_explicit(&listing->shared.busy, false, memory_order_release);
        return rc;
    }
    const struct rg_list_request *list = &listing->question.list;
    strcpy(request->bucket, list->bucket);
    strcpy(request->object, list->prefix != NULL ? list->prefix : "");
    rg_request_prepare(request, &next_ops, user_data, 0);
    request->listing = listing;
    request->client_loop = listing->request.client_loop;
    rg_loop_post(request->client_loop->loop, &request->mail);
    return 0;
}

static void close_run(void *context)
{
    struct rg_listing *listing = context;
    struct rg_operation *operation = &listing->operation;
    listing->closing = true;
    if (listing->next != NULL) {
        next_cancel(listing->next, RG_STATUS_CANCELLED);
    }
    if (operation->state == RG_OPERATION_IDLE || operation->state == RG_OPERATION_ENDED) {
        closed_tell(listing);
    } else {
        rg_operation_stop(operation, RG_STATUS_CANCELLED);
    }
}

void rg_listing_close_begin(struct rg_listing *listing)
{
    rg_loop_call(listing->request.client_loop->loop, close_run, listing);
}

bool rg_listing_is_closed(const struct rg_listing *listing)
{
    return atomic_load_explicit(&listing->shared.closed, memory_order_acquire);
}

void rg_listing_close_finish(struct rg_listing *listing)
{
    while (sem_wait(&listing->shared.closed_signal) < 0) {
        RG_ASSERT(errno == EINTR);
    }
    /* Whoever posted it has returned then, too. */
    rg_client_await_completions(listing->request.client_loop);
    listing_free(listing);
}

void rg_listing_close(struct rg_listing *listing)
{
    if (listing == NULL || rg_runtime_check(listing->client->runtime) < 0) {
        return;
    }
    rg_listing_close_begin(listing);
    rg_listing_close_finish(listing);
}

bool rg_object_is_folder_marker(const struct rg_object *object)
{
    size_t size = strlen(object->name);
    return object->size == 0 && size > 0 && object->name[size - 1] == '/';
}
