/* See variable.h. */
#include "runtime/variable.h"

#include <ctype.h>
#include <ringest/gcs.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "RINGEST_"

/* No options, but read elsewhere. */
static const char *const others[] = {"log"};

static const char *name_at(size_t index)
{
    return index < RG_ARRAY_LEN(others) ? others[index]
                                        : rg_option_name(index - RG_ARRAY_LEN(others));
}

/* How many letters have to be put in, taken out or replaced (Levenshtein 1966), in any case. */
static size_t distance(const char *one, const char *other)
{
    size_t row[RG_VARIABLE_SIZE_MAX], size = strlen(other);
    for (size_t i = 0; i <= size; i++) {
        row[i] = i;
    }
    for (size_t n = 0; one[n] != '\0'; n++) {
        size_t above_left = row[0];
        row[0] = n + 1;
        for (size_t i = 0; i < size; i++) {
            bool same = toupper((unsigned char)one[n]) == toupper((unsigned char)other[i]);
            size_t replaced = above_left + (same ? 0 : 1);
            above_left = row[i + 1];
            row[i + 1] = RG_MIN(replaced, RG_MIN(row[i], above_left) + 1);
        }
    }
    return row[size];
}

bool rg_variable_mistaken(const char *name, char out_meant[RG_VARIABLE_SIZE_MAX])
{
    const char *known, *meant = NULL, *rest = name + strlen(PREFIX);
    size_t least = SIZE_MAX;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(rest) >= RG_VARIABLE_SIZE_MAX) {
        return false;
    }
    for (size_t i = 0; (known = name_at(i)) != NULL; i++) {
        size_t far = distance(rest, known), half = RG_MAX(strlen(rest), strlen(known)) / 2;
        /* The first letter is seldom the wrong one. */
        bool begins = tolower((unsigned char)*rest) == *known;
        if (begins && far <= half && far < least) {
            least = far;
            meant = known;
        }
    }
    if (meant == NULL) {
        return false;
    }
    char wanted[RG_VARIABLE_SIZE_MAX];
    snprintf(wanted, sizeof(wanted), PREFIX "%s", meant);
    for (char *c = wanted; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
    memcpy(out_meant, wanted, sizeof(wanted));
    return strcmp(wanted, name) != 0;
}
