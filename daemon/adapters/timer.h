/* SPDX-License-Identifier: MIT */
/* Timers on the loop, owned by one object each. */
#ifndef ADAPTERS_TIMER_H
#define ADAPTERS_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct uv_loop_s;
struct timer;

typedef void (*timer_cb)(void *arg);

struct timer *timer_new(struct uv_loop_s *loop, timer_cb cb, void *arg);
/* Fires once after ms (0: in the next turn of the loop; from a timer's callback
 * after 1 ms, so that other work has its turn), then every repeat_ms if that is
 * not 0. Starting again replaces the earlier setting. */
void timer_start(struct timer *t, uint64_t ms, uint64_t repeat_ms);
void timer_stop(struct timer *t);
bool timer_active(const struct timer *t);
/* Stops it; its memory goes after the loop has closed it. May be called from
 * its own callback. NULL is allowed. */
void timer_free(struct timer *t);

#endif
