/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

static int64_t now_us(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

uint64_t clock_monotonic_us(void)
{
    return (uint64_t)now_us(CLOCK_MONOTONIC);
}

uint64_t clock_monotonic_ms(void)
{
    return clock_monotonic_us() / 1000;
}

int64_t clock_realtime_us(void)
{
    return now_us(CLOCK_REALTIME);
}
