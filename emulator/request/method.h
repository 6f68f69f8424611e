/* The service's own names for requests, such as "storage.objects.insert", whether or not the
 * emulator serves them. Fault rules and retry tests choose requests by these names. */
#ifndef RG_EMULATOR_REQUEST_METHOD_H
#define RG_EMULATOR_REQUEST_METHOD_H

#include "emulator/request/request.h"

/* XX(name, text) */
#define RG_METHODS(XX)                                                                             \
    XX(NONE, "")                                                                                   \
    XX(BUCKETS_DELETE, "storage.buckets.delete")                                                   \
    XX(BUCKETS_GET, "storage.buckets.get")                                                         \
    XX(BUCKETS_GET_IAM, "storage.buckets.getIamPolicy")                                            \
    XX(BUCKETS_GET_LAYOUT, "storage.buckets.getStorageLayout")                                     \
    XX(BUCKETS_INSERT, "storage.buckets.insert")                                                   \
    XX(BUCKETS_LIST, "storage.buckets.list")                                                       \
    XX(BUCKETS_LOCK, "storage.buckets.lockRetentionPolicy")                                        \
    XX(BUCKETS_PATCH, "storage.buckets.patch")                                                     \
    XX(BUCKETS_SET_IAM, "storage.buckets.setIamPolicy")                                            \
    XX(BUCKETS_TEST_IAM, "storage.buckets.testIamPermissions")                                     \
    XX(BUCKETS_UPDATE, "storage.buckets.update")                                                   \
    XX(OBJECTS_COMPOSE, "storage.objects.compose")                                                 \
    XX(OBJECTS_COPY, "storage.objects.copy")                                                       \
    XX(OBJECTS_DELETE, "storage.objects.delete")                                                   \
    XX(OBJECTS_GET, "storage.objects.get")                                                         \
    XX(OBJECTS_INSERT, "storage.objects.insert")                                                   \
    XX(OBJECTS_LIST, "storage.objects.list")                                                       \
    XX(OBJECTS_MOVE, "storage.objects.move")                                                       \
    XX(OBJECTS_PATCH, "storage.objects.patch")                                                     \
    XX(OBJECTS_REWRITE, "storage.objects.rewrite")                                                 \
    XX(OBJECTS_UPDATE, "storage.objects.update")

enum rg_method {
#define XX(name, text) RG_METHOD_##name,
    RG_METHODS(XX)
#undef XX
        RG_METHOD_COUNT
};

enum rg_method rg_method_of(const struct rg_api_request *request);
const char *rg_method_name(enum rg_method method);
/* RG_METHOD_NONE: there is no method of that name. */
enum rg_method rg_method_find(const char *name);

#endif
