/* SPDX-License-Identifier: MIT */
/* Those who wait until all that was acked is durable. Internal to the
 * flusher. */
#ifndef SERVICES_DRAIN_H
#define SERVICES_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "services/flusher.h"

struct uv_loop_s;

struct drains {
    struct uv_loop_s *loop; /* ref */
    struct list waiting;
    void (*on_empty)(void *arg); /* the last one was answered */
    void *arg;
};

struct drain_progress {
    int64_t now_us;         /* Redis' time at the last tick */
    int64_t stored_us;      /* watermark in the tables */
    int64_t oldest_look_us; /* oldest second look that is due; 0 none */
    bool orphans;           /* a batch of counters without rows is under way */
};

void drains_init(struct drains *d, struct uv_loop_s *loop,
                 void (*on_empty)(void *arg), void *arg);
bool drains_empty(const struct drains *d);
/* At the latest after timeout_ms it is answered with `late`. */
void drains_add(struct drains *d, uint64_t timeout_ms, enum drain_result late,
                drain_on_done cb, void *arg);
/* A tick is being sent: its time will be the target of all that wait now. */
void drains_ticking(struct drains *d);
void drains_ticked(struct drains *d, int64_t now_us);
/* Answers those whose target is reached. */
void drains_progress(struct drains *d, const struct drain_progress *p);
void drains_abort(struct drains *d);

#endif
