/* SPDX-License-Identifier: MIT */
/* like_count + counter is exact when no batch of the post is between its commit
 * and its ack.
 *
 * Happy path: counters and epoch → like_count → counters and epoch again: the
 * epoch is the same and nothing is on record, so like_count did not move in
 * between, and the second counters are added. Otherwise again, PAUSE_MS later.
 * Failure modes: Redis or PostgreSQL away, too much under way: the whole is
 * refused. */
#include "services/counts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/list.h"
#include "base/mem.h"
#include "core/pgarray.h"
#include "services/engine.h"
#include "services/gate.h"

#define PAUSE_MS   3
/* A call takes a place in the queue of the pool, which is short. */
#define COST       2048
#define OWNER_COST 64

struct counts {
    const struct engine *engine; /* ref */
    struct list calls;
};

struct call {
    struct list node;
    const struct engine *engine; /* ref */
    struct gate_pass pass;
    size_t n;
    int64_t *totals;    /* owned: like_count, then with the counter */
    struct args owners; /* for the script */
    struct buf ids;     /* for the query */
    struct pg_param param;
    struct pg_stmt stmt;
    struct timer *timer; /* owned: the next try */
    int tries;
    int64_t epoch; /* of the first reading; -1: something was on record */
    counts_on_done cb;
    void *arg;
};

static void first_reading(struct call *c);

static void call_free(struct call *c)
{
    list_remove(&c->node);
    timer_free(c->timer);
    args_free(&c->owners);
    buf_free(&c->ids);
    free(c->totals);
    free(c);
}

/* `why`: an error reply, or NULL. */
static void done(struct call *c, const char *why)
{
    c->cb(c->arg, why ? NULL : c->totals, why);
    gate_leave(c->engine->reads, &c->pass);
    call_free(c);
}

static void done_redis(struct call *c, int rc)
{
    done(c, rc == REDIS_BUSY ? "TRYAGAIN Redis has too much to do"
                             : "UNAVAILABLE Redis is away");
}

/* The epoch of a reply; -1 when a pair is on record. */
static int64_t epoch_of(const struct call *c, const struct redis_value *v)
{
    for (size_t i = 0; i < c->n; i++)
        if (redis_value_int(redis_value_at(v, 2 * i + 2)) != 0)
            return -1;
    return redis_value_int(redis_value_at(v, 0));
}

static bool is_reply(const struct call *c, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    return outcome == REDIS_OK && redis_value_len(v) == 2 * c->n + 1;
}

static void on_second(void *arg, enum redis_outcome outcome,
                      const struct redis_value *v)
{
    struct call *c = arg;
    int64_t epoch;

    if (!is_reply(c, outcome, v)) {
        done(c, "UNAVAILABLE Redis did not answer");
        return;
    }
    epoch = epoch_of(c, v);
    if ((epoch < 0 || epoch != c->epoch) && ++c->tries < COUNTS_TRIES) {
        timer_start(c->timer, PAUSE_MS, 0);
        return;
    }
    for (size_t i = 0; i < c->n; i++)
        c->totals[i] += redis_value_int(redis_value_at(v, 2 * i + 1));
    done(c, NULL);
}

static void read_totals(struct call *c, const struct pg_result *r)
{
    int len;

    memset(c->totals, 0, c->n * sizeof(*c->totals));
    for (int row = 0; row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));

        if (n >= 1 && (size_t)n <= c->n)
            c->totals[n - 1] = pgvalue_i64(pg_result_value(r, 0, row, 1, &len));
    }
}

static void on_totals(void *arg, enum pg_outcome outcome,
                      const struct pg_result *r)
{
    struct call *c = arg;
    int rc;

    if (outcome != PG_DONE) {
        done(c, "UNAVAILABLE PostgreSQL did not answer");
        return;
    }
    read_totals(c, r);
    rc = args_send(&c->owners, c->engine, SCRIPT_COUNTS, on_second, c);
    if (rc != 0)
        done_redis(c, rc);
}

static void ask_postgres(struct call *c)
{
    const struct pg_job job = {
        .stmts = &c->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)c->engine->options->pg_lookup_timeout_ms,
        .cb = on_totals,
        .arg = c,
    };
    int rc = pg_submit(c->engine->pg, PG_LANE_LOOKUP, &job);

    if (rc != 0)
        done(c, rc == PG_BUSY ? "TRYAGAIN PostgreSQL has too much to do"
                              : "UNAVAILABLE PostgreSQL is away");
}

static void on_first(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct call *c = arg;

    if (!is_reply(c, outcome, v)) {
        done(c, "UNAVAILABLE Redis did not answer");
        return;
    }
    c->epoch = epoch_of(c, v);
    if (c->epoch < 0 && ++c->tries < COUNTS_TRIES)
        timer_start(c->timer, PAUSE_MS, 0);
    else
        ask_postgres(c);
}

static void first_reading(struct call *c)
{
    int rc = args_send(&c->owners, c->engine, SCRIPT_COUNTS, on_first, c);

    if (rc != 0)
        done_redis(c, rc);
}

static void on_timer(void *arg)
{
    first_reading(arg);
}

struct counts *counts_new(const struct engine *e)
{
    struct counts *counts = mem_zalloc(sizeof(*counts));

    counts->engine = e;
    list_init(&counts->calls);
    return counts;
}

static void on_turn(void *arg, const char *why)
{
    struct call *c = arg;

    if (!why) {
        first_reading(c);
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

void counts_get(struct counts *counts, const struct counts_owner *owners,
                size_t n, counts_on_done cb, void *arg)
{
    const struct engine *e = counts->engine;
    struct call *c = mem_zalloc(sizeof(*c));

    assert(n <= COUNTS_MAX);
    list_push_back(&counts->calls, &c->node);
    c->engine = e;
    c->n = n;
    c->totals = mem_zalloc(n * sizeof(*c->totals));
    c->timer = timer_new(e->loop, on_timer, c);
    c->cb = cb;
    c->arg = arg;
    pgarray_begin(&c->ids, id_type_oid(e->owner_type), (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        args_put(&c->owners, owners[i].key, owners[i].len);
        pgarray_put_id(&c->ids, e->owner_type, owners[i].key, owners[i].len);
    }
    c->param = (struct pg_param){id_type_array_oid(e->owner_type), c->ids.data,
                                 (int)c->ids.len};
    c->stmt = (struct pg_stmt){e->kind->sql_totals, &c->param, 1};
    gate_enter(e->reads, &c->pass, COST + n * OWNER_COST + c->owners.text.len,
               on_turn, c);
}
