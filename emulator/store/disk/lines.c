/* See lines.h. */
#include "emulator/store/disk/lines.h"

#include "emulator/store/model/names.h"
#include "emulator/wire/text.h"

#include <errno.h>
#include <string.h>

int rg_disk_line_next(char **text, const char **out_key, char **out_value)
{
    if (**text == '\0') {
        return 0;
    }
    char *end = strchr(*text, '\n');
    char *space = end != NULL ? memchr(*text, ' ', (size_t)(end - *text)) : NULL;
    if (space == NULL) {
        return -EBADMSG;
    }
    *end = *space = '\0';
    *out_key = *text;
    *out_value = space + 1;
    *text = end + 1;
    return 1;
}

bool rg_disk_line_take_text(char *out, size_t size_max, const char *value)
{
    struct rg_h1_slice slice = rg_text_slice(value);
    if (!rg_store_attribute_valid(slice, size_max)) {
        return false;
    }
    memcpy(out, value, slice.size + 1);
    return true;
}
