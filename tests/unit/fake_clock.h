/* SPDX-License-Identifier: MIT */
/* In place of base/clock.c: time stands still until the test moves it. Included by
 * one file of a test, behind all other headers. */
#ifndef TESTS_FAKE_CLOCK_H
#define TESTS_FAKE_CLOCK_H

#include "base/clock.h"

static uint64_t now_ms;

uint64_t clock_monotonic_ms(void)
{
    return now_ms;
}

uint64_t clock_monotonic_us(void)
{
    return now_ms * 1000;
}

int64_t clock_realtime_us(void)
{
    return 0;
}

#endif
