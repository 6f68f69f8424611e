/* See names.h. */
#include "emulator/store/model/names.h"

#include "emulator/wire/text.h"
#include "http/h1_encoder.h"

#include <string.h>

#define BUCKET_NAME_SIZE_MIN 3

bool rg_store_bucket_name_valid(struct rg_h1_slice name)
{
    if (name.size < BUCKET_NAME_SIZE_MIN || name.size > RG_STORE_BUCKET_NAME_SIZE_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool inside = i > 0 && i + 1 < name.size;
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
            !(inside && (c == '-' || c == '_' || c == '.'))) {
            return false;
        }
    }
    return true;
}

bool rg_store_attribute_valid(struct rg_h1_slice value, size_t size_max)
{
    return value.size > 0 && value.size <= size_max &&
           rg_h1_value_span(value.data, value.size) == value.size &&
           strchr(" \t", value.data[0]) == NULL &&
           strchr(" \t", value.data[value.size - 1]) == NULL;
}

bool rg_store_object_name_valid(struct rg_h1_slice name)
{
    return name.size > 0 && name.size <= RG_STORE_NAME_SIZE_MAX &&
           memchr(name.data, '\r', name.size) == NULL &&
           memchr(name.data, '\n', name.size) == NULL && !rg_text_equals(name, ".") &&
           !rg_text_equals(name, "..") && rg_text_is_utf8(name);
}

bool rg_store_folder_name_valid(struct rg_h1_slice name)
{
    return name.size <= RG_STORE_FOLDER_SIZE_MAX && rg_store_object_name_valid(name) &&
           name.data[name.size - 1] == '/';
}
