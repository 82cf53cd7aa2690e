/* SPDX-License-Identifier: MIT */
/* A pair that is not synced counts as the newer of its hash and its row has it;
 * all others as their rows. Those pairs are left out of the run of rows, so that
 * each entry comes once, in the place of its newest state. */
#include "services/likers_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/pgarray.h"

struct likers_pair {
    size_t at; /* of the id, in `ids` */
    size_t len;
    int64_t status; /* of the hash */
    int64_t mtime_us;
    int64_t pg_status; /* 0 without a row */
    int64_t pg_mtime_us;
};

/* $1 the id, from where on: $2 mtime, $3 other id; $4 how many, $5 the pairs → 0, other
 * id, mtime, status of the rows; or n (from 1), ... of pair n. Each condition is one of
 * the index (sql/likers.sql), so no row is read in vain but those of pairs. */
#define RUN(key, other, behind, order)                                         \
    "(SELECT 0::bigint, " other ", mtime, status FROM user_like_post"          \
    " WHERE " key " = $1 AND status = 1"                                       \
    " AND (mtime, " other ") " behind " ($2, $3)"                              \
    " AND " other " <> ALL ($5)"                                               \
    " ORDER BY mtime " order ", " other " " order " LIMIT $4)"                 \
    " UNION ALL SELECT o.n, t." other ", t.mtime, t.status"                    \
    " FROM unnest($5) WITH ORDINALITY AS o(id, n)"                             \
    " JOIN user_like_post t ON t." key " = $1 AND t." other " = o.id"
#define RUNS(key, other)                                                       \
    {RUN(key, other, "<", "DESC"), RUN(key, other, ">", "ASC")}

/* By side, and whether oldest first. */
static const char *const sql[2][2] = {
    [LIKERS_OF_POST] = RUNS("post_id", "user_id"),
    [LIKERS_OF_USER] = RUNS("user_id", "post_id"),
};

enum { COL_PAIR, COL_ID, COL_MTIME, COL_STATUS };

enum id_type likers_key_type(const struct engine *e, enum likers_side side)
{
    return side == LIKERS_OF_POST ? e->owner_type : e->member_type;
}

enum id_type likers_entry_type(const struct engine *e, enum likers_side side)
{
    return side == LIKERS_OF_POST ? e->member_type : e->owner_type;
}

void likers_rows_clear(struct likers_rows *r)
{
    r->n_pairs = 0;
    r->n = 0;
    buf_clear(&r->ids, 4096);
}

void likers_rows_free(struct likers_rows *r)
{
    free(r->pairs);
    free(r->entries);
    buf_free(&r->ids);
    buf_free(&r->bytes);
}

/* ---- the query ---- */

void likers_rows_add(struct likers_rows *r, const char *id, size_t len,
                     int64_t status, int64_t mtime_us)
{
    enum id_type type = likers_entry_type(r->engine, r->side);

    if (id_check_key(type, id, len) != 0)
        return;
    if (r->n_pairs == r->cap_pairs) {
        r->cap_pairs = r->cap_pairs ? 2 * r->cap_pairs : 16;
        r->pairs = mem_realloc(r->pairs, r->cap_pairs * sizeof(*r->pairs));
    }
    r->pairs[r->n_pairs++] = (struct likers_pair){
        .at = r->ids.len,
        .len = len,
        .status = status,
        .mtime_us = mtime_us,
    };
    buf_append(&r->ids, id, len);
}

/* Each parameter's bytes are put between these two; data is set at the end, when the
 * bytes do not move any more. */
static size_t param_begin(const struct likers_rows *r)
{
    return r->bytes.len;
}

static void param_end(struct likers_rows *r, size_t start, uint32_t oid)
{
    r->params[r->stmt.n_params++] =
        (struct pg_param){oid, NULL, (int)(r->bytes.len - start)};
}

static void put_time(struct likers_rows *r, const struct likers_pos *pos,
                     bool oldest_first)
{
    size_t start = param_begin(r);
    int64_t us = pos->time_us - PG_EPOCH_US;

    if (pos->any) /* PostgreSQL's infinities */
        us = oldest_first ? INT64_MIN : INT64_MAX;
    buf_put_be64(&r->bytes, (uint64_t)us);
    param_end(r, start, PG_OID_TIMESTAMPTZ);
}

/* Where any position will do, so does any id. */
static void put_any_id(struct likers_rows *r, enum id_type type)
{
    static const char zeros[16];
    static const size_t size[] = {
        [ID_BIGINT] = 8, [ID_UUID] = 16, [ID_TEXT] = 0};

    buf_append(&r->bytes, zeros, size[type]);
}

static void put_ids(struct likers_rows *r, const char *id, size_t len,
                    const struct likers_pos *pos, bool oldest_first)
{
    enum id_type key = likers_key_type(r->engine, r->side);
    enum id_type type = likers_entry_type(r->engine, r->side);
    size_t start = param_begin(r);

    id_put_binary(key, id, len, &r->bytes);
    param_end(r, start, id_type_oid(key));
    put_time(r, pos, oldest_first);
    start = param_begin(r);
    if (pos->any)
        put_any_id(r, type);
    else
        id_put_binary(type, pos->id, pos->len, &r->bytes);
    param_end(r, start, id_type_oid(type));
}

