/* SPDX-License-Identifier: MIT */
/* The job: phases, each a scan of all keys.
 *
 * Happy path, one step at a time: SCAN → the edges in the keys found → those not
 * known are taken over → … → the next phase. Failure modes: Redis away (the step
 * is made again; after AWAY_MS the job fails); a new connection to Redis (the
 * phase begins anew, since another process has other cursors); PostgreSQL away
 * (waited for); Redis refuses a step (the job fails). */
#include "services/adopt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/resp.h"
#include "services/adopt_internal.h"
#include "services/service.h"

#define RETRY_MS 200
#define AWAY_MS  60000

/* Sets first, so that lists may have their names. Hashes before lists, which
 * make more of them. */
static const struct adopt_phase phases[] = {
    {"sets of followed users", ADOPT_SETS, LIST_FOLLOW, "set"},
    {"sets of fans", ADOPT_SETS, LIST_FANS, "set"},
    {"hashes", ADOPT_HASHES, LIST_FOLLOW, "hash"},
    {"members of sets", ADOPT_STAGED, LIST_FOLLOW, "set"},
    {"lists of followed users", ADOPT_LISTS, LIST_FOLLOW, "zset"},
    {"lists of fans", ADOPT_LISTS, LIST_FANS, "zset"},
};
#define HASHES 2 /* the only one of a kind without lists */

static void finish(struct adopt *a, enum job_state state)
{
    a->state = state;
    a->stopping = false;
    adopt_pairs_clear(&a->pairs);
    args_clear(&a->keys);
    log_info("adopt",
             "%ss: %s: %lld edges found, %lld taken over, %lld known, %lld "
             "refused",
             a->service->engine.kind->name,
             state == JOB_DONE      ? "done"
             : state == JOB_STOPPED ? "stopped"
                                    : a->why,
             (long long)a->counts.edges, (long long)a->counts.adopted,
             (long long)a->counts.known, (long long)a->counts.refused);
}

static void set_why(struct adopt *a, const char *why)
{
    snprintf(a->why, sizeof(a->why), "%s", why);
}

void adopt_later(struct adopt *a, unsigned ms)
{
    timer_start(a->timer, ms, 0);
}

void adopt_wait_redis(struct adopt *a, const char *why)
{
    uint64_t now = clock_monotonic_ms();

    set_why(a, why);
    if (a->away_ms == 0)
        a->away_ms = now;
    if (now - a->away_ms > AWAY_MS)
        finish(a, JOB_FAILED);
    else
        adopt_later(a, RETRY_MS);
}

void adopt_wait_postgres(struct adopt *a, const char *why)
{
    set_why(a, why);
    adopt_later(a, RETRY_MS);
}

