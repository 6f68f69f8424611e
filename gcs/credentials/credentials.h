/* Access tokens for requests: had when they are needed, renewed ahead of their end, by one refresh
 * at a time for the whole process, and by one process of the host (gcs/credentials/sharing.h).
 *
 * Vocabulary. *Credentials* are one source of tokens: a credential file with a scope, or the
 * metadata server. All clients of the process that use the same source share one object, found in a
 * registry. A *bearer* is what one event loop of one client holds of it: a reference to the token
 * that requests send now.
 *
 *               refresh done                  now >= stale
 *   (no token) -------------> FRESH -----------------------------> STALE
 *      ^ |  ^                  ^  |                                 |  |
 *      | |  |   refused (401)  |  |   refused (401)                 |  | expired
 *      | |  +--------------------------<----------------------------+  |
 *      | |                     |                                       |
 *      | +- refresh, requests wait ----<--------- INVALID <------------+
 *      +--- failed: requests end with the cause; none is asked for until a pause is over
 *
 * FRESH: the token is sent. STALE (225 s before the end, since metadata servers hand out the same
 * token until then): it is still sent, while one refresh runs beside it, again after a pause when
 * that fails. INVALID: all requests wait for one refresh.
 *
 * A refresh runs on a thread of its own, which ends with it (see credentials_kind.h): it may sign,
 * read slow file systems and run programs, and no event loop shall wait for that. */
#ifndef RG_GCS_CREDENTIALS_CREDENTIALS_H
#define RG_GCS_CREDENTIALS_CREDENTIALS_H

#include "gcs/credentials/sharing.h"
#include "runtime/loop.h"

#include <ringest/gcs.h>

/* A refused token (401) leads to no refresh sooner after the one before. */
#define RG_REJECT_INTERVAL_NS (10 * RG_NS_PER_S)
/* One refresh with all its tries. A program that is run may add its own time. */
#define RG_REFRESH_TIME_NS (60 * RG_NS_PER_S)
/* After a failed refresh: doubling pauses, and the one after a failure that will not mend. */
#define RG_REFRESH_PAUSE_NS_MIN RG_NS_PER_S
#define RG_REFRESH_PAUSE_NS_MAX (30 * RG_NS_PER_S)
#define RG_REFRESH_PAUSE_NS_FATAL (10 * RG_NS_PER_S)

/* Immutable, shared by reference; lies in memory of its own that core dumps leave out. */
struct rg_token {
    _Atomic uint32_t ref_count;
    struct rg_secret_arena arena;
    const char *field; /* "Authorization: Bearer ...", with its CRLF, checked */
    size_t field_size;
    uint64_t valid_until_ns;
    uint8_t digest[RG_TOKEN_DIGEST_SIZE];
};

struct rg_credentials;

/* Whether a client with these options sends credentials of this file: not where there is a token,
 * an emulator, "anonymous", or an endpoint of the user's own without credentials for it. */
bool rg_credentials_wanted(const struct rg_client_options *options);
/* What a client says of its credentials; all may be NULL, as in the public options. */
struct rg_credentials_choice {
    const char *credentials; /* a path, or NULL, "" or "default" */
    const char *scope;
    const char *proxy;            /* on the way to token servers; NULL: what the environment says */
    const char *sharing;          /* as the option says it, or NULL */
    uint64_t sharing_patience_ns; /* 0: RG_SHARING_PATIENCE_NS */
};

/* Takes a reference to the source that is chosen. Reads files, asks nobody. -EINVAL and the errors
 * of reading; `error` is a line. */
int rg_credentials_open(struct rg_credentials **out_credentials,
                        const struct rg_credentials_choice *choice, char *error, size_t error_size);
/* Ends the refresh that runs, with the last reference. NULL is fine. No bearer may be left. */
void rg_credentials_unref(struct rg_credentials *credentials);

const char *rg_credentials_universe(const struct rg_credentials *credentials);
/* NULL: none is named. */
const char *rg_credentials_quota_project(const struct rg_credentials *credentials);
/* "service account a@b.iam.gserviceaccount.com". Like snprintf. */
int rg_credentials_principal_write(const struct rg_credentials *credentials, char *out,
                                   size_t size);
/* One line for people: kind, account, origin, how the token fares and whether it is shared. Any
 * thread. Like snprintf. */
int rg_credentials_text_write(struct rg_credentials *credentials, char *out, size_t size);

/* One loop's. Only on that loop, unless said otherwise; the zero state needs no fini. */
struct rg_bearer {
    struct rg_credentials *credentials; /* borrowed; NULL: requests carry none of this */
    struct rg_loop *loop;
    void (*wake)(struct rg_bearer *bearer);
    struct rg_token *token; /* owned; NULL: none yet */
    uint64_t version;       /* of the token */
    struct rg_list node;    /* among those who wait, under the credentials' mutex */
    struct rg_mail mail;
    bool mail_out; /* under the mutex */
    char failure[RG_CREDENTIALS_TEXT_SIZE];
};

enum rg_bearer_state {
    RG_BEARER_READY,  /* bearer->token is to be sent */
    RG_BEARER_WAIT,   /* `wake` will be called, from the loop, when there is news */
    RG_BEARER_FAILED, /* bearer->failure says why there is no token */
};

/* `wake` is called on the loop, never from within a call of this header's. */
void rg_bearer_init(struct rg_bearer *bearer, struct rg_credentials *credentials,
                    struct rg_loop *loop, void (*wake)(struct rg_bearer *bearer));
/* A wake that is on its way still comes: the bearer's memory stays until the loop's mail of now has
 * run. Also from another thread, once the loop has ended. */
void rg_bearer_fini(struct rg_bearer *bearer);
/* Cheap while the token is fresh. Starts a refresh where one is due. */
enum rg_bearer_state rg_bearer_check(struct rg_bearer *bearer, uint64_t now_ns);
/* Has `wake` called soon, for what cannot be done at once. */
void rg_bearer_wake_soon(struct rg_bearer *bearer);
/* The service answered 401 to the token of that version. True: another one can be had, or is there
 * already, so that the request may be sent again. */
bool rg_bearer_reject(struct rg_bearer *bearer, uint64_t version, uint64_t now_ns);

#endif
