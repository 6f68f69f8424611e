/* See target.h. */
#include "gcs/wire/target.h"

#include "gcs/wire/names.h"

#include <string.h>

void rg_target_init(struct rg_target *target, char *text, size_t capacity)
{
    RG_ASSERT(capacity >= 1);
    *target = (struct rg_target){.text = text, .capacity = capacity};
    text[0] = '\0';
}

/* Room for `size` bytes and a NUL. */
static bool has_room(struct rg_target *target, size_t size)
{
    if (target->error == 0 && size >= target->capacity - target->size) {
        target->error = -ENOSPC;
    }
    return target->error == 0;
}

void rg_target_add(struct rg_target *target, const char *text)
{
    size_t size = strlen(text);
    if (has_room(target, size)) {
        memcpy(target->text + target->size, text, size + 1);
        target->size += size;
    }
}

void rg_target_add_name(struct rg_target *target, const char *name)
{
    if (!has_room(target, 0)) {
        return;
    }
    int size = rg_name_encode(name, strlen(name), target->text + target->size,
                              target->capacity - target->size - 1);
    if (size < 0) {
        target->error = size;
    } else {
        target->size += (size_t)size;
    }
    target->text[target->size] = '\0';
}

void rg_target_add_object(struct rg_target *target, const char *bucket, const char *object)
{
    rg_target_add(target, "/storage/v1/b/");
    rg_target_add_name(target, bucket);
    if (object != NULL) {
        rg_target_add(target, "/o/");
        rg_target_add_name(target, object);
    }
}

static void query_begin(struct rg_target *target, const char *name)
{
    rg_target_add(target, target->has_query ? "&" : "?");
    target->has_query = true;
    rg_target_add(target, name);
    rg_target_add(target, "=");
}

void rg_target_query(struct rg_target *target, const char *name, const char *value)
{
    if (value != NULL && *value != '\0') {
        query_begin(target, name);
        rg_target_add_name(target, value);
    }
}

/* Without snprintf: each get of a dataset has a generation. */
void rg_target_query_i64(struct rg_target *target, const char *name, int64_t value)
{
    char text[24] = "";
    size_t at = sizeof(text) - 1;
    if (value == 0) {
        return;
    }
    value = value == RG_GENERATION_ABSENT ? 0 : value;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    /* Divisions wait for one another: two of them give four digits. */
    for (; left >= 10000; left /= 10000) {
        unsigned four = (unsigned)(left % 10000), high = four / 100, low = four % 100;
        text[--at] = (char)('0' + low % 10);
        text[--at] = (char)('0' + low / 10);
        text[--at] = (char)('0' + high % 10);
        text[--at] = (char)('0' + high / 10);
    }
    do {
        text[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    text[--at] = '-';
    at += value >= 0;
    query_begin(target, name);
    rg_target_add(target, text + at);
}

void rg_target_conditions(struct rg_target *target, const struct rg_conditions *conditions)
{
    rg_target_query_i64(target, "ifGenerationMatch", conditions->if_generation_match);
    rg_target_query_i64(target, "ifGenerationNotMatch", conditions->if_generation_not_match);
    rg_target_query_i64(target, "ifMetagenerationMatch", conditions->if_metageneration_match);
    rg_target_query_i64(target, "ifMetagenerationNotMatch",
                        conditions->if_metageneration_not_match);
}

void rg_target_source_conditions(struct rg_target *target, const struct rg_conditions *conditions)
{
    rg_target_query_i64(target, "ifSourceGenerationMatch", conditions->if_generation_match);
    rg_target_query_i64(target, "ifSourceGenerationNotMatch", conditions->if_generation_not_match);
    rg_target_query_i64(target, "ifSourceMetagenerationMatch", conditions->if_metageneration_match);
    rg_target_query_i64(target, "ifSourceMetagenerationNotMatch",
                        conditions->if_metageneration_not_match);
}

int rg_target_end(const struct rg_target *target)
{
    return target->error < 0 ? target->error : (int)target->size;
}

bool rg_conditions_any(const struct rg_conditions *conditions)
{
    return conditions->if_generation_match != 0 || conditions->if_generation_not_match != 0 ||
           conditions->if_metageneration_match != 0 || conditions->if_metageneration_not_match != 0;
}

bool rg_conditions_valid(const struct rg_conditions *conditions)
{
    return conditions->if_generation_match >= RG_GENERATION_ABSENT &&
           conditions->if_generation_not_match >= RG_GENERATION_ABSENT &&
           conditions->if_metageneration_match >= 0 && conditions->if_metageneration_not_match >= 0;
}
