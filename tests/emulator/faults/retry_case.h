/* Retry tests of the emulator, made without sockets. */
#ifndef RG_TESTS_EMULATOR_FAULTS_RETRY_CASE_H
#define RG_TESTS_EMULATOR_FAULTS_RETRY_CASE_H

#include "tests/emulator/driver.h"

static char id[64];

static inline void post_test(const char *json)
{
    rg_driver_send(api, &reply,
                   "POST /retry_test HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   strlen(json), json);
}

static inline void make_test(const char *method, const char *instruction)
{
    char json[256];
    snprintf(json, sizeof(json), "{\"instructions\":{\"%s\":[\"%s\"]},\"transport\":\"HTTP\"}",
             method, instruction);
    post_test(json);
    RG_CHECK_EQ(reply.status, 200);
    json_member("id", id, sizeof(id));
}

#endif
