/* SPDX-License-Identifier: MIT */
/* The job: phases, each a walk through a table or a scan of all keys.
 *
 * Happy path, one step at a time: SCAN → what is to be compared → PostgreSQL's rows
 * of it → a script compares, with what Redis has now → … → the next phase. Counts of
 * PostgreSQL come first, since what Redis keeps is compared with them. Failure
 * modes: a backend away (the step is made again; after AWAY_MS the job fails); a new
 * connection to Redis (the phase begins anew, since another process has other
 * cursors); a step is refused (the job fails). */
#include "services/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "services/service.h"
#include "services/verify_internal.h"

#define RETRY_MS 200
#define AWAY_MS  60000

const char *const verify_part_names[VERIFY_PARTS] = {
    [VERIFY_COUNTS] = "counts", [VERIFY_COUNTERS] = "counters",
    [VERIFY_BASES] = "totals",  [VERIFY_HASHES] = "hashes",
    [VERIFY_LISTS] = "lists",   [VERIFY_UNSYNCED] = "unsynced",
};

static const struct verify_phase phases[] = {
    {"counts of likes", EDGE_LIKE, FROM_TABLES, VERIFY_COUNTS, 0, NULL},
    {"counts of follows", EDGE_FOLLOW, FROM_TABLES, VERIFY_COUNTS, 0, NULL},
    {"counters", EDGE_LIKE, FROM_COUNTERS, VERIFY_COUNTERS, 0, "string"},
    {"counters of what is not synced", EDGE_LIKE, FROM_SETS, VERIFY_COUNTERS, 0,
     "set"},
    {"totals", EDGE_LIKE, FROM_BASES, VERIFY_BASES, 0, "string"},
    {"hashes of likes", EDGE_LIKE, FROM_HASHES, VERIFY_HASHES, 0, "hash"},
    {"hashes of follows", EDGE_FOLLOW, FROM_HASHES, VERIFY_HASHES, 0, "hash"},
    {"likes of posts not synced", EDGE_LIKE, FROM_UNSYNCED, VERIFY_UNSYNCED,
     LIST_FOLLOW, "set"},
    {"likes of users not synced", EDGE_LIKE, FROM_UNSYNCED, VERIFY_UNSYNCED,
     LIST_FANS, "set"},
    {"lists of followed users", EDGE_FOLLOW, FROM_MARKS, VERIFY_LISTS,
     LIST_FOLLOW, "hash"},
    {"lists of fans", EDGE_FOLLOW, FROM_MARKS, VERIFY_LISTS, LIST_FANS, "hash"},
    {"followed users not synced", EDGE_FOLLOW, FROM_UNSYNCED, VERIFY_UNSYNCED,
     LIST_FOLLOW, "set"},
    {"fans not synced", EDGE_FOLLOW, FROM_UNSYNCED, VERIFY_UNSYNCED, LIST_FANS,
     "set"},
};
#define N_PHASES ((int)ARRAY_LEN(phases))

const struct verify_phase *verify_phase(const struct verify *v)
{
    return &phases[v->phase];
}

struct service *verify_service(const struct verify *v)
{
    return &v->services[verify_phase(v)->kind];
}

struct engine *verify_engine(const struct verify *v)
{
    return &verify_service(v)->engine;
}

static void release(struct verify *v)
{
    verify_items_clear(v);
    verify_list_end(v);
    args_clear(&v->keys);
    v->table.last.len = 0;
}

static int64_t sum_different(const struct verify *v)
{
    int64_t n = 0;

    for (int i = 0; i < VERIFY_PARTS; i++)
        n += v->counts[i].different;
    return n;
}

static void finish(struct verify *v, enum job_state state)
{
    v->state = state;
    v->stopping = false;
    release(v);
    log_info("verify", "%s: %lld differ, %lld never stayed the same",
             state == JOB_DONE      ? "done"
             : state == JOB_STOPPED ? "stopped"
                                    : v->why,
             (long long)sum_different(v), (long long)v->unsettled);
}

void verify_later(struct verify *v, unsigned ms)
{
    timer_start(v->timer, ms, 0);
}

void verify_fail(struct verify *v, const char *why)
{
    snprintf(v->why, sizeof(v->why), "%s", why);
    finish(v, JOB_FAILED);
}

void verify_wait(struct verify *v, const char *why)
{
    uint64_t now = clock_monotonic_ms();

    if (v->away_ms == 0)
        v->away_ms = now;
    if (now - v->away_ms > AWAY_MS) {
        verify_fail(v, why);
        return;
    }
    snprintf(v->why, sizeof(v->why), "%s", why);
    verify_later(v, RETRY_MS);
}

/* ---- Redis ---- */

static void sent(struct verify *v, int rc)
{
    if (rc != 0)
        verify_wait(v, rc == REDIS_BUSY ? "Redis has too much to do"
                                        : "Redis is away");
}

