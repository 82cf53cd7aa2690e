/* SPDX-License-Identifier: MIT */
/* One batch on its way into PostgreSQL.
 *
 * Happy path: one transaction (ledger, upsert with counters), all rows changed,
 * done. Around it, in this order: rows that others wrote are looked up and
 * adopted (lua/adopt.lua); malformed rows go to the dead letters; a segment that
 * PostgreSQL refuses is halved down to the row; rows that the guard left alone
 * are read back; orphans.
 *
 * Crash points: before COMMIT nothing happened; after it, whoever takes the
 * batch over writes it again, which changes nothing, and acks it. Every job may
 * be sent any number of times. */
#include "services/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/backoff.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "services/engine.h"
#include "services/sql.h"

#define MAX_SEGMENTS    64
#define RETRIES         5   /* of 40001 and the like before halving */
#define ADOPT_PAIRS     250 /* in one script call */
#define RETRY_CAP_MS    2000
#define CONFIG_CAP_MS   10000
#define RESOURCE_CAP_MS 60000

struct segment {
    size_t from;
    size_t to;
    unsigned attempts;
};

struct writer {
    const struct engine *engine; /* ref */
    struct batch *batch;         /* ref */
    writer_on_done cb;
    void *arg;
    struct timer *timer; /* owned: retries, and steps out of callbacks */
    struct backoff backoff;
    struct sql_job job; /* what is under way */
    struct args args;   /* of the adopt script */
    size_t writable;    /* rows [0, writable) */
    size_t adopt_from;  /* rows before it are adopted */
    bool adopt_looked_up;
    int64_t asked_us;      /* Redis' time before that */
    size_t malformed_next; /* rows [writable, n_rows) */
    struct segment stack[MAX_SEGMENTS];
    int depth;
    size_t orphans_from; /* orphans before it are written */
    size_t orphans_to;
    bool job_under_way;
    struct log_limit limit;
};

static void step(struct writer *w);

static void again(struct writer *w, unsigned cap_ms)
{
    w->backoff.cap_ms = cap_ms;
    metric_add(M_BATCH_RETRIES, 1);
    timer_start(w->timer, backoff_next_ms(&w->backoff), 0);
}

static void next(struct writer *w)
{
    backoff_reset(&w->backoff);
    timer_start(w->timer, 0, 0);
}

static void on_timer(void *arg)
{
    step(arg);
}

static void submit(struct writer *w, pg_on_done cb)
{
    w->job.job.cb = cb;
    w->job.job.arg = w;
    w->job.job.timeout_ms = (unsigned)w->engine->options->pg_write_timeout_ms;
    if (pg_submit(w->engine->pg, PG_LANE_WRITE, &w->job.job) == 0)
        w->job_under_way = true;
    else
        again(w, RETRY_CAP_MS);
}

static void failure_log(struct writer *w, const struct pg_result *r)
{
    uint64_t held;

    if (log_allow(&w->limit, 5000, &held))
        log_warn("flush", "batch %s: PostgreSQL refused: %s (SQLSTATE %s)",
                 w->batch->id, pg_result_message(r), pg_result_sqlstate(r));
}

/* What to do about a job that failed: true when the rows themselves are the
 * cause; otherwise a retry is scheduled. */
static bool rows_at_fault(struct writer *w, enum pg_outcome outcome,
                          const struct pg_result *r)
{
    if (outcome != PG_FAILED) {
        again(w, RETRY_CAP_MS);
        return false;
    }
    switch (sqlstate_action(pg_result_sqlstate(r))) {
    case SQL_DATA:
        return true;
    case SQL_RECONNECT:
    case SQL_RETRY:
        again(w, RETRY_CAP_MS);
        return false;
    case SQL_CONFIG:
        failure_log(w, r);
        again(w, CONFIG_CAP_MS);
        return false;
    case SQL_RESOURCE:
    case SQL_OTHER:
        break;
    }
    failure_log(w, r);
    again(w, RESOURCE_CAP_MS);
    return false;
}

/* The end of a job in which no row can be at fault: true when it is to be done
 * again, which was then scheduled. */
