/* SPDX-License-Identifier: MIT */
/* What runs, and how it starts and ends.
 *
 * Start: secrets → services → listeners → READY → backends connect.
 * End: what daemon_stop.c does at SIGTERM, then the connections go, then the
 * services. */
#include "daemon.h"
#include "daemon_internal.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/notify.h"
#include "adapters/redis_tls.h"
#include "adapters/timer.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/secret.h"
#include "services/client_list.h"

#define LAST_MS 1000 /* for handles to close */

void daemon_finish(struct daemon *d, int exit_status)
{
    d->stopped = true;
    d->exit_status = exit_status;
    uv_stop(&d->loop);
}

static void on_watchdog(void *arg)
{
    (void)arg;
    notify_watchdog();
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *d = handle->data;

    if (signum != SIGHUP)
        daemon_stop(d, signum);
    else if (!d->stopping) /* READY would take STOPPING back */
        daemon_reload(d);
}

static void signals_start(struct daemon *d)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
}

static void timers_start(struct daemon *d)
{
    unsigned watchdog_ms = notify_watchdog_ms();

    d->watchdog = timer_new(&d->loop, on_watchdog, d);
    daemon_status_start(d);
    if (watchdog_ms)
        timer_start(d->watchdog, watchdog_ms, watchdog_ms);
}

/* ---- life ---- */

static int read_secret(const char *option, const char *where, char **secret_r)
{
    struct buf why = {0};
    int rc;

    if (!where[0]) {
        *secret_r = mem_strdup("");
        return 0;
    }
    rc = secret_read(where, secret_r, &why);
    if (rc < 0)
        log_error("config", "%s: %s", option, buf_cstr(&why));
    else if (rc == SECRET_EXPOSED)
        log_warn("config", "%s: %s", option, buf_cstr(&why));
    buf_free(&why);
    return rc;
}

struct daemon *daemon_new(struct options *options, const char *path)
{
    struct daemon *d = mem_zalloc(sizeof(*d));

    d->options = options;
    d->path = path;
    d->http_fd = -1;
    /* Else it aborts without a word where it cannot tell of an error. */
    uv_replace_allocator(mem_alloc, mem_realloc, mem_calloc, free);
    uv_loop_init(&d->loop);
    daemon_services_start(d);
    signals_start(d);
    timers_start(d);
    if (read_secret("server.password_file", options->password_file,
                    &d->password) < 0 ||
        read_secret("redis.password_file", options->redis_password_file,
                    &d->redis_password) < 0 ||
        daemon_tls_start(d) != 0 || daemon_server_start(d) != 0 ||
        daemon_http_start(d) != 0) {
        daemon_free(d);
        return NULL;
    }
    daemon_backends_start(d);
    return d;
}

int daemon_run(struct daemon *d)
{
    log_info("main", "likesyncd %s is ready (instance %s)", LIKESYNCD_VERSION,
             d->instance);
    notify_ready();
    daemon_status(d);
    while (!d->stopped)
        uv_run(&d->loop, UV_RUN_DEFAULT);
    return d->exit_status;
}

static void on_last(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Until all handles are closed. A lookup in one of libuv's threads cannot be
 * interrupted, and even exit() would wait for it. */
static void loop_end(struct daemon *d)
{
    uv_timer_t last;

    uv_timer_init(&d->loop, &last);
    uv_timer_start(&last, on_last, LAST_MS, 0);
    uv_unref((uv_handle_t *)&last);
    if (uv_run(&d->loop, UV_RUN_DEFAULT) != 0)
        _exit(d->exit_status);
    uv_close((uv_handle_t *)&last, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
}

void daemon_free(struct daemon *d)
{
    d->stopped = true;
    for (size_t i = 0; i < ARRAY_LEN(d->signals); i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    timer_free(d->status);
    timer_free(d->look);
    timer_free(d->watchdog);
    timer_free(d->stop_timer);
    timer_free(d->admit);
    client_list_free(d->commands.client_list);
    daemon_services_free(d);
    http_free(d->http);
    auth_free(d->auth);
    if (d->server)
        server_free(d->server);
    loop_end(d);
    redis_tls_free(d->tls);
    engine_scripts_free(d->scripts, d->n_scripts);
    list_names_free(&d->lists);
    secret_free(d->password);
    secret_free(d->redis_password);
    free(d);
}
