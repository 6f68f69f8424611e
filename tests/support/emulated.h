/* The emulator in this process, for uploads that go wrong: plain HTTP, one bucket, "bucket", and a
 * table that says what happens to the n-th request of a kind. The table becomes fault rules of the
 * emulator (FAULT RULES in ringest-emulate(1)), and what it has seen is counted by others. Nothing
 * here knows the protocol of an upload: that is the emulator's. */
#ifndef RG_TESTS_SUPPORT_EMULATED_H
#define RG_TESTS_SUPPORT_EMULATED_H

#include "runtime/base.h"

/* XX(name, the members of a rule that match it) */
#define RG_EMULATED_KINDS(XX)                                                                      \
    XX(SINGLE, "\"upload\":\"single\",\"target\":\"uploadType=\"")                                 \
    XX(SESSION, "\"upload\":\"start\"")                                                            \
    XX(CHUNK, "\"upload\":\"chunk\"")                                                              \
    XX(ASK, "\"upload\":\"query\"")                                                                \
    XX(BEGIN, "\"upload\":\"begin\"")                                                              \
    XX(PART, "\"upload\":\"part\"")                                                                \
    XX(COMPLETE, "\"upload\":\"complete\"")                                                        \
    XX(ABORT, "\"upload\":\"abort\"")                                                              \
    XX(COMPOSE, "\"method\":\"storage.objects.compose\"")                                          \
    XX(DELETE, "\"method\":\"storage.objects.delete\",\"target\":\"/storage/v1/b/bucket/o/\"")     \
    XX(STAT, "\"method\":\"storage.objects.get\",\"target\":\"/storage/v1/b/bucket/o/\"")

enum rg_emulated_kind {
#define XX(name, members) RG_EMULATED_##name,
    RG_EMULATED_KINDS(XX)
#undef XX
        RG_EMULATED_KIND_COUNT
};

/* XX(name, the members of a rule that say what happens) */
#define RG_EMULATED_ACTIONS(XX)                                                                    \
    XX(GOOD, "\"effect\":\"once\"")                                                                \
    /* RST when the head was read. */                                                              \
    XX(RESET_HEAD, "\"effect\":\"none\",\"answer\":\"dropped\",\"early\":true")                    \
    /* RST when all was read, and nothing done. */                                                 \
    XX(RESET, "\"effect\":\"none\",\"answer\":\"dropped\"")                                        \
    /* Done, but not answered: RST. */                                                             \
    XX(LOST, "\"answer\":\"dropped\"")                                                             \
    /* Read, and nothing done. */                                                                  \
    XX(503, "\"effect\":\"none\",\"answer\":\"failed\"")                                           \
    XX(403, "\"effect\":\"none\",\"answer\":\"failed\",\"status\":403")                            \
    XX(400, "\"effect\":\"none\",\"answer\":\"failed\",\"status\":400")                            \
    XX(404, "\"effect\":\"none\",\"answer\":\"failed\",\"status\":404")                            \
    XX(405, "\"effect\":\"none\",\"answer\":\"failed\",\"status\":405")                            \
    XX(501, "\"effect\":\"none\",\"answer\":\"failed\",\"status\":501")                            \
    /* 512 KiB of a chunk are kept, or less: 308. */                                               \
    XX(HALF, "\"effect\":\"partial\",\"kept_bytes\":524288")                                       \
    /* Nothing of a chunk is: 308, without Range if nothing was before. */                         \
    XX(NONE, "\"effect\":\"partial\"")                                                             \
    /* 512 KiB of a chunk are kept, or less, and then 503. */                                      \
    XX(HALF_503, "\"effect\":\"partial\",\"kept_bytes\":524288,\"answer\":\"failed\"")             \
    /* The session is forgotten: 404. */                                                           \
    XX(GONE, "\"effect\":\"forgotten\"")                                                           \
    /* Done, and the session is gone: 410. */                                                      \
    XX(DONE_GONE, "\"answer\":\"failed\",\"status\":410")                                          \
    /* Nothing done, and an <Error> in a 200. */                                                   \
    XX(ERROR_IN_200, "\"effect\":\"none\",\"answer\":\"failed\",\"status\":200")                   \
    /* What is stored has another byte; the answer's hashes are of that. */                        \
    XX(CORRUPT, "\"effect\":\"corrupt\"")                                                          \
    /* Read, and never answered. */                                                                \
    XX(HANG, "\"effect\":\"none\",\"answer\":\"held\"")                                            \
    /* Done, and never answered. */                                                                \
    XX(DONE_HANG, "\"answer\":\"held\"")

enum rg_emulated_action {
#define XX(name, members) RG_EMULATED_##name,
    RG_EMULATED_ACTIONS(XX)
#undef XX
        RG_EMULATED_ACTION_COUNT
};

struct rg_emulated_fault {
    enum rg_emulated_kind kind;
    uint32_t nth; /* From 1; 0: each. */
    enum rg_emulated_action action;
};

struct rg_emulated;

/* `faults` ends with one of kind RG_EMULATED_KIND_COUNT; NULL: none. */
struct rg_emulated *rg_emulated_start(const struct rg_emulated_fault *faults);
/* Ends what is held, too. */
void rg_emulated_stop(struct rg_emulated *emulated);
/* "http://localhost:PORT" */
const char *rg_emulated_endpoint(const struct rg_emulated *emulated);

/* Requests of a kind whose heads have been read. */
uint32_t rg_emulated_count(struct rg_emulated *emulated, enum rg_emulated_kind kind);
/* The head of the last request of a kind, "" if there was none; valid until the next call. */
const char *rg_emulated_head(struct rg_emulated *emulated, enum rg_emulated_kind kind);
/* What is left: objects in the bucket, and uploads that are neither complete nor cancelled. */
uint32_t rg_emulated_objects(struct rg_emulated *emulated);
uint32_t rg_emulated_uploads(struct rg_emulated *emulated);
/* The content of an object; NULL: there is none. Valid until the next call. */
const uint8_t *rg_emulated_content(struct rg_emulated *emulated, const char *name,
                                   uint64_t *out_size);
/* Puts an object there. */
void rg_emulated_put(struct rg_emulated *emulated, const char *name, const void *data, size_t size);
/* Makes the bucket, or removes it, which has to be empty. */
void rg_emulated_bucket(struct rg_emulated *emulated, bool is_there);

#endif
