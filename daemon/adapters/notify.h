/* SPDX-License-Identifier: MIT */
/* sd_notify(3). Without NOTIFY_SOCKET all of these do nothing. */
#ifndef ADAPTERS_NOTIFY_H
#define ADAPTERS_NOTIFY_H

#include "base/compiler.h"

void notify_ready(void);
void notify_reloading(void); /* with MONOTONIC_USEC; notify_ready() ends it */
void notify_stopping(void);
void notify_status(const char *fmt, ...) PRINTF_LIKE(1, 2);
void notify_watchdog(void);
/* How often notify_watchdog should be called: half of WATCHDOG_USEC; 0 off. */
unsigned notify_watchdog_ms(void);

#endif
