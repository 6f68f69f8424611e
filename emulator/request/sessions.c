/* A hash table by id and a list by age; see sessions.h. */
#include "emulator/request/sessions.h"

#include "emulator/wire/text.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#define SLOT_COUNT 1024

struct rg_sessions {
    pthread_mutex_t lock;
    uint32_t count, count_max;
    struct rg_session *oldest, *newest;
    struct rg_session *slots[SLOT_COUNT];
};

int rg_sessions_create(struct rg_sessions **out_sessions, uint32_t count_max)
{
    RG_ASSERT(count_max > 0);
    struct rg_sessions *sessions = calloc(1, sizeof(*sessions));
    if (sessions == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&sessions->lock, NULL);
    sessions->count_max = count_max;
    *out_sessions = sessions;
    return 0;
}

void rg_session_init(struct rg_session *session, const struct rg_session_type *type)
{
    *session = (struct rg_session){.type = type, .refs = 1};
    pthread_mutex_init(&session->lock, NULL);
}

void rg_session_unref(struct rg_session *session)
{
    if (session != NULL &&
        atomic_fetch_sub_explicit(&session->refs, 1, memory_order_acq_rel) == 1) {
        RG_ASSERT(!session->listed);
        pthread_mutex_destroy(&session->lock);
        session->type->destroy(session);
    }
}

/* The id is random, so that its first digits serve as a hash. */
static struct rg_session **slot_of(struct rg_sessions *sessions, const char *id)
{
    uint32_t slot = 0;
    for (size_t i = 0; i < 8; i++) {
        slot = slot * 16 + (uint32_t)(id[i] <= '9' ? id[i] - '0' : id[i] - 'a' + 10);
    }
    return &sessions->slots[slot % SLOT_COUNT];
}

static void age_unlink(struct rg_sessions *sessions, struct rg_session *session)
{
    *(session->older != NULL ? &session->older->newer : &sessions->oldest) = session->newer;
    *(session->newer != NULL ? &session->newer->older : &sessions->newest) = session->older;
}

static void age_link(struct rg_sessions *sessions, struct rg_session *session)
{
    session->older = sessions->newest;
    session->newer = NULL;
    *(sessions->newest != NULL ? &sessions->newest->newer : &sessions->oldest) = session;
    sessions->newest = session;
}

/* Takes a session out of the table, whose reference is the caller's then. */
static void remove_locked(struct rg_sessions *sessions, struct rg_session *session)
{
    RG_ASSERT(session->listed);
    struct rg_session **link = slot_of(sessions, session->id);
    while (*link != session) {
        link = &(*link)->next;
    }
    *link = session->next;
    age_unlink(sessions, session);
    session->listed = false;
    sessions->count--;
}

void rg_sessions_destroy(struct rg_sessions *sessions)
{
    if (sessions == NULL) {
        return;
    }
    while (sessions->oldest != NULL) {
        struct rg_session *session = sessions->oldest;
        remove_locked(sessions, session);
        rg_session_unref(session);
    }
    pthread_mutex_destroy(&sessions->lock);
    free(sessions);
}

int rg_sessions_add(struct rg_sessions *sessions, struct rg_session *session)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t random[RG_SESSION_ID_SIZE / 2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return -EIO;
    }
    for (size_t i = 0; i < RG_SESSION_ID_SIZE; i++) {
        session->id[i] = digits[random[i / 2] >> (i % 2 * 4) & 15];
    }
    session->id[RG_SESSION_ID_SIZE] = '\0';
    struct rg_session *evicted = NULL;
    pthread_mutex_lock(&sessions->lock);
    if (sessions->count == sessions->count_max) {
        evicted = sessions->oldest;
        remove_locked(sessions, evicted);
    }
    struct rg_session **slot = slot_of(sessions, session->id);
    session->next = *slot;
    *slot = session;
    age_link(sessions, session);
    session->listed = true;
    sessions->count++;
    atomic_fetch_add(&session->refs, 1);
    pthread_mutex_unlock(&sessions->lock);
    rg_session_unref(evicted);
    return 0;
}

struct rg_session *rg_sessions_find(struct rg_sessions *sessions,
                                    const struct rg_session_type *type, struct rg_h1_slice id)
{
    char text[RG_SESSION_ID_SIZE + 1];
    if (id.size != RG_SESSION_ID_SIZE) {
        return NULL;
    }
    memcpy(text, id.data, id.size);
    text[id.size] = '\0';
    if (strspn(text, "0123456789abcdef") != RG_SESSION_ID_SIZE) {
        return NULL;
    }
    pthread_mutex_lock(&sessions->lock);
    struct rg_session *session = *slot_of(sessions, id.data);
    while (session != NULL && (session->type != type || !rg_text_equals(id, session->id))) {
        session = session->next;
    }
    if (session != NULL) {
        age_unlink(sessions, session);
        age_link(sessions, session);
        atomic_fetch_add(&session->refs, 1);
    }
    pthread_mutex_unlock(&sessions->lock);
    return session;
}

void rg_sessions_remove(struct rg_sessions *sessions, struct rg_session *session)
{
    pthread_mutex_lock(&sessions->lock);
    bool listed = session->listed;
    if (listed) {
        remove_locked(sessions, session);
    }
    pthread_mutex_unlock(&sessions->lock);
    if (listed) {
        rg_session_unref(session);
    }
}

void rg_sessions_visit(struct rg_sessions *sessions, const struct rg_session_type *type,
                       void (*visit)(void *context, struct rg_session *session), void *context)
{
    pthread_mutex_lock(&sessions->lock);
    for (struct rg_session *session = sessions->newest; session != NULL; session = session->older) {
        if (session->type == type) {
            visit(context, session);
        }
    }
    pthread_mutex_unlock(&sessions->lock);
}
