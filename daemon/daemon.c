/* SPDX-License-Identifier: MIT */
/* What runs, and how it starts and stops.
 *
 * Start: secrets → services → listeners → READY → backends connect.
 * Stop (SIGTERM): listeners close, requests under way are answered, one drain of
 * at most DRAIN_MS, leases are released, the connections go, then the services.
 * What was not drained stays in Redis. */
#include "daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "adapters/http.h"
#include "adapters/notify.h"
#include "adapters/timer.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "services/commands.h"
#include "services/counts.h"
#include "services/flusher.h"
#include "services/gate.h"
#include "services/ingest.h"
#include "services/lookup.h"
#include "services/recovery.h"
#include "services/schema.h"

#define STATUS_MS  1000
#define DRAIN_MS   6000 /* of the 10 s in which SIGTERM ends */
#define ANSWERS_MS 2000 /* for requests under way when it comes */
#define RELEASE_MS 200
#define LAST_MS    1000 /* for handles to close */

struct daemon {
    uv_loop_t loop;
    uv_signal_t signals[3];
    struct options *options; /* owned */
    const char *path;        /* ref */
    char *password;          /* owned */
    char *redis_password;    /* owned */
    struct redis_script scripts[SCRIPT_COUNT];
    struct engine like;
    struct lookup *lookup;
    struct ingest *ingest;
    struct counts *counts;
    struct flusher *flusher;
    struct recovery *recovery;
    struct recovery_events recovery_events;
    struct commands commands;
    struct server *server;
    struct http *http; /* NULL: off */
    struct timer *status;
    struct timer *watchdog;
    struct timer *stop_timer;
    uint64_t status_due_ms;
    uint64_t stop_at_ms; /* no more waiting for requests */
    bool stopping;
    bool stopped;
    int exit_status;
};

static uint64_t now_ms(void)
{
    return clock_monotonic_us() / 1000;
}

/* ---- backends ---- */

static int on_redis_up(void *arg, const struct redis_info *info)
{
    struct daemon *d = arg;

    return recovery_redis_up(d->recovery, info);
}

static void on_redis_down(void *arg, const char *why)
{
    struct daemon *d = arg;

    recovery_redis_down(d->recovery, why);
}

static int on_pg_check(void *arg, const struct pg_result *result, char *why,
                       size_t size)
{
    struct daemon *d = arg;

    return schema_judge(&d->like, result, why, size);
}

static void on_pg_up(void *arg)
{
    struct daemon *d = arg;

    metric_set(M_PG_UP, 1);
    recovery_pg_up(d->recovery);
    flusher_pg_up(d->flusher);
}

static void on_pg_down(void *arg, const char *why)
{
    (void)arg;
    (void)why;
    metric_set(M_PG_UP, 0);
}

static void on_open(void *arg)
{
    struct daemon *d = arg;

    ingest_open(d->ingest);
    flusher_open(d->flusher);
}

static void on_close(void *arg, const char *why)
{
    struct daemon *d = arg;

    ingest_close(d->ingest, why);
    flusher_close(d->flusher);
}

static int64_t floor_us(void *arg)
{
    struct daemon *d = arg;

    return flusher_floor(d->flusher);
}

static void on_floor(void *arg, int64_t us)
{
    struct daemon *d = arg;

    flusher_raise_floor(d->flusher, us);
}

static void finish(struct daemon *d, int exit_status)
{
    d->stopped = true;
    d->exit_status = exit_status;
    uv_stop(&d->loop);
}

static void on_refused(void *arg)
{
    log_error("main", "this Redis cannot be used: not started");
    finish(arg, 1);
}

