/* SPDX-License-Identifier: MIT */
/* A total is a base, kept in Redis, and the counter (lua/counts.lua).
 *
 * Happy path: the totals and the epoch → for those whose base is not kept: what
 * PostgreSQL counts → counts_keep.lua keeps it, since nothing of the owner was on
 * record meanwhile. What it does not keep is asked for again, PAUSE_MS later;
 * from then on claims leave such an owner alone for a moment, so that it comes to
 * rest. Pairs from an older Redis are looked up and merged
 * first. Failure modes: Redis or PostgreSQL away, too much under way, an owner
 * that does not come to rest in time: the whole is refused. */
#include "services/counts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/pgarray.h"
#include "services/engine.h"
#include "services/gate.h"
#include "services/lookup.h"

#define PAUSE_MS   3
/* A call takes a place in the queue of the pool, which is short. */
#define COST       2048
#define OWNER_COST 64
/* Pairs of an older Redis that are merged at a time. */
#define STALE_MAX  500

struct counts {
    const struct engine *engine; /* ref */
    struct lookup *lookup;       /* ref */
    struct list calls;
};

/* A pair that is merged. */
struct stale {
    struct call *call; /* ref */
    size_t owner_at;   /* in `pairs` */
    struct lookup_state row;
};

struct call {
    struct list node;
    struct counts *counts; /* ref */
    struct gate_pass pass;
    struct args owners; /* all of them */
    int64_t *totals;    /* owned: of all */
    int *missing;       /* owned: those that are not known yet */
    int n_missing;
    int64_t *bases;  /* owned: what PostgreSQL counts of these */
    struct args out; /* of the script under way */
    struct buf ids;  /* for the query */
    struct pg_param param;
    struct pg_stmt stmt;
    struct timer *timer; /* owned: the next try */
    uint64_t deadline_ms;
    int tries;
    char epoch[48];
    int64_t redis_us;
    struct args pairs;   /* to be merged: owner, member, ... */
    struct stale *stale; /* owned: the same */
    int n_stale;
    int waiting;     /* lookups of these, and one while asking */
    const char *why; /* static: an error reply of one of them */
    counts_on_done cb;
    void *arg;
};

/* ---- the end ---- */

static void call_free(struct call *c)
{
    list_remove(&c->node);
    timer_free(c->timer);
    args_free(&c->owners);
    args_free(&c->out);
    args_free(&c->pairs);
    buf_free(&c->ids);
    free(c->totals);
    free(c->missing);
    free(c->bases);
    free(c->stale);
    free(c);
}

static const struct engine *engine_of(const struct call *c)
{
    return c->counts->engine;
}

/* `why`: an error reply, or NULL. */
static void done(struct call *c, const char *why)
{
    c->cb(c->arg, why ? NULL : c->totals, why);
    gate_leave(engine_of(c)->reads, &c->pass);
    call_free(c);
}

static void send(struct call *c, enum script_id script, redis_on_reply cb)
{
    int rc = args_ask(&c->out, engine_of(c), script, cb, c);

    if (rc != 0)
        done(c, engine_redis_why(engine_of(c), rc));
}

static void put_owner(struct call *c, int i)
{
    struct resp_arg owner = args_at(&c->owners, (size_t)c->missing[i]);

    args_put(&c->out, owner.data, owner.len);
}

/* ---- totals that are kept ---- */

static void ask_postgres(struct call *c);

/* Takes the totals of a reply, of `missing` in order; what has none stays.
 * Returns of how many of these the rows are just being written. */
static int take_totals(struct call *c, const struct redis_value *v)
{
    int n = 0;
    int written = 0;

    for (int i = 0; i < c->n_missing; i++) {
        const struct redis_value *total = redis_value_at(v, (size_t)i + 1);

        if (redis_value_type(total) == REDIS_T_INT) {
            c->totals[c->missing[i]] = redis_value_int(total);
            continue;
        }
        c->missing[n++] = c->missing[i];
        written += redis_value_type(total) == REDIS_T_STR;
    }
    c->n_missing = n;
    return written;
}

static bool is_reply(const struct call *c, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    return outcome == REDIS_OK && redis_value_len(v) > (size_t)c->n_missing;
}

static void again(struct call *c)
{
    c->tries++;
    if (clock_monotonic_ms() >= c->deadline_ms)
        done(c, "TRYAGAIN the likes are just being written");
    else
        timer_start(c->timer, PAUSE_MS, 0);
}

