/* The version of the headers a program was compiled with, and of the library it runs with. */
#ifndef RINGEST_VERSION_H
#define RINGEST_VERSION_H

#define RG_VERSION_MAJOR 0
#define RG_VERSION_MINOR 1
#define RG_VERSION_PATCH 0
#define RG_VERSION_STRING "0.1.0"

#define RG_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define RG_DECLS_BEGIN extern "C" {
#define RG_DECLS_END }
#else
#define RG_DECLS_BEGIN
#define RG_DECLS_END
#endif

RG_DECLS_BEGIN
/* The library's own version, such as "0.1.0". Static storage; any thread. */
RG_API const char *rg_version(void);
RG_DECLS_END
#endif