static void backends_start(struct daemon *d)
{
    const struct options *o = d->options;
    const struct redis_config redis = {
        .address = o->redis_address,
        .username = o->redis_username,
        .password = d->redis_password,
        .db = (int)o->redis_db,
        .connect_timeout_ms = (unsigned)o->redis_connect_timeout_ms,
        .timeout_ms = (unsigned)o->redis_timeout_ms,
        .scripts = d->scripts,
        .n_scripts = SCRIPT_COUNT,
        .on_up = on_redis_up,
        .on_down = on_redis_down,
        .arg = d,
    };
    const struct pg_config pg = {
        .conninfo = o->pg_conninfo,
        .connections = (int)o->pg_connections,
        .connect_timeout_ms = (unsigned)o->pg_connect_timeout_ms,
        .lock_timeout_ms = (unsigned)o->pg_lock_timeout_ms,
        .check = schema_check(),
        .on_check = on_pg_check,
        .on_up = on_pg_up,
        .on_down = on_pg_down,
        .arg = d,
    };

    d->like.redis = redis_new(&d->loop, &redis);
    d->like.pg = pg_new(&d->loop, &pg);
}

/* ---- services ---- */

static void services_start(struct daemon *d)
{
    struct engine *e = &d->like;

    engine_scripts_make(&edge_like, d->scripts);
    e->kind = &edge_like;
    e->owner_type = (enum id_type)d->options->id_post;
    e->member_type = (enum id_type)d->options->id_user;
    e->loop = &d->loop;
    e->options = d->options;
    e->scripts = d->scripts;
    snprintf(e->instance, sizeof(e->instance), "%016llx",
             (unsigned long long)random_u64());
    e->reads = gate_new(&d->options->pg_lookup_timeout_ms);
    d->lookup = lookup_new(e);
    d->ingest = ingest_new(e, d->lookup);
    d->counts = counts_new(e);
    d->flusher = flusher_new(e);
    d->recovery_events = (struct recovery_events){
        .on_open = on_open,
        .on_close = on_close,
        .floor_us = floor_us,
        .on_floor = on_floor,
        .on_refused = on_refused,
        .arg = d,
    };
    d->recovery = recovery_new(e, &d->recovery_events);
    ingest_close(d->ingest, "not connected to Redis yet");
}

/* All of one request: a full list of ids, or one argument of full length; not
 * both, which could be 64 MiB for each client. */
static size_t max_request(const struct options *o)
{
    enum { LEAST = 1 << 20, ROOM = 1 << 16, PER_ID = 64 };
    int64_t max = o->max_arg_bytes + ROOM;

    if (max < o->max_args * PER_ID)
        max = o->max_args * PER_ID;
    return max < LEAST ? LEAST : (size_t)max;
}

static struct server_limits limits_of(const struct options *o)
{
    return (struct server_limits){
        .max_clients = o->max_clients,
        .other_fds = o->pg_connections + HTTP_MAX_CONNECTIONS,
        .max_pipeline = o->max_pipeline,
        .output_soft_bytes = o->output_soft_bytes,
        .output_hard_bytes = o->output_hard_bytes,
        .idle_timeout_s = o->idle_timeout_s,
        .socket_mode = (int)o->socket_mode,
        .admin_socket_mode = (int)o->admin_socket_mode,
        .request =
            {
                .max_args = (size_t)o->max_args,
                .max_arg_bytes = (size_t)o->max_arg_bytes,
                .max_inline = 65536,
                .max_request = max_request(o),
            },
        .unauthenticated =
            {
                .max_args = 10,
                .max_arg_bytes = 16384,
                .max_inline = 16384,
                .max_request = 200000,
            },
    };
}

static int listen_all(struct daemon *d, const struct address_list *list,
                      bool admin)
{
    struct buf why = {0};
    int rc = 0;

    for (int i = 0; i < list->n && rc == 0; i++) {
        rc = server_listen(d->server, &list->items[i], admin, &why);
        if (rc != 0)
            log_error("server", "%s", buf_cstr(&why));
    }
    buf_free(&why);
    return rc;
}

