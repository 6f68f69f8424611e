/* The control interface of retry tests, by Google's storage-testbench:
 *
 *   POST /retry_test {"instructions":{METHOD:[INSTRUCTION,...]}}    -> {"id":ID,...}
 *   GET /retry_test/ID or /retry_tests                              -> ..., "completed":true
 *   DELETE /retry_test/ID */
#ifndef RG_EMULATOR_FAULTS_RETRY_CONTROL_H
#define RG_EMULATOR_FAULTS_RETRY_CONTROL_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* Answers the call, or has its body collected. False: the request is about something else. */
bool rg_retry_control(struct rg_server_call *call, const struct rg_api_request *request);
/* Answers that there is no such test. */
void rg_retry_control_unknown(struct rg_server_call *call, struct rg_h1_slice id);

#endif
