/* SPDX-License-Identifier: MIT */
/* The services and the backends, and who tells whom. */
#include "daemon_internal.h"

#include <stdio.h>

#include "base/backoff.h"
#include "base/log.h"
#include "core/metrics.h"
#include "services/counts.h"
#include "services/flusher.h"
#include "services/gate.h"
#include "services/ingest.h"
#include "services/lookup.h"
#include "services/schema.h"

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

    d->like.open = true;
    ingest_open(d->ingest);
    flusher_open(d->flusher);
}

static void on_close(void *arg, const char *why)
{
    struct daemon *d = arg;

    d->like.open = false;
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

static void on_refused(void *arg)
{
    log_error("main", "this Redis cannot be used: not started");
    daemon_finish(arg, 1);
}

void daemon_backends_start(struct daemon *d)
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

void daemon_services_start(struct daemon *d)
{
    struct engine *e = &d->like;

    engine_scripts_make(&edge_like, NULL, d->scripts);
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

/* The connections first: they answer everything that is under way, and after
 * that nobody waits for them any more. */
void daemon_services_free(struct daemon *d)
{
    struct redis *redis = d->like.redis;

    gate_close(d->like.reads);
    d->like.redis = NULL; /* the last answers may want to send more */
    if (redis)
        redis_free(redis);
    if (d->like.pg)
        pg_free(d->like.pg);
    lookup_free(d->lookup);
    ingest_free(d->ingest);
    counts_free(d->counts);
    gate_free(d->like.reads);
    flusher_free(d->flusher);
    recovery_free(d->recovery);
}
