/* Retry tests: lists of instructions that requests meet, one after the other for each method.
 *
 * Life of a test: rg_retry_test_create -> rg_retry_test_add, for each instruction ->
 * rg_retry_tests_keep, which gives it an id -> requests find their instruction by it and use it up
 * -> rg_retry_tests_remove. Any thread may call anything; one table serves all loops. */
#ifndef RG_EMULATOR_FAULTS_RETRY_TESTS_H
#define RG_EMULATOR_FAULTS_RETRY_TESTS_H

#include "emulator/faults/instruction.h"
#include "emulator/request/fault.h"
#include "emulator/request/method.h"
#include "emulator/wire/text.h"

/* Tests that exist at once, and instructions of one. */
#define RG_RETRY_TESTS_MAX 1024
#define RG_RETRY_INSTRUCTIONS_MAX 256

struct rg_retry_tests;
struct rg_retry_test;

int rg_retry_tests_create(struct rg_retry_tests **out_tests);
void rg_retry_tests_destroy(struct rg_retry_tests *tests);

/* A test in the making, without instructions. Returns owned, NULL without memory. */
struct rg_retry_test *rg_retry_test_create(void);
/* 0; -EINVAL: it is no instruction; -ENOSPC: it has as many as there may be. */
int rg_retry_test_add(struct rg_retry_test *test, enum rg_method method, const char *instruction);
/* One that was not kept. */
void rg_retry_test_destroy(struct rg_retry_test *test);

/* Takes the test on success, and appends its description in JSON. -ENOSPC: there are too many. */
int rg_retry_tests_keep(struct rg_retry_tests *tests, struct rg_retry_test *test,
                        struct rg_text *text);
/* Appends the description of each, separated by commas. */
void rg_retry_tests_append_all(struct rg_retry_tests *tests, struct rg_text *text);
/* The same for one. -ENOENT. */
int rg_retry_tests_append(struct rg_retry_tests *tests, struct rg_h1_slice id,
                          struct rg_text *text);
/* -ENOENT. */
int rg_retry_tests_remove(struct rg_retry_tests *tests, struct rg_h1_slice id);

/* Gives a request the next instruction of its method, if one is left. -ENOENT: there is no such
 * test. */
int rg_retry_tests_find(struct rg_retry_tests *tests, struct rg_h1_slice id, enum rg_method method,
                        struct rg_fault *fault);
/* Uses up the instruction that a request was given. False: another request has. A fault that a
 * request asked for itself is always its own. */
bool rg_retry_tests_use(struct rg_retry_tests *tests, const struct rg_fault *fault);

#endif
