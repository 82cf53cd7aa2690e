/* SPDX-License-Identifier: MIT */
/* Redis came, or came back.
 *
 * Happy path: connected → floor from PostgreSQL (when that is up) → recover.lua
 * of each kind (generation, floor) → open. Every CHECK_MS: INFO, and recover.lua
 * again, with the floor when the run id or the replication id is another (a
 * failover that kept the connection). Failure modes: not a primary, or a policy
 * that may evict dirty keys: closed, asked again at each check; PostgreSQL away or
 * silent: opened with the floor that is known, and asked again until it answers.
 *
 * PostgreSQL may come back without what it had committed: as a standby that was
 * behind, or restored. Then what Redis takes for written is not, so PostgreSQL's
 * history is asked for, too, whenever it is up and at every check, and another one
 * raises the generation (recover.lua): no state or total is believed before
 * PostgreSQL was asked again, and batches that were written and not acked are
 * written again. */
#include "services/recovery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "core/sqlstate.h"
#include "services/service.h"
#include "services/sql.h"

#define CHECK_MS     2000
#define AGAIN_MS     200
#define ERROR_LOG_MS 60000

struct recovery {
    const struct service *services;       /* ref */
    const struct engine *engine;          /* ref: of any kind */
    const struct recovery_events *events; /* ref */
    struct timer *timer;                  /* owned: next check or attempt */
    struct redis_info info;
    struct redis_info sent; /* what recover.lua was last told of */
    int64_t evicted_told;   /* keys, as recover.lua has heard */
    struct sql_job floor_job;
    struct sql_job history_job;
    struct args args;
    bool connected;
    bool open;
    bool was_open; /* once at least */
    bool asking_floor;
    bool floor_wanted; /* PostgreSQL was not asked yet, or did not answer */
    bool asking_history;
    bool history_refused;          /* it does not tell */
    bool history_new;              /* recover.lua was not told */
    char history[SQL_HISTORY_MAX]; /* of PostgreSQL; "" not known */
    int recovering;    /* kinds that have not answered recover.lua yet */
    bool failed;       /* one of them */
    bool raised;       /* the generation, and it was not said yet */
    bool raised_of_pg; /* for PostgreSQL's sake */
    int64_t gen;       /* highest of all kinds */
    bool checking;
    struct log_limit error_log; /* recover.lua is tried for ever */
};

static void recover(struct recovery *r);
static void recover_send(struct recovery *r);

static void set_open(struct recovery *r, bool open, const char *why)
{
    if (r->open == open)
        return;
    r->open = open;
    metric_set(M_REDIS_UP, open);
    if (open) {
        r->was_open = true;
        r->events->on_open(r->events->arg);
    } else {
        r->events->on_close(r->events->arg, why);
    }
}

/* ---- what Redis is ---- */

static void policy_log(const struct redis_info *info)
{
    if (strncmp(info->maxmemory_policy, "allkeys-", 8) == 0)
        log_error("redis",
                  "maxmemory-policy %s would evict likes and follows that "
                  "are not in PostgreSQL yet: set noeviction or volatile-*",
                  info->maxmemory_policy);
}

static void aof_log(const struct redis_info *info)
{
    if (!info->aof_enabled)
        log_warn("redis", "no append-only file (appendonly no): likes and "
                          "follows not in PostgreSQL yet are LOST when Redis "
                          "dies");
}

static bool is_same(const struct redis_info *a, const struct redis_info *b)
{
    return strcmp(a->run_id, b->run_id) == 0 &&
           strcmp(a->replid, b->replid) == 0;
}

/* ---- floor and generation ---- */

/* Without it, a Redis whose clock is behind makes events that look old. */
static bool floor_is_due(const struct recovery *r)
{
    return r->floor_wanted && pg_is_up(r->engine->pg);
}

static void recover_again(struct recovery *r)
{
    r->floor_wanted = true;
    timer_start(r->timer, AGAIN_MS, 0);
}

static void say_raised(struct recovery *r)
{
    if (r->raised) {
        metric_add(M_REDIS_FAILOVERS, 1);
        log_warn("redis",
                 "restarted or failed over: generation %lld; cached states "
                 "are checked against PostgreSQL",
                 (long long)r->gen);
    }
    if (r->raised_of_pg) {
        metric_add(M_PG_FAILOVERS, 1);
        log_warn("pg",
                 "failed over or restored: generation %lld; cached states "
                 "are checked against it",
                 (long long)r->gen);
    }
    r->raised = r->raised_of_pg = false;
}

