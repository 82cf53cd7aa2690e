/* SPDX-License-Identifier: MIT */
#include "services/dead_letters.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "core/pgarray.h"
#include "services/engine.h"

#define ASK_MS 10000

static const char list_sql[] =
    "SELECT id, kind,"
    " CASE kind WHEN 'like' THEN member_id ELSE owner_id END,"
    " CASE kind WHEN 'like' THEN owner_id ELSE member_id END,"
    " status::bigint, delta, mtime, refused_at, sqlstate, left(reason, 500)"
    " FROM sync_dead_letter WHERE id <= $1 ORDER BY id DESC LIMIT $2";

enum {
    COL_ID,
    COL_KIND,
    COL_USER,
    COL_OTHER,
    COL_STATUS,
    COL_DELTA,
    COL_EVENT,
    COL_REFUSED,
    COL_SQLSTATE,
    COL_REASON
};

/* DEAD_LETTERS_COUNTED + 1 */
static const char total_sql[] =
    "SELECT count(*) FROM (SELECT FROM sync_dead_letter LIMIT 10001) AS l";

struct dead_letters {
    const struct engine *engine; /* ref */
    struct dead_letters_query query;
    bool asking;
    uint64_t asked_ms; /* 0: never */
    struct dead_letters_recent recent;
};

/* ---- the query ---- */

static void put_number(struct dead_letters_query *q, int i, int64_t v)
{
    struct buf bytes = {0};

    buf_put_be64(&bytes, (uint64_t)v);
    memcpy(q->numbers[i], bytes.data, sizeof(q->numbers[i]));
    buf_free(&bytes);
    q->params[i] = (struct pg_param){PG_OID_INT8, q->numbers[i],
                                     (int)sizeof(q->numbers[i])};
}

void dead_letters_ask(struct dead_letters_query *q, const struct engine *e,
                      int64_t from_id, int64_t n)
{
    put_number(q, 0, from_id);
    put_number(q, 1, n);
    q->stmts[0] = (struct pg_stmt){list_sql, q->params, 2};
    q->stmts[1] = (struct pg_stmt){total_sql, NULL, 0};
    q->job = (struct pg_job){
        .stmts = q->stmts,
        .n_stmts = 2,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
    };
}

/* ---- the answer ---- */

static struct resp_arg text(const struct pg_result *r, int row, int col)
{
    int len = 0;
    const char *p = pg_result_value(r, 0, row, col, &len);

    return p ? (struct resp_arg){p, (size_t)len} : (struct resp_arg){"", 0};
}

static const char *value(const struct pg_result *r, int row, int col)
{
    int len;

    return pg_result_value(r, 0, row, col, &len);
}

static int64_t time_us(const struct pg_result *r, int row, int col)
{
    const char *p = value(r, row, col);

    return p ? pgvalue_time_us(p) : 0;
}

static void put_upper(struct buf *out, const struct resp_arg *word)
{
    for (size_t i = 0; i < word->len; i++)
        buf_putc(out, (char)toupper((unsigned char)word->data[i]));
}

static void set_verb(struct dead_letter_row *to, const char *status,
                     const char *delta)
{
    struct buf verb = {0};

    if (delta) {
        buf_printf(&verb, "COUNT %+lld", (long long)pgvalue_i64(delta));
    } else if (!status) {
        buf_puts(&verb, "MALFORMED");
    } else {
        buf_puts(&verb, pgvalue_i64(status) == 0 ? "UN" : "");
        put_upper(&verb, &to->kind);
    }
    snprintf(to->verb, sizeof(to->verb), "%s", buf_cstr(&verb));
    buf_free(&verb);
}

void dead_letters_row(const struct pg_result *r, int row,
                      struct dead_letter_row *row_r)
{
    *row_r = (struct dead_letter_row){
        .id = pgvalue_i64(value(r, row, COL_ID)),
        .kind = text(r, row, COL_KIND),
        .user = text(r, row, COL_USER),
        .other = text(r, row, COL_OTHER),
        .event_us = time_us(r, row, COL_EVENT),
        .refused_us = time_us(r, row, COL_REFUSED),
        .sqlstate = text(r, row, COL_SQLSTATE),
        .reason = text(r, row, COL_REASON),
    };
    set_verb(row_r, value(r, row, COL_STATUS), value(r, row, COL_DELTA));
}

