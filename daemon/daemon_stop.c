/* SPDX-License-Identifier: MIT */
/* SIGTERM. It ends within 10 s; what is not in PostgreSQL by then stays in Redis,
 * and the next start, or another daemon, takes it up.
 *
 * serving: drains, while clients are served as ever → last answers: listeners
 * close, and each client once what it asked is answered → rest: drains what
 * came meanwhile → releases its leases, and ends.
 *
 * So clients are without a daemon for the last steps only, which are short. */
#include "daemon_internal.h"

#include <string.h>

#include "adapters/notify.h"
#include "adapters/timer.h"
#include "base/clock.h"
#include "base/log.h"
#include "services/flushers.h"

#define SERVING_MS 5000
#define ANSWERS_MS 2000
#define REST_MS    1000
#define RELEASE_MS 200
#define LOOK_MS    20

static void on_released(void *arg)
{
    daemon_finish(arg, 0);
}

static void on_rest_drained(void *arg, enum drain_result result)
{
    struct daemon *d = arg;

    if (result == DRAIN_DONE)
        log_info("main", "all is durable");
    else
        log_warn("main", "not all is durable yet: the rest stays in Redis");
    if (d->stopped)
        return;
    flushers_release(d->services);
    timer_free(d->stop_timer);
    d->stop_timer = timer_new(&d->loop, on_released, d);
    timer_start(d->stop_timer, RELEASE_MS, 0);
}

/* Nothing is waited for when a backend is away, or when the time was too short
 * already. */
static uint64_t in_time(const struct daemon *d, uint64_t ms)
{
    bool can = d->drainable && recovery_is_open(d->recovery) && pg_is_up(d->pg);

    return can ? ms : 0;
}

static void on_look(void *arg)
{
    struct daemon *d = arg;
    bool under_way = server_clients(d->server) || server_pending(d->server);

    if (under_way && clock_monotonic_ms() < d->stop_at_ms)
        return;
    timer_stop(d->stop_timer);
    flushers_drain(d->services, in_time(d, REST_MS), on_rest_drained, d);
}

static void on_drained(void *arg, enum drain_result result)
{
    struct daemon *d = arg;

    d->drainable = result == DRAIN_DONE;
    if (d->stopped)
        return;
    server_stop_listening(d->server);
    server_finish_clients(d->server);
    auth_stop(d->auth);
    d->stop_at_ms = clock_monotonic_ms() + ANSWERS_MS;
    d->stop_timer = timer_new(&d->loop, on_look, d);
    timer_start(d->stop_timer, LOOK_MS, LOOK_MS);
}

void daemon_stop(struct daemon *d, int signum)
{
    if (d->stopping)
        return;
    log_info("main", "stopping (%s)", strsignal(signum));
    d->stopping = true;
    d->drainable = true;
    notify_stopping();
    flushers_drain(d->services, in_time(d, SERVING_MS), on_drained, d);
}
