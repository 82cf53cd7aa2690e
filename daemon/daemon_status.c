/* SPDX-License-Identifier: MIT */
/* How the daemon is: for its pages, and once a second for systemd. */
#include "daemon_internal.h"

#include "adapters/notify.h"
#include "adapters/timer.h"
#include "base/clock.h"
#include "core/metrics.h"
#include "services/dead_letters.h"
#include "services/flushers.h"
#include "services/status.h"

#define STATUS_MS 1000
#define LOOK_MS   100 /* a stall may hide in so much */

double daemon_uptime_s(const struct daemon *d)
{
    return (double)(clock_monotonic_ms() - d->commands.started_ms) / 1000;
}

void daemon_status_take(const struct daemon *d, struct status *s)
{
    *s = (struct status){
        .instance = d->instance,
        .now_us = clock_realtime_us(),
        .uptime_s = daemon_uptime_s(d),
        .stopping = d->stopping,
        .redis_open = recovery_is_open(d->recovery),
        .redis = status_redis(&d->services[0]),
        .pg_up = pg_is_up(d->pg),
        .postgres = pg_state_text(d->pg),
        .post_type = d->services[EDGE_LIKE].engine.owner_type,
        .hottest = d->services[EDGE_LIKE].hottest,
    };
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_status(d->services[i].flusher, &s->kinds[i]);
    flushers_status(d->services, &s->all);
}

void daemon_status(struct daemon *d)
{
    struct status s;
    struct buf line = {0};

    daemon_status_take(d, &s);
    s.dead_letters = dead_letters_recent(d->dead_letters);
    status_line(&s, &line);
    notify_status(buf_cstr(&line));
    buf_free(&line);
}

static double loop_late_s(struct daemon *d)
{
    uint64_t now = clock_monotonic_ms();
    uint64_t late_ms = now > d->look_due_ms ? now - d->look_due_ms : 0;

    d->look_due_ms = now + LOOK_MS;
    return (double)late_ms / 1000;
}

/* One look a second would miss most of the stalls that are shorter. */
static void on_look(void *arg)
{
    struct daemon *d = arg;
    double late_s = loop_late_s(d);

    if (late_s > d->latest_s)
        d->latest_s = late_s;
    if (late_s > metric_get(M_LOOP_DELAY))
        metric_set(M_LOOP_DELAY, late_s);
}

static void on_status(void *arg)
{
    struct daemon *d = arg;

    metric_set(M_LOOP_DELAY, d->latest_s);
    d->latest_s = 0;
    daemon_http_tick(d);
    daemon_status(d);
}

void daemon_status_start(struct daemon *d)
{
    d->status = timer_new(&d->loop, on_status, d);
    timer_start(d->status, STATUS_MS, STATUS_MS);
    d->look = timer_new(&d->loop, on_look, d);
    d->look_due_ms = clock_monotonic_ms() + LOOK_MS;
    timer_start(d->look, LOOK_MS, LOOK_MS);
}
