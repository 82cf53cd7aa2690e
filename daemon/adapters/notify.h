/* SPDX-License-Identifier: MIT */
/* The service manager: sd_notify(3), which does nothing without NOTIFY_SOCKET,
 * and sd_listen_fds(3). */
#ifndef ADAPTERS_NOTIFY_H
#define ADAPTERS_NOTIFY_H

#include "base/compiler.h"

void notify_ready(void);
void notify_reloading(void); /* with MONOTONIC_USEC; notify_ready() ends it */
void notify_stopping(void);
void notify_status(const char *text); /* as utf8_put_plain() makes it */
void notify_watchdog(void);
/* How often notify_watchdog should be called: half of WATCHDOG_USEC; 0 off. */
unsigned notify_watchdog_ms(void);

/* Calls fn for each socket that was passed to this process, with the name that
 * its unit gives it (FileDescriptorName=), until one call returns other than 0,
 * and returns that; else 0. Descriptors are fn's from then on. For this process
 * only, and once: the environment no longer has them afterwards. */
MUST_CHECK int
notify_each_socket(int (*fn)(void *arg, int fd, const char *name), void *arg);

#endif