static void put_pairs(struct likers_rows *r)
{
    enum id_type type = likers_entry_type(r->engine, r->side);
    size_t start = param_begin(r);

    pgarray_begin(&r->bytes, id_type_oid(type), (uint32_t)r->n_pairs);
    for (size_t i = 0; i < r->n_pairs; i++)
        pgarray_put_id(&r->bytes, type, r->ids.data + r->pairs[i].at,
                       r->pairs[i].len);
    param_end(r, start, id_type_array_oid(type));
}

void likers_rows_ask(struct likers_rows *r, const char *id, size_t len,
                     const struct likers_pos *pos, bool oldest_first, int64_t n)
{
    size_t at = 0;
    size_t start;

    buf_clear(&r->bytes, 4096);
    r->stmt = (struct pg_stmt){sql[r->side][oldest_first], r->params, 0};
    put_ids(r, id, len, pos, oldest_first);
    start = param_begin(r);
    buf_put_be64(&r->bytes, (uint64_t)n + 1);
    param_end(r, start, PG_OID_INT8);
    put_pairs(r);
    for (int i = 0; i < r->stmt.n_params; i++) {
        r->params[i].data = r->bytes.data + at;
        at += (size_t)r->params[i].len;
    }
}

/* ---- the result ---- */

static int compare(const struct likers_rows *r, int64_t a_us, const char *a,
                   size_t a_len, int64_t b_us, const char *b, size_t b_len)
{
    if (a_us != b_us)
        return a_us < b_us ? -1 : 1;
    return id_compare(likers_entry_type(r->engine, r->side), a, a_len, b,
                      b_len);
}

static int oldest_first_cmp(const void *pa, const void *pb, void *arg)
{
    const struct likers_rows *r = arg;
    const struct likers_entry *a = pa;
    const struct likers_entry *b = pb;

    return compare(r, a->time_us, r->ids.data + a->at, a->len, b->time_us,
                   r->ids.data + b->at, b->len);
}

static int newest_first_cmp(const void *pa, const void *pb, void *arg)
{
    return oldest_first_cmp(pb, pa, arg);
}

static void add_entry(struct likers_rows *r, int64_t time_us, size_t at,
                      size_t len)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        r->entries = mem_realloc(r->entries, r->cap * sizeof(*r->entries));
    }
    r->entries[r->n++] = (struct likers_entry){time_us, at, len};
}

static int read_row(struct likers_rows *r, const struct pg_result *result,
                    int row)
{
    enum id_type type = likers_entry_type(r->engine, r->side);
    int len;
    int64_t pair = pgvalue_i64(pg_result_value(result, 0, row, COL_PAIR, &len));
    int64_t us =
        pgvalue_time_us(pg_result_value(result, 0, row, COL_MTIME, &len));
    char id[ID_KEY_MAX];
    size_t id_len;
    const char *p;

    if (pair > 0 && (size_t)pair <= r->n_pairs) {
        p = pg_result_value(result, 0, row, COL_STATUS, &len);
        r->pairs[pair - 1].pg_status = pgvalue_i16(p);
        r->pairs[pair - 1].pg_mtime_us = us;
        return 0;
    }
    p = pg_result_value(result, 0, row, COL_ID, &len);
    if (id_from_binary(type, p, (size_t)len, id, &id_len) != 0)
        return -1;
    add_entry(r, us, r->ids.len, id_len);
    buf_append(&r->ids, id, id_len);
    return 0;
}

static bool is_behind(const struct likers_rows *r, int64_t us,
                      const struct likers_pair *p, const struct likers_pos *pos,
                      bool oldest_first)
{
    int c;

    if (pos->any)
        return true;
    c = compare(r, us, r->ids.data + p->at, p->len, pos->time_us, pos->id,
                pos->len);
    return oldest_first ? c > 0 : c < 0;
}

int likers_rows_read(struct likers_rows *r, const struct pg_result *result,
                     const struct likers_pos *pos, bool oldest_first, int64_t n)
{
    for (int row = 0; row < pg_result_rows(result, 0); row++)
        if (read_row(r, result, row) != 0)
            return -1;
    for (size_t i = 0; i < r->n_pairs; i++) {
        const struct likers_pair *p = &r->pairs[i];
        bool of_hash = p->mtime_us >= p->pg_mtime_us;
        int64_t us = of_hash ? p->mtime_us : p->pg_mtime_us;

        if ((of_hash ? p->status : p->pg_status) == 1 &&
            is_behind(r, us, p, pos, oldest_first))
            add_entry(r, us, p->at, p->len);
    }
    if (r->n > 0)
        qsort_r(r->entries, r->n, sizeof(*r->entries),
                oldest_first ? oldest_first_cmp : newest_first_cmp, r);
    r->more = r->n > (size_t)n;
    if (r->more)
        r->n = (size_t)n;
    return 0;
}
