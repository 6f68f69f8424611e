/* Subject tokens of external accounts: from a file, a URL, or a program that the credential file
 * names. Private to credentials_external.c and its test. */
#ifndef RG_GCS_CREDENTIALS_EXTERNAL_H
#define RG_GCS_CREDENTIALS_EXTERNAL_H

#include "gcs/credentials/kind.h"

#define RG_COMMAND_WORDS_MAX 64

/* Divides a command into words as a shell would, knowing blanks, quotes and backslashes and nothing
 * else, so that nothing in it is ever expanded. `text` is changed; words[] ends with NULL. Returns
 * how many, or -EINVAL: an open quote, no word, too many. */
int rg_command_split(char *text, char *words[RG_COMMAND_WORDS_MAX + 1]);

#endif
