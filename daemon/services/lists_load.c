/* SPDX-License-Identifier: MIT */
/* One load. All that it knows stands in the list's mark (lua/lists.lua), so it
 * may end anywhere.
 *
 * Happy path: BEGIN (list_begin.lua) says where the mark stands, and from there
 *
 *   "o"    SCAN members that are unsynced or doubtful → LOOKUP a part of them →
 *          APPLY it (list_load.lua), until no part is left: "s"
 *   "s"    QUERY the newest rows → APPLY: "time_us id" of the last one
 *   "time_us id"  QUERY what comes behind → APPLY, until fewer rows come than
 *          were asked for: "end"
 *
 * Failure modes: the mark stands elsewhere when rows are applied, since another
 * daemon was there or the list vanished, or the rows took too long (BEGIN again,
 * MAX_SETBACKS times); Redis busy (the same call again); a backend away, Redis
 * full, or no sorted set under the list's name: ended. */
#include "services/lists_load.h"

#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/fault.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "services/engine.h"
#include "services/lists.h"
#include "services/lists_overlay.h"
#include "services/lists_rows.h"

#define RETRY_MS     10
#define MAX_SETBACKS 5

static const char redis_odd[] = "UNAVAILABLE Redis did not answer as expected";

enum load_state { LOAD_BEGIN, LOAD_SCAN, LOAD_LOOKUP, LOAD_QUERY, LOAD_APPLY };

struct load {
    struct loader *loader; /* ref */
    void *arg;
    enum load_state state;
    enum list_side side;
    struct buf user;         /* key form */
    struct overlay *overlay; /* owned */
    struct rows *rows;       /* owned */
    struct timer *timer;     /* owned: the start, and the same call again */
    struct args args;        /* of the call to Redis */
    struct buf begun;        /* which load this is, as BEGIN has it */
    struct buf pos;          /* of the mark, as last heard */
    int64_t now_us;          /* Redis' time, as last heard */
    int64_t seen_us;         /* the same, when rows were asked for */
    int n_rows;              /* that are being applied */
    int setbacks;
    struct buf text; /* an error's */
};

/* ---- ends ---- */

/* The load may be freed after this. */
static void load_end(struct load *l, const char *why)
{
    if (why)
        metric_add(M_LISTS_FAILED, 1);
    l->loader->on_end(l->arg, why);
}

static void failed_log(struct load *l, const char *what, const char *why)
{
    uint64_t held;

    if (log_allow(&l->loader->limit, 5000, &held))
        log_warn("lists", "%s failed: %s (user %.*s; %llu more)", what, why,
                 (int)l->user.len, l->user.data, (unsigned long long)held);
}

static const char *refused(struct load *l, const char *text)
{
    if (strncmp(text, "WRONGTYPE", strlen("WRONGTYPE")) != 0) {
        failed_log(l, "a call to Redis", text);
        return redis_odd;
    }
    l->text.len = 0;
    lists_put_wrong_type(l->loader->engine->lists, l->side, l->user.data,
                         l->user.len, &l->text);
    return buf_cstr(&l->text);
}

/* ---- calls to Redis ---- */

static void on_reply(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v);

static int call(struct load *l)
{
    const struct engine *e = l->loader->engine;

    if (!e->open) /* what it holds may be older than PostgreSQL */
        return REDIS_NOT_CONNECTED;
    if (l->state == LOAD_SCAN)
        return args_call(&l->args, e, on_reply, l);
    if (l->state == LOAD_BEGIN)
        return args_send(&l->args, e, SCRIPT_LIST_BEGIN, on_reply, l);
    return args_send(&l->args, e, SCRIPT_LIST_LOAD, on_reply, l);
}

/* Also again. */
static void send_call(void *arg)
{
    struct load *l = arg;
    int rc = call(l);

    if (rc == REDIS_BUSY)
        timer_start(l->timer, RETRY_MS, 0);
    else if (rc != 0)
        load_end(l, engine_redis_why(l->loader->engine, rc));
}

