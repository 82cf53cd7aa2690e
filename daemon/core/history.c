/* SPDX-License-Identifier: MIT */
#include "core/history.h"

#include <math.h>
#include <stdbool.h>

#include "core/metrics.h"

static struct {
    struct history_sample samples[HISTORY_SAMPLES];
    size_t n_samples; /* ever taken */
    struct history_flush flushes[HISTORY_FLUSHES];
    size_t n_flushes; /* ever seen */
    int64_t last_ms;  /* 0: none was taken */
    double last_events, last_requests, last_written;
} history;

/* What stands between two rows of the metrics, these included. */
static double sum(enum metric_id first, enum metric_id last)
{
    double v = 0;

    for (int i = (int)first; i <= (int)last; i++)
        v += metric_get((enum metric_id)i);
    return v;
}

static double highest(enum metric_id first, enum metric_id last)
{
    double v = 0;

    for (int i = (int)first; i <= (int)last; i++) {
        if (isnan(metric_get((enum metric_id)i)))
            return NAN;
        if (metric_get((enum metric_id)i) > v)
            v = metric_get((enum metric_id)i);
    }
    return v;
}

static double rate(double now, double *last, double seconds)
{
    double v = seconds > 0 ? (now - *last) / seconds : 0;

    *last = now;
    return v;
}

void history_tick(int64_t now_ms)
{
    double seconds = (double)(now_ms - history.last_ms) / 1000;
    bool first = history.last_ms == 0;
    struct history_sample *s;

    if (!first && now_ms >= history.last_ms &&
        now_ms - history.last_ms < HISTORY_STEP_MS)
        return;
    if (first) /* what came since the start is no rate yet */
        seconds = 0;
    history.last_ms = now_ms;
    s = &history.samples[history.n_samples++ % HISTORY_SAMPLES];
    s->at_ms = now_ms;
    s->events = rate(sum(M_EVENTS_LIKE_CHANGED, M_EVENTS_UNFOLLOW_ERROR),
                     &history.last_events, seconds);
    s->reads = rate(metric_get(M_REQUESTS), &history.last_requests, seconds) -
               s->events;
    if (s->reads < 0) /* an event is counted with its answer */
        s->reads = 0;
    s->written =
        rate(metric_get(M_ROWS_WRITTEN), &history.last_written, seconds);
    s->backlog = sum(M_BACKLOG_ROWS_LIKE, M_BACKLOG_ROWS_FOLLOW);
    s->lag_s = highest(M_SYNC_LAG_LIKE, M_SYNC_LAG_FOLLOW);
}

void history_flushed(const struct history_flush *f)
{
    history.flushes[history.n_flushes++ % HISTORY_FLUSHES] = *f;
}

/* The place of the i-th oldest in a ring of `size` of which `n` were filled. */
static size_t place(size_t i, size_t n, size_t size)
{
    return (n > size ? n + i : i) % size;
}

const struct history_sample *history_sample_at(size_t i)
{
    size_t n = history.n_samples;

    if (i >= (n < HISTORY_SAMPLES ? n : HISTORY_SAMPLES))
        return NULL;
    return &history.samples[place(i, n, HISTORY_SAMPLES)];
}

const struct history_flush *history_flush_at(size_t i)
{
    size_t n = history.n_flushes;

    if (i >= (n < HISTORY_FLUSHES ? n : HISTORY_FLUSHES))
        return NULL;
    return &history.flushes[place(i, n, HISTORY_FLUSHES)];
}