static void on_read(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct call *c = arg;
    size_t len;
    int written;

    if (!is_reply(c, outcome, v)) {
        done(c, engine_reply_why(outcome));
        return;
    }
    snprintf(c->epoch, sizeof(c->epoch), "%s",
             redis_value_str(redis_value_at(v, 0), &len));
    written = take_totals(c, v);
    if (c->n_missing == 0)
        done(c, NULL);
    else if (written == c->n_missing)
        again(c); /* queries would only be in the way of what is written */
    else
        ask_postgres(c);
}

static void read_totals(void *arg)
{
    struct call *c = arg;

    args_clear(&c->out);
    args_put_i64(&c->out, c->tries > 0);
    for (int i = 0; i < c->n_missing; i++)
        put_owner(c, i);
    send(c, SCRIPT_COUNTS, on_read);
}

/* ---- pairs from an older Redis ---- */

static void on_merged(void *arg, enum redis_outcome outcome,
                      const struct redis_value *v)
{
    (void)v;
    if (outcome == REDIS_OK)
        again(arg);
    else
        done(arg, engine_reply_why(outcome));
}

static void merge_done_one(struct call *c)
{
    if (--c->waiting > 0)
        return;
    if (c->why) {
        done(c, c->why);
        return;
    }
    args_clear(&c->out);
    args_put_i64(&c->out, c->redis_us);
    args_put_str(&c->out, c->epoch);
    for (int i = 0; i < c->n_stale; i++) {
        const struct stale *s = &c->stale[i];

        for (size_t k = 0; k < 2; k++) {
            struct resp_arg id = args_at(&c->pairs, s->owner_at + k);

            args_put(&c->out, id.data, id.len);
        }
        args_put_i64(&c->out, s->row.status);
        args_put_i64(&c->out, s->row.mtime_us);
        args_put_i64(&c->out, s->row.ctime_us);
    }
    send(c, SCRIPT_MERGE, on_merged);
}

static void on_stale(void *arg, const struct lookup_state *state)
{
    struct stale *s = arg;

    if (state)
        s->row = *state;
    else
        s->call->why = "UNAVAILABLE PostgreSQL did not answer";
    merge_done_one(s->call);
}

static void look_up(struct call *c, struct stale *s)
{
    struct resp_arg owner = args_at(&c->pairs, s->owner_at);
    struct resp_arg member = args_at(&c->pairs, s->owner_at + 1);
    int rc = lookup_submit(c->counts->lookup, owner.data, owner.len,
                           member.data, member.len, on_stale, s);

    if (rc == 0)
        c->waiting++;
    else if (rc == LOOKUP_FULL)
        c->why = "TRYAGAIN too many lookups are waiting";
    else
        c->why = "UNAVAILABLE PostgreSQL is away";
}

/* Owners and members from `i` on in the reply of counts_keep.lua. */
static void merge(struct call *c, const struct redis_value *v, size_t i)
{
    const struct engine *e = engine_of(c);
    size_t n = redis_value_len(v);

    args_clear(&c->pairs);
    if (!c->stale)
        c->stale = mem_alloc(STALE_MAX * sizeof(*c->stale));
    c->n_stale = 0;
    for (; i + 1 < n && c->n_stale < STALE_MAX; i += 2) {
        size_t owner_len, member_len;
        const char *owner = redis_value_str(redis_value_at(v, i), &owner_len);
        const char *member =
            redis_value_str(redis_value_at(v, i + 1), &member_len);

        if (id_check_key(e->owner_type, owner, owner_len) != 0 ||
            id_check_key(e->member_type, member, member_len) != 0)
            continue;
        c->stale[c->n_stale++] =
            (struct stale){.call = c, .owner_at = (size_t)c->pairs.n};
        args_put(&c->pairs, owner, owner_len);
        args_put(&c->pairs, member, member_len);
    }
    c->waiting = 1;
    c->why = NULL;
    for (int k = 0; k < c->n_stale && !c->why; k++)
        look_up(c, &c->stale[k]);
    merge_done_one(c);
}

/* ---- totals that are not kept ---- */

