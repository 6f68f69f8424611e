/* The word that was meant. */
#ifndef RG_CLI_NEAREST_H
#define RG_CLI_NEAREST_H

#include <stddef.h>

/* The word that `text` most likely stands for: one that begins with it, or the one with the fewest
 * letters that differ, if these are few. Letters that changed places count once. NULL: none is near
 * enough. */
const char *nearest_word(const char *text, const char *const *words, size_t count);

#endif