void adopt_refuse(struct adopt *a, const struct resp_arg *key, const char *fmt,
                  ...)
{
    char shown[RESP_SHOW_MAX];
    char why[256];
    va_list ap;

    a->counts.refused++;
    a->list.refused = true;
    if (a->example[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    snprintf(a->example, sizeof(a->example), "%s: %s", resp_show(key, shown),
             why);
}

/* ---- Redis ---- */

static void sent(struct adopt *a, int rc)
{
    if (rc != 0)
        adopt_wait_redis(a, rc == REDIS_BUSY ? "Redis has too much to do"
                                             : "Redis is away");
}

void adopt_call(struct adopt *a, redis_on_reply cb)
{
    sent(a, args_call(&a->args, &a->service->engine, cb, a));
}

void adopt_script(struct adopt *a, enum script_id id, redis_on_reply cb)
{
    sent(a, args_send(&a->args, &a->service->engine, id, cb, a));
}

bool adopt_answered(struct adopt *a, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    size_t len;

    switch (outcome) {
    case REDIS_OK:
        a->away_ms = 0;
        a->why[0] = '\0';
        return true;
    case REDIS_ERROR:
        set_why(a, redis_value_str(v, &len));
        finish(a, JOB_FAILED);
        return false;
    case REDIS_FULL:
        adopt_wait_redis(a, redis_value_str(v, &len));
        return false;
    default:
        adopt_wait_redis(a, "Redis did not answer");
        return false;
    }
}

/* ---- steps ---- */

static void phase_start(struct adopt *a, int phase)
{
    a->phase = phase;
    a->reconnects = redis_reconnects(a->service->engine.redis);
    a->scanned = 0;
    adopt_scan_start(a);
}

static void on_size(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct adopt *a = arg;

    if (!adopt_answered(a, outcome, v))
        return;
    a->db_size = redis_value_int(v);
    phase_start(a, 0);
    adopt_next(a);
}

static void ask_size(struct adopt *a)
{
    args_clear(&a->args);
    args_put_str(&a->args, "DBSIZE");
    adopt_call(a, on_size);
}

void adopt_next(struct adopt *a)
{
    const struct engine *e = &a->service->engine;

    if (a->stopping) {
        finish(a, JOB_STOPPED);
        return;
    }
    if (!e->open || !e->redis) {
        adopt_wait_redis(a, "Redis is away");
        return;
    }
    if (a->phase < 0) {
        ask_size(a);
        return;
    }
    if (redis_reconnects(e->redis) != a->reconnects)
        phase_start(a, a->phase);
    while (!adopt_pairs_next(a) && !adopt_scan_next(a)) {
        if (a->phase + 1 == a->n_phases) {
            finish(a, JOB_DONE);
            return;
        }
        phase_start(a, a->phase + 1);
    }
}

static void on_timer(void *arg)
{
    adopt_next(arg);
}

/* ---- its owner ---- */

struct adopt *adopt_new(struct service *services, struct uv_loop_s *loop)
{
    struct adopt *a = mem_zalloc(sizeof(*a));

    a->services = services;
    a->timer = timer_new(loop, on_timer, a);
    return a;
}

void adopt_free(struct adopt *a)
{
    if (!a)
        return;
    timer_free(a->timer);
    adopt_pairs_free(&a->pairs);
    args_free(&a->args);
    args_free(&a->keys);
    free(a);
}

int adopt_start(struct adopt *a, enum edge_index kind)
{
    bool has_lists = edge_kinds[kind]->has_lists;

    if (a->state == JOB_RUNNING) {
        if (a->service != &a->services[kind])
            return ADOPT_BUSY;
        a->stopping = false;
        return 0;
    }
    a->state = JOB_RUNNING;
    a->service = &a->services[kind];
    a->phases = has_lists ? phases : &phases[HASHES];
    a->n_phases = has_lists ? (int)ARRAY_LEN(phases) : 1;
    a->phase = -1;
    a->away_ms = 0;
    a->db_size = 0;
    a->scanned = 0;
    memset(&a->counts, 0, sizeof(a->counts));
    a->why[0] = '\0';
    a->example[0] = '\0';
    adopt_later(a, 0);
    return 0;
}

void adopt_stop(struct adopt *a)
{
    if (a->state == JOB_RUNNING)
        a->stopping = true;
}

static int64_t scanned(const struct adopt *a)
{
    int64_t here = a->scanned < a->db_size ? a->scanned : a->db_size;

    if (a->state == JOB_DONE)
        return a->db_size * a->n_phases;
    return a->phase < 0 ? 0 : a->phase * a->db_size + here;
}

void adopt_status(const struct adopt *a, struct adopt_status *st_r)
{
    *st_r = (struct adopt_status){
        .state = a->state,
        .kind = a->service ? a->service->engine.kind : NULL,
        .phase = a->phase >= 0 && a->service ? a->phases[a->phase].name : "",
        .why = a->why,
        .scanned = scanned(a),
        .total = a->db_size * a->n_phases,
        .counts = a->counts,
        .example = a->example,
    };
}
