/* What an assertion does when it fails: one line on standard error, then abort. It is the only
 * place in the library that writes there unasked, because the process is about to end. */
#include "runtime/base.h"

#include <stdio.h>
#include <stdlib.h>

void rg_assert_fail(const char *condition, const char *file, int line, const char *function)
{
    fprintf(stderr, "ringest: %s:%d: %s: assertion failed: %s\n", file, line, function, condition);
    abort();
}