/* All kinds have answered. */
static void recovered(struct recovery *r)
{
    if (r->failed) {
        recover_again(r);
        return;
    }
    if (!is_same(&r->sent, &r->info)) { /* it failed over meanwhile */
        recover(r);
        return;
    }
    if (r->history_new) {
        recover_send(r);
        return;
    }
    r->evicted_told = r->sent.evicted_keys;
    metric_set(M_GENERATION, (double)r->gen);
    say_raised(r);
    set_open(r, true, "");
    timer_start(r->timer, floor_is_due(r) ? AGAIN_MS : CHECK_MS, 0);
}

static void on_recovered(void *arg, enum redis_outcome outcome,
                         const struct redis_value *v)
{
    struct recovery *r = arg;
    uint64_t held;
    size_t len;

    r->recovering--;
    if (!r->connected)
        return;
    if (outcome == REDIS_OK && redis_value_len(v) == 3) {
        int64_t gen = redis_value_int(redis_value_at(v, 0));

        r->gen = gen > r->gen ? gen : r->gen;
        r->raised |= redis_value_int(redis_value_at(v, 1)) == 1;
        r->raised_of_pg |= redis_value_int(redis_value_at(v, 1)) == 2;
        r->events->on_time(r->events->arg,
                           redis_value_int(redis_value_at(v, 2)));
    } else {
        if ((outcome == REDIS_ERROR || outcome == REDIS_FULL) &&
            log_allow(&r->error_log, ERROR_LOG_MS, &held))
            log_error("redis", "recover failed: %s (%llu more)",
                      redis_value_str(v, &len), (unsigned long long)held);
        r->failed = true;
    }
    if (r->recovering == 0)
        recovered(r);
}

static void recover_send(struct recovery *r)
{
    if (!r->connected || r->recovering)
        return; /* the timer starts when it is answered */
    r->sent = r->info;
    r->failed = false;
    r->gen = 0;
    args_clear(&r->args);
    args_put_str(&r->args, r->info.run_id);
    args_put_str(&r->args, r->info.replid);
    args_put_i64(&r->args, r->events->floor_us(r->events->arg));
    /* What it was is not what it comes back as. */
    args_put_str(&r->args, pg_is_up(r->engine->pg) ? r->history : "");
    r->history_new = false;
    args_put_i64(&r->args, r->info.evicted_keys != r->evicted_told);
    for (int i = 0; i < EDGE_COUNT; i++) {
        if (args_send(&r->args, &r->services[i].engine, SCRIPT_RECOVER,
                      on_recovered, r) == 0)
            r->recovering++;
        else
            r->failed = true;
    }
    if (r->recovering == 0)
        timer_start(r->timer, AGAIN_MS, 0);
}

/* No right to ask, or a PostgreSQL that has no such function: until it was away,
 * at least. Anything else may be better at the next check. */
static void judge_refusal(struct recovery *r, const struct pg_result *res)
{
    enum sql_action action = sqlstate_action(pg_result_sqlstate(res));

    if (action != SQL_CONFIG && action != SQL_OTHER)
        return;
    r->history_refused = true;
    log_warn("pg", "a failover would not be seen: %s", pg_result_message(res));
}

static void on_history(void *arg, enum pg_outcome outcome,
                       const struct pg_result *res)
{
    struct recovery *r = arg;
    char history[SQL_HISTORY_MAX];

    r->asking_history = false;
    if (outcome == PG_FAILED)
        judge_refusal(r, res);
    if (outcome != PG_DONE)
        return;
    sql_read_history(res, history);
    if (strcmp(history, r->history) == 0)
        return;
    memcpy(r->history, history, sizeof(history));
    r->history_new = true;
    recover_send(r);
}

static void ask_history(struct recovery *r)
{
    if (r->asking_history || r->history_refused)
        return;
    sql_history(&r->history_job);
    r->history_job.job.cb = on_history;
    r->history_job.job.arg = r;
    r->history_job.job.timeout_ms =
        (unsigned)r->engine->options->pg_lookup_timeout_ms;
    r->asking_history =
        pg_submit(r->engine->pg, PG_LANE_LOOKUP, &r->history_job.job) == 0;
}

static void on_floor(void *arg, enum pg_outcome outcome,
                     const struct pg_result *res)
{
    struct recovery *r = arg;

    r->asking_floor = false;
    if (outcome == PG_DONE) {
        r->floor_wanted = false;
        r->events->on_floor(r->events->arg, sql_read_floor(res));
    }
    recover_send(r);
}

