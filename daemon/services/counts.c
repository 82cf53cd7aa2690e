/* SPDX-License-Identifier: MIT */
/* Totals: MGET of the counters, and a query for what is in the tables. */
#include "services/counts.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/pgarray.h"
#include "services/engine.h"

struct counts {
    const struct engine *engine; /* ref */
    size_t n;
    int64_t *totals; /* owned */
    struct buf owners;
    struct pg_param param;
    struct pg_stmt stmt;
    int waiting;     /* answers, and one while sending */
    const char *why; /* static; NULL: all is well */
    counts_on_done cb;
    void *arg;
};

static void done_one(struct counts *c)
{
    if (--c->waiting > 0)
        return;
    c->cb(c->arg, c->why ? NULL : c->totals, c->why);
    buf_free(&c->owners);
    free(c->totals);
    free(c);
}

static void on_counters(void *arg, enum redis_outcome outcome,
                        const struct redis_value *v)
{
    struct counts *c = arg;

    if (outcome == REDIS_OK && redis_value_len(v) == c->n) {
        for (size_t i = 0; i < c->n; i++)
            c->totals[i] += redis_value_int(redis_value_at(v, i));
    } else {
        c->why = "Redis did not answer";
    }
    done_one(c);
}

static void on_totals(void *arg, enum pg_outcome outcome,
                      const struct pg_result *r)
{
    struct counts *c = arg;
    int len;

    if (outcome != PG_DONE)
        c->why = "PostgreSQL did not answer";
    for (int row = 0; !c->why && row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));

        if (n >= 1 && (size_t)n <= c->n)
            c->totals[n - 1] +=
                pgvalue_i64(pg_result_value(r, 0, row, 1, &len));
    }
    done_one(c);
}

static void ask_redis(struct counts *c, const struct counts_owner *owners)
{
    const struct edge_kind *k = c->engine->kind;
    struct args args = {0};
    struct buf key = {0};

    args_put_str(&args, "MGET");
    for (size_t i = 0; i < c->n; i++) {
        key.len = 0;
        buf_puts(&key, k->counter_prefix);
        buf_append(&key, owners[i].key, owners[i].len);
        buf_puts(&key, k->counter_suffix);
        args_put(&args, key.data, key.len);
    }
    if (args_call(&args, c->engine, on_counters, c) == 0)
        c->waiting++;
    else
        c->why = "Redis is away";
    buf_free(&key);
    args_free(&args);
}

static void ask_postgres(struct counts *c, const struct counts_owner *owners)
{
    enum id_type type = c->engine->owner_type;
    struct pg_job job;

    pgarray_begin(&c->owners, id_type_oid(type), (uint32_t)c->n);
    for (size_t i = 0; i < c->n; i++)
        pgarray_put_id(&c->owners, type, owners[i].key, owners[i].len);
    c->param = (struct pg_param){id_type_array_oid(type), c->owners.data,
                                 (int)c->owners.len};
    c->stmt = (struct pg_stmt){c->engine->kind->sql_totals, &c->param, 1};
    job = (struct pg_job){
        .stmts = &c->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)c->engine->options->pg_lookup_timeout_ms,
        .cb = on_totals,
        .arg = c,
    };
    if (pg_submit(c->engine->pg, PG_LANE_LOOKUP, &job) == 0)
        c->waiting++;
    else
        c->why = "PostgreSQL is away";
}

void counts_get(const struct engine *e, const struct counts_owner *owners,
                size_t n, counts_on_done cb, void *arg)
{
    struct counts *c = mem_zalloc(sizeof(*c));

    c->engine = e;
    c->n = n;
    c->totals = mem_zalloc(n * sizeof(*c->totals));
    c->cb = cb;
    c->arg = arg;
    c->waiting = 1;
    ask_redis(c, owners);
    if (!c->why)
        ask_postgres(c, owners);
    done_one(c);
}
