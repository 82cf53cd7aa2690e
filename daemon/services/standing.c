/* SPDX-License-Identifier: MIT */
#include "services/standing.h"

#include <math.h>

#include "base/clock.h"
#include "core/edge.h"
#include "core/metrics.h"
#include "services/flusher.h"

static void gauge(const struct edge_kind *kind, enum metric_id like, int64_t v)
{
    metric_set(metric_of(like, (int)kind->index), v < 0 ? NAN : (double)v);
}

static void set_metrics(const struct flusher_status *st,
                        const struct edge_kind *kind)
{
    gauge(kind, M_BACKLOG_OWNERS_LIKE, st->owners_dirty);
    gauge(kind, M_BACKLOG_ROWS_LIKE, st->rows_dirty);
    gauge(kind, M_OWNERS_ON_RECORD_LIKE, st->owners_on_record);
}

void standing_unknown(struct flusher_status *st, const struct edge_kind *kind)
{
    *st = (struct flusher_status){
        .lag_us = -1,
        .owners_dirty = -1,
        .rows_dirty = -1,
        .owners_on_record = -1,
        .batches = -1,
    };
    set_metrics(st, kind);
}

void standing_told(struct flusher_status *st, const struct edge_kind *kind,
                   const int64_t field[TICK_FIELDS])
{
    int64_t through = field[TICK_THROUGH];

    st->told_ms = clock_monotonic_ms();
    st->redis_now_us = field[TICK_NOW];
    st->through_us = through;
    st->lag_us = through ? field[TICK_NOW] - through : -1;
    st->owners_dirty = field[TICK_REGISTRY] + field[TICK_PASS];
    st->rows_dirty = field[TICK_WAITING];
    st->owners_on_record = field[TICK_ON_RECORD];
    st->batches = field[TICK_BATCHES];
    st->second_look = field[TICK_OLDEST_LOOK] != 0;
    set_metrics(st, kind);
}

int64_t standing_lag_us(const struct flusher_status *st, bool is_open,
                        uint64_t period_ms)
{
    uint64_t ago_ms = clock_monotonic_ms() - st->told_ms;

    if (st->lag_us < 0 || (is_open && ago_ms <= 2 * period_ms))
        return st->lag_us;
    return st->lag_us + (int64_t)ago_ms * 1000;
}
