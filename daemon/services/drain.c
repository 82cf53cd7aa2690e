/* SPDX-License-Identifier: MIT */
/* A drain's target is Redis' time at a tick that was sent after it was asked
 * for: all that was acked before is older. Once the watermark is above it, all of
 * that is in the tables, or waits for a second look (others' keys that do not fit
 * together yet); what such a look brings gets a target of its own. */
#include "services/drain.h"

#include <stdlib.h>

#include "adapters/timer.h"
#include "base/mem.h"

/* A row may be found at a second look, and its post's counter at one after it;
 * beyond that, what others add all the time is not waited for. */
#define LOOKS 2

struct waiter {
    struct list node;
    struct drains *drains; /* ref */
    struct timer *timer;   /* owned */
    enum drain_result late;
    drain_on_done cb;
    void *arg;
    bool ticking;      /* a tick was sent since */
    int64_t target_us; /* 0: not known yet */
    int64_t look_us;   /* second looks up to it are waited for; 0: none yet */
    int looks;
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
    LIST_FOREACH(it, &d->waiting) {
        struct waiter *w = LIST_ENTRY(it, struct waiter, node);

        if (w->ticking && !w->target_us)
            w->target_us = now_us;
    }
}

static bool is_drained(struct waiter *w, const struct drain_progress *p)
{
    if (!w->target_us || p->stored_us <= w->target_us || p->orphans)
        return false;
    if (!w->look_us) {
        if (!p->oldest_look_us || w->looks == LOOKS)
            return true;
        w->look_us = p->now_us;
        return false;
    }
    if (!p->oldest_look_us || p->oldest_look_us > w->look_us) {
        w->target_us = p->now_us;
        w->look_us = 0;
        w->looks++;
    }
    return false;
}

void drains_progress(struct drains *d, const struct drain_progress *p)
{
    LIST_FOREACH_SAFE(it, &d->waiting) {
        struct waiter *w = LIST_ENTRY(it, struct waiter, node);

        if (is_drained(w, p))
            waiter_done(w, DRAIN_DONE);
    }
}

void drains_abort(struct drains *d)
{
    LIST_FOREACH_SAFE(it, &d->waiting)
        waiter_done(LIST_ENTRY(it, struct waiter, node), DRAIN_ABORTED);
}
