/* The result of a request. Functions return 0 or a count, or a negative errno. The result of a
 * *request* is one of the statuses below, in its completion.
 *
 * The table: name, value, text, and whether another attempt may succeed; the library has already
 * made the attempts that its options allow. Values never change; new ones come at the end. */
#ifndef RINGEST_ERROR_H
#define RINGEST_ERROR_H

#include <ringest/version.h>

#include <stdbool.h>

/* clang-format off */
#define RG_STATUS_TABLE(XX)                                                                        \
    XX(OK,                  0, "done", false)                                                      \
    XX(CANCELLED,           1, "cancelled", false)                                                 \
    XX(DEADLINE,            2, "the deadline passed", false)                                       \
    XX(CLOSED,              3, "the client was closed", false)                                     \
    XX(RESOLVE,             4, "the host name could not be resolved", true)                        \
    XX(CONNECT,             5, "no connection could be made", true)                                \
    XX(CONNECTION_LOST,     6, "the connection was lost", true)                                    \
    XX(STALLED,             7, "the server stopped answering", true)                               \
    XX(TLS_CERTIFICATE,     8, "the server's certificate was rejected", false)                      \
    XX(TLS_PROTOCOL,        9, "the TLS connection failed", false)                                 \
    XX(HTTP_PROTOCOL,      10, "the answer is not valid HTTP/1.1", true)                           \
    XX(TRUNCATED,          11, "the body ended early", true)                                       \
    XX(CHECKSUM,           12, "the bytes do not have the object's CRC32C", true)                  \
    XX(NOT_FOUND,          13, "no such object or bucket", false)                                  \
    XX(PERMISSION,         14, "permission denied", false)                                         \
    XX(UNAUTHENTICATED,    15, "credentials are missing or not valid", false)                      \
    XX(PRECONDITION,       16, "a precondition failed", false)                              \
    XX(RANGE,              17, "the range lies outside the object", false)                         \
    XX(THROTTLED,          18, "the server throttles requests", true)                        \
    XX(SERVER,             19, "the server failed", true)                                          \
    XX(BAD_REQUEST,        20, "the server refused the request", false)                            \
    XX(TOO_LARGE,          21, "the body does not fit the buffer or the memory budget", false)     \
    XX(NO_RESOURCES,       22, "file descriptors or memory are used up", true)                     \
    XX(BAD_RESPONSE,       23, "the answer is not what the service documents", false)              \
    XX(UNEXPECTED,         24, "an unexpected system error", false)                                \
    XX(SOURCE,             25, "the data to send could not be read", false)                     \
    XX(CREDENTIALS,        26, "no access token could be obtained", false)                         \
    XX(END,                27, "all samples were given", false)
/* clang-format on */

enum rg_status {
#define XX(name, value, text, retryable) RG_STATUS_##name = value,
    RG_STATUS_TABLE(XX)
#undef XX
        RG_STATUS_COUNT
};

RG_DECLS_BEGIN
/* Name ("NOT_FOUND") and text ("no such object or bucket") of a status, in static storage;
 * "UNKNOWN" and "unknown status" for other values. */
RG_API const char *rg_status_name(enum rg_status status);
RG_API const char *rg_status_text(enum rg_status status);
RG_API bool rg_status_retryable(enum rg_status status);

RG_DECLS_END
#endif
