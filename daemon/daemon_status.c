/* SPDX-License-Identifier: MIT */
/* What `systemctl status` shows: one line, once a second, that says what is
 * wrong if something is. */
#include "daemon_internal.h"

#include <stdio.h>

#include "adapters/notify.h"
#include "adapters/timer.h"
#include "base/clock.h"
#include "base/num.h"
#include "core/metrics.h"
#include "services/flushers.h"
#include "services/status.h"

#define STATUS_MS 1000

/* Behind nothing stands nothing: what is normal takes no room. */
static void put_count(struct buf *b, int64_t n, const char *one,
                      const char *many)
{
    char number[NUM_GROUPED_MAX];

    if (n > 0)
        buf_printf(b, "; %s %s", num_format_grouped(n, number),
                   n == 1 ? one : many);
}

static void put_backlog(struct buf *b, const struct flusher_status *st)
{
    char number[NUM_GROUPED_MAX];
    int64_t s = st->lag_us / 1000000;

    if (st->rows_dirty < 0) {
        buf_puts(b, "; backlog unknown");
        return;
    }
    buf_printf(b, "; backlog %s row%s",
               num_format_grouped(st->rows_dirty, number),
               st->rows_dirty == 1 ? "" : "s");
    if (st->lag_us < 0)
        buf_puts(b, ", age unknown");
    else if (s < 10)
        buf_printf(b, ", %.1f s", (double)st->lag_us / 1e6);
    else
        buf_printf(b, ", %s s", num_format_grouped(s, number));
}

/* Those away come first: a terminal cuts at its width. */
static void put_line(struct daemon *d, struct buf *b)
{
    bool pg_first = redis_is_up(d->redis) && !pg_is_up(d->pg);
    struct flusher_status st;

    flushers_status(d->services, &st);
    if (d->stopping)
        buf_puts(b, "stopping; ");
    if (pg_first)
        buf_printf(b, "postgres: %s; ", pg_state_text(d->pg));
    buf_printf(b, "redis: %s", status_redis(&d->services[0]));
    if (!pg_first)
        buf_printf(b, "; postgres: %s", pg_state_text(d->pg));
    put_backlog(b, &st);
    put_count(b, st.batches, "batch under way", "batches under way");
    if (st.paused)
        buf_puts(b, "; flusher paused");
    put_count(b, (int64_t)metric_get(M_DEAD_LETTERS), "dead letter",
              "dead letters");
}

void daemon_status(struct daemon *d)
{
    struct buf line = {0};

    put_line(d, &line);
    notify_status("%s", buf_cstr(&line));
    buf_free(&line);
}

static void on_status(void *arg)
{
    struct daemon *d = arg;
    uint64_t now = clock_monotonic_ms();

    metric_set(M_LOOP_DELAY, now > d->status_due_ms
                                 ? (double)(now - d->status_due_ms) / 1000
                                 : 0);
    d->status_due_ms = now + STATUS_MS;
    daemon_http_tick(d);
    daemon_status(d);
}

void daemon_status_start(struct daemon *d)
{
    d->status = timer_new(&d->loop, on_status, d);
    d->status_due_ms = clock_monotonic_ms() + STATUS_MS;
    timer_start(d->status, STATUS_MS, STATUS_MS);
}