static void recover(struct recovery *r)
{
    if (!r->connected || r->asking_floor || r->recovering)
        return;
    ask_history(r);
    sql_floor(&r->floor_job);
    r->floor_job.job.cb = on_floor;
    r->floor_job.job.arg = r;
    r->floor_job.job.timeout_ms =
        (unsigned)r->engine->options->pg_lookup_timeout_ms;
    if (pg_submit(r->engine->pg, PG_LANE_LOOKUP, &r->floor_job.job) == 0)
        r->asking_floor = true;
    else
        recover_send(r);
}

/* ---- checks ---- */

static void info_metrics(const struct redis_info *info)
{
    metric_set(M_REDIS_MEMORY, (double)info->used_memory);
    metric_set(M_REDIS_MEMORY_MAX, (double)info->maxmemory);
    metric_set(M_REDIS_MAY_EVICT,
               strcmp(info->maxmemory_policy, "noeviction") != 0);
    metric_set(M_REDIS_AOF, info->aof_enabled);
}

static void judge(struct recovery *r, const struct redis_info *info)
{
    bool other = !is_same(info, &r->info);
    bool policy = strcmp(info->maxmemory_policy, r->info.maxmemory_policy) != 0;
    bool aof = info->aof_enabled != r->info.aof_enabled;
    const char *was = redis_info_objection(&r->info);
    const char *no = redis_info_objection(info);

    if (r->info.is_primary && !info->is_primary)
        log_warn("redis", "it has become a replica");
    if (was && !no)
        log_info("redis", "it can be used again");
    r->info = *info;
    info_metrics(info);
    if (policy)
        policy_log(info);
    if (aof)
        aof_log(info);
    if (no) {
        set_open(r, false, no);
        timer_start(r->timer, CHECK_MS, 0);
    } else if (other || !r->open || floor_is_due(r)) {
        if (other) /* until the generation is raised */
            set_open(r, false, "Redis failed over");
        recover(r);
    } else { /* somebody may have emptied Redis, run id and all */
        ask_history(r);
        recover_send(r);
    }
}

static void on_info(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct recovery *r = arg;
    struct redis_info info;
    const char *text;
    size_t len;

    r->checking = false;
    if (!r->connected)
        return;
    text = redis_value_str(v, &len);
    if (outcome == REDIS_OK && redis_parse_info(text, len, &info) == 0)
        judge(r, &info);
    else
        timer_start(r->timer, CHECK_MS, 0);
}

static void on_timer(void *arg)
{
    struct recovery *r = arg;

    if (!r->connected || r->checking)
        return;
    args_clear(&r->args);
    args_put_str(&r->args, "INFO");
    if (args_call(&r->args, r->engine, on_info, r) == 0)
        r->checking = true;
    else
        timer_start(r->timer, AGAIN_MS, 0);
}

/* ---- public ---- */

struct recovery *recovery_new(const struct service *services,
                              const struct recovery_events *events)
{
    struct recovery *r = mem_zalloc(sizeof(*r));

    r->services = services;
    r->engine = &services[0].engine;
    r->events = events;
    r->timer = timer_new(r->engine->loop, on_timer, r);
    return r;
}

void recovery_free(struct recovery *r)
{
    if (!r)
        return;
    timer_free(r->timer);
    sql_job_free(&r->floor_job);
    sql_job_free(&r->history_job);
    args_free(&r->args);
    free(r);
}

const char *recovery_redis_up(struct recovery *r, const struct redis_info *info)
{
    const char *no = redis_info_objection(info);

    policy_log(info);
    aof_log(info);
    r->info = *info;
    info_metrics(info);
    r->recovering = 0;
    r->checking = false;
    r->floor_wanted = true;
    if (no && !r->was_open && info->is_primary) {
        r->events->on_refused(r->events->arg);
        return no;
    }
    if (no)
        return no;
    r->connected = true;
    recover(r);
    return NULL;
}

void recovery_redis_down(struct recovery *r, const char *why)
{
    char text[120]; /* clients get to see it */

    r->connected = false;
    timer_stop(r->timer);
    snprintf(text, sizeof(text), "Redis is away (%s)", why);
    set_open(r, false, text);
}

/* The floor may be higher than what Redis was told without PostgreSQL. */
void recovery_pg_up(struct recovery *r)
{
    r->floor_wanted = true;
    r->history_refused = false;
    r->history[0] = '\0';
    recover(r);
}

bool recovery_is_open(const struct recovery *r)
{
    return r->open;
}

const struct redis_info *recovery_info(const struct recovery *r)
{
    return &r->info;
}
