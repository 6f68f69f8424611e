/* Stands in the place of pthread_create where a test has one thread: ThreadSanitizer does not watch
 * those tests. */
#include "runtime/base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument)
{
    (void)thread;
    (void)attributes;
    (void)main;
    (void)argument;
    fprintf(stderr,
            "a test that starts threads belongs to the suite `threads`: see its meson.build\n");
    abort();
}