static bool failed(struct writer *w, enum pg_outcome outcome,
                   const struct pg_result *r, unsigned cap_ms)
{
    w->job_under_way = false;
    if (outcome == PG_DONE)
        return false;
    if (rows_at_fault(w, outcome, r))
        again(w, cap_ms);
    return true;
}

/* ---- rows that others wrote ---- */

static void on_adopted(void *arg, enum redis_outcome outcome,
                       const struct redis_value *v)
{
    struct writer *w = arg;
    size_t i = 1;
    size_t row = w->adopt_from;

    w->job_under_way = false;
    if (outcome != REDIS_OK) {
        again(w, RETRY_CAP_MS);
        return;
    }
    for (; row < w->writable && i + 2 < redis_value_len(v); row++) {
        struct batch_row *r = &w->batch->rows[row];

        if (!r->foreign)
            continue;
        r->status = (int8_t)redis_value_int(redis_value_at(v, i));
        r->mtime_us = redis_value_int(redis_value_at(v, i + 1));
        r->ctime_us = redis_value_int(redis_value_at(v, i + 2));
        i += 3;
    }
    fault_point("adopted");
    if (i == 1) { /* it was asked too long ago */
        w->adopt_looked_up = false;
        w->asked_us = redis_value_int(redis_value_at(v, 0));
    }
    w->adopt_from = row;
    next(w);
}

static void adopt(struct writer *w)
{
    int n = 0;

    args_clear(&w->args);
    args_put_str(&w->args, w->batch->id);
    args_put_str(&w->args, w->batch->taker);
    args_put_i64(&w->args, w->asked_us);
    for (size_t i = w->adopt_from; i < w->writable && n < ADOPT_PAIRS; i++) {
        const struct batch_row *r = &w->batch->rows[i];

        if (!r->foreign)
            continue;
        args_put(&w->args, r->owner, r->owner_len);
        args_put(&w->args, r->member, r->member_len);
        args_put_i64(&w->args, r->pg_status);
        args_put_i64(&w->args, r->pg_mtime_us);
        args_put_i64(&w->args, r->pg_ctime_us);
        n++;
    }
    if (args_send(&w->args, w->engine, SCRIPT_ADOPT, on_adopted, w) == 0)
        w->job_under_way = true;
    else
        again(w, RETRY_CAP_MS);
}

static void on_foreign(void *arg, enum pg_outcome outcome,
                       const struct pg_result *r)
{
    struct writer *w = arg;

    if (failed(w, outcome, r, CONFIG_CAP_MS))
        return;
    sql_read_states(r, 0, w->batch, 0, w->writable, true);
    w->adopt_looked_up = true;
    next(w);
}

/* All are adopted: what has no state any more cannot be written. */
static void adopted(struct writer *w)
{
    for (size_t i = 0; i < w->writable; i++)
        w->batch->rows[i].foreign = false;
    w->writable =
        batch_sort(w->batch, w->engine->owner_type, w->engine->member_type);
    w->malformed_next = w->writable;
    w->stack[0] = (struct segment){0, w->writable, 0};
    w->depth = w->writable ? 1 : 0;
    next(w);
}

static void foreign_step(struct writer *w)
{
    if (!w->adopt_looked_up) {
        sql_lookup(&w->job, w->engine, w->batch, 0, w->writable, true);
        submit(w, on_foreign);
        return;
    }
    for (size_t i = w->adopt_from; i < w->writable; i++) {
        if (w->batch->rows[i].foreign) {
            adopt(w);
            return;
        }
    }
    adopted(w);
}

/* ---- dead letters ---- */

static void on_malformed(void *arg, enum pg_outcome outcome,
                         const struct pg_result *r)
{
    struct writer *w = arg;

    if (failed(w, outcome, r, RESOURCE_CAP_MS))
        return;
    w->batch->rows[w->malformed_next].dead = true;
    metric_add(M_DEAD_LETTERS, 1);
    w->malformed_next++;
    next(w);
}

static void malformed_step(struct writer *w)
{
    struct batch_row *r = &w->batch->rows[w->malformed_next];

    if (r->status == ROW_MISSING) { /* nothing to write: only to be acked */
        w->malformed_next++;
        next(w);
        return;
    }
    sql_dead_letter(&w->job, w->engine, w->batch, r, NULL,
                    "the hash or an id in Redis is malformed");
    submit(w, on_malformed);
}

