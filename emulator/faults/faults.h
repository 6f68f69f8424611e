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

/* At the head of every request. It may answer the call, or have its body collected. */
void rg_faults_begin(struct rg_server_call *call, const struct rg_api_request *request);
/* A piece of the request's body has come: returns how much of it to go on with. */
size_t rg_faults_take(struct rg_server_call *call, size_t size);
/* The body is complete: may answer in the place of whoever received it. */
void rg_faults_end(struct rg_server_call *call);
/* The call is answered: its answer may go wrong. */
void rg_faults_respond(struct rg_server_call *call);
/* Data that start an upload or an answer, at least one byte. True: what goes on in the place of the
 * first byte is the call's fault.corrupted, once. */
bool rg_faults_corrupt(struct rg_server_call *call, enum rg_fault_kind kind, const uint8_t *data);

#endif
