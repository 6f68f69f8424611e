/* Host memory registered with CUDA: see cuda.h. Of the driver's API, only what is called is
 * declared here, as cuda.h of CUDA 12 has it. A library stays loaded for good: its threads may run
 * on. */
#include "runtime/cuda.h"

#include "runtime/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

#define LIBRARY "libcuda.so.1"
#define SUCCESS 0
#define NOT_INITIALIZED 3 /* of cuInit: a parent of this process has initialized CUDA */
#define REGISTER_PORTABLE 1
/* fork() of older kernels may give the pages that a device reads to the child, and others to the
 * parent: the device would read what was there before. */
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 9

typedef int cu_result;
typedef int cu_device;
typedef struct cu_context *cu_context;

#define CU_FUNCTIONS(XX)                                                                           \
    XX(init, "cuInit", (unsigned flags))                                                           \
    XX(error_name, "cuGetErrorName", (cu_result error, const char **out))                          \
    XX(device_count, "cuDeviceGetCount", (int *out))                                               \
    XX(device_get, "cuDeviceGet", (cu_device * out, int ordinal))                                  \
    XX(current_device, "cuCtxGetDevice", (cu_device * out))                                        \
    XX(primary_state, "cuDevicePrimaryCtxGetState",                                                \
       (cu_device device, unsigned *out_flags, int *out_active))                                   \
    XX(primary_retain, "cuDevicePrimaryCtxRetain", (cu_context * out, cu_device device))           \
    XX(primary_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                        \
    XX(context_push, "cuCtxPushCurrent_v2", (cu_context context))                                  \
    XX(context_pop, "cuCtxPopCurrent_v2", (cu_context * out))                                      \
    XX(host_register, "cuMemHostRegister_v2", (void *address, size_t size, unsigned flags))        \
    XX(host_unregister, "cuMemHostUnregister", (void *address))

static struct {
    pthread_once_t once;
    bool is_whole;
    char reason[256]; /* why it is not */
#define XX(name, symbol, parameters) cu_result(*name) parameters;
    CU_FUNCTIONS(XX)
#undef XX
} driver = {.once = PTHREAD_ONCE_INIT};

struct rg_cuda {
    cu_device device;
    cu_context context; /* retained */
};

static void driver_load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *cause = dlerror();
        snprintf(driver.reason, sizeof(driver.reason), "there is no CUDA driver: %s",
                 cause != NULL ? cause : LIBRARY);
        return;
    }
#define XX(name, symbol, parameters)                                                               \
    *(void **)&driver.name = dlsym(library, symbol);                                               \
    if (driver.name == NULL) {                                                                     \
        snprintf(driver.reason, sizeof(driver.reason), "the CUDA driver is too old: %s has no %s", \
                 LIBRARY, symbol);                                                                 \
        return;                                                                                    \
    }
    CU_FUNCTIONS(XX)
#undef XX
    driver.is_whole = true;
}

static const char *name_of(cu_result result)
{
    const char *name = NULL;
    return driver.error_name(result, &name) == SUCCESS && name != NULL ? name : "unknown error";
}

static bool kernel_is_new_enough(void)
{
    struct utsname system;
    unsigned major = 0, minor = 0;
    if (uname(&system) < 0 || sscanf(system.release, "%u.%u", &major, &minor) != 2) {
        return false;
    }
    return major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR);
}

static int refuse(int rc, char *error, size_t error_size, const char *format, ...) RG_PRINTF(4, 5);
static int refuse(int rc, char *error, size_t error_size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, error_size, format, args);
    va_end(args);
    return rc;
}

/* -1: none is in use. */
static int device_in_use(int count)
{
    cu_device device;
    if (driver.current_device(&device) == SUCCESS) {
        return device;
    }
    for (int i = 0; i < count; i++) {
        unsigned flags;
        int active = 0;
        if (driver.device_get(&device, i) == SUCCESS &&
            driver.primary_state(device, &flags, &active) == SUCCESS && active != 0) {
            return device;
        }
    }
    return -1;
}

