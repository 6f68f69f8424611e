/* The word that was meant: see nearest.h. */
#include "cli/nearest.h"

#include "runtime/base.h"

#include <string.h>

#define WORD_SIZE_MAX 40
/* One letter of three may differ, two of four to six, and so on. */
#define LETTERS_PER_ERROR 3

/* The optimal string alignment distance: letters put in, left out, replaced, or swapped with their
 * neighbours. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[WORD_SIZE_MAX + 1][WORD_SIZE_MAX + 1];
    for (size_t i = 0; i <= a_size; i++) {
        rows[i][0] = i;
    }
    for (size_t j = 0; j <= b_size; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        for (size_t j = 1; j <= b_size; j++) {
            size_t changed = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            size_t least = RG_MIN(changed, RG_MIN(rows[i - 1][j], rows[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                least = RG_MIN(least, rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    return rows[a_size][b_size];
}

const char *nearest_word(const char *text, const char *const *words, size_t count)
{
    size_t size = strlen(text);
    const char *nearest = NULL;
    size_t least = (size - 1) / LETTERS_PER_ERROR + 1;
    for (size_t i = 0; i < count && size > 1 && size <= WORD_SIZE_MAX; i++) {
        size_t word_size = strlen(words[i]);
        if (word_size > WORD_SIZE_MAX) {
            continue;
        }
        size_t apart = distance(text, size, words[i], word_size);
        if (apart > least && strncmp(text, words[i], size) == 0) {
            apart = least;
        }
        if (apart < least || (apart == least && nearest == NULL)) {
            nearest = words[i];
            least = apart;
        }
    }
    return nearest;
}
