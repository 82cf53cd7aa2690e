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

/* Whoever may read the metrics need not see ids. */
static int render_no_page(struct buf *body)
{
    buf_puts(body, "not here: metrics.page = no\n");
    return 404;
}

static int render_status(void *arg, struct buf *body)
{
    struct daemon *d = arg;
    struct status s;

    if (!d->options->metrics_page)
        return render_no_page(body);
    daemon_status_take(d, &s);
    s.dead_letters = dead_letters_recent(d->dead_letters);
    status_json(&s, body);
    return 200;
}

static int render_page(void *arg, struct buf *body)
{
    struct daemon *d = arg;

    if (!d->options->metrics_page)
        return render_no_page(body);
    buf_puts(body, html_status);
    return 200;
}

static const struct http_route routes[] = {
    {"/", "text/html; charset=utf-8", html_status_policy, true, render_page},
    {"/status.json", "application/json", NULL, true, render_status},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", NULL, true,
     render_metrics},
    /* Load balancers ask by any name, and learn no more than whether it works. */
    {"/healthz", PLAIN_TEXT, NULL, false, render_health},
    {"/readyz", PLAIN_TEXT, NULL, false, render_ready},
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

int daemon_http_take(struct daemon *d, int fd, struct buf *why)
{
    struct address a;
    const char *fault = passed_inspect(fd, &a);

    if (!fault && a.kind != ADDRESS_TCP)
        fault = "HTTP listens on TCP only";
    if (!fault && d->http_fd >= 0)
        fault = "expected one socket for HTTP";
    if (fault) {
        buf_puts(why, fault);
        return -1;
    }
    d->http_fd = fd;
    return 0;
}

static void log_taken(const struct options *o, const struct address *a)
{
    struct address own;
    const char *why;
    bool same = address_parse(o->metrics_listen, &own, &why) == 0 &&
                own.port == a->port;
    char text[ADDRESS_TEXT_MAX];

    address_format(a, text, sizeof(text));
    if (same)
        log_info("http", "%s comes from the service manager", text);
    else
        log_warn("http",
                 "%s is open: it comes from the service manager, in place of "
                 "metrics.listen (to close it: systemctl disable --now "
                 "likesyncd-metrics.socket)",
                 text);
}

/* No password is asked for. */
static void warn_if_open(const struct options *o, const struct address *a)
{
    char text[ADDRESS_TEXT_MAX];

    if (address_is_local(a))
        return;
    address_format(a, text, sizeof(text));
    log_warn("http", "%s is not loopback: %s open to whoever reaches it", text,
             o->metrics_page
                 ? "/ and /status.json, which show ids (unless metrics.page = "
                   "no), and /metrics are"
                 : "/metrics is");
}

static int open_listener(struct daemon *d, struct address *a, struct buf *why)
{
    const char *fault;

    if (d->http_fd >= 0) {
        fault = passed_inspect(d->http_fd, a);
        log_taken(d->options, a);
    } else if (address_parse(d->options->metrics_listen, a, &fault) == 0) {
        d->http_fd = http_listen(a, why);
    } else {
        buf_puts(why, fault);
    }
    return d->http_fd < 0 ? -1 : 0;
}

int daemon_http_start(struct daemon *d)
{
    struct address a;
    struct buf why = {0};

    if (d->http_fd < 0 && !d->options->metrics_listen[0])
        return 0;
    if (open_listener(d, &a, &why) == 0) {
        warn_if_open(d->options, &a);
        d->http =
            http_new(&d->loop, d->http_fd, routes, ARRAY_LEN(routes), d, &why);
    }
    if (!d->http)
        log_error("http", "metrics.listen %s: %s", d->options->metrics_listen,
                  buf_cstr(&why));
    buf_free(&why);
    return d->http ? 0 : -1;
}