static int device_choose(uint32_t local_rank, cu_device *out, char *error, size_t error_size)
{
    int count = 0;
    cu_result result = driver.device_count(&count);
    if (result != SUCCESS || count <= 0) {
        return refuse(-ENODEV, error, error_size, "CUDA finds no device (%s)",
                      result != SUCCESS ? name_of(result) : "CUDA_VISIBLE_DEVICES hides all");
    }
    int used = device_in_use(count);
    if (used >= 0) {
        *out = used;
        return 0;
    }
    result = driver.device_get(out, (int)(local_rank % (uint32_t)count));
    return result == SUCCESS
               ? 0
               : refuse(-ENODEV, error, error_size, "cuDeviceGet: %s", name_of(result));
}

static int driver_begin(char *error, size_t error_size)
{
    (void)pthread_once(&driver.once, driver_load);
    if (!driver.is_whole) {
        return refuse(-ENODEV, error, error_size, "%s", driver.reason);
    }
    if (!kernel_is_new_enough()) {
        return refuse(-ENOTSUP, error, error_size, "Linux is older than %d.%d", KERNEL_MAJOR,
                      KERNEL_MINOR);
    }
    cu_result result = driver.init(0);
    if (result != SUCCESS) {
        return refuse(-ENODEV, error, error_size, "cuInit: %s%s", name_of(result),
                      result == NOT_INITIALIZED
                          ? " (this process was forked from one that uses CUDA: use spawn)"
                          : "");
    }
    return 0;
}

int rg_cuda_open(struct rg_cuda **out_cuda, uint32_t local_rank, char *error, size_t error_size)
{
    cu_device device;
    int rc = driver_begin(error, error_size);
    if (rc == 0) {
        rc = device_choose(local_rank, &device, error, error_size);
    }
    if (rc < 0) {
        return rc;
    }
    struct rg_cuda *cuda = calloc(1, sizeof(*cuda));
    if (cuda == NULL) {
        return refuse(-ENOMEM, error, error_size, "there is no memory");
    }
    cuda->device = device;
    cu_result result = driver.primary_retain(&cuda->context, device);
    if (result != SUCCESS) {
        free(cuda);
        return refuse(-ENODEV, error, error_size, "the context of CUDA device %d: %s", device,
                      name_of(result));
    }
    *out_cuda = cuda;
    return 0;
}

void rg_cuda_close(struct rg_cuda *cuda)
{
    if (cuda != NULL) {
        (void)driver.primary_release(cuda->device);
        free(cuda);
    }
}

int rg_cuda_device(const struct rg_cuda *cuda)
{
    return cuda->device;
}

/* The threads of event loops have no context of their own. */
static bool context_enter(const struct rg_cuda *cuda)
{
    cu_result result = driver.context_push(cuda->context);
    if (result != SUCCESS) {
        rg_log(RG_LOG_DEBUG, "cuCtxPushCurrent: %s", name_of(result));
    }
    return result == SUCCESS;
}

static void context_leave(void)
{
    cu_context context;
    (void)driver.context_pop(&context);
}

int rg_cuda_register(struct rg_cuda *cuda, void *address, size_t size)
{
    if (!context_enter(cuda)) {
        return -ENOMEM;
    }
    cu_result result = driver.host_register(address, size, REGISTER_PORTABLE);
    context_leave();
    if (result != SUCCESS) {
        rg_log(RG_LOG_WARN, "CUDA does not register %zu bytes of memory (%s): no more is pinned",
               size, name_of(result));
        return -ENOMEM;
    }
    return 0;
}

/* When CUDA, or its context, has ended before us, nothing is registered any more. */
void rg_cuda_unregister(struct rg_cuda *cuda, void *address)
{
    if (!context_enter(cuda)) {
        return;
    }
    cu_result result = driver.host_unregister(address);
    context_leave();
    if (result != SUCCESS) {
        rg_log(RG_LOG_DEBUG, "cuMemHostUnregister: %s", name_of(result));
    }
}
