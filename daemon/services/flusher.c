/* SPDX-License-Identifier: MIT */
/* The flusher: a tick once an interval, claims while the pass under way has
 * owners left, flights (flight.c) for what was claimed, the watermark, and those
 * who wait for a drain.
 *
 * All that is dirty when a pass starts belongs to it, and a new one starts only
 * when it is used up: so the watermark advances under constant load. Failure
 * modes: Redis away (flights wait, nothing is claimed); PostgreSQL away (what is
 * claimed waits in its writer, nothing more is claimed); a dead daemon's batches
 * (tick.lua hands them over once their lease has run out). */
#include "services/flusher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/hottest.h"
#include "services/drain.h"
#include "services/engine.h"
#include "services/flight.h"
#include "services/sql.h"
#include "services/standing.h"

#define DRAIN_TICK_MS      20
#define RESUME_MS          20
#define RESUME_CAP_MS      1000
#define WATERMARK_EVERY_MS 1000
#define PRUNE_EVERY_MS     60000
#define TICK_HOTTEST       32 /* with what it keeps, less than its SAMPLE */
#define ERROR_LOG_MS       60000

struct flusher {
    const struct engine *engine; /* ref */
    struct flight_events events;
    struct list flights;
    struct timer *tick_timer;   /* owned */
    struct timer *resume_timer; /* owned: flights that wait for Redis */
    struct backoff resume;      /* of this timer */
    struct drains drains;
    struct args args;
    struct sql_job watermark;
    bool open;
    bool paused;
    bool released;
    bool tick_under_way;
    bool watermark_under_way;
    bool pass_due;
    int64_t pass_left; /* owners, as of the last claim or tick */
    uint64_t next_batch;
    uint64_t pass_at_ms; /* monotonic: when the last pass was due */
    uint64_t stored_at_ms;
    uint64_t pruned_at_ms;
    int64_t floor_us;
    int64_t storing_us; /* the watermark that is being stored */
    int64_t oldest_look_us;
    struct flusher_status status;
};

static void pump(struct flusher *f);

/* `like` is the row of the first kind. */
static void gauge(const struct flusher *f, enum metric_id like, double v)
{
    metric_set(metric_of(like, (int)f->engine->kind->index), v);
}

/* ---- flights ---- */

static size_t flights_count(const struct flusher *f)
{
    size_t n = 0;

    LIST_FOREACH(it, &f->flights)
        n++;
    return n;
}

/* Two more than can be written at a time, so that one is claimed and one acked
 * meanwhile. */
static size_t flights_max(const struct flusher *f)
{
    int64_t n = f->engine->options->pg_connections;

    return (size_t)(n > 1 ? n - 1 : 1) + 2;
}

static bool is_claiming(const struct flusher *f)
{
    LIST_FOREACH(it, &f->flights)
        if (flight_state(flight_of(it)) == FLIGHT_CLAIM)
            return true;
    return false;
}

static bool has_orphans(const struct flusher *f)
{
    LIST_FOREACH(it, &f->flights)
        if (flight_has_orphans(flight_of(it)))
            return true;
    return false;
}

static bool is_own(const struct flusher *f, const char *id)
{
    LIST_FOREACH(it, &f->flights)
        if (strcmp(flight_id(flight_of(it)), id) == 0)
            return true;
    return false;
}

static void on_claimed(void *arg, struct flight *fl, int64_t left)
{
    struct flusher *f = arg;

    f->pass_due = false;
    f->pass_left = left > 0 ? left : 0; /* negative: the next tick tells */
    flusher_raise_floor(f, flight_claimed_us(fl));
    pump(f);
}

static void on_orphans(void *arg, const char *orphan_id, const char *taker)
{
    struct flusher *f = arg;

    flight_reload(
        flight_new(f->engine, &f->events, &f->flights, orphan_id, taker));
}

static void on_gone(void *arg)
{
    struct flusher *f = arg;

    backoff_reset(&f->resume);
    pump(f);
}

static void on_wait(void *arg)
{
    struct flusher *f = arg;

    if (f->open && !timer_active(f->resume_timer))
        timer_start(f->resume_timer, backoff_next_ms(&f->resume), 0);
}

static void on_resume(void *arg)
{
    struct flusher *f = arg;

    LIST_FOREACH_SAFE(it, &f->flights)
        flight_resume(flight_of(it));
}

/* Starts a claim when one is due and there is room. */
static void pump(struct flusher *f)
{
    char id[BATCH_ID_MAX];
    bool due = f->pass_left > 0 || f->pass_due;

    gauge(f, M_BATCHES_IN_FLIGHT_LIKE, (double)flights_count(f));
    if (!f->open || f->paused || f->released || !due ||
        !pg_is_up(f->engine->pg) || is_claiming(f) ||
        flights_count(f) >= flights_max(f))
        return;
    snprintf(id, sizeof(id), "%s-%s-%llu", f->engine->kind->name,
             f->engine->instance, (unsigned long long)++f->next_batch);
    flight_claim(flight_new(f->engine, &f->events, &f->flights, id, ""),
                 f->pass_due);
}