int64_t dead_letters_total(const struct pg_result *r)
{
    int len;
    const char *p = pg_result_value(r, 1, 0, 0, &len);

    return p ? pgvalue_i64(p) : 0;
}

static void put_word(struct buf *out, const struct resp_arg *word)
{
    if (word->len == 0)
        return;
    buf_putc(out, ' ');
    buf_append(out, word->data, word->len);
}

void dead_letter_what(const struct dead_letter_row *row, struct buf *out)
{
    buf_puts(out, row->verb);
    if (strcmp(row->verb, "MALFORMED") == 0)
        put_word(out, &row->kind);
    put_word(out, &row->user);
    put_word(out, &row->other);
}

/* ---- the newest ---- */

static void forget(struct dead_letters_recent *recent)
{
    for (int i = 0; i < recent->n; i++) {
        free(recent->items[i].what);
        free(recent->items[i].sqlstate);
        free(recent->items[i].reason);
    }
    free(recent->why);
    *recent = (struct dead_letters_recent){0};
}

/* What was known before stays. */
static void failed(struct dead_letters *d, const char *why)
{
    free(d->recent.why);
    d->recent.why = mem_strdup(why);
}

static void keep(struct dead_letter *to, const struct dead_letter_row *row)
{
    struct buf what = {0};

    dead_letter_what(row, &what);
    *to = (struct dead_letter){
        .id = row->id,
        .refused_us = row->refused_us,
        .what = mem_strdup(buf_cstr(&what)),
        .sqlstate = mem_strndup(row->sqlstate.data, row->sqlstate.len),
        .reason = mem_strndup(row->reason.data, row->reason.len),
    };
    buf_free(&what);
}

static void on_recent(void *arg, enum pg_outcome outcome,
                      const struct pg_result *result)
{
    struct dead_letters *d = arg;
    struct dead_letter_row row;

    d->asking = false;
    if (outcome != PG_DONE) {
        failed(d, outcome == PG_FAILED
                      ? pg_result_message(result)
                      : "PostgreSQL did not answer in time, or went away");
        return;
    }
    forget(&d->recent);
    d->recent.known = true;
    d->recent.total = dead_letters_total(result);
    metric_set(M_DEAD_LETTERS_LEFT, (double)d->recent.total);
    d->recent.n = pg_result_rows(result, 0);
    for (int i = 0; i < d->recent.n; i++) {
        dead_letters_row(result, i, &row);
        keep(&d->recent.items[i], &row);
    }
}

static bool is_due(const struct dead_letters *d)
{
    return !d->asking &&
           (d->asked_ms == 0 || clock_monotonic_ms() - d->asked_ms >= ASK_MS);
}

const struct dead_letters_recent *dead_letters_recent(struct dead_letters *d)
{
    int rc;

    if (!is_due(d))
        return &d->recent;
    dead_letters_ask(&d->query, d->engine, INT64_MAX, DEAD_LETTERS_RECENT);
    d->query.job.cb = on_recent;
    d->query.job.arg = d;
    rc = pg_submit(d->engine->pg, PG_LANE_LOOKUP, &d->query.job);
    if (rc == 0) {
        d->asking = true;
        d->asked_ms = clock_monotonic_ms();
    } else {
        failed(d, rc == PG_BUSY ? "PostgreSQL has too much to do"
                                : "PostgreSQL is away");
    }
    return &d->recent;
}

struct dead_letters *dead_letters_new(const struct engine *e)
{
    struct dead_letters *d = mem_zalloc(sizeof(*d));

    d->engine = e;
    metric_set(M_DEAD_LETTERS_LEFT, NAN);
    return d;
}

void dead_letters_free(struct dead_letters *d)
{
    forget(&d->recent);
    free(d);
}
