/* See base.h. An assertion that fails writes one line on standard error, then aborts. It is the
 * only place in the library that writes there unasked, because the process is about to end. */
#include "runtime/base.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rg_assert_fail(const char *condition, const char *file, int line, const char *function)
{
    fprintf(stderr, "ringest: %s:%d: %s: assertion failed: %s\n", file, line, function, condition);
    abort();
}

/* strerrordesc_np() would do, but is newer (glibc 2.32) than systems that we run on. The C locale
 * is not allocated: newlocale() gives the same static object each time (newlocale(3), glibc). */
const char *rg_error_text(int error)
{
    return strerror_l(error, newlocale(LC_ALL_MASK, "C", (locale_t)0));
}