static void script_args(struct load *l, enum load_state state)
{
    l->state = state;
    args_clear(&l->args);
    args_put_i64(&l->args, l->side);
    args_put(&l->args, l->user.data, l->user.len);
    args_put_i64(&l->args, l->loader->engine->options->follow_idle_ttl_s);
}

/* Rows follow. `to`: the mark's next pos; "" it stays. */
static void apply_args(struct load *l, const char *to, size_t len)
{
    script_args(l, LOAD_APPLY);
    args_put(&l->args, l->begun.data, l->begun.len);
    args_put_i64(&l->args, l->seen_us);
    args_put(&l->args, l->pos.data, l->pos.len);
    args_put(&l->args, to, len);
}

/* ---- "o": what PostgreSQL does not have yet ---- */

static void on_part(void *arg, const char *why)
{
    struct load *l = arg;
    const char *to = overlay_is_last(l->overlay) ? "s" : "";

    if (why) {
        load_end(l, why);
        return;
    }
    apply_args(l, to, strlen(to));
    overlay_put(l->overlay, &l->args);
    send_call(l);
}

static void overlay_on(struct load *l)
{
    if (overlay_wants_scan(l->overlay)) {
        l->state = LOAD_SCAN;
        args_clear(&l->args);
        overlay_put_scan(l->overlay, &l->args);
        send_call(l);
        return;
    }
    l->state = LOAD_LOOKUP;
    l->seen_us = l->now_us;
    overlay_lookup(l->overlay, on_part, l);
}

static void on_scanned(struct load *l, const struct redis_value *v)
{
    if (overlay_scanned(l->overlay, v) != 0)
        load_end(l, redis_odd);
    else
        overlay_on(l);
}

/* ---- "s" and later: rows ---- */

static void on_rows(void *arg, enum pg_outcome outcome,
                    const struct pg_result *r)
{
    struct load *l = arg;
    struct buf to = {0};
    int rc;

    if (outcome != PG_DONE) {
        failed_log(l, "a query", pg_result_message(r));
        load_end(l, LISTS_PG_AWAY);
        return;
    }
    l->n_rows = pg_result_rows(r, 0);
    rc = rows_put_pos(l->rows, r, &to);
    apply_args(l, to.data, to.len);
    buf_free(&to);
    if (rc == 0 && rows_put(l->rows, r, &l->args) == 0) {
        send_call(l);
        return;
    }
    failed_log(l, "a query", "it returned ids of another type");
    load_end(l, "ERR ids in PostgreSQL are of another type");
}

static void query(struct load *l)
{
    int rc;

    l->state = LOAD_QUERY;
    l->seen_us = l->now_us;
    rc = rows_ask(l->rows, &l->pos, on_rows, l);
    if (rc < 0) {
        failed_log(l, "going on", "the list's mark has no valid pos");
        load_end(l, redis_odd);
    } else if (rc != 0) {
        load_end(l, rc == PG_BUSY ? "TRYAGAIN PostgreSQL has too much to do"
                                  : LISTS_PG_AWAY);
    }
}

/* ---- replies ---- */

static bool pos_is(const struct load *l, const char *s, size_t len)
{
    return l->pos.len == len && (len == 0 || memcmp(l->pos.data, s, len) == 0);
}

static bool is_overlay(const struct load *l)
{
    return pos_is(l, "o", 1);
}

static bool is_end(const struct load *l)
{
    return pos_is(l, "end", 3);
}

/* Whether the mark is nearer to the end than when last heard. */
static bool read_pos(struct load *l, const struct redis_value *now,
                     const struct redis_value *pos)
{
    size_t len;
    const char *s = redis_value_str(pos, &len);
    bool same = pos_is(l, s, len);

    l->now_us = redis_value_int(now);
    l->pos.len = 0;
    buf_append(&l->pos, s, len);
    return !same && len > 0 && !is_overlay(l);
}

