/* Cloud Storage in a simulation: the emulator answers, on virtual time and without threads, and
 * what stands before it does to its answers what servers and proxies do that are not well.
 *
 * What is stored is a function of the seed: `index` names an object, and the bytes of each of its
 * versions, which are counted from 1, can be computed anew, so that a test knows what to expect
 * without asking. Its books say what it was asked and what was done. One belongs to one simulation
 * and outlives it. A program that uses it links with --wrap=clock_gettime, so that generations and
 * dates are of virtual time; there is one at a time. */
#ifndef RG_TESTS_SUPPORT_SIM_GCS_H
#define RG_TESTS_SUPPORT_SIM_GCS_H

#include "http/h1_decoder.h"
#include "tests/support/sim.h"

#define RG_SIM_GCS_BUCKET "simulated-bucket"
#define RG_SIM_GCS_NAME_SIZE_MAX 64

/* What can go wrong before the emulator or behind it, for each request with a probability of its
 * own: XX(name). */
#define RG_SIM_GCS_TROUBLES(XX)                                                                    \
    XX(ERROR)       /* 500, 502 or 504, and nothing is done */                                     \
    XX(THROTTLE)    /* 429 or 503 with a Retry-After, and nothing is done */                       \
    XX(LOSE_ANSWER) /* it is done, and the connection reset instead of an answer */                \
    XX(TRUNCATE)    /* the connection is closed somewhere in the answer */                         \
    XX(STALL)       /* the answer stops somewhere for good */                                      \
    XX(SLOW)        /* the answer comes in pieces, with pauses */                                  \
    XX(CORRUPT)     /* a bit of the body of an object is flipped */                                \
    XX(CHUNKED)     /* the body of an object comes in chunks */                                    \
    XX(UNTIL_CLOSE) /* the body of an object ends with the connection */                           \
    XX(SHORT_RANGE) /* less of a range comes than was asked for */                                 \
    XX(REPLACE)     /* an object is replaced while it is read */                                   \
    XX(INTERIM)     /* a 103 precedes the answer */                                                \
    XX(CLOSE)       /* Connection: close */                                                        \
    XX(HANG_UP)     /* the connection is closed behind the answer without a word of it */

enum rg_sim_gcs_trouble {
#define XX(name) RG_SIM_GCS_##name,
    RG_SIM_GCS_TROUBLES(XX)
#undef XX
        RG_SIM_GCS_TROUBLE_COUNT
};

struct rg_sim_gcs_options {
    uint32_t object_count; /* indices that there are */
    uint32_t stored_count; /* of them, those that are stored from the first */
    uint32_t listed_count; /* objects that are only listed */
    uint64_t object_size_max;
    uint64_t pause_ns_max;                       /* between pieces of a slow answer */
    uint32_t troubles[RG_SIM_GCS_TROUBLE_COUNT]; /* parts per million */
    /* Writes the page that a target asks for, in place of the emulator. May be NULL. */
    void (*list)(void *context, struct rg_h1_slice target, FILE *out);
    void *list_context;
};

/* The book of one object. */
struct rg_sim_gcs_object {
    int64_t *generations;   /* of its versions */
    uint32_t version_count; /* 0: not stored */
    uint32_t request_count;
    uint32_t put_count;     /* uploads that took effect */
    uint32_t bad_put_count; /* of them, with other bytes than were to be expected */
    uint32_t early_count;   /* requests that came before a Retry-After had passed */
    uint64_t not_before_ns;
};

struct rg_sim_gcs;

struct rg_sim_gcs *rg_sim_gcs_create(struct rg_sim *sim, const struct rg_sim_gcs_options *options);
/* After the simulation; NULL is fine. */
void rg_sim_gcs_destroy(struct rg_sim_gcs *gcs);
void rg_sim_gcs_listen(struct rg_sim_gcs *gcs, const struct sockaddr *address);

const struct rg_sim_gcs_object *rg_sim_gcs_object(const struct rg_sim_gcs *gcs, uint32_t index);
uint64_t rg_sim_gcs_trouble_count(const struct rg_sim_gcs *gcs, enum rg_sim_gcs_trouble trouble);

/* The version that has the generation; 0: there was none. */
uint32_t rg_sim_gcs_version(const struct rg_sim_gcs *gcs, uint32_t index, int64_t generation);

/* The generation of the first version; where there is none, one that no object has. */
int64_t rg_sim_gcs_first(const struct rg_sim_gcs *gcs, uint32_t index);

/* What there is to expect. An upload is expected to be of the first version's bytes. */
void rg_sim_gcs_name(uint32_t index, char out_name[static RG_SIM_GCS_NAME_SIZE_MAX]);
uint64_t rg_sim_gcs_size(const struct rg_sim_gcs *gcs, uint32_t index, uint32_t version);
void rg_sim_gcs_fill(uint32_t index, uint32_t version, uint64_t offset, uint8_t *out, size_t size);
/* Objects beside these, which are only listed. */
#define RG_SIM_GCS_LISTED "listed/"
#define RG_SIM_GCS_LISTED_SIZE 5
void rg_sim_gcs_listed_name(uint32_t number, char out_name[static RG_SIM_GCS_NAME_SIZE_MAX]);

#endif