static int server_start(struct daemon *d)
{
    struct server_config config = {
        .limits = limits_of(d->options),
        .on_open = commands_on_open,
        .must_wait = commands_must_wait,
        .on_request = commands_on_request,
        .arg = &d->commands,
    };

    d->commands = (struct commands){
        .like = &d->like,
        .ingest = d->ingest,
        .lookup = d->lookup,
        .counts = d->counts,
        .flusher = d->flusher,
        .password = d->password,
        .started_ms = now_ms(),
    };
    snprintf(d->commands.run_id, sizeof(d->commands.run_id), "%016llx%016llx",
             (unsigned long long)random_u64(),
             (unsigned long long)random_u64());
    d->server = server_new(&d->loop, &config);
    d->commands.server = d->server;
    if (listen_all(d, &d->options->listen, false) != 0 ||
        listen_all(d, &d->options->admin_listen, true) != 0)
        return -1;
    return 0;
}

/* ---- HTTP ---- */

static int render_metrics(void *arg, struct buf *body)
{
    struct daemon *d = arg;

    metric_set(M_UPTIME, (double)(now_ms() - d->commands.started_ms) / 1000);
    metric_set(M_REDIS_RECONNECTS, (double)redis_reconnects(d->like.redis));
    metric_set(M_PG_RECONNECTS, (double)pg_reconnects(d->like.pg));
    metrics_render(body);
    return 200;
}

static int render_health(void *arg, struct buf *body)
{
    (void)arg;
    buf_puts(body, "ok\n");
    return 200;
}

static const struct http_route routes[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", render_metrics},
    {"/healthz", "text/plain; charset=utf-8", render_health},
};

static int http_start(struct daemon *d)
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

/* ---- status and watchdog ---- */

static void on_status(void *arg)
{
    struct daemon *d = arg;
    struct flusher_status st;
    uint64_t now = now_ms();
    int64_t unsynced;
    double lag = 0;

    metric_set(M_LOOP_DELAY, now > d->status_due_ms
                                 ? (double)(now - d->status_due_ms) / 1000
                                 : 0);
    d->status_due_ms = now + STATUS_MS;
    flusher_status(d->flusher, &st);
    unsynced = st.owners_dirty + st.owners_on_record;
    if (st.through_us)
        lag = (double)(st.redis_now_us - st.through_us) / 1e6;
    notify_status("%sredis: %s; postgres: %s; %lld posts unsynced, lag %.1f s",
                  d->stopping ? "stopping; " : "",
                  redis_state_text(d->like.redis), pg_state_text(d->like.pg),
                  (long long)unsynced, lag);
}

static void on_watchdog(void *arg)
{
    (void)arg;
    notify_watchdog();
}

/* ---- stopping ---- */

static void on_released(void *arg)
{
    finish(arg, 0);
}

static void release(struct daemon *d)
{
    flusher_release(d->flusher);
    timer_free(d->stop_timer);
    d->stop_timer = timer_new(&d->loop, on_released, d);
    timer_start(d->stop_timer, RELEASE_MS, 0);
}

static void on_drained(void *arg, enum drain_result result)
{
    struct daemon *d = arg;

    if (result == DRAIN_DONE)
        log_info("main", "all is durable");
    else
        log_warn("main", "not all is durable yet: the rest stays in Redis");
    if (!d->stopped)
        release(d);
}

static void on_stop_timer(void *arg)
{
    struct daemon *d = arg;

    if (server_pending(d->server) > 0 && now_ms() < d->stop_at_ms)
        return;
    timer_stop(d->stop_timer);
    flusher_drain(d->flusher, recovery_is_open(d->recovery) ? DRAIN_MS : 0,
                  on_drained, d);
}

static void stop(struct daemon *d, int signum)
{
    if (d->stopping)
        return;
    log_info("main", "stopping (%s)", strsignal(signum));
    d->stopping = true;
    notify_stopping();
    server_stop_listening(d->server);
    d->stop_at_ms = now_ms() + ANSWERS_MS;
    timer_start(d->stop_timer, 0, 20);
}

/* ---- reload ---- */