void verify_call(struct verify *v, redis_on_reply cb)
{
    sent(v, args_call(&v->args, verify_engine(v), cb, v));
}

void verify_script(struct verify *v, enum script_id id, redis_on_reply cb)
{
    sent(v, args_send(&v->args, verify_engine(v), id, cb, v));
}

bool verify_answered(struct verify *v, enum redis_outcome outcome,
                     const struct redis_value *value)
{
    size_t len;

    switch (outcome) {
    case REDIS_OK:
        v->away_ms = 0;
        v->why[0] = '\0';
        return true;
    case REDIS_ERROR:
        verify_fail(v, redis_value_str(value, &len));
        return false;
    case REDIS_FULL:
        verify_wait(v, redis_value_str(value, &len));
        return false;
    default:
        verify_wait(v, "Redis did not answer");
        return false;
    }
}

/* ---- steps ---- */

static void phase_start(struct verify *v, int phase)
{
    release(v);
    v->phase = phase;
    v->reconnects = redis_reconnects(verify_engine(v)->redis);
    v->scanned = 0;
    if (phases[phase].source == FROM_TABLES)
        verify_counts_start(v);
    else
        verify_scan_start(v);
}

static void on_size(void *arg, enum redis_outcome outcome,
                    const struct redis_value *value)
{
    struct verify *v = arg;

    if (!verify_answered(v, outcome, value))
        return;
    v->db_size = redis_value_int(value);
    phase_start(v, 0);
    verify_next(v);
}

static void ask_size(struct verify *v)
{
    args_clear(&v->args);
    args_put_str(&v->args, "DBSIZE");
    sent(v, args_call(&v->args, &v->services[0].engine, on_size, v));
}

static bool phase_next(struct verify *v)
{
    if (phases[v->phase].source == FROM_TABLES)
        return verify_counts_next(v);
    return verify_items_next(v) || verify_scan_next(v) || verify_items_again(v);
}

void verify_next(struct verify *v)
{
    const struct engine *e = &v->services[0].engine;

    if (v->stopping) {
        finish(v, JOB_STOPPED);
        return;
    }
    if (!e->open || !e->redis) {
        verify_wait(v, "Redis is away");
        return;
    }
    if (v->phase < 0) {
        ask_size(v);
        return;
    }
    if (redis_reconnects(e->redis) != v->reconnects)
        phase_start(v, v->phase);
    while (!phase_next(v)) {
        if (v->phase + 1 == N_PHASES) {
            finish(v, JOB_DONE);
            return;
        }
        phase_start(v, v->phase + 1);
    }
}

static void on_timer(void *arg)
{
    verify_next(arg);
}

/* ---- its owner ---- */

struct verify *verify_new(struct service *services, struct uv_loop_s *loop)
{
    struct verify *v = mem_zalloc(sizeof(*v));

    v->services = services;
    v->timer = timer_new(loop, on_timer, v);
    return v;
}

void verify_free(struct verify *v)
{
    if (!v)
        return;
    timer_free(v->timer);
    release(v);
    verify_found_clear(v);
    free(v->now.items);
    free(v->later.items);
    args_free(&v->args);
    args_free(&v->keys);
    buf_free(&v->ids);
    buf_free(&v->list.pos);
    buf_free(&v->table.last);
    buf_free(&v->table.ids);
    buf_free(&v->table.limit);
    free(v);
}

int verify_start(struct verify *v, bool repair)
{
    if (v->state == JOB_RUNNING)
        return VERIFY_BUSY;
    v->state = JOB_RUNNING;
    v->repair = repair;
    v->phase = -1;
    v->away_ms = 0;
    v->db_size = 0;
    v->scanned = 0;
    memset(v->counts, 0, sizeof(v->counts));
    v->unsettled = 0;
    v->why[0] = '\0';
    verify_found_clear(v);
    verify_later(v, 0);
    return 0;
}

void verify_stop(struct verify *v)
{
    if (v->state == JOB_RUNNING)
        v->stopping = true;
}

static int64_t scanned(const struct verify *v)
{
    int64_t here = v->scanned < v->db_size ? v->scanned : v->db_size;

    if (v->state == JOB_DONE)
        return v->db_size * N_PHASES;
    return v->phase < 0 ? 0 : v->phase * v->db_size + here;
}

void verify_status(const struct verify *v, struct verify_status *st_r)
{
    *st_r = (struct verify_status){
        .state = v->state,
        .repair = v->repair,
        .phase =
            v->state != JOB_IDLE && v->phase >= 0 ? phases[v->phase].name : "",
        .why = v->why,
        .scanned = scanned(v),
        .total = v->db_size * N_PHASES,
        .unsettled = v->unsettled,
        .shown = v->shown,
        .n_shown = v->n_shown,
    };
    memcpy(st_r->counts, v->counts, sizeof(st_r->counts));
}
