/* The control interface of rules:
 *
 *   POST /fault_rule {MEMBER:VALUE,...}  -> {"id":ID,"seen":0,"struck":0,"last":null,"head":null}
 *   GET /fault_rule/ID                   -> the same, as it is by now
 *   GET /fault_rule/ID?wait              as soon as the rule has struck
 *   DELETE /fault_rule/ID                ends it: requests that are to happen later happen before
 * the answer, and held answers are sent
 *
 * rule.h lists the members. */
#ifndef RG_EMULATOR_FAULTS_RULE_CONTROL_H
#define RG_EMULATOR_FAULTS_RULE_CONTROL_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"

/* Answers the call, has its body collected, or holds it. False: the request is about something
 * else. */
bool rg_rule_control(struct rg_server_call *call, const struct rg_api_request *request);

#endif
