/* SPDX-License-Identifier: MIT */
/* All have the same timeout, so they are in the order of their ends, give or take
 * what a slow turn of the loop makes of it. */
#include "services/doubts.h"

#include <stdlib.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/mem.h"

#define CUT_OFF_MS 2 /* of two times in whole milliseconds */

struct doubts {
    struct list open;
    struct timer *timer; /* owned */
    void (*on_end)(void *arg, struct doubt *d);
    void *arg;
};

uint64_t doubt_until_ms(uint64_t now_ms, uint64_t timeout_ms)
{
    return now_ms + timeout_ms + CUT_OFF_MS;
}

static struct doubt *first(const struct doubts *ds)
{
    return LIST_ENTRY(ds->open.next, struct doubt, node);
}

static void wait_for_first(struct doubts *ds)
{
    uint64_t now_ms = clock_monotonic_ms();
    uint64_t until_ms = first(ds)->until_ms;

    timer_start(ds->timer, until_ms > now_ms ? until_ms - now_ms : 0, 0);
}

static void end_first(struct doubts *ds)
{
    struct doubt *d = first(ds);

    list_remove(&d->node);
    ds->on_end(ds->arg, d);
}

static void on_timer(void *arg)
{
    struct doubts *ds = arg;
    uint64_t now_ms = clock_monotonic_ms();

    while (!list_empty(&ds->open) && first(ds)->until_ms <= now_ms)
        end_first(ds);
    if (!list_empty(&ds->open))
        wait_for_first(ds);
}

struct doubts *doubts_new(struct uv_loop_s *loop,
                          void (*on_end)(void *arg, struct doubt *d), void *arg)
{
    struct doubts *ds = mem_zalloc(sizeof(*ds));

    list_init(&ds->open);
    ds->timer = timer_new(loop, on_timer, ds);
    ds->on_end = on_end;
    ds->arg = arg;
    return ds;
}

void doubts_free(struct doubts *ds)
{
    while (!list_empty(&ds->open))
        end_first(ds);
    timer_free(ds->timer);
    free(ds);
}

void doubts_add(struct doubts *ds, struct doubt *d)
{
    list_push_back(&ds->open, &d->node);
    if (!timer_active(ds->timer))
        wait_for_first(ds);
}
