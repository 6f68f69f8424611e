/* The texts that ask for faults, as Google's storage-testbench knows them (its README, "Retry Test"
 * and "Forced failures"). The instructions of a retry test:
 *
 *   return-X                                    status X
 *   return-reset-connection                     RST instead of an answer
 *   return-broken-stream                        the answer ends after 4 bytes of its body; an
 *                                               answer without a body does not come at all
 *   return-broken-stream-after-YK               the same after Y KiB, if the body is longer
 *   return-broken-stream-final-chunk-after-YB   the answer to a finished upload ends after Y bytes
 *   return-X-after-YK                           an upload gets status X after Y KiB
 *   stall-for-Ts-after-YK                       the answer pauses for T s after Y KiB of its body;
 *                                               the answer to an upload of that much comes T s
 * later
 *
 * A fault "after Y KiB" waits for a request that gets so far. */
#ifndef RG_EMULATOR_FAULTS_INSTRUCTION_H
#define RG_EMULATOR_FAULTS_INSTRUCTION_H

#include "emulator/request/fault.h"
#include "http/h1_decoder.h"

#define RG_INSTRUCTION_SIZE_MAX 63
#define RG_INSTRUCTION_STALL_S_MAX 3600
#define RG_INSTRUCTION_AFTER_MAX (UINT64_C(1) << 40)

/* Reads an instruction of a retry test. False: it is none. */
bool rg_instruction_parse(const char *text, struct rg_fault_action *out_action);
/* The field x-goog-emulator-instructions of a request that asks for a fault of its own:
 * return-broken-stream, break-after-256K, return-503-after-256K[/retry-N], return-corrupted-data,
 * stall-always, stall-at-256KiB, inject-upload-data-error. Some mean something else of an upload.
 * False: it says something else. */
bool rg_instruction_parse_field(struct rg_h1_slice text, bool is_upload,
                                struct rg_fault_action *out_action);

#endif