static void log_lines(struct buf *lines, void (*each)(const char *line))
{
    char *save = NULL;

    buf_cstr(lines);
    for (char *line = lines->len ? strtok_r(lines->data, "\n", &save) : NULL;
         line; line = strtok_r(NULL, "\n", &save))
        each(line);
}

static void log_fault(const char *line)
{
    log_error("config", "%s", line);
}

static void log_note(const char *line)
{
    log_warn("config", "%s", line);
}

static void apply(struct daemon *d)
{
    struct server_limits limits = limits_of(d->options);

    log_set_level((enum log_level)d->options->log_level);
    server_set_limits(d->server, &limits);
    flusher_reconfigure(d->flusher);
}

/* The file is read on the loop: it is small, local, and asked for by the
 * operator. */
static void reload(struct daemon *d)
{
    struct options fresh;
    struct buf text = {0};

    notify_reloading();
    options_init(&fresh);
    if (options_load(&fresh, d->path, &text) != 0) {
        log_lines(&text, log_fault);
        log_error("config", "not reloaded: the old values stay");
    } else {
        int n = options_reload(d->options, &fresh, &text);

        apply(d);
        log_lines(&text, log_note);
        log_info("config", "reloaded: %d options changed", n);
    }
    options_free(&fresh);
    buf_free(&text);
    notify_ready();
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *d = handle->data;

    if (signum != SIGHUP)
        stop(d, signum);
    else if (!d->stopping) /* READY would take STOPPING back */
        reload(d);
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

    d->status = timer_new(&d->loop, on_status, d);
    d->watchdog = timer_new(&d->loop, on_watchdog, d);
    d->stop_timer = timer_new(&d->loop, on_stop_timer, d);
    d->status_due_ms = now_ms() + STATUS_MS;
    timer_start(d->status, STATUS_MS, STATUS_MS);
    if (watchdog_ms)
        timer_start(d->watchdog, watchdog_ms, watchdog_ms);
}

/* ---- life ---- */

static int read_secret(const char *option, const char *path, char **secret_r)
{
    struct buf why = {0};
    int rc = 0;

    if (!path[0]) {
        *secret_r = mem_strdup("");
        return 0;
    }
    rc = options_read_secret(path, secret_r, &why);
    if (rc != 0)
        log_error("config", "%s: %s", option, buf_cstr(&why));
    buf_free(&why);
    return rc;
}

struct daemon *daemon_new(struct options *options, const char *path)
{
    struct daemon *d = mem_zalloc(sizeof(*d));

    d->options = options;
    d->path = path;
    uv_loop_init(&d->loop);
    services_start(d);
    signals_start(d);
    timers_start(d);
    if (read_secret("server.password_file", options->password_file,
                    &d->password) != 0 ||
        read_secret("redis.password_file", options->redis_password_file,
                    &d->redis_password) != 0 ||
        server_start(d) != 0 || http_start(d) != 0) {
        daemon_free(d);
        return NULL;
    }
    backends_start(d);
    return d;
}

int daemon_run(struct daemon *d)
{
    log_info("main", "likesyncd %s is ready (instance %s)", LIKESYNCD_VERSION,
             d->like.instance);
    notify_ready();
    on_status(d);
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

/* The connections first: they answer everything that is under way, and after
 * that nobody waits for them any more. */
void daemon_free(struct daemon *d)
{
    d->stopped = true;
    for (size_t i = 0; i < ARRAY_LEN(d->signals); i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    timer_free(d->status);
    timer_free(d->watchdog);
    timer_free(d->stop_timer);
    gate_close(d->like.reads);
    if (d->like.redis)
        redis_free(d->like.redis);
    if (d->like.pg)
        pg_free(d->like.pg);
    lookup_free(d->lookup);
    ingest_free(d->ingest);
    counts_free(d->counts);
    gate_free(d->like.reads);
    flusher_free(d->flusher);
    recovery_free(d->recovery);
    http_free(d->http);
    if (d->server)
        server_free(d->server);
    loop_end(d);
    engine_scripts_free(d->scripts);
    free(d->password);
    free(d->redis_password);
    free(d);
}
