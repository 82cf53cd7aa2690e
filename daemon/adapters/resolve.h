/* SPDX-License-Identifier: MIT */
/* Host name → numeric addresses without blocking the loop, with a deadline.
 * Both database libraries get the numeric form, so that neither of them ever
 * calls getaddrinfo itself. */
#ifndef ADAPTERS_RESOLVE_H
#define ADAPTERS_RESOLVE_H

#include <stddef.h>

#include "base/compiler.h"

struct uv_loop_s;
struct resolve;

/* An IPv6 address with its scope ("fe80::1%eth0") and the NUL fits. */
#define RESOLVE_ADDRESS_MAX 64
#define RESOLVE_MAX         8

struct resolve_result {
    size_t n; /* 1 to RESOLVE_MAX, or 0 after a failure */
    char addresses[RESOLVE_MAX][RESOLVE_ADDRESS_MAX]; /* as to be tried */
    char why[128]; /* after a failure, else "" */
};

/* The result is valid during the callback only. */
typedef void (*resolve_cb)(void *arg, const struct resolve_result *result);

/* Starts a lookup for stream sockets. Exactly one callback, never before this
 * returns, at most about timeout_ms later; none after resolve_cancel(). A
 * numeric host needs no lookup and comes back in the next turn of the loop.
 * The handle is gone when the callback is called.
 *
 * A lookup that the C library has begun cannot be interrupted: after a timeout
 * or a cancel its thread goes on in the background, and the loop stays alive
 * until it ends. */
MUST_CHECK struct resolve *resolve_start(struct uv_loop_s *loop,
                                         const char *host, int port,
                                         unsigned timeout_ms, resolve_cb cb,
                                         void *arg);
/* NULL is allowed. */
void resolve_cancel(struct resolve *r);

#endif
