/* SPDX-License-Identifier: MIT */
/* One query by (time, id), newest first, and what comes of it. */
#include "services/lists_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "core/pgarray.h"
#include "services/engine.h"
#include "services/lists.h"

struct rows {
    const struct engine *engine; /* ref */
    struct buf user_key;         /* key form */
    struct buf user;             /* binary, as the others */
    struct buf time;
    struct buf id;
    struct buf limit;
    struct pg_param params[4];
    struct pg_stmt stmt;
};

struct row {
    char id[ID_KEY_MAX];
    size_t len;
    int64_t mtime_us;
    int64_t ctime_us;
};

static struct pg_param param_of(uint32_t oid, const struct buf *b)
{
    return (struct pg_param){oid, b->data, (int)b->len};
}

struct rows *rows_new(const struct engine *e, enum list_side side,
                      const char *user, size_t len)
{
    struct rows *q = mem_zalloc(sizeof(*q));

    q->engine = e;
    buf_append(&q->user_key, user, len);
    id_put_binary(e->owner_type, user, len, &q->user);
    buf_put_be64(&q->limit, LISTS_STEP);
    q->params[0] = param_of(id_type_oid(e->owner_type), &q->user);
    q->params[3] = param_of(PG_OID_INT8, &q->limit);
    q->stmt = (struct pg_stmt){e->kind->sql_list[side], q->params, 4};
    return q;
}

void rows_free(struct rows *q)
{
    buf_free(&q->user_key);
    buf_free(&q->user);
    buf_free(&q->time);
    buf_free(&q->id);
    buf_free(&q->limit);
    free(q);
}

/* PostgreSQL's infinities stay what they are. */
static void from_time(struct rows *q, int64_t us)
{
    uint64_t v = (uint64_t)us;

    if (us != INT64_MAX && us != INT64_MIN)
        v -= (uint64_t)PG_EPOCH_US;
    q->time.len = 0;
    buf_put_be64(&q->time, v);
    q->params[1] = param_of(PG_OID_TIMESTAMPTZ, &q->time);
}

static void from_id(struct rows *q, const char *id, size_t len)
{
    enum id_type type = q->engine->member_type;

    q->id.len = 0;
    id_put_binary(type, id, len, &q->id);
    q->params[2] = param_of(id_type_oid(type), &q->id);
}

/* "s" or "time_us id". */
static int from_pos(struct rows *q, const struct buf *pos)
{
    const char *space = pos->len ? memchr(pos->data, ' ', pos->len) : NULL;
    const char *id;
    size_t len;
    int64_t us;

    if (!space) {
        if (pos->len != 1 || pos->data[0] != 's')
            return -1;
        from_time(q, INT64_MAX); /* before all rows, whatever the id */
        from_id(q, q->user_key.data, q->user_key.len);
        return 0;
    }
    id = space + 1;
    len = pos->len - (size_t)(id - pos->data);
    if (num_parse_i64(pos->data, (size_t)(space - pos->data), &us) != 0 ||
        id_check_key(q->engine->member_type, id, len) != 0)
        return -1;
    from_time(q, us);
    from_id(q, id, len);
    return 0;
}

int rows_ask(struct rows *q, const struct buf *pos, pg_on_done cb, void *arg)
{
    const struct engine *e = q->engine;
    const struct pg_job job = {
        .stmts = &q->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = cb,
        .arg = arg,
    };

    if (from_pos(q, pos) != 0)
        return -1;
    return pg_submit(e->pg, PG_LANE_LOOKUP, &job);
}

static int row_read(const struct rows *q, const struct pg_result *r, int n,
                    struct row *row_r)
{
    const char *v;
    int len;

    row_r->mtime_us = pgvalue_time_us(pg_result_value(r, 0, n, 1, &len));
    row_r->ctime_us = pgvalue_time_us(pg_result_value(r, 0, n, 2, &len));
    v = pg_result_value(r, 0, n, 0, &len);
    return id_from_binary(q->engine->member_type, v, (size_t)len, row_r->id,
                          &row_r->len);
}

int rows_put_pos(const struct rows *q, const struct pg_result *r,
                 struct buf *out)
{
    int n = pg_result_rows(r, 0);
    struct row row;

    if (n < LISTS_STEP) {
        buf_puts(out, "end");
        return 0;
    }
    if (row_read(q, r, n - 1, &row) != 0)
        return -1;
    buf_put_i64(out, row.ctime_us);
    buf_putc(out, ' ');
    buf_append(out, row.id, row.len);
    return 0;
}

int rows_put(const struct rows *q, const struct pg_result *r, struct args *out)
{
    for (int i = 0; i < pg_result_rows(r, 0); i++) {
        struct row row;

        if (row_read(q, r, i, &row) != 0)
            return -1;
        args_put(out, row.id, row.len);
        args_put_str(out, "1");
        args_put_i64(out, row.mtime_us);
        args_put_i64(out, row.ctime_us);
    }
    return 0;
}
