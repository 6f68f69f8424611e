/* The driver of tests: see cuda_stand_in.h. Under one lock; the context is each thread's own. */
#include "tests/support/cuda_stand_in.h"

#include <pthread.h>
#include <stdint.h>

#define SUCCESS 0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define INVALID_CONTEXT 201
#define ALREADY_REGISTERED 712
#define NOT_REGISTERED 713
#define DEVICE_COUNT 2
#define PIECES_MAX 1024

/* A function of the driver, which no header of ours declares. */
#define DRIVER(name, ...)                                                                          \
    STAND_IN_API int name(__VA_ARGS__);                                                            \
    STAND_IN_API int name(__VA_ARGS__)

struct context {
    int device, retained;
};
struct piece {
    uintptr_t begin;
    size_t size; /* 0: free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context contexts[DEVICE_COUNT] = {{0, 0}, {1, 0}};
static struct piece pieces[PIECES_MAX];
static int init_result, device_count = DEVICE_COUNT, current = -1, active = -1, room = -1;
static int last_used = -1, mistakes;
static size_t calls;
static _Thread_local struct context *entered;

static int mistake(int result)
{
    mistakes++;
    return result;
}

void stand_in_reset(void)
{
    pthread_mutex_lock(&lock);
    init_result = 0;
    device_count = DEVICE_COUNT;
    current = active = room = last_used = -1;
    mistakes = 0;
    calls = 0;
    pthread_mutex_unlock(&lock);
}

void stand_in_set_init(int result, int count)
{
    init_result = result;
    device_count = count;
}

void stand_in_set_used(int current_device, int active_device)
{
    current = current_device;
    active = active_device;
}

void stand_in_set_room(int count)
{
    pthread_mutex_lock(&lock);
    room = count;
    pthread_mutex_unlock(&lock);
}

size_t stand_in_bytes(void)
{
    size_t sum = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PIECES_MAX; i++) {
        sum += pieces[i].size;
    }
    pthread_mutex_unlock(&lock);
    return sum;
}

size_t stand_in_calls(void)
{
    pthread_mutex_lock(&lock);
    size_t found = calls;
    pthread_mutex_unlock(&lock);
    return found;
}

int stand_in_contexts(void)
{
    return contexts[0].retained + contexts[1].retained;
}

int stand_in_last_used(void)
{
    return last_used;
}

int stand_in_mistakes(void)
{
    pthread_mutex_lock(&lock);
    int found = mistakes;
    pthread_mutex_unlock(&lock);
    return found;
}

bool stand_in_has(const void *address, size_t size)
{
    bool found = false;
    uintptr_t begin = (uintptr_t)address;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PIECES_MAX; i++) {
        found = found || (pieces[i].size != 0 && begin >= pieces[i].begin &&
                          begin + size <= pieces[i].begin + pieces[i].size);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

DRIVER(cuInit, unsigned flags)
{
    return flags == 0 ? init_result : INVALID_VALUE;
}

DRIVER(cuGetErrorName, int error, const char **out)
{
    *out = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_A_TEST";
    return SUCCESS;
}

DRIVER(cuDeviceGetCount, int *out)
{
    *out = device_count;
    return SUCCESS;
}

DRIVER(cuDeviceGet, int *out, int ordinal)
{
    *out = ordinal;
    return ordinal < device_count ? SUCCESS : INVALID_VALUE;
}

DRIVER(cuCtxGetDevice, int *out)
{
    *out = current;
    return current >= 0 ? SUCCESS : INVALID_CONTEXT;
}

DRIVER(cuDevicePrimaryCtxGetState, int device, unsigned *out_flags, int *out_active)
{
    *out_flags = 0;
    *out_active = device == active;
    return SUCCESS;
}

DRIVER(cuDevicePrimaryCtxRetain, struct context **out, int device)
{
    pthread_mutex_lock(&lock);
    contexts[device].retained++;
    last_used = device;
    *out = &contexts[device];
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

DRIVER(cuDevicePrimaryCtxRelease_v2, int device)
{
    pthread_mutex_lock(&lock);
    int rc = --contexts[device].retained >= 0 ? SUCCESS : mistake(INVALID_CONTEXT);
    pthread_mutex_unlock(&lock);
    return rc;
}

DRIVER(cuCtxPushCurrent_v2, struct context *context)
{
    entered = context;
    return SUCCESS;
}

DRIVER(cuCtxPopCurrent_v2, struct context **out)
{
    *out = entered;
    entered = NULL;
    return SUCCESS;
}

static int piece_add(uintptr_t begin, size_t size)
{
    struct piece *place = NULL;
    for (int i = 0; i < PIECES_MAX; i++) {
        struct piece *piece = &pieces[i];
        if (piece->size == 0) {
            place = piece;
        } else if (begin < piece->begin + piece->size && piece->begin < begin + size) {
            return mistake(ALREADY_REGISTERED);
        }
    }
    if (place == NULL) {
        return OUT_OF_MEMORY;
    }
    *place = (struct piece){begin, size};
    return SUCCESS;
}

DRIVER(cuMemHostRegister_v2, void *address, size_t size, unsigned flags)
{
    pthread_mutex_lock(&lock);
    int rc = OUT_OF_MEMORY;
    calls++;
    if (entered == NULL || size == 0 || flags != 1) {
        rc = mistake(INVALID_CONTEXT);
    } else if (room != 0) {
        room -= room > 0;
        rc = piece_add((uintptr_t)address, size);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

DRIVER(cuMemHostUnregister, void *address)
{
    pthread_mutex_lock(&lock);
    struct piece *found = NULL;
    for (int i = 0; i < PIECES_MAX && entered != NULL; i++) {
        if (pieces[i].size != 0 && pieces[i].begin == (uintptr_t)address) {
            found = &pieces[i];
        }
    }
    int rc = found != NULL ? SUCCESS : mistake(NOT_REGISTERED);
    if (found != NULL) {
        found->size = 0;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
