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
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/pgarray.h"
#include "services/gate.h"
#include "services/lists.h"

#define PAUSE_MS  3
/* A call takes a place in the queue of the pool, which is short. */
#define COST      2048
#define USER_COST 256

/* n, and the counts of user n; -n, and status and mtime of edge n. */
static const char sql_counts[] =
    "SELECT o.n, c.following_count, c.follower_count, NULL::timestamptz"
    " FROM unnest($1) WITH ORDINALITY AS o(id, n)"
    " JOIN user_follow_count c ON c.user_id = o.id"
    " UNION ALL SELECT -o.n, t.status::bigint, 0, t.mtime"
    " FROM unnest($2, $3) WITH ORDINALITY AS o(owner, member, n)"
    " JOIN user_follow t"
    " ON t.user_id = o.owner AND t.followee_id = o.member";

/* As follow_counts.lua says it in place of how many edges follow. */
enum { LIST_LOADED = -1, LIST_TOO_MANY = -2 };

struct follow_counts {
    const struct engine *engine; /* ref */
    struct lists *lists;         /* ref */
    struct list calls;
};

/* An edge that may not be in PostgreSQL yet. */
struct edge {
    size_t user; /* among those of the step */
    enum list_side side;
    int64_t status;
    int64_t mtime_us;
    int64_t pg_status; /* 0 without a row */
    int64_t pg_mtime_us;
};

struct call {
    struct list node;
    struct follow_counts *fc; /* ref */
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
    int64_t epoch;
    struct args script;
    struct edge *edges; /* owned */
    size_t n_edges;
    size_t edges_cap;
    struct buf owners; /* array elements, of the edges */
    struct buf members;
    struct buf arrays[3];
    struct pg_param params[3];
    struct pg_stmt stmt;
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
    free(c->edges);
    buf_free(&c->owners);
    buf_free(&c->members);
    for (size_t i = 0; i < ARRAY_LEN(c->arrays); i++)
        buf_free(&c->arrays[i]);
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
    fail(c, rc == REDIS_BUSY ? "TRYAGAIN Redis has too much to do"
                             : "UNAVAILABLE Redis is away");
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
    const struct engine *e = c->fc->engine;

    return e->open ? args_send(&c->script, e, SCRIPT_FOLLOW_COUNTS, cb, c)
                   : REDIS_NOT_CONNECTED;
}

/* By the rules of states: what is newer counts. */
static void add_edges(struct call *c)
{
    for (size_t i = 0; i < c->n_edges; i++) {
        const struct edge *e = &c->edges[i];
        int64_t now = e->mtime_us >= e->pg_mtime_us ? e->status : e->pg_status;

        c->counts[c->from + e->user].of[e->side] += now - e->pg_status;
    }
}

static void on_second(void *arg, enum redis_outcome outcome,
                      const struct redis_value *v)
{
    struct call *c = arg;

    if (outcome != REDIS_OK || redis_value_len(v) != 1) {
        fail(c, "UNAVAILABLE Redis did not answer");
        return;
    }
    if (redis_value_int(redis_value_at(v, 0)) != c->epoch &&
        ++c->tries < FOLLOW_COUNTS_TRIES) {
        timer_start(c->timer, PAUSE_MS, 0);
        return;
    }
    add_edges(c);
    step_done(c);
}

/* ---- PostgreSQL ---- */

/* The counts that are not known, and the edges' rows. */
static void read_rows(struct call *c, const struct pg_result *r)
{
    int len;

    for (int row = 0; row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));
        int64_t a = pgvalue_i64(pg_result_value(r, 0, row, 1, &len));
        int64_t b = pgvalue_i64(pg_result_value(r, 0, row, 2, &len));

        if (n > 0 && (size_t)n <= c->to - c->from) {
            struct follow_count *count = &c->counts[c->from + (size_t)n - 1];

            if (c->missing[n - 1][LIST_FOLLOW])
                count->of[LIST_FOLLOW] = a;
            if (c->missing[n - 1][LIST_FANS])
                count->of[LIST_FANS] = b;
        } else if (n < 0 && (size_t)-n <= c->n_edges) {
            struct edge *e = &c->edges[-n - 1];

            e->pg_status = a;
            e->pg_mtime_us =
                pgvalue_time_us(pg_result_value(r, 0, row, 3, &len));
        }
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

static void put_array(struct call *c, int i, uint32_t n,
                      const struct buf *elements)
{
    enum id_type type = c->fc->engine->owner_type;
    struct buf *b = &c->arrays[i];

    buf_clear(b, 4096);
    pgarray_begin(b, id_type_oid(type), n);
    buf_append(b, elements->data, elements->len);
    c->params[i] =
        (struct pg_param){id_type_array_oid(type), b->data, (int)b->len};
}

