/* SPDX-License-Identifier: MIT */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_monotonic_us(void);
uint64_t clock_monotonic_ms(void);
int64_t clock_realtime_us(void); /* Unix time in microseconds */

#endif
