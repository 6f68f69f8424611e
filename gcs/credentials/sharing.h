/* Tokens for a host of processes: one asks for it, the others take it from a note of the one that
 * asked (gcs/host/note.h).
 *
 *                  .-> a fresh token is noted: taken
 *   look at the ---+-> nobody is asking: asked for, and noted
 *   note           |     ^
 *     ^            '-> another process is asking
 *     |                  |            \ for RG_SHARING_PATIENCE_NS: it hangs, and the next one asks
 *     '--- a pause <-----'              beside it
 *
 * Whoever asks has a lock of the region, which the kernel gives up when the process ends. So when
 * it is killed, another one asks after a pause at most. A failure is noted for those who wait for
 * it, and for nobody else. A token that the service refused is struck out, and not noted again.
 *
 * Two processes share a token only if their credentials are the same to the byte. Credentials that
 * are what the place says (a metadata server, a token in a file) are shared within one network and
 * mount namespace of one root folder: in two containers the same words may mean two accounts.
 * Programs may say something else to each process, so that their tokens are not shared. */
#ifndef RG_GCS_CREDENTIALS_SHARING_H
#define RG_GCS_CREDENTIALS_SHARING_H

#include "gcs/credentials/kind.h"

/* Who asks for so long hangs: one try of a request would have failed by then. */
#define RG_SHARING_PATIENCE_NS RG_FETCH_TIMEOUT_NS
/* A line, its NUL included. */
#define RG_SHARING_TEXT_SIZE 320
/* SHA-256. */
#define RG_TOKEN_DIGEST_SIZE 32

/* What one refresh knows. Everything is borrowed. */
struct rg_sharing {
    const char *folder;     /* of the region; NULL: nothing is shared */
    const uint8_t *hash;    /* SHA-256 of the credentials */
    const uint8_t *refused; /* digest of the token that the service refused last; NULL: none */
    uint64_t patience_ns;
    bool taken;                      /* out: another process had asked */
    char text[RG_SHARING_TEXT_SIZE]; /* out: whether it is shared, for people; may be empty */
};

void rg_token_digest(const char *text, uint8_t out[RG_TOKEN_DIGEST_SIZE]);

/* A token, taken or asked for, with the time at which it is to be renewed. 0, or a negative errno
 * noted in the run. */
int rg_sharing_obtain(struct rg_sharing *sharing, struct rg_credentials_run *run,
                      struct rg_credentials_config *config, struct rg_token_out *out_token);

#endif
