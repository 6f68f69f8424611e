/* A CUDA driver for tests, libcuda.so.1: it has the functions that are looked up, keeps what is
 * registered, and refuses what a driver refuses. Two devices. A program that is linked to it, or
 * has loaded it, gets it from dlopen("libcuda.so.1"). */
#ifndef RG_TESTS_SUPPORT_CUDA_STAND_IN_H
#define RG_TESTS_SUPPORT_CUDA_STAND_IN_H

#include <stdbool.h>
#include <stddef.h>

#define STAND_IN_API __attribute__((visibility("default")))

/* As after its loading; nothing may be registered. */
STAND_IN_API void stand_in_reset(void);
/* What cuInit and cuDeviceGetCount give. */
STAND_IN_API void stand_in_set_init(int result, int device_count);
/* The device of the caller's current context (-1: there is none), and a device whose primary
 * context is in use (-1: none is). */
STAND_IN_API void stand_in_set_used(int current, int active);
/* Registrations that succeed before all others fail; -1: all do. */
STAND_IN_API void stand_in_set_room(int count);

STAND_IN_API size_t stand_in_bytes(void);  /* registered now */
STAND_IN_API size_t stand_in_calls(void);  /* of cuMemHostRegister_v2 */
STAND_IN_API int stand_in_contexts(void);  /* primary contexts that are retained */
STAND_IN_API int stand_in_last_used(void); /* the device that was retained last, or -1 */
STAND_IN_API int stand_in_mistakes(void);  /* calls that a driver would have refused */
/* All of it lies in one registration. */
STAND_IN_API bool stand_in_has(const void *address, size_t size);

#endif
