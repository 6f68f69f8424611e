/* A bucket that is an array: see listing_model.h. */
#include "tests/support/listing_model.h"

#include "tests/support/test.h"

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* The size of the group that the name belongs to; 0: none. */
static size_t group_size(const struct rg_listing_model *model, const char *name)
{
    if (*model->delimiter == '\0') {
        return 0;
    }
    const char *found = strstr(name + strlen(model->prefix), model->delimiter);
    return found != NULL ? (size_t)(found - name) + strlen(model->delimiter) : 0;
}

static bool in_range(const struct rg_listing_model *model, const char *name, const char *start)
{
    return starts_with(name, model->prefix) && strcmp(name, start) >= 0;
}

static uint32_t versions_of(const struct rg_listing_model *model, const char *name)
{
    return model->versions == 0
               ? 1
               : 1 + (uint32_t)(strlen(name) * 7 + (uint8_t)*name) % model->versions;
}

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 5381;
    for (; *text != '\0'; text++) {
        hash = hash * 33 + (uint8_t)*text;
    }
    return hash;
}

static void add_prefix(struct rg_listing_model_page *answer, const char *name, size_t size)
{
    size_t count = answer->page.prefix_count;
    if (count > 0 && strlen(answer->prefixes[count - 1]) == size &&
        memcmp(answer->prefixes[count - 1], name, size) == 0) {
        return;
    }
    answer->prefixes[answer->page.prefix_count++] = strndup(name, size);
}

void rg_listing_model_serve(const struct rg_listing_model *model, const char *start,
                            const char *end, const char *token, uint32_t count_max,
                            struct rg_listing_model_page *out_page)
{
    size_t at = 0;
    unsigned version = 0, count = 0, start_hash, end_hash;
    if (token != NULL) {
        RG_CHECK_EQ(sscanf(token, "%zu,%u,%u,%u", &at, &version, &start_hash, &end_hash), 4);
        RG_CHECK_EQ(start_hash, hash_text(start));
        RG_CHECK_EQ(end_hash, hash_text(end));
    }
    out_page->objects = calloc(count_max + 1, sizeof(*out_page->objects));
    out_page->prefixes = calloc(count_max + 1, sizeof(char *));
    RG_CHECK(out_page->objects != NULL && out_page->prefixes != NULL);
    out_page->page = (struct rg_list_page){.objects = out_page->objects,
                                           .prefixes = (const char *const *)out_page->prefixes};
    for (; at < model->set.count; at++) {
        const char *name = model->set.names[at];
        if (*end != '\0' && strcmp(name, end) >= 0) {
            return;
        }
        if (!in_range(model, name, start)) {
            continue;
        }
        if (count == count_max) {
            snprintf(out_page->token, sizeof(out_page->token), "%zu,%u,%u,%u", at, version,
                     hash_text(start), hash_text(end));
            out_page->page.next_page_token = out_page->token;
            return;
        }
        count++;
        size_t group = group_size(model, name);
        if (group > 0) {
            add_prefix(out_page, name, group);
            while (at + 1 < model->set.count &&
                   strncmp(model->set.names[at + 1], name, group) == 0) {
                at++;
            }
            continue;
        }
        out_page->objects[out_page->page.object_count++] =
            (struct rg_object){.name = name, .generation = version + 1};
        version = version + 1 < versions_of(model, name) ? version + 1 : 0;
        at -= version > 0;
    }
}

void rg_listing_model_page_free(struct rg_listing_model_page *page)
{
    for (char **prefix = page->prefixes; *prefix != NULL; prefix++) {
        free(*prefix);
    }
    free(page->prefixes);
    free(page->objects);
}

static void found_add_text(struct rg_listing_found *found, char *text)
{
    RG_CHECK(text != NULL);
    if (found->count == found->capacity) {
        found->capacity = RG_MAX(2 * found->capacity, (size_t)256);
        found->texts = realloc(found->texts, found->capacity * sizeof(char *));
        RG_CHECK(found->texts != NULL);
    }
    found->texts[found->count++] = text;
}

void rg_listing_found_add(struct rg_listing_found *found, const struct rg_list_page *page)
{
    size_t i = 0, j = 0;
    while (i < page->object_count || j < page->prefix_count) {
        bool prefix_first =
            j < page->prefix_count &&
            (i == page->object_count || strcmp(page->prefixes[j], page->objects[i].name) < 0);
        char *text;
        if (prefix_first) {
            text = strdup(page->prefixes[j++]);
        } else {
            const struct rg_object *object = &page->objects[i++];
            RG_CHECK(asprintf(&text, "%s\x01#%04u", object->name, (unsigned)object->generation) >
                     0);
        }
        found_add_text(found, text);
    }
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void found_sort(struct rg_listing_found *found)
{
    if (found->count > 0) {
        qsort(found->texts, found->count, sizeof(char *), compare_texts);
    }
}

void rg_listing_found_free(struct rg_listing_found *found)
{
    for (size_t i = 0; i < found->count; i++) {
        free(found->texts[i]);
    }
    free(found->texts);
    *found = (struct rg_listing_found){0};
}

void rg_listing_found_check(struct rg_listing_found *found, const struct rg_listing_model *model,
                            bool ordered)
{
    struct rg_listing_model_page all = {.token = ""};
    struct rg_listing_found wanted = {0};
    uint32_t count_max = (uint32_t)model->set.count * (model->versions + 1);
    rg_listing_model_serve(model, model->start, model->end, NULL, count_max, &all);
    RG_CHECK(all.page.next_page_token == NULL);
    rg_listing_found_add(&wanted, &all.page);
    rg_listing_model_page_free(&all);
    if (!ordered) {
        found_sort(found);
        found_sort(&wanted);
    }
    for (size_t i = 0; i < RG_MIN(found->count, wanted.count); i++) {
        RG_CHECK_STR(found->texts[i], wanted.texts[i]);
    }
    RG_CHECK_EQ(found->count, wanted.count);
    rg_listing_found_free(&wanted);
    rg_listing_found_free(found);
}

static void any_key(const struct rg_listing_model *model, char *out)
{
    strcpy(out, "");
    if (model->set.count > 0 && rg_test_random_below(4) == 0) {
        strcpy(out, model->set.names[rg_test_random_below(model->set.count)]);
        size_t size = strlen(out);
        if (rg_test_random_below(2) == 0 && (uint8_t)out[size - 1] < 0x7e) {
            out[size - 1]++;
        }
    }
}

void rg_listing_model_make(struct rg_listing_model *model, enum rg_test_name_kind kind,
                           size_t count_max)
{
    static const char *const delimiters[] = {"", "", "/", "/", "--", "0", "a/"};
    model->set = rg_test_names_make(kind, rg_test_random_below(count_max));
    model->delimiter = delimiters[rg_test_random_below(RG_ARRAY_LEN(delimiters))];
    model->prefix = "";
    model->versions = rg_test_random_below(4) == 0 ? 5 : 0;
    any_key(model, model->start);
    any_key(model, model->end);
}

void rg_listing_model_free(struct rg_listing_model *model)
{
    rg_test_names_free(&model->set);
}
