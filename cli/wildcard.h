/* Patterns of names, as the users of `gcloud storage` write them. Pure functions.
 *
 *   *      any characters but "/", also none
 *   **     any characters; where it is all that lies between two "/", also no folder at all, so
 *          that a/ followed by it and by /b matches a/b
 *   ?      one character, not "/"
 *   [a-z]  one of these characters; [!a-z] and [^a-z]: another one, not "/". A "[" without its "]"
 *          stands for itself
 *
 * Nothing escapes a character: [*] is a name's own "*". Characters are those of UTF-8. */
#ifndef RG_CLI_WILDCARD_H
#define RG_CLI_WILDCARD_H

#include <stdbool.h>
#include <stddef.h>

struct wildcard;

/* Whether the text has any of these. */
bool wildcard_is(const char *text);
/* How many bytes at the start of the text stand for themselves. */
size_t wildcard_literal_size(const char *text);
/* Returns owned; NULL: no memory. */
struct wildcard *wildcard_make(const char *pattern);
/* Whether the whole name matches. Takes time of the product of both sizes at most. One thread at a
 * time. */
bool wildcard_matches(struct wildcard *wildcard, const char *name);
void wildcard_free(struct wildcard *wildcard);

#endif
