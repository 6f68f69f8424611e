/* Faults on demand, by the control interface of Google's storage-testbench (its README, "Retry
 * Test" and "Forced failures"), so that tests of any client's retries run against us as they are.
 *
 *   POST /retry_test {"instructions":{METHOD:[INSTRUCTION,...]}}    -> {"id":ID,...}
 *   requests with x-retry-test-id: ID, each of which meets the next instruction of its method
 *   GET /retry_test/ID or /retry_tests                              -> ..., "completed":true
 *   DELETE /retry_test/ID
 *
 *   return-X                                    status X
 *   return-reset-connection                     RST instead of an answer
 *   return-broken-stream                        the answer ends after 4 bytes of its body; one that
 *                                               has no body does not come at all
 *   return-broken-stream-after-YK               after Y KiB, if it is longer
 *   return-broken-stream-final-chunk-after-YB   the answer to a finished upload ends after Y bytes
 *   return-X-after-YK                           of an upload Y KiB are taken, and then status X
 *   stall-for-Ts-after-YK                       nothing comes for T s after Y KiB of a body; an
 *                                               upload of that much is answered so much later
 *
 * What comes "after Y KiB" waits for a request that gets so far. One request alone can also ask for
 * a fault of its own, by x-goog-emulator-instructions: return-broken-stream, break-after-256K,
 * return-503-after-256K[/retry-N], return-corrupted-data, stall-always, stall-at-256KiB,
 * inject-upload-data-error.
 *
 * Life of a call's fault: rg_faults_begin finds the instruction and carries it out if it concerns
 * the request; what concerns the body or the answer stays in the call and is used up when it
 * happens, by one of the calls that may have it. One rg_faults serves all loops. */
#ifndef RG_EMULATOR_FAULTS_H
#define RG_EMULATOR_FAULTS_H

#include "emulator/fault.h"
#include "emulator/request.h"
#include "http/server.h"

/* Tests that exist at once, and instructions of one. */
#define RG_RETRY_TESTS_MAX 1024
#define RG_RETRY_INSTRUCTIONS_MAX 256
#define RG_RETRY_INSTRUCTION_SIZE_MAX 63
#define RG_RETRY_STALL_S_MAX 3600
#define RG_RETRY_AFTER_MAX (UINT64_C(1) << 40)

struct rg_faults;

int rg_faults_create(struct rg_faults **out_faults);
void rg_faults_destroy(struct rg_faults *faults);

/* At the head of every request. It may answer the call, or have its body collected. */
void rg_faults_begin(struct rg_server_call *call, const struct rg_api_request *request);
/* A piece of the request's body has come: returns how much of it to go on with. */
size_t rg_faults_take(struct rg_server_call *call, size_t size);
/* The body is complete: may answer in the place of whoever received it. */
void rg_faults_end(struct rg_server_call *call);
/* The call is answered: its answer may go wrong. */
void rg_faults_respond(struct rg_server_call *call);
/* Data that start an upload or an answer, at least one byte. True: what goes on in the place of the
 * first byte is call's fault.corrupted, once. */
bool rg_faults_corrupt(struct rg_server_call *call, enum rg_fault_kind kind, const uint8_t *data);

#endif