static void on_dead(void *arg, enum pg_outcome outcome,
                    const struct pg_result *r)
{
    struct writer *w = arg;
    struct segment *s = &w->stack[w->depth - 1];

    if (failed(w, outcome, r, RESOURCE_CAP_MS))
        return;
    fault_point("dead_lettered");
    sql_read_states(r, 1, w->batch, s->from, s->to, false);
    w->batch->rows[s->from].dead = true;
    metric_add(M_DEAD_LETTERS, 1);
    w->depth--;
    next(w);
}

static void dead_letter(struct writer *w, const char *sqlstate,
                        const char *reason)
{
    const struct segment *s = &w->stack[w->depth - 1];
    struct batch_row *row = &w->batch->rows[s->from];

    log_error("flush",
              "batch %s: %s %.*s %.*s goes to the dead letters: %s (SQLSTATE "
              "%s)",
              w->batch->id, w->engine->kind->name, (int)row->owner_len,
              row->owner, (int)row->member_len, row->member, reason,
              sqlstate ? sqlstate : "none");
    sql_dead_letter(&w->job, w->engine, w->batch, row, sqlstate, reason);
    submit(w, on_dead);
}

/* ---- segments ---- */

static void halve(struct writer *w)
{
    struct segment *s = &w->stack[w->depth - 1];
    size_t middle = s->from + (s->to - s->from) / 2;
    size_t to = s->to;

    assert(w->depth < MAX_SEGMENTS);
    s->to = middle;
    s->attempts = 0;
    w->stack[w->depth++] = (struct segment){middle, to, 0};
    next(w);
}

static void segment_done(struct writer *w)
{
    const struct segment *s = &w->stack[w->depth - 1];

    metric_add(M_ROWS_WRITTEN, s->to - s->from);
    w->depth--;
    next(w);
}

/* Written without an error, and yet neither there nor in the way of what is: a
 * trigger or a rule left it out. */
static bool was_left_out(const struct writer *w, const struct segment *s)
{
    for (size_t i = s->from; i < s->to; i++)
        if (w->batch->rows[i].pg_mtime_us < w->batch->rows[i].mtime_us)
            return true;
    return false;
}

static void on_read_back(void *arg, enum pg_outcome outcome,
                         const struct pg_result *r)
{
    struct writer *w = arg;
    const struct segment *s = &w->stack[w->depth - 1];

    if (failed(w, outcome, r, CONFIG_CAP_MS))
        return;
    fault_point("read_back");
    sql_read_states(r, 0, w->batch, s->from, s->to, false);
    if (!was_left_out(w, s))
        segment_done(w);
    else if (s->to - s->from > 1)
        halve(w);
    else
        dead_letter(w, NULL, "the table left it out without an error");
}

static void on_written(void *arg, enum pg_outcome outcome,
                       const struct pg_result *r)
{
    struct writer *w = arg;
    struct segment *s = &w->stack[w->depth - 1];
    size_t n = s->to - s->from;
    bool stuck;

    w->job_under_way = false;
    if (outcome == PG_DONE || fault_variant("ack_before_commit")) {
        fault_point("committed");
        if (outcome == PG_DONE && sql_count(r, 1) < n) {
            sql_lookup(&w->job, w->engine, w->batch, s->from, s->to, false);
            submit(w, on_read_back);
            return;
        }
        for (size_t i = s->from; i < s->to; i++) {
            w->batch->rows[i].pg_status = w->batch->rows[i].status;
            w->batch->rows[i].pg_mtime_us = w->batch->rows[i].mtime_us;
            w->batch->rows[i].pg_ctime_us = 0;
        }
        segment_done(w);
        return;
    }
    stuck = outcome == PG_FAILED && n > 1 &&
            sqlstate_action(pg_result_sqlstate(r)) == SQL_RETRY &&
            ++s->attempts >= RETRIES;
    if (!stuck && !rows_at_fault(w, outcome, r))
        return;
    if (n > 1)
        halve(w);
    else
        dead_letter(w, pg_result_sqlstate(r), pg_result_message(r));
}

