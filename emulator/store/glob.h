/* The `matchGlob` parameter: patterns over whole object names. "*" is any number of bytes but "/",
 * "**" any number of any, "?" one that is not "/", "[a-z]" and "[!a-z]" one of a set, "{a,b}" one
 * of several patterns, and a backslash takes the meaning from what follows. */
#ifndef RG_EMULATOR_STORE_GLOB_H
#define RG_EMULATOR_STORE_GLOB_H

#include "http/h1_decoder.h"

/* Limit of the steps of a match. A name that takes more does not match, so that no pattern stops
 * the emulator. */
#define RG_GLOB_STEPS_MAX 1000000

/* Whether the brackets and braces of it are closed. */
bool rg_glob_valid(struct rg_h1_slice pattern);
/* The pattern is valid. */
bool rg_glob_match(struct rg_h1_slice pattern, struct rg_h1_slice name);
/* The part of the pattern that every name that matches starts with. */
struct rg_h1_slice rg_glob_prefix(struct rg_h1_slice pattern);

#endif
