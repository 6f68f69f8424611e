/* Descriptors that a forked child lets go of: otherwise it would keep the parent's connections, its
 * ring and whatever that refers to alive. O_CLOEXEC does not help where nothing is executed.
 *
 * A descriptor is noted here from the moment it exists to the moment it is closed. No fork() comes
 * in between, because making it and noting it, or closing it and forgetting it, is done between
 * rg_fd_hold and rg_fd_release, and fork() waits for that. So the list is complete in every child.
 */
#ifndef RG_RUNTIME_DESCRIPTOR_H
#define RG_RUNTIME_DESCRIPTOR_H

#include "runtime/base.h"

/* Holds back fork() in this process; for a few system calls that do not wait. Not twice in one
 * thread. Any thread; one at a time, so that fork() has its turn soon. */
void rg_fd_hold(void);
void rg_fd_release(void);

/* Notes a descriptor that has just been made; harmless for one that is noted. Returns it, or what
 * is negative. Held. */
int rg_fd_track(int fd);
/* Closes a descriptor and forgets it; harmless for one that was not noted, or is negative. Not
 * held.
 */
void rg_fd_drop(int fd);
/* Forgets it without closing it: something else does. Held. */
void rg_fd_forget(int fd);

/* A copy of a descriptor, noted; or a negative errno. */
int rg_fd_copy(int fd);

#endif
