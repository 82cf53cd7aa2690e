/* SPDX-License-Identifier: MIT */
/* The HTTP listener and its pages: for Prometheus, load balancers and people. */
#include "daemon_internal.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/histogram.h"
#include "core/history.h"
#include "core/hottest.h"
#include "core/metrics.h"
#include "services/dead_letters.h"
#include "services/html.h"
#include "services/status.h"

#define PLAIN_TEXT "text/plain; charset=utf-8"
#define FADE_TICKS 60 /* seconds */

/* They grow also while nothing is told. */
static void set_lags(const struct daemon *d)
{
    for (int i = 0; i < EDGE_COUNT; i++) {
        struct flusher_status st;

        flusher_status(d->services[i].flusher, &st);
        metric_set(metric_of(M_SYNC_LAG_LIKE, i),
                   st.lag_us < 0 ? NAN : (double)st.lag_us / 1e6);
    }
}

static int render_metrics(void *arg, struct buf *body)
{
    struct daemon *d = arg;

    metric_set(M_UPTIME, daemon_uptime_s(d));
    set_lags(d);
    metric_set(M_REDIS_RECONNECTS, (double)redis_reconnects(d->redis));
    metric_set(M_PG_RECONNECTS, (double)pg_reconnects(d->pg));
    metrics_render(body);
    histograms_render(body);
    return 200;
}

static int render_health(void *arg, struct buf *body)
{
    (void)arg;
    buf_puts(body, "ok\n");
    return 200;
}

static int render_ready(void *arg, struct buf *body)
{
    struct status s;

    daemon_status_take(arg, &s);
    if (status_missing(&s, body) > 0)
        return 503;
    buf_puts(body, "ready\n");
    return 200;
}

static int render_status(void *arg, struct buf *body)
{
    struct daemon *d = arg;
    struct status s;

    daemon_status_take(d, &s);
    s.dead_letters = dead_letters_recent(d->dead_letters);
    status_json(&s, body);
    return 200;
}

static int render_page(void *arg, struct buf *body)
{
    (void)arg;
    buf_puts(body, html_status);
    return 200;
}

static const struct http_route routes[] = {
    {"/", "text/html; charset=utf-8", html_status_policy, render_page},
    {"/status.json", "application/json", NULL, render_status},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", NULL,
     render_metrics},
    {"/healthz", PLAIN_TEXT, NULL, render_health},
    {"/readyz", PLAIN_TEXT, NULL, render_ready},
};

void daemon_http_tick(struct daemon *d)
{
    set_lags(d);
    history_tick(clock_realtime_us() / 1000);
    if (++d->ticks % FADE_TICKS != 0)
        return;
    for (int i = 0; i < EDGE_COUNT; i++)
        hottest_fade(d->services[i].hottest);
}

int daemon_http_start(struct daemon *d)
{
    struct address a;
    struct buf why = {0};
    const char *text;

    if (!d->options->metrics_listen[0])
        return 0;
    if (address_parse(d->options->metrics_listen, &a, &text) == 0)
        d->http = http_new(&d->loop, &a, routes, ARRAY_LEN(routes), d, &why);
    else
        buf_puts(&why, text);
    if (!d->http)
        log_error("http", "metrics.listen %s: %s", d->options->metrics_listen,
                  buf_cstr(&why));
    buf_free(&why);
    return d->http ? 0 : -1;
}
