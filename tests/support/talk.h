/* One HTTP exchange at a time over a plain blocking socket of its own, with everything that can be
 * seen of how it ended: for tests of what servers do to their clients, and to set things up without
 * the code under test. */
#ifndef RG_TESTS_SUPPORT_TALK_H
#define RG_TESTS_SUPPORT_TALK_H

#include "runtime/base.h"

/* Longer than a busy machine holds anything up. */
#define RG_TALK_TIMEOUT_S 90
#define RG_TALK_ANSWER_MAX RG_MIB(2)

struct rg_talk_request {
    const char *method, *target;
    const char *fields; /* each with its CRLF; NULL: none */
    const void *body;   /* NULL: body_size bytes "x" */
    size_t body_size;
};

struct rg_talk {
    unsigned status; /* 0: no head came */
    uint64_t content_length;
    uint64_t body_size; /* that came */
    int error;          /* of send or recv; 0: a good end */
    char head[RG_KIB(2)];
    char text[RG_KIB(4)]; /* the start of the body */
};

/* With the server on this port of 127.0.0.1; ends the case when it cannot be reached. */
void rg_talk(struct rg_talk *talk, uint16_t port, const struct rg_talk_request *request);
bool rg_talk_is_whole(const struct rg_talk *talk);
/* The port at the end of "http://host:port". */
uint16_t rg_talk_port(const char *endpoint);

/* Makes a retry test of the emulator: `instructions` are JSON strings and commas, and `id` has
 * RG_TALK_ID_SIZE bytes. */
#define RG_TALK_ID_SIZE 64
void rg_talk_retry_test_begin(uint16_t port, const char *method, const char *instructions,
                              char *id);
bool rg_talk_retry_test_is_complete(uint16_t port, const char *id);
void rg_talk_retry_test_end(uint16_t port, const char *id);

/* A fault rule of the emulator (emulator/faults/rule.h). */
struct rg_talk_rule {
    char id[RG_TALK_ID_SIZE];
    unsigned long long seen, struck;
    char last[512]; /* The request that was struck last. */
};
/* `json` are the members of its object. */
void rg_talk_rule_begin(uint16_t port, const char *json, struct rg_talk_rule *out_rule);
/* Asks what it has come to. */
void rg_talk_rule_ask(uint16_t port, struct rg_talk_rule *rule);
/* Waits until it has struck, for RG_TALK_TIMEOUT_S at most. */
void rg_talk_rule_wait(uint16_t port, struct rg_talk_rule *rule);
/* Ends it, and with it what it holds; tells what it has come to. */
void rg_talk_rule_end(uint16_t port, struct rg_talk_rule *rule);

#endif
