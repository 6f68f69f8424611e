/* Faults on demand, by the control interface of Google's storage-testbench, so that tests of any
 * client's retries run against us as they are: requests with x-retry-test-id meet the instructions
 * of a retry test (retry_tests.h, retry_control.h), and one with x-goog-emulator-instructions asks
 * for a fault of its own (instruction.h).
 *
 * Life of a call's fault: rg_faults_begin finds the instruction, and carries it out at once if it
 * concerns the request. What concerns the body or the answer stays in the call. It is used up when
 * it happens, by one of the calls that may have it. */
#ifndef RG_EMULATOR_FAULTS_FAULTS_H
#define RG_EMULATOR_FAULTS_FAULTS_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* Called at the head of every request. It may answer the call, or have its body collected. */
void rg_faults_begin(struct rg_server_call *call, const struct rg_api_request *request);
/* A piece of the request's body has come: returns how much of it to go on with. */
size_t rg_faults_take(struct rg_server_call *call, size_t size);
/* Called when the body is complete. It may answer the call, instead of who received the body. */
void rg_faults_end(struct rg_server_call *call);
/* Called when the call is answered. It may make the answer go wrong. */
void rg_faults_respond(struct rg_server_call *call);
/* Called with the first data of an upload or an answer, at least one byte. True, once, if it is
 * to be corrupted: the call's fault.corrupted replaces the first byte. */
bool rg_faults_corrupt(struct rg_server_call *call, enum rg_fault_kind kind, const uint8_t *data);

#endif
