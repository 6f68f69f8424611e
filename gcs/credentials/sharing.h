/* Tokens for a host of processes: one asks for it, the others take it from a note of the one that
 * asked (gcs/host/note.h).
 *
 *                  .-> a fresh token is noted: taken
 *   look at the ---+-> nobody is asking: asked for, and noted
 *   note           |     ^
 *     ^            '-> another process is asking
 *     |                  |            \ it failed, was killed, or has taken RG_SHARING_PATIENCE_NS:
 *     '--- a pause <-----'              all that wait ask, each for itself
 *
 * Where the one that asks takes long, for it may be stopped, one other asks as well, much earlier.
 * Whoever asks has a lock of the region, which the kernel gives up when the process ends. A failure
 * is nobody else's: another process may have another proxy, other certificates or another network.
 * A token that the service refused is struck out, and not noted again.
 *
 * Two processes share a token only if their credentials are the same to the byte, and contain a
 * secret. The metadata server asks for none: its tokens are shared within one network and mount
 * namespace of one root folder, since another container may have another account. External accounts
 * share nothing: who they are is said by other files, servers and variables, whose right to be read
 * is not known here. */
#ifndef RG_GCS_CREDENTIALS_SHARING_H
#define RG_GCS_CREDENTIALS_SHARING_H

#include "gcs/credentials/kind.h"

/* Who asks for so long hangs: one try of a request would have failed by then. */
#define RG_SHARING_PATIENCE_NS RG_FETCH_TIMEOUT_NS
/* After this part of the patience, one other asks beside it: 1.9 s. */
#define RG_SHARING_SECOND_PART 8
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