static const char *user_at(const struct call *c, size_t i, size_t *len_r)
{
    size_t from = i ? c->users.ends[i - 1] : 0;

    *len_r = c->users.ends[i] - from;
    return c->users.text.data + from;
}

static void put_arrays(struct call *c)
{
    struct buf users = {0};
    size_t len;

    for (size_t i = c->from; i < c->to; i++) {
        const char *user = user_at(c, i, &len);

        pgarray_put_id(&users, c->fc->engine->owner_type, user, len);
    }
    put_array(c, 0, (uint32_t)(c->to - c->from), &users);
    put_array(c, 1, (uint32_t)c->n_edges, &c->owners);
    put_array(c, 2, (uint32_t)c->n_edges, &c->members);
    buf_free(&users);
    c->stmt = (struct pg_stmt){sql_counts, c->params, 3};
}

static void ask_postgres(struct call *c)
{
    const struct engine *e = c->fc->engine;
    const struct pg_job job = {
        .stmts = &c->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = on_rows,
        .arg = c,
    };
    int rc;

    put_arrays(c);
    rc = pg_submit(e->pg, PG_LANE_LOOKUP, &job);
    if (rc != 0)
        fail(c, rc == PG_BUSY ? "TRYAGAIN PostgreSQL has too much to do"
                              : "UNAVAILABLE PostgreSQL is away");
}

/* ---- Redis: the first reading ---- */

static void edge_put(struct call *c, size_t user, enum list_side side,
                     const struct redis_value *v, size_t at)
{
    enum id_type type = c->fc->engine->owner_type;
    size_t id_len, len;
    const char *id = user_at(c, c->from + user, &id_len);
    const char *other = redis_value_str(redis_value_at(v, at), &len);

    if (id_check_key(type, other, len) != 0)
        return; /* no id, so no row either */
    if (c->n_edges == c->edges_cap) {
        c->edges_cap = c->edges_cap ? 2 * c->edges_cap : 16;
        c->edges = mem_realloc(c->edges, c->edges_cap * sizeof(*c->edges));
    }
    c->edges[c->n_edges++] = (struct edge){
        .user = user,
        .side = side,
        .status = redis_value_int(redis_value_at(v, at + 1)),
        .mtime_us = redis_value_int(redis_value_at(v, at + 2)),
    };
    pgarray_put_id(side == LIST_FOLLOW ? &c->owners : &c->members, type, id,
                   id_len);
    pgarray_put_id(side == LIST_FOLLOW ? &c->members : &c->owners, type, other,
                   len);
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
        edge_put(c, user, side, v, *at);
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
    size_t len;
    const char *id = user_at(c, c->from + user, &len);

    leave(c);
    if (clock_monotonic_ms() >= c->deadline_ms)
        done(c, "TRYAGAIN the list is being loaded");
    else if (lists_load(c->fc->lists, side, id, len, 0, on_loaded, c) != 0)
        done(c, "TRYAGAIN too many lists are being loaded");
}

static void read_step(struct call *c, const struct redis_value *v)
{
    size_t at = 1;

    c->epoch = redis_value_int(redis_value_at(v, 0));
    c->ask = false;
    c->n_edges = 0;
    buf_clear(&c->owners, 4096);
    buf_clear(&c->members, 4096);
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
        fail(c, "UNAVAILABLE Redis did not answer");
}

static void first_reading(struct call *c)
{
    int rc;

    args_clear(&c->script);
    for (size_t i = c->from; i < c->to; i++) {
        size_t len;
        const char *user = user_at(c, i, &len);

        args_put(&c->script, user, len);
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
    gate_enter(c->fc->engine->reads, &c->pass, COST + n * USER_COST, on_turn,
               c);
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

void follow_counts_get(struct follow_counts *fc, struct args *users,
                       follow_counts_on_done cb, void *arg)
{
    const struct engine *e = fc->engine;
    struct call *c = mem_zalloc(sizeof(*c));

    assert(users->n > 0 && users->n <= FOLLOW_COUNTS_MAX);
    list_push_back(&fc->calls, &c->node);
    c->fc = fc;
    c->users = *users;
    *users = (struct args){0};
    c->counts = mem_zalloc(n_users(c) * sizeof(*c->counts));
    c->timer = timer_new(e->loop, on_timer, c);
    c->deadline_ms =
        clock_monotonic_ms() + (uint64_t)e->options->pg_lookup_timeout_ms;
    c->cb = cb;
    c->arg = arg;
    enter(c);
}
