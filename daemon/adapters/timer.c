/* SPDX-License-Identifier: MIT */
/* Timers on libuv: one heap object per timer, which outlives timer_free() until
 * the loop has closed the handle. */
#include "adapters/timer.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#include "base/mem.h"

struct timer {
    uv_timer_t handle;
    timer_cb cb;
    void *arg;
};

/* libuv before 1.45 runs a timer that is started with 0 inside a timer callback
 * in the same pass: one that always starts itself again would keep the loop
 * from its sockets. So there, 0 becomes 1. */
static unsigned callbacks_running;

static void on_timeout(uv_timer_t *handle)
{
    struct timer *t = handle->data;

    callbacks_running++;
    t->cb(t->arg);
    callbacks_running--;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

struct timer *timer_new(struct uv_loop_s *loop, timer_cb cb, void *arg)
{
    struct timer *t = mem_zalloc(sizeof(*t));

    t->cb = cb;
    t->arg = arg;
    uv_timer_init(loop, &t->handle);
    t->handle.data = t;
    return t;
}

void timer_start(struct timer *t, uint64_t ms, uint64_t repeat_ms)
{
    int rc;

    if (ms == 0 && callbacks_running > 0)
        ms = 1;
    /* libuv counts from the start of the turn; after a long turn (or a long
     * start-up) a deadline would come early. */
    uv_update_time(t->handle.loop);
    rc = uv_timer_start(&t->handle, on_timeout, ms, repeat_ms);
    assert(rc == 0);
    (void)rc;
}

void timer_stop(struct timer *t)
{
    uv_timer_stop(&t->handle);
}

bool timer_active(const struct timer *t)
{
    return uv_is_active((const uv_handle_t *)&t->handle) != 0;
}

void timer_free(struct timer *t)
{
    if (t)
        uv_close((uv_handle_t *)&t->handle, on_closed);
}
