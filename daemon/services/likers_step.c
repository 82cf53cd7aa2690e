/* SPDX-License-Identifier: MIT */
/* Happy path: turn at the gate → likers.lua → one query → merged → callback. What
 * leaves the sets of likers.lua is in PostgreSQL before, so the query, which comes
 * behind, has it. Failure modes: Redis or PostgreSQL away; too much under way, or
 * too much not synced; the sets not complete yet, or not kept by some daemon. */
#include "services/likers_step.h"

#include <string.h>

/* A call takes a place in the queue of the pool, which is short; and there may
 * be many pairs. */
#define COST       4096
#define ENTRY_COST 128

/* First item of likers.lua's reply. */
enum { LIKERS_KNOWN, LIKERS_TOO_MANY, LIKERS_NOT_YET, LIKERS_OFF };

static const char *const refusals[] = {
    [LIKERS_TOO_MANY] = "TRYAGAIN too much of it is not synced yet",
    [LIKERS_NOT_YET] = "TRYAGAIN what was not synced when [like] lists was "
                       "set is still being written",
    [LIKERS_OFF] = "ERR another daemon has [like] lists = no: set it to yes in "
                   "all that share this Redis",
};

void likers_step_free(struct likers_step *s)
{
    likers_rows_free(&s->rows);
    args_free(&s->script);
}

const char *likers_step_id(const struct likers_step *s, size_t i, size_t *len_r)
{
    *len_r = s->rows.entries[i].len;
    return s->rows.ids.data + s->rows.entries[i].at;
}

int64_t likers_step_time_us(const struct likers_step *s, size_t i)
{
    return s->rows.entries[i].time_us;
}

/* ---- the answer ---- */

static void end(struct likers_step *s, const char *why)
{
    gate_leave(s->rows.engine->reads, &s->pass);
    s->cb(s->arg, why);
}

static void move_on(struct likers_step *s)
{
    const char *id;

    if (s->rows.n == 0)
        return;
    id = likers_step_id(s, s->rows.n - 1, &s->pos.len);
    memcpy(s->pos.id, id, s->pos.len);
    s->pos.time_us = likers_step_time_us(s, s->rows.n - 1);
    s->pos.any = false;
}

static void on_rows(void *arg, enum pg_outcome outcome,
                    const struct pg_result *result)
{
    struct likers_step *s = arg;

    if (outcome != PG_DONE) {
        end(s, "UNAVAILABLE PostgreSQL did not answer");
        return;
    }
    if (likers_rows_read(&s->rows, result, &s->pos, s->oldest_first, s->n) !=
        0) {
        end(s, "ERR PostgreSQL holds an id that cannot be one");
        return;
    }
    move_on(s);
    end(s, NULL);
}

static void ask_postgres(struct likers_step *s)
{
    const struct engine *e = s->rows.engine;
    const struct pg_job job = {
        .stmts = &s->rows.stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = on_rows,
        .arg = s,
    };
    int rc;

    likers_rows_ask(&s->rows, s->id, s->len, &s->pos, s->oldest_first, s->n);
    rc = pg_submit(e->pg, PG_LANE_LOOKUP, &job);
    if (rc != 0)
        end(s, engine_pg_why(rc));
}

static void on_unsynced(void *arg, enum redis_outcome outcome,
                        const struct redis_value *v)
{
    struct likers_step *s = arg;
    size_t n = redis_value_len(v);
    int64_t code = redis_value_int(redis_value_at(v, 0));

    if (outcome != REDIS_OK || n < 1) {
        end(s, engine_reply_why(outcome));
        return;
    }
    if (code > LIKERS_KNOWN && code <= LIKERS_OFF) {
        end(s, refusals[code]);
        return;
    }
    likers_rows_clear(&s->rows);
    for (size_t i = 1; i + 2 < n; i += 3) {
        size_t len;
        const char *id = redis_value_str(redis_value_at(v, i), &len);

        likers_rows_add(&s->rows, id, len,
                        redis_value_int(redis_value_at(v, i + 1)),
                        redis_value_int(redis_value_at(v, i + 2)));
    }
    ask_postgres(s);
}

/* ---- the call ---- */

static void on_turn(void *arg, const char *why)
{
    struct likers_step *s = arg;
    const struct engine *e = s->rows.engine;
    int rc;

    if (why) {
        s->cb(s->arg, why);
        return;
    }
    args_clear(&s->script);
    args_put_str(&s->script, s->rows.side == LIKERS_OF_POST ? "o" : "m");
    args_put(&s->script, s->id, s->len);
    rc = args_ask(&s->script, e, SCRIPT_LIKERS, on_unsynced, s);
    if (rc != 0)
        end(s, engine_redis_why(e, rc));
}

void likers_step_next(struct likers_step *s, int64_t n)
{
    s->n = n;
    gate_enter(s->rows.engine->reads, &s->pass, s->rq,
               COST + (size_t)n * ENTRY_COST, on_turn, s);
}
