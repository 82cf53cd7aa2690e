/* SPDX-License-Identifier: MIT */
/* A count that PostgreSQL keeps, and what the edges that are not synced yet add
 * to it, read in one snapshot together with their rows.
 *
 * Happy path, for a few users at a time: turn at the gate → follow_counts.lua →
 * nothing more when all lists are loaded; else one query → the epoch again: it
 * is the same, so no edge was claimed or acked meanwhile, and each edge counts as
 * the newer of its hash and its row has it. Otherwise again, PAUSE_MS later. A
 * list with too many edges that are not synced is loaded first. Failure modes:
 * Redis or PostgreSQL away, too much under way: the whole is refused. */
#include "services/follow_counts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/pgarray.h"
#include "core/resp.h"
#include "services/follow_edges.h"
#include "services/gate.h"
#include "services/lists.h"

#define PAUSE_MS  3
/* A call takes a place in the queue of the pool, which is short. Of each of its
 * users it holds the id and the counts all the time; of those of the step under
 * way, more. */
#define COST      2048
#define HELD_COST 128
#define STEP_COST 256

/* As follow_counts.lua says it in place of how many edges follow. */
enum { LIST_LOADED = -1, LIST_TOO_MANY = -2 };

struct follow_counts {
    const struct engine *engine; /* ref */
    struct lists *lists;         /* ref */
    struct list calls;
};

struct call {
    struct list node;
    struct follow_counts *fc; /* ref */
    struct request *rq;       /* ref */
    struct gate_pass pass;
    struct timer *timer;         /* owned: the next try */
    uint64_t deadline_ms;        /* for what must be loaded */
    struct args users;           /* all of them */
    struct follow_count *counts; /* owned: of all */
    size_t from;                 /* the step: users [from, to) */
    size_t to;
    bool missing[FOLLOW_COUNTS_STEP][2]; /* not loaded, by enum list_side */
    bool ask;                            /* any of these */
    int tries;
    char epoch[48];
    struct args script;
    struct follow_edges edges;
    follow_counts_on_done cb;
    void *arg;
};

static void enter(struct call *c);
static void first_reading(struct call *c);

/* ---- the end ---- */

static void call_free(struct call *c)
{
    list_remove(&c->node);
    timer_free(c->timer);
    args_free(&c->users);
    args_free(&c->script);
    free(c->counts);
    follow_edges_free(&c->edges);
    free(c);
}

static size_t n_users(const struct call *c)
{
    return (size_t)c->users.n;
}

/* `why`: an error reply, or NULL. Outside the gate. */
static void done(struct call *c, const char *why)
{
    c->cb(c->arg, why ? NULL : c->counts, n_users(c), why);
    call_free(c);
}

static void leave(struct call *c)
{
    gate_leave(c->fc->engine->reads, &c->pass);
}

static void fail(struct call *c, const char *why)
{
    leave(c);
    done(c, why);
}

static void fail_redis(struct call *c, int rc)
{
    fail(c, engine_redis_why(c->fc->engine, rc));
}

static void step_done(struct call *c)
{
    leave(c);
    c->from = c->to;
    if (c->from == n_users(c))
        done(c, NULL);
    else
        enter(c);
}

/* ---- Redis: the script ---- */

static int send(struct call *c, redis_on_reply cb)
{
    return args_ask(&c->script, c->fc->engine, SCRIPT_FOLLOW_COUNTS, cb, c);
}

static void on_second(void *arg, enum redis_outcome outcome,
                      const struct redis_value *v)
{
    struct call *c = arg;
    size_t len;

    if (outcome != REDIS_OK || redis_value_len(v) != 1) {
        fail(c, engine_reply_why(outcome));
        return;
    }
    if (strcmp(redis_value_str(redis_value_at(v, 0), &len), c->epoch) != 0 &&
        ++c->tries < FOLLOW_COUNTS_TRIES) {
        timer_start(c->timer, PAUSE_MS, 0);
        return;
    }
    follow_edges_count(&c->edges, c->counts + c->from);
    step_done(c);
}

/* ---- PostgreSQL ---- */

static void read_count(struct call *c, int64_t n, int64_t follows,
                       int64_t followers)
{
    struct follow_count *count;

    if ((size_t)n > c->to - c->from)
        return;
    count = &c->counts[c->from + (size_t)n - 1];
    if (c->missing[n - 1][LIST_FOLLOW])
        count->of[LIST_FOLLOW] = follows;
    if (c->missing[n - 1][LIST_FANS])
        count->of[LIST_FANS] = followers;
}

static void read_rows(struct call *c, const struct pg_result *r)
{
    int len;

    for (int row = 0; row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));
        int64_t a = pgvalue_i64(pg_result_value(r, 0, row, 1, &len));
        int64_t b = pgvalue_i64(pg_result_value(r, 0, row, 2, &len));
        const char *time = pg_result_value(r, 0, row, 3, &len);

        if (n > 0)
            read_count(c, n, a, b);
        else
            follow_edges_read(&c->edges, -n, a, pgvalue_time_us(time));
    }
}

static void on_rows(void *arg, enum pg_outcome outcome,
                    const struct pg_result *r)
{
    struct call *c = arg;
    int rc;

    if (outcome != PG_DONE) {
        fail(c, "UNAVAILABLE PostgreSQL did not answer");
        return;
    }
    read_rows(c, r);
    args_clear(&c->script);
    rc = send(c, on_second);
    if (rc != 0)
        fail_redis(c, rc);
}

static void make_query(struct call *c)
{
    struct buf users = {0};

    for (size_t i = c->from; i < c->to; i++) {
        struct resp_arg user = args_at(&c->users, i);

        pgarray_put_id(&users, c->edges.type, user.data, user.len);
    }
    follow_edges_ask(&c->edges, &users, c->to - c->from);
    buf_free(&users);
}