static void segment_step(struct writer *w)
{
    const struct segment *s = &w->stack[w->depth - 1];

    fault_point("before_write");
    sql_write(&w->job, w->engine, w->batch, s->from, s->to);
    submit(w, on_written);
    fault_point("write_sent");
}

/* ---- orphans: all at once, then one by one when they are refused ---- */

static void on_orphan_dead(void *arg, enum pg_outcome outcome,
                           const struct pg_result *r)
{
    struct writer *w = arg;

    if (failed(w, outcome, r, RESOURCE_CAP_MS))
        return;
    metric_add(M_DEAD_LETTERS, 1);
    w->orphans_from = w->orphans_to;
    w->orphans_to = w->batch->n_orphans;
    next(w);
}

static void on_orphans(void *arg, enum pg_outcome outcome,
                       const struct pg_result *r)
{
    struct writer *w = arg;
    size_t n = w->orphans_to - w->orphans_from;

    w->job_under_way = false;
    if (outcome == PG_DONE) {
        fault_point("orphans_committed");
        metric_add(M_ORPHANS, n);
        w->orphans_from = w->orphans_to;
        w->orphans_to = w->batch->n_orphans;
        next(w);
    } else if (!rows_at_fault(w, outcome, r)) {
        return;
    } else if (n > 1) {
        w->orphans_to = w->orphans_from + n / 2;
        next(w);
    } else {
        sql_orphan_dead_letter(&w->job, w->engine, w->batch,
                               &w->batch->orphans[w->orphans_from],
                               pg_result_sqlstate(r), pg_result_message(r));
        submit(w, on_orphan_dead);
    }
}

static bool orphan_is_malformed(const struct writer *w, size_t i)
{
    const struct batch_orphan *o = &w->batch->orphans[i];

    return id_check_key(w->engine->owner_type, o->owner, o->owner_len) != 0;
}

static void orphans_step(struct writer *w)
{
    size_t i = w->orphans_from;

    if (orphan_is_malformed(w, i)) {
        w->orphans_to = i + 1;
        sql_orphan_dead_letter(&w->job, w->engine, w->batch,
                               &w->batch->orphans[i], NULL,
                               "the id in Redis is malformed");
        submit(w, on_orphan_dead);
        return;
    }
    while (i < w->orphans_to && !orphan_is_malformed(w, i))
        i++;
    w->orphans_to = i;
    sql_orphans(&w->job, w->engine, w->batch, w->orphans_from, w->orphans_to);
    submit(w, on_orphans);
}

/* ---- the flow ---- */

static void done(struct writer *w)
{
    writer_on_done cb = w->cb;
    void *arg = w->arg;

    metric_add(M_BATCHES_WRITTEN, 1);
    writer_free(w);
    cb(arg);
}

static void step(struct writer *w)
{
    if (batch_count_foreign(w->batch, 0, w->writable) > 0) {
        foreign_step(w);
    } else if (w->malformed_next < w->batch->n_rows) {
        malformed_step(w);
    } else if (w->depth > 0) {
        segment_step(w);
    } else if (w->orphans_from < w->batch->n_orphans) {
        orphans_step(w);
    } else {
        done(w);
    }
}

struct writer *writer_start(const struct engine *e, struct batch *b,
                            size_t writable, writer_on_done cb, void *arg)
{
    struct writer *w = mem_zalloc(sizeof(*w));

    w->engine = e;
    w->batch = b;
    w->cb = cb;
    w->arg = arg;
    w->timer = timer_new(e->loop, on_timer, w);
    backoff_init(&w->backoff, 10, RETRY_CAP_MS);
    w->asked_us = b->read_us;
    w->writable = writable;
    w->malformed_next = writable;
    w->stack[0] = (struct segment){0, writable, 0};
    w->depth = writable ? 1 : 0;
    w->orphans_to = b->n_orphans;
    timer_start(w->timer, 0, 0);
    return w;
}

void writer_free(struct writer *w)
{
    if (!w)
        return;
    timer_free(w->timer);
    sql_job_free(&w->job);
    args_free(&w->args);
    free(w);
}

void writer_poke(struct writer *w)
{
    if (!w->job_under_way)
        timer_start(w->timer, 0, 0);
}
