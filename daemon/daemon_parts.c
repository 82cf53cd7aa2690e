/* SPDX-License-Identifier: MIT */
/* The services and the backends, and who tells whom. */
#include "daemon_internal.h"

#include <stdio.h>

#include "base/backoff.h"
#include "base/log.h"
#include "core/hottest.h"
#include "core/metrics.h"
#include "services/adopt.h"
#include "services/counts.h"
#include "services/dead_letters.h"
#include "services/flushers.h"
#include "services/follow_counts.h"
#include "services/gate.h"
#include "services/ingest.h"
#include "services/likers.h"
#include "services/lists.h"
#include "services/lookup.h"
#include "services/recall.h"
#include "services/schema.h"
#include "services/verify.h"

/* ---- backends ---- */

static const char *on_redis_up(void *arg, const struct redis_info *info)
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

    likers_set_indexed(d->likers, schema_has_likers(result));
    return schema_judge(d->options, result, why, size);
}

static void on_pg_up(void *arg)
{
    struct daemon *d = arg;

    metric_set(M_PG_UP, 1);
    recovery_pg_up(d->recovery);
    flushers_pg_up(d->services);
    daemon_admit(d);
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

    for (int i = 0; i < EDGE_COUNT; i++) {
        d->services[i].engine.open = true;
        ingest_open(d->services[i].ingest);
    }
    flushers_open(d->services);
    daemon_admit(d);
}

static void on_close(void *arg, const char *why)
{
    struct daemon *d = arg;

    for (int i = 0; i < EDGE_COUNT; i++) {
        d->services[i].engine.open = false;
        ingest_close(d->services[i].ingest, why);
    }
    flushers_close(d->services);
}

static void on_time(void *arg, int64_t redis_us)
{
    struct daemon *d = arg;

    for (int i = 0; i < EDGE_COUNT; i++)
        ingest_heard(d->services[i].ingest, redis_us);
}

static int64_t floor_us(void *arg)
{
    struct daemon *d = arg;

    return flushers_floor(d->services);
}

static void on_floor(void *arg, int64_t us)
{
    struct daemon *d = arg;

    flushers_raise_floor(d->services, us);
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
        .tls = d->tls,
        .username = o->redis_username,
        .password = d->redis_password,
        .db = (int)o->redis_db,
        .connect_timeout_ms = (unsigned)o->redis_connect_timeout_ms,
        .timeout_ms = (unsigned)o->redis_timeout_ms,
        .scripts = d->scripts,
        .n_scripts = (size_t)d->n_scripts,
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

    d->redis = redis_new(&d->loop, &redis);
    d->pg = pg_new(&d->loop, &pg);
    for (int i = 0; i < EDGE_COUNT; i++) {
        d->services[i].engine.redis = d->redis;
        d->services[i].engine.pg = d->pg;
    }
}

/* ---- services ---- */

static enum id_type owner_type(const struct options *o, enum edge_index kind)
{
    return (enum id_type)(kind == EDGE_LIKE ? o->id_post : o->id_user);
}

static void service_start(struct daemon *d, enum edge_index kind)
{
    struct service *s = &d->services[kind];
    struct engine *e = &s->engine;

    e->kind = edge_kinds[kind];
    e->owner_type = owner_type(d->options, kind);
    e->member_type = (enum id_type)d->options->id_user;
    e->lists = e->kind->has_lists ? &d->lists : NULL;
    e->loop = &d->loop;
    e->options = d->options;
    e->reads = d->reads;
    e->scripts = d->scripts + d->n_scripts;
    d->n_scripts += engine_scripts_make(e);
    snprintf(e->instance, sizeof(e->instance), "%s", d->instance);
    s->recall = recall_new(metric_of(M_RECALL_ENTRIES_LIKE, (int)kind));
    e->recall = s->recall;
    s->hottest = hottest_new();
    e->hottest = s->hottest;
    s->lookup = lookup_new(e);
    if (e->lists)
        d->list_loads = lists_new(e, s->lookup);
    s->ingest = ingest_new(e, s->lookup, e->lists ? d->list_loads : NULL);
    s->flusher = flusher_new(e);
    ingest_close(s->ingest, "not connected to Redis yet");
}

static void service_free(struct service *s)
{
    ingest_free(s->ingest);
    flusher_free(s->flusher);
    recall_free(s->recall);
    hottest_free(s->hottest);
}

void daemon_services_start(struct daemon *d)
{
    snprintf(d->instance, sizeof(d->instance), "%016llx",
             (unsigned long long)random_u64());
    list_names_init(&d->lists, d->options->key_follow, d->options->key_fans);
    d->reads = gate_new(GATE_READS, &d->options->pg_lookup_timeout_ms);
    d->pages = gate_new(GATE_PAGES, &d->options->pg_lookup_timeout_ms);
    for (int i = 0; i < EDGE_COUNT; i++)
        service_start(d, (enum edge_index)i);
    d->counts = counts_new(&d->services[EDGE_LIKE].engine,
                           d->services[EDGE_LIKE].lookup);
    d->likers = likers_new(&d->services[EDGE_LIKE].engine, d->pages);
    d->follow_counts =
        follow_counts_new(&d->services[EDGE_FOLLOW].engine, d->list_loads);
    d->adopt = adopt_new(d->services, &d->loop);
    d->verify = verify_new(d->services, &d->loop);
    d->dead_letters = dead_letters_new(&d->services[0].engine);
    d->recovery_events = (struct recovery_events){
        .on_open = on_open,
        .on_close = on_close,
        .on_time = on_time,
        .floor_us = floor_us,
        .on_floor = on_floor,
        .on_refused = on_refused,
        .arg = d,
    };
    d->recovery = recovery_new(d->services, &d->recovery_events);
    for (int i = 0; i < EDGE_COUNT; i++)
        d->services[i].engine.redis_info = recovery_info(d->recovery);
}

/* Whoever answers goes before those who wait: the connections, the lookups, the
 * loads of lists, and then all others. */
void daemon_services_free(struct daemon *d)
{
    gate_close(d->reads);
    gate_close(d->pages);
    for (int i = 0; i < EDGE_COUNT; i++)
        d->services[i].engine.redis = NULL; /* the last answers may want more */
    if (d->redis)
        redis_free(d->redis);
    if (d->pg)
        pg_free(d->pg);
    for (int i = 0; i < EDGE_COUNT; i++)
        lookup_free(d->services[i].lookup);
    lists_free(d->list_loads);
    for (int i = 0; i < EDGE_COUNT; i++)
        service_free(&d->services[i]);
    adopt_free(d->adopt);
    verify_free(d->verify);
    dead_letters_free(d->dead_letters);
    counts_free(d->counts);
    likers_free(d->likers);
    follow_counts_free(d->follow_counts);
    gate_free(d->reads);
    gate_free(d->pages);
    recovery_free(d->recovery);
}
