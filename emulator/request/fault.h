/* What is to go wrong with one call, as plain data. The call carries it; faults.h decides what
 * it is and carries it out. */
#ifndef RG_EMULATOR_REQUEST_FAULT_H
#define RG_EMULATOR_REQUEST_FAULT_H

#include "runtime/base.h"

enum rg_fault_kind {
    RG_FAULT_NONE = 0,
    RG_FAULT_STATUS,
    RG_FAULT_RESET,
    RG_FAULT_BREAK,          /* Any answer. */
    RG_FAULT_BREAK_AFTER,    /* An answer that is longer. */
    RG_FAULT_BREAK_FINAL,    /* The answer to an upload. */
    RG_FAULT_STATUS_AFTER,   /* An upload that is as long. */
    RG_FAULT_STALL_AFTER,    /* Either. */
    RG_FAULT_CORRUPT_ANSWER, /* This one and the next are asked for by a field only. */
    RG_FAULT_CORRUPT_UPLOAD,
};

struct rg_fault_action {
    uint8_t kind;
    bool reset; /* A break is by RST. */
    uint16_t status;
    uint32_t stall_s;
    uint64_t after; /* Bytes. */
};

/* In a call's state. */
struct rg_fault {
    struct rg_fault_action action;
    uint64_t test_serial; /* The retry test that the instruction belongs to; 0: the request's own
                             field asked for it. */
    uint16_t index;
    bool has_struck;   /* The instruction is used up; the upload fails when its body is there. */
    bool is_upload;    /* The call's method is storage.objects.insert. */
    uint8_t corrupted; /* The first byte of an answer or an upload that is to be corrupted. */
    uint64_t from;     /* Where in its upload the body of this request starts. */
    uint64_t received; /* bytes of that body so far */
};

#endif
