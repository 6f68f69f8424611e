/* See instruction.h. */
#include "emulator/faults/instruction.h"

#include "emulator/wire/text.h"

#define BREAK_SIZE 4 /* The testbench breaks streams after so many bytes. */
/* What the names in the field stand for. */
#define FIELD_SIZE RG_KIB(256)
#define FIELD_BREAK_SIZE RG_MIB(1)
#define FIELD_STALL_S 10

/* Reads the digits at the front of *text, a number of at most `max`. */
static bool take_number(const char **text, uint64_t max, uint64_t *out_value)
{
    uint64_t value = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > max) {
            return false;
        }
    }
    bool any = at != *text;
    *text = at;
    *out_value = value;
    return any;
}

/* Matches a text with a pattern in which each '#' is a number. */
static bool match(const char *text, const char *pattern, uint64_t out_numbers[2])
{
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '#') {
            if (!take_number(&text, RG_INSTRUCTION_AFTER_MAX, out_numbers++)) {
                return false;
            }
        } else if (*text++ != *pattern) {
            return false;
        }
    }
    return *text == '\0';
}

static bool is_status(uint64_t number)
{
    return number >= 300 && number <= 599;
}

bool rg_instruction_parse(const char *text, struct rg_fault_action *out_action)
{
    uint64_t number[2] = {0, 0};
    *out_action = (struct rg_fault_action){.kind = RG_FAULT_NONE};
    if (match(text, "return-#", number)) {
        out_action->kind = is_status(number[0]) ? RG_FAULT_STATUS : RG_FAULT_NONE;
        out_action->status = (uint16_t)number[0];
    } else if (match(text, "return-#-after-#K", number)) {
        out_action->kind = is_status(number[0]) ? RG_FAULT_STATUS_AFTER : RG_FAULT_NONE;
        out_action->status = (uint16_t)number[0];
        out_action->after = number[1] * 1024;
    } else if (match(text, "return-reset-connection", number)) {
        out_action->kind = RG_FAULT_RESET;
    } else if (match(text, "return-broken-stream", number)) {
        out_action->kind = RG_FAULT_BREAK;
        out_action->after = BREAK_SIZE;
    } else if (match(text, "return-broken-stream-after-#K", number)) {
        out_action->kind = RG_FAULT_BREAK_AFTER;
        out_action->after = number[0] * 1024;
    } else if (match(text, "return-broken-stream-final-chunk-after-#B", number)) {
        out_action->kind = RG_FAULT_BREAK_FINAL;
        out_action->after = number[0];
    } else if (match(text, "stall-for-#s-after-#K", number)) {
        out_action->kind =
            number[0] <= RG_INSTRUCTION_STALL_S_MAX ? RG_FAULT_STALL_AFTER : RG_FAULT_NONE;
        out_action->stall_s = (uint32_t)number[0];
        out_action->after = number[1] * 1024;
    }
    return out_action->kind != RG_FAULT_NONE;
}

bool rg_instruction_parse_field(struct rg_h1_slice text, bool is_upload,
                                struct rg_fault_action *out_action)
{
    static const struct {
        const char *text;
        struct rg_fault_action action;
    } rows[] = {
        {"return-broken-stream",
         {.kind = RG_FAULT_BREAK_AFTER, .reset = true, .after = FIELD_BREAK_SIZE}},
        {"break-after-256K", {.kind = RG_FAULT_BREAK_AFTER, .reset = true, .after = FIELD_SIZE}},
        {"return-503-after-256K",
         {.kind = RG_FAULT_BREAK_AFTER, .reset = true, .after = FIELD_SIZE}},
        {"return-503-after-256K/retry-1", {.kind = RG_FAULT_STATUS, .status = 503}},
        {"return-corrupted-data", {.kind = RG_FAULT_CORRUPT_ANSWER}},
        {"stall-always", {.kind = RG_FAULT_STALL_AFTER, .stall_s = FIELD_STALL_S}},
        {"stall-at-256KiB",
         {.kind = RG_FAULT_STALL_AFTER, .stall_s = FIELD_STALL_S, .after = FIELD_SIZE}},
        {"inject-upload-data-error", {.kind = RG_FAULT_CORRUPT_UPLOAD}},
    };
    if (is_upload && rg_text_equals(text, "return-503-after-256K")) {
        *out_action = (struct rg_fault_action){
            .kind = RG_FAULT_STATUS_AFTER, .status = 503, .after = FIELD_SIZE};
        return true;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (rg_text_equals(text, rows[i].text)) {
            *out_action = rows[i].action;
            return true;
        }
    }
    return false;
}