/* ---- watermark ---- */

static void drains_check(struct flusher *f)
{
    struct drain_progress p = {
        .now_us = f->status.redis_now_us,
        .stored_us = f->status.stored_us,
        .oldest_look_us = f->oldest_look_us,
        .orphans = has_orphans(f),
    };

    drains_progress(&f->drains, &p);
}

static void on_watermark(void *arg, enum pg_outcome outcome,
                         const struct pg_result *r)
{
    struct flusher *f = arg;

    f->watermark_under_way = false;
    if (outcome == PG_DONE) {
        f->status.stored_us = f->storing_us;
        f->stored_at_ms = clock_monotonic_ms();
        drains_check(f);
    } else if (outcome == PG_FAILED) {
        log_warn("flush", "sync_state was not updated: %s",
                 pg_result_message(r));
    }
}

static void watermark_store(struct flusher *f)
{
    uint64_t now = clock_monotonic_ms();
    bool wanted = !drains_empty(&f->drains) ||
                  now - f->stored_at_ms >= WATERMARK_EVERY_MS;
    bool prune = now - f->pruned_at_ms >= PRUNE_EVERY_MS;

    if (!wanted || f->watermark_under_way || !pg_is_up(f->engine->pg) ||
        f->status.through_us <= f->status.stored_us)
        return;
    f->storing_us = f->status.through_us;
    flusher_raise_floor(f, f->storing_us);
    sql_watermark(&f->watermark, f->engine, f->storing_us, f->floor_us,
                  prune ? f->engine->options->flush_ledger_keep_s : 0);
    f->watermark.job.cb = on_watermark;
    f->watermark.job.arg = f;
    f->watermark.job.timeout_ms =
        (unsigned)f->engine->options->pg_write_timeout_ms;
    if (pg_submit(f->engine->pg, PG_LANE_WRITE, &f->watermark.job) == 0) {
        f->watermark_under_way = true;
        if (prune)
            f->pruned_at_ms = now;
    }
}

/* ---- tick ---- */

static void take_over(struct flusher *f, const struct redis_value *v)
{
    for (size_t i = TICK_FIELDS; i + 1 < redis_value_len(v); i += 2) {
        size_t len;
        const char *id = redis_value_str(redis_value_at(v, i), &len);
        const char *taker = redis_value_str(redis_value_at(v, i + 1), &len);

        if (is_own(f, id))
            continue;
        log_info("flush", "batch %s: its lease has run out, taken over", id);
        metric_add(M_BATCHES_TAKEN_OVER, 1);
        fault_point("taken_over");
        flight_reload(
            flight_new(f->engine, &f->events, &f->flights, id, taker));
    }
}

static void tick_read(struct flusher *f, const struct redis_value *v)
{
    int64_t field[TICK_FIELDS];

    for (size_t i = 0; i < TICK_FIELDS; i++)
        field[i] = redis_value_int(redis_value_at(v, i));
    f->pass_left = field[TICK_PASS];
    f->oldest_look_us = field[TICK_OLDEST_LOOK];
    standing_told(&f->status, f->engine->kind, field);
}

static void on_tick_reply(void *arg, enum redis_outcome outcome,
                          const struct redis_value *v)
{
    static struct log_limit limit; /* of all kinds: each ticks for ever */
    struct flusher *f = arg;
    uint64_t held;
    size_t len;

    f->tick_under_way = false;
    if (outcome == REDIS_ERROR && log_allow(&limit, ERROR_LOG_MS, &held))
        log_error("flush", "tick failed: %s (%llu more)",
                  redis_value_str(v, &len), (unsigned long long)held);
    if (outcome != REDIS_OK || redis_value_len(v) < TICK_FIELDS)
        return;
    tick_read(f, v);
    if (!f->released)
        take_over(f, v);
    drains_ticked(&f->drains, f->status.redis_now_us);
    watermark_store(f);
    drains_check(f);
    pump(f);
}

