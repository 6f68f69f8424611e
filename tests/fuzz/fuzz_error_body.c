/* Bodies of errors: whatever they are, the line is UTF-8 without controls and fits. Byte 0 chooses
 * how much room there is. */
#include "gcs/wire/error_body.h"
#include "gcs/wire/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t capacity = 1 + (size_t)data[0] * 3;
    char *line = malloc(capacity);
    RG_ASSERT(line != NULL);
    size_t left = rg_error_message((const char *)data + 1, size - 1, line, capacity);
    RG_ASSERT(left < capacity && strlen(line) == left);
    RG_ASSERT(left == 0 || (line[0] != ' ' && line[left - 1] != ' '));
    for (const char *at = line; left > 0;) {
        uint32_t code;
        int used = rg_utf8_decode(at, left, &code);
        RG_ASSERT(used > 0 && code >= ' ' && (code < 0x7f || code > 0x9f));
        at += used;
        left -= (size_t)used;
    }
    free(line);
    return 0;
}
