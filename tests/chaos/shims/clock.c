/* SPDX-License-Identifier: MIT */
/* Moves the wall clock of a process by what a file says, while it runs. Clocks
 * that only go forward are left alone; so are waits until a point of wall time,
 * which none of our programs makes. */
#include <sys/time.h>
#include <time.h>

#include "shim.h"

struct clock_page {
    shim_word loaded;
    shim_word offset_us;
};

static struct clock_page *page;

__attribute__((constructor)) static void start(void)
{
    page = shim_map("CHAOS_CLOCK", sizeof(*page));
}

static void move(struct timespec *ts)
{
    int64_t us = page ? atomic_load(&page->offset_us) : 0;
    int64_t ns = ts->tv_nsec + us % 1000000 * 1000;

    ts->tv_sec += us / 1000000 + ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    if (ts->tv_nsec < 0) {
        ts->tv_nsec += 1000000000;
        ts->tv_sec--;
    }
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);

    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ||
                    id == CLOCK_TAI))
        move(ts);
    return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    int rc = clock_gettime(CLOCK_REALTIME, &ts);

    (void)zone;
    if (rc == 0)
        *tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
    return rc;
}

time_t time(time_t *seconds_r)
{
    struct timespec ts = {0};

    (void)clock_gettime(CLOCK_REALTIME_COARSE, &ts);
    if (seconds_r)
        *seconds_r = ts.tv_sec;
    return ts.tv_sec;
}

int timespec_get(struct timespec *ts, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, ts) == 0 ? base
                                                                      : 0;
}
