/* SPDX-License-Identifier: MIT */
/* Batched lookups.
 *
 * Happy path: submit → gathered until the end of the turn → one query → each
 * callback. Failure modes: PostgreSQL away at submit (refused at once); the
 * connection lost or silent for postgres.lookup_timeout_ms (once more on another
 * one, if there is one); an error: every pair of the query is told so. */
#include "services/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/histogram.h"
#include "core/pgarray.h"
#include "services/engine.h"

#define MAX_WAITING 100000 /* of all queries */

struct item {
    struct list node;
    lookup_on_done cb;
    void *arg;
    bool again; /* its first query was lost with the connection */
    size_t owner_len;
    size_t member_len;
    char ids[]; /* owner, then member */
};

struct query {
    struct lookup *lookup; /* ref; NULL when it has gone */
    struct list node;
    struct item **items; /* owned */
    int n;
    uint64_t since_us; /* monotonic */
    struct buf owners;
    struct buf members;
    struct pg_param params[2];
    struct pg_stmt stmt;
};

struct lookup {
    const struct engine *engine; /* ref */
    struct timer *turn;          /* owned */
    struct list waiting;         /* items */
    struct list queries;         /* under way */
    size_t n_items;              /* waiting or under way */
    struct log_limit limit;
};

static void query_free(struct query *q)
{
    free(q->items);
    buf_free(&q->owners);
    buf_free(&q->members);
    free(q);
}

static void item_done(struct lookup *l, struct item *it,
                      const struct lookup_state *state)
{
    l->n_items--;
    it->cb(it->arg, state);
    free(it);
}

static void states_read(const struct query *q, const struct pg_result *r,
                        struct lookup_state *states)
{
    int len;

    for (int row = 0; row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));

        if (n < 1 || n > q->n)
            continue;
        states[n - 1] = (struct lookup_state){
            .found = true,
            .status = (int)pgvalue_i16(pg_result_value(r, 0, row, 1, &len)),
            .mtime_us = pgvalue_time_us(pg_result_value(r, 0, row, 2, &len)),
            .ctime_us = pgvalue_time_us(pg_result_value(r, 0, row, 3, &len)),
        };
    }
}

static void lookup_failed_log(struct lookup *l, const struct pg_result *r)
{
    uint64_t held;

    metric_add(M_LOOKUP_FAILURES, 1);
    if (log_allow(&l->limit, 5000, &held))
        log_warn("lookup", "%s query failed: %s (%llu more)",
                 l->engine->kind->name, pg_result_message(r),
                 (unsigned long long)held);
}

/* One lost connection is not yet PostgreSQL away: another may be up. */
static bool item_again(struct lookup *l, struct item *it,
                       enum pg_outcome outcome)
{
    if (it->again || outcome == PG_FAILED || !pg_is_up(l->engine->pg))
        return false;
    it->again = true;
    list_push_back(&l->waiting, &it->node);
    timer_start(l->turn, 0, 0);
    return true;
}

static void on_query(void *arg, enum pg_outcome outcome,
                     const struct pg_result *result)
{
    struct query *q = arg;
    struct lookup *l = q->lookup;
    struct lookup_state *states = NULL;

    list_remove(&q->node);
    histogram_observe(histogram_of(H_LOOKUP_LIKE, (int)l->engine->kind->index),
                      clock_monotonic_us() - q->since_us);
    if (outcome == PG_DONE) {
        states = mem_zalloc((size_t)q->n * sizeof(*states));
        states_read(q, result, states);
    } else {
        lookup_failed_log(l, result);
    }
    for (int i = 0; i < q->n; i++)
        if (states || !item_again(l, q->items[i], outcome))
            item_done(l, q->items[i], states ? &states[i] : NULL);
    free(states);
    query_free(q);
}

static void query_build(struct lookup *l, struct query *q)
{
    const struct engine *e = l->engine;
    uint32_t n = (uint32_t)q->n;

    pgarray_begin(&q->owners, id_type_oid(e->owner_type), n);
    pgarray_begin(&q->members, id_type_oid(e->member_type), n);
    for (int i = 0; i < q->n; i++) {
        struct item *it = q->items[i];

        pgarray_put_id(&q->owners, e->owner_type, it->ids, it->owner_len);
        pgarray_put_id(&q->members, e->member_type, it->ids + it->owner_len,
                       it->member_len);
    }
    q->params[0] = (struct pg_param){id_type_array_oid(e->owner_type),
                                     q->owners.data, (int)q->owners.len};
    q->params[1] = (struct pg_param){id_type_array_oid(e->member_type),
                                     q->members.data, (int)q->members.len};
    q->stmt = (struct pg_stmt){e->kind->sql_lookup, q->params, 2};
}

static void query_send(struct lookup *l)
{
    struct query *q = mem_zalloc(sizeof(*q));
    struct pg_job job;

    q->lookup = l;
    q->since_us = clock_monotonic_us();
    q->items = mem_alloc(LOOKUP_PAIRS * sizeof(struct item *));
    while (q->n < LOOKUP_PAIRS && !list_empty(&l->waiting)) {
        struct list *node = list_pop_front(&l->waiting);

        q->items[q->n++] = LIST_ENTRY(node, struct item, node);
    }
    query_build(l, q);
    metric_add(M_LOOKUP_QUERIES, 1);
    metric_add(M_LOOKUP_PAIRS, (uint64_t)q->n);
    job = (struct pg_job){
        .stmts = &q->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)l->engine->options->pg_lookup_timeout_ms,
        .cb = on_query,
        .arg = q,
    };
    list_push_back(&l->queries, &q->node);
    if (pg_submit(l->engine->pg, PG_LANE_LOOKUP, &job) == 0)
        return;
    list_remove(&q->node);
    metric_add(M_LOOKUP_FAILURES, 1);
    for (int i = 0; i < q->n; i++)
        item_done(l, q->items[i], NULL);
    query_free(q);
}

static void on_turn(void *arg)
{
    struct lookup *l = arg;

    while (!list_empty(&l->waiting))
        query_send(l);
}

struct lookup *lookup_new(const struct engine *e)
{
    struct lookup *l = mem_zalloc(sizeof(*l));

    l->engine = e;
    l->turn = timer_new(e->loop, on_turn, l);
    list_init(&l->waiting);
    list_init(&l->queries);
    return l;
}

/* The pool answers every query before it goes (pg_free), so none is left. */
void lookup_free(struct lookup *l)
{
    if (!l)
        return;
    LIST_FOREACH_SAFE(it, &l->waiting)
        item_done(l, LIST_ENTRY(it, struct item, node), NULL);
    timer_free(l->turn);
    free(l);
}

int lookup_submit(struct lookup *l, const char *owner, size_t owner_len,
                  const char *member, size_t member_len, lookup_on_done cb,
                  void *arg)
{
    struct item *it;

    if (!pg_is_up(l->engine->pg))
        return LOOKUP_AWAY;
    if (l->n_items >= MAX_WAITING)
        return LOOKUP_FULL;
    it = mem_alloc(sizeof(*it) + owner_len + member_len);
    it->cb = cb;
    it->arg = arg;
    it->again = false;
    it->owner_len = owner_len;
    it->member_len = member_len;
    memcpy(it->ids, owner, owner_len);
    memcpy(it->ids + owner_len, member, member_len);
    list_push_back(&l->waiting, &it->node);
    l->n_items++;
    if (!timer_active(l->turn))
        timer_start(l->turn, 0, 0);
    return 0;
}
