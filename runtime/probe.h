/* Probes (USDT) of the provider "ringest", for bpftrace, perf and SystemTap: a `nop` each, and a
 * note in the program that says where it is and where its arguments are. ringest(1) lists them.
 * Without systemtap's header they are left out. */
#ifndef RG_RUNTIME_PROBE_H
#define RG_RUNTIME_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define RG_PROBE1(name, a) DTRACE_PROBE1(ringest, name, a)
#define RG_PROBE3(name, a, b, c) DTRACE_PROBE3(ringest, name, a, b, c)
#define RG_PROBE4(name, a, b, c, d) DTRACE_PROBE4(ringest, name, a, b, c, d)
#endif
#endif

#ifndef RG_PROBE1
#define RG_PROBE1(name, a) ((void)0)
#define RG_PROBE3(name, a, b, c) ((void)0)
#define RG_PROBE4(name, a, b, c, d) ((void)0)
#endif

#endif