static void on_kept(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct call *c = arg;
    size_t pairs_at = (size_t)c->n_missing + 2;
    size_t len;

    if (outcome != REDIS_OK || redis_value_len(v) < pairs_at) {
        done(c, engine_reply_why(outcome));
        return;
    }
    snprintf(c->epoch, sizeof(c->epoch), "%s",
             redis_value_str(redis_value_at(v, 0), &len));
    c->redis_us = redis_value_int(redis_value_at(v, pairs_at - 1));
    take_totals(c, v);
    if (c->n_missing == 0)
        done(c, NULL);
    else if (redis_value_len(v) > pairs_at)
        merge(c, v, pairs_at);
    else
        again(c);
}

static void read_bases(struct call *c, const struct pg_result *r)
{
    int len;

    memset(c->bases, 0, (size_t)c->n_missing * sizeof(*c->bases));
    for (int row = 0; row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));

        if (n >= 1 && n <= c->n_missing)
            c->bases[n - 1] = pgvalue_i64(pg_result_value(r, 0, row, 1, &len));
    }
}

static void on_bases(void *arg, enum pg_outcome outcome,
                     const struct pg_result *r)
{
    struct call *c = arg;

    if (outcome != PG_DONE) {
        done(c, "UNAVAILABLE PostgreSQL did not answer");
        return;
    }
    read_bases(c, r);
    args_clear(&c->out);
    args_put_str(&c->out, c->epoch);
    args_put_i64(&c->out, engine_of(c)->options->cache_ttl_s);
    for (int i = 0; i < c->n_missing; i++) {
        put_owner(c, i);
        args_put_i64(&c->out, c->bases[i]);
    }
    send(c, SCRIPT_COUNTS_KEEP, on_kept);
}

static void ask_postgres(struct call *c)
{
    const struct engine *e = engine_of(c);
    const struct pg_job job = {
        .stmts = &c->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = on_bases,
        .arg = c,
    };
    int rc;

    buf_clear(&c->ids, 4096);
    pgarray_begin(&c->ids, id_type_oid(e->owner_type), (uint32_t)c->n_missing);
    for (int i = 0; i < c->n_missing; i++) {
        struct resp_arg owner = args_at(&c->owners, (size_t)c->missing[i]);

        pgarray_put_id(&c->ids, e->owner_type, owner.data, owner.len);
    }
    c->param = (struct pg_param){id_type_array_oid(e->owner_type), c->ids.data,
                                 (int)c->ids.len};
    c->stmt = (struct pg_stmt){e->kind->sql_totals, &c->param, 1};
    rc = pg_submit(e->pg, PG_LANE_LOOKUP, &job);
    if (rc != 0)
        done(c, engine_pg_why(rc));
}

/* ---- public ---- */

struct counts *counts_new(const struct engine *e, struct lookup *lookup)
{
    struct counts *counts = mem_zalloc(sizeof(*counts));

    counts->engine = e;
    counts->lookup = lookup;
    list_init(&counts->calls);
    return counts;
}

static void on_turn(void *arg, const char *why)
{
    struct call *c = arg;

    if (!why) {
        read_totals(c);
        return;
    }
    c->cb(c->arg, NULL, why);
    call_free(c);
}

void counts_free(struct counts *counts)
{
    if (!counts)
        return;
    LIST_FOREACH_SAFE(it, &counts->calls)
        done(LIST_ENTRY(it, struct call, node), "UNAVAILABLE the daemon stops");
    free(counts);
}

void counts_get(struct counts *counts, struct request *rq,
                const struct counts_owner *owners, size_t n, counts_on_done cb,
                void *arg)
{
    const struct engine *e = counts->engine;
    struct call *c = mem_zalloc(sizeof(*c));

    assert(n <= COUNTS_MAX);
    list_push_back(&counts->calls, &c->node);
    c->counts = counts;
    c->totals = mem_zalloc(n * sizeof(*c->totals));
    c->missing = mem_alloc(n * sizeof(*c->missing));
    c->bases = mem_alloc(n * sizeof(*c->bases));
    c->timer = timer_new(e->loop, read_totals, c);
    c->deadline_ms =
        clock_monotonic_ms() + (uint64_t)e->options->pg_lookup_timeout_ms;
    c->cb = cb;
    c->arg = arg;
    for (size_t i = 0; i < n; i++) {
        args_put(&c->owners, owners[i].key, owners[i].len);
        c->missing[i] = (int)i;
    }
    c->n_missing = (int)n;
    gate_enter(e->reads, &c->pass, rq,
               COST + n * OWNER_COST + c->owners.text.len, on_turn, c);
}