/* Most pairs wait where most events come. */
static void put_hottest(struct flusher *f)
{
    struct hottest_entry top[TICK_HOTTEST];
    size_t n = hottest_top(f->engine->hottest, top, TICK_HOTTEST);

    args_put_i64(&f->args, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        args_put(&f->args, top[i].key, top[i].len);
}

static void tick_send(struct flusher *f)
{
    size_t n = flights_count(f);
    /* One more than is claimed: under load own batches leave no other. */
    size_t most = flights_max(f) + 1;
    size_t room = most > n ? most - n : 0;

    if (f->tick_under_way || !f->open || f->released)
        return;
    if (f->paused || !pg_is_up(f->engine->pg))
        room = 0;
    args_clear(&f->args);
    args_put_i64(&f->args, f->engine->options->flush_lease_ms);
    args_put_i64(&f->args, (int64_t)room);
    put_hottest(f);
    LIST_FOREACH(it, &f->flights)
        args_put_str(&f->args, flight_id(flight_of(it)));
    drains_ticking(&f->drains);
    f->tick_under_way =
        args_send(&f->args, f->engine, SCRIPT_TICK, on_tick_reply, f) == 0;
}

static void on_tick(void *arg)
{
    struct flusher *f = arg;
    uint64_t now = clock_monotonic_ms();

    if (!drains_empty(&f->drains) ||
        now - f->pass_at_ms >=
            (uint64_t)f->engine->options->flush_interval_ms) {
        f->pass_at_ms = now;
        f->pass_due = true;
    }
    tick_send(f);
}

/* Often enough for passes and leases. */
static uint64_t tick_period_ms(const struct flusher *f)
{
    const struct options *o = f->engine->options;
    int64_t ms = o->flush_interval_ms;

    return (uint64_t)(ms > o->flush_lease_ms / 3 ? o->flush_lease_ms / 3 : ms);
}

/* And for drains. */
static void tick_schedule(struct flusher *f, bool now)
{
    uint64_t ms = tick_period_ms(f);

    if (!drains_empty(&f->drains) && ms > DRAIN_TICK_MS)
        ms = DRAIN_TICK_MS;
    timer_start(f->tick_timer, now ? 0 : ms, ms);
}

static void on_drains_empty(void *arg)
{
    tick_schedule(arg, false);
}

/* ---- public ---- */

struct flusher *flusher_new(const struct engine *e)
{
    struct flusher *f = mem_zalloc(sizeof(*f));

    f->engine = e;
    standing_unknown(&f->status, e->kind);
    f->events = (struct flight_events){
        .on_claimed = on_claimed,
        .on_orphans = on_orphans,
        .on_gone = on_gone,
        .on_wait = on_wait,
        .arg = f,
    };
    list_init(&f->flights);
    drains_init(&f->drains, e->loop, on_drains_empty, f);
    f->tick_timer = timer_new(e->loop, on_tick, f);
    f->resume_timer = timer_new(e->loop, on_resume, f);
    backoff_init(&f->resume, RESUME_MS, RESUME_CAP_MS);
    tick_schedule(f, false);
    return f;
}

void flusher_free(struct flusher *f)
{
    if (!f)
        return;
    drains_abort(&f->drains);
    LIST_FOREACH_SAFE(it, &f->flights)
        flight_free(flight_of(it));
    timer_free(f->tick_timer);
    timer_free(f->resume_timer);
    args_free(&f->args);
    sql_job_free(&f->watermark);
    free(f);
}

void flusher_open(struct flusher *f)
{
    f->open = true;
    timer_start(f->resume_timer, 0, 0);
    tick_schedule(f, true);
}

void flusher_close(struct flusher *f)
{
    f->open = false;
}

void flusher_pg_up(struct flusher *f)
{
    LIST_FOREACH(it, &f->flights)
        flight_pg_up(flight_of(it));
    tick_schedule(f, true);
}

int64_t flusher_floor(const struct flusher *f)
{
    return f->floor_us;
}

void flusher_raise_floor(struct flusher *f, int64_t floor_us)
{
    if (floor_us > f->floor_us)
        f->floor_us = floor_us;
}

void flusher_pause(struct flusher *f)
{
    f->paused = true;
    metric_set(M_FLUSHER_PAUSED, 1);
}

void flusher_resume(struct flusher *f)
{
    f->paused = false;
    metric_set(M_FLUSHER_PAUSED, 0);
    tick_schedule(f, true);
}

void flusher_status(const struct flusher *f, struct flusher_status *st_r)
{
    *st_r = f->status;
    st_r->lag_us = standing_lag_us(&f->status, f->open, tick_period_ms(f));
    st_r->paused = f->paused;
    st_r->batches_own = (int64_t)flights_count(f);
}

void flusher_drain(struct flusher *f, uint64_t timeout_ms, drain_on_done cb,
                   void *arg)
{
    drains_add(&f->drains, f->paused ? 0 : timeout_ms,
               f->paused ? DRAIN_PAUSED : DRAIN_TIMEOUT, cb, arg);
    tick_schedule(f, true);
}

static void on_released(void *arg, enum redis_outcome outcome,
                        const struct redis_value *v)
{
    (void)arg;
    (void)outcome;
    (void)v;
}

void flusher_release(struct flusher *f)
{
    char key[64];

    f->released = true;
    timer_stop(f->tick_timer);
    snprintf(key, sizeof(key), "likesync:leases:%s", f->engine->kind->name);
    LIST_FOREACH(it, &f->flights) {
        args_clear(&f->args);
        args_put_str(&f->args, "ZADD");
        args_put_str(&f->args, key);
        args_put_str(&f->args, "XX");
        args_put_str(&f->args, "0");
        args_put_str(&f->args, flight_id(flight_of(it)));
        if (args_call(&f->args, f->engine, on_released, NULL) != 0)
            return; /* the leases run out by themselves */
    }
}

void flusher_reconfigure(struct flusher *f)
{
    tick_schedule(f, false);
}
