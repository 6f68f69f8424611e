/* What clients come back to over several requests: resumable uploads, multipart uploads, rewrites.
 * A session is found by an id that nobody can guess, from any thread.
 *
 * The life of a session: rg_session_init -> rg_sessions_add, which gives it an id and keeps a
 * reference -> rg_sessions_find, any number of times, each with a reference of its own ->
 * rg_sessions_remove -> the last rg_session_unref destroys it. There are at most
 * RG_SESSIONS_MAX: a new one takes the place of the one that nobody asked for the longest. */
#ifndef RG_EMULATOR_REQUEST_SESSIONS_H
#define RG_EMULATOR_REQUEST_SESSIONS_H

#include "http/h1_decoder.h"
#include "runtime/base.h"

#include <pthread.h>
#include <stdatomic.h>

#define RG_SESSIONS_MAX 10000
#define RG_SESSION_ID_SIZE 32 /* Hexadecimal digits. */

struct rg_session;

/* Tells sessions of different kinds apart: one is found only by its type. */
struct rg_session_type {
    void (*destroy)(struct rg_session *session);
};

/* The first member of what a kind of session keeps. */
struct rg_session {
    const struct rg_session_type *type;
    _Atomic uint32_t refs;
    bool listed;
    struct rg_session *next;          /* In its slot. */
    struct rg_session *older, *newer; /* In the order of when they were last asked for. */
    char id[RG_SESSION_ID_SIZE + 1];
    pthread_mutex_t lock; /* Protects what the session keeps. The table never takes it. */
};

struct rg_sessions;

/* Returns owned. `count_max` is at least 1. */
int rg_sessions_create(struct rg_sessions **out_sessions, uint32_t count_max);
/* NULL does nothing. */
void rg_sessions_destroy(struct rg_sessions *sessions);

/* The session has one reference then, which is the caller's. */
void rg_session_init(struct rg_session *session, const struct rg_session_type *type);
void rg_session_unref(struct rg_session *session);

/* Gives it an id. 0, or what the system says when it has no random numbers. */
int rg_sessions_add(struct rg_sessions *sessions, struct rg_session *session);
/* Returns a reference, NULL when there is no session of that id and type. */
struct rg_session *rg_sessions_find(struct rg_sessions *sessions,
                                    const struct rg_session_type *type, struct rg_h1_slice id);
/* Nothing finds it any more. It may be gone already. */
void rg_sessions_remove(struct rg_sessions *sessions, struct rg_session *session);
/* Calls `visit` for each session of the type, the newest first, with the table locked. */
void rg_sessions_visit(struct rg_sessions *sessions, const struct rg_session_type *type,
                       void (*visit)(void *context, struct rg_session *session), void *context);

#endif