static void on_begun(struct load *l, const struct redis_value *v)
{
    size_t len;
    const char *begun = redis_value_str(redis_value_at(v, 4), &len);

    fault_point("list_begun");
    (void)read_pos(l, redis_value_at(v, 0), redis_value_at(v, 1));
    l->begun.len = 0;
    buf_append(&l->begun, begun, len);
    overlay_reset(l->overlay, redis_value_int(redis_value_at(v, 3)) != 0,
                  redis_value_int(redis_value_at(v, 5)) != 0);
    load_go_on(l);
}

static void on_setback(struct load *l, bool moved)
{
    if (!moved && ++l->setbacks > MAX_SETBACKS) {
        load_end(l, "TRYAGAIN the list changes too much to be loaded");
        return;
    }
    script_args(l, LOAD_BEGIN);
    send_call(l);
}

static void step_done(struct load *l, int64_t members)
{
    fault_point("list_step");
    metric_add(M_LISTS_ROWS, (uint64_t)l->n_rows);
    if (!is_end(l)) {
        l->loader->on_step(l->arg, members);
        return;
    }
    metric_add(M_LISTS_LOADED, 1);
    load_end(l, NULL);
}

static void on_applied(struct load *l, const struct redis_value *v)
{
    bool was_overlay = is_overlay(l);
    bool moved = read_pos(l, redis_value_at(v, 1), redis_value_at(v, 2));

    if (redis_value_int(redis_value_at(v, 0)) != 1) {
        on_setback(l, moved);
        return;
    }
    if (!was_overlay) {
        step_done(l, redis_value_int(redis_value_at(v, 3)));
        return;
    }
    if (!is_overlay(l))
        fault_point("list_overlaid");
    overlay_next(l->overlay);
    load_go_on(l);
}

void load_go_on(struct load *l)
{
    if (is_overlay(l))
        overlay_on(l);
    else if (is_end(l))
        load_end(l, NULL);
    else
        query(l);
}

static void on_value(struct load *l, const struct redis_value *v)
{
    if (l->state == LOAD_SCAN)
        on_scanned(l, v);
    else if (redis_value_len(v) != (l->state == LOAD_BEGIN ? 6 : 4))
        load_end(l, redis_odd);
    else if (l->state == LOAD_BEGIN)
        on_begun(l, v);
    else
        on_applied(l, v);
}

static void on_reply(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct load *l = arg;
    size_t len;

    switch (outcome) {
    case REDIS_OK:
        on_value(l, v);
        break;
    case REDIS_RETRY:
        timer_start(l->timer, RETRY_MS, 0);
        break;
    case REDIS_ERROR:
        load_end(l, refused(l, redis_value_str(v, &len)));
        break;
    case REDIS_FULL:
        load_end(l, "OOM Redis takes no more: the list cannot be loaded");
        break;
    case REDIS_AWAY:
    case REDIS_UNKNOWN:
        load_end(l, "UNAVAILABLE Redis is away");
        break;
    }
}

/* ---- for lists.c ---- */

struct load *load_new(struct loader *loader, enum list_side side,
                      const char *user, size_t len, void *arg)
{
    const struct engine *e = loader->engine;
    struct load *l = mem_zalloc(sizeof(*l));

    l->loader = loader;
    l->arg = arg;
    l->side = side;
    buf_append(&l->user, user, len);
    l->overlay = overlay_new(e, loader->lookup, side, user, len);
    l->rows = rows_new(e, side, user, len);
    l->timer = timer_new(e->loop, send_call, l);
    script_args(l, LOAD_BEGIN);
    timer_start(l->timer, 0, 0);
    return l;
}

void load_free(struct load *l)
{
    timer_free(l->timer);
    overlay_free(l->overlay);
    rows_free(l->rows);
    args_free(&l->args);
    buf_free(&l->user);
    buf_free(&l->begun);
    buf_free(&l->pos);
    buf_free(&l->text);
    free(l);
}
