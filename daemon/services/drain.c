/* SPDX-License-Identifier: MIT */
/* A drain's target is Redis' time at a tick that was sent after it was asked
 * for: all that was acked before is older. */
#include "services/drain.h"

#include <stdlib.h>

#include "adapters/timer.h"
#include "base/mem.h"

struct waiter {
    struct list node;
    struct drains *drains; /* ref */
    struct timer *timer;   /* owned */
    enum drain_result late;
    drain_on_done cb;
    void *arg;
    bool ticking;      /* a tick was sent since */
    int64_t target_us; /* 0: not known yet */
};

static void waiter_done(struct waiter *w, enum drain_result result)
{
    struct drains *d = w->drains;

    list_remove(&w->node);
    timer_free(w->timer);
    w->cb(w->arg, result);
    free(w);
    if (list_empty(&d->waiting))
        d->on_empty(d->arg);
}

static void on_late(void *arg)
{
    struct waiter *w = arg;

    waiter_done(w, w->late);
}

void drains_init(struct drains *d, struct uv_loop_s *loop,
                 void (*on_empty)(void *arg), void *arg)
{
    d->loop = loop;
    list_init(&d->waiting);
    d->on_empty = on_empty;
    d->arg = arg;
}

bool drains_empty(const struct drains *d)
{
    return list_empty(&d->waiting);
}

void drains_add(struct drains *d, uint64_t timeout_ms, enum drain_result late,
                drain_on_done cb, void *arg)
{
    struct waiter *w = mem_zalloc(sizeof(*w));

    w->drains = d;
    w->late = late;
    w->cb = cb;
    w->arg = arg;
    w->timer = timer_new(d->loop, on_late, w);
    timer_start(w->timer, timeout_ms, 0);
    list_push_back(&d->waiting, &w->node);
}

void drains_ticking(struct drains *d)
{
    LIST_FOREACH(it, &d->waiting)
    LIST_ENTRY(it, struct waiter, node)->ticking = true;
}

void drains_ticked(struct drains *d, int64_t now_us)
{
    LIST_FOREACH(it, &d->waiting)
    {
        struct waiter *w = LIST_ENTRY(it, struct waiter, node);

        if (w->ticking && !w->target_us)
            w->target_us = now_us;
    }
}

void drains_progress(struct drains *d, const struct drain_progress *p)
{
    LIST_FOREACH_SAFE(it, &d->waiting)
    {
        struct waiter *w = LIST_ENTRY(it, struct waiter, node);

        if (w->target_us && p->stored_us > w->target_us && !p->orphans &&
            (!p->oldest_look_us || p->oldest_look_us > w->target_us))
            waiter_done(w, DRAIN_DONE);
    }
}

void drains_abort(struct drains *d)
{
    LIST_FOREACH_SAFE(it, &d->waiting)
    waiter_done(LIST_ENTRY(it, struct waiter, node), DRAIN_ABORTED);
}