static void ask_postgres(struct call *c)
{
    const struct engine *e = c->fc->engine;
    const struct pg_job job = {
        .stmts = &c->edges.stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = on_rows,
        .arg = c,
    };
    int rc;

    make_query(c);
    rc = pg_submit(e->pg, PG_LANE_LOOKUP, &job);
    if (rc != 0)
        fail(c, engine_pg_why(rc));
}

/* ---- Redis: the first reading ---- */

static void read_edge(struct call *c, size_t user, enum list_side side,
                      const struct redis_value *v, size_t at)
{
    struct resp_arg id = args_at(&c->users, c->from + user);
    struct resp_arg other;

    other.data = redis_value_str(redis_value_at(v, at), &other.len);
    follow_edges_add(&c->edges, user, side, &id, &other,
                     redis_value_int(redis_value_at(v, at + 1)),
                     redis_value_int(redis_value_at(v, at + 2)));
}

/* What is said of a list at `*at`, which moves on. 0, or -1: load it first. */
static int read_list(struct call *c, size_t user, enum list_side side,
                     const struct redis_value *v, size_t *at)
{
    int64_t *count = &c->counts[c->from + user].of[side];
    int64_t n = redis_value_int(redis_value_at(v, (*at)++));

    *count = 0;
    c->missing[user][side] = n >= 0;
    if (n == LIST_TOO_MANY)
        return -1;
    if (n == LIST_LOADED) {
        *count = redis_value_int(redis_value_at(v, (*at)++));
        return 0;
    }
    c->ask = true;
    for (; n > 0 && *at + 2 < redis_value_len(v); n--, *at += 3)
        read_edge(c, user, side, v, *at);
    return 0;
}

static void on_loaded(void *arg, const char *why)
{
    struct call *c = arg;

    if (why)
        done(c, why);
    else
        enter(c);
}

static void load(struct call *c, size_t user, enum list_side side)
{
    struct resp_arg id = args_at(&c->users, c->from + user);

    leave(c);
    if (clock_monotonic_ms() >= c->deadline_ms)
        done(c, "TRYAGAIN the list is being loaded");
    else if (lists_load(c->fc->lists, side, id.data, id.len, 0, on_loaded, c) !=
             0)
        done(c, "TRYAGAIN too many lists are being loaded");
}

static void read_step(struct call *c, const struct redis_value *v)
{
    size_t at = 1;
    size_t len;

    snprintf(c->epoch, sizeof(c->epoch), "%s",
             redis_value_str(redis_value_at(v, 0), &len));
    c->ask = false;
    follow_edges_clear(&c->edges);
    for (size_t i = 0; i < 2 * (c->to - c->from); i++) {
        enum list_side side = i % 2 ? LIST_FANS : LIST_FOLLOW;

        if (read_list(c, i / 2, side, v, &at) < 0) {
            load(c, i / 2, side);
            return;
        }
    }
    if (c->ask)
        ask_postgres(c);
    else
        step_done(c);
}

static void on_first(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct call *c = arg;

    if (outcome == REDIS_OK && redis_value_len(v) > 2 * (c->to - c->from))
        read_step(c, v);
    else
        fail(c, engine_reply_why(outcome));
}

static void first_reading(struct call *c)
{
    int rc;

    args_clear(&c->script);
    for (size_t i = c->from; i < c->to; i++) {
        struct resp_arg user = args_at(&c->users, i);

        args_put(&c->script, user.data, user.len);
    }
    rc = send(c, on_first);
    if (rc != 0)
        fail_redis(c, rc);
}

static void on_timer(void *arg)
{
    first_reading(arg);
}

static void on_turn(void *arg, const char *why)
{
    struct call *c = arg;

    if (why)
        done(c, why);
    else
        first_reading(c);
}

static void enter(struct call *c)
{
    size_t n = n_users(c) - c->from;

    if (n > FOLLOW_COUNTS_STEP)
        n = FOLLOW_COUNTS_STEP;
    c->to = c->from + n;
    gate_enter(c->fc->engine->reads, &c->pass, c->rq,
               COST + n_users(c) * HELD_COST + n * STEP_COST, on_turn, c);
}

/* ---- the start ---- */

struct follow_counts *follow_counts_new(const struct engine *e,
                                        struct lists *lists)
{
    struct follow_counts *fc = mem_zalloc(sizeof(*fc));

    fc->engine = e;
    fc->lists = lists;
    list_init(&fc->calls);
    return fc;
}

/* Those that are left wait for their next try. */
void follow_counts_free(struct follow_counts *fc)
{
    if (!fc)
        return;
    LIST_FOREACH_SAFE(it, &fc->calls)
        fail(LIST_ENTRY(it, struct call, node), "UNAVAILABLE the daemon stops");
    free(fc);
}

void follow_counts_get(struct follow_counts *fc, struct request *rq,
                       struct args *users, follow_counts_on_done cb, void *arg)
{
    const struct engine *e = fc->engine;
    struct call *c = mem_zalloc(sizeof(*c));

    assert(users->n > 0 && users->n <= FOLLOW_COUNTS_MAX);
    list_push_back(&fc->calls, &c->node);
    c->fc = fc;
    c->rq = rq;
    c->users = *users;
    *users = (struct args){0};
    c->counts = mem_zalloc(n_users(c) * sizeof(*c->counts));
    c->timer = timer_new(e->loop, on_timer, c);
    c->deadline_ms =
        clock_monotonic_ms() + (uint64_t)e->options->pg_lookup_timeout_ms;
    c->edges.type = e->owner_type;
    c->cb = cb;
    c->arg = arg;
    enter(c);
}
