/* SPDX-License-Identifier: MIT */
/* PostgreSQL's counts against its rows, so many owners at a time in one snapshot,
 * in which they have to agree. A step that takes too long is made smaller.
 *
 * Counts are mended under a lock against flushes, taken before the snapshot: rows
 * that one has written and not yet counted must not be counted twice. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "core/pgarray.h"
#include "services/service.h"
#include "services/verify_internal.h"

#define STEP    100
#define STEP_MS 15000

/* The next ids of a table's index, one descent each: no row is read twice, however
 * many an id has. $1 NULL: from the start on. */
#define NEXT_IDS(name, column, table, where)                                   \
    name "(id) AS ("                                                           \
         " (SELECT " column " FROM " table " WHERE " where                     \
         " ($1 IS NULL OR " column " > $1) ORDER BY " column " LIMIT 1)"       \
         " UNION ALL SELECT (SELECT t." column " FROM " table                  \
         " t WHERE " where " t." column " > n.id ORDER BY t." column           \
         " LIMIT 1) FROM " name " n WHERE n.id IS NOT NULL)"

#define FIRST_IDS(name)                                                        \
    "(SELECT id FROM " name " WHERE id IS NOT NULL LIMIT $2)"

static const struct {
    /* $1 last id, $2 how many → id, then twice counted, rows; sorted */
    const char *compare;
    const char *lock;
    const char *recount; /* $1 ids */
    const char *names[2];
} tables[EDGE_COUNT] = {
    [EDGE_LIKE] =
        {
            "WITH RECURSIVE " NEXT_IDS("r", "post_id", "user_like_post",
                                       "") ", ids AS (SELECT id FROM "
                                           "(" FIRST_IDS("r") " UNION "
                                                              "(SELECT "
                                                              "post_id FROM "
                                                              "post_like"
                                                              " WHERE $1 IS "
                                                              "NULL OR "
                                                              "post_id > $1"
                                                              " ORDER BY "
                                                              "post_id "
                                                              "LIMIT $2)) u "
                                                              "ORDER BY id "
                                                              "LIMIT $2)"
                                                              " SELECT "
                                                              "i.id, "
                                                              "coalesce(c."
                                                              "like_count - "
                                                              "c."
                                                              "unattributed,"
                                                              " 0),"
                                                              " (SELECT "
                                                              "count(*) "
                                                              "FROM "
                                                              "user_like_"
                                                              "post t"
                                                              " WHERE "
                                                              "t.post_id = "
                                                              "i.id AND "
                                                              "t.status = "
                                                              "1),"
                                                              " 0::bigint, "
                                                              "0::bigint"
                                                              " FROM ids i "
                                                              "LEFT JOIN "
                                                              "post_like c "
                                                              "ON c.post_id "
                                                              "= i.id"
                                                              " ORDER BY "
                                                              "i.id",
            "LOCK TABLE post_like IN SHARE ROW EXCLUSIVE MODE",
            "INSERT INTO post_like AS p (post_id, like_count, mtime)"
            " SELECT o.id, (SELECT count(*) FROM user_like_post t"
            " WHERE t.post_id = o.id AND t.status = 1), now()"
            " FROM unnest($1) AS o(id) ORDER BY o.id"
            " ON CONFLICT (post_id) DO UPDATE SET"
            " like_count = p.unattributed + excluded.like_count,"
            " mtime = excluded.mtime",
            {"like_count without unattributed", ""},
        },
    [EDGE_FOLLOW] =
        {
            "WITH RECURSIVE " NEXT_IDS(
                "r", "user_id", "user_follow",
                "") ", " NEXT_IDS("s", "followee_id", "user_follow",
                                  "status = 1 AND") ", ids AS (SELECT id FROM "
                                                    "(" FIRST_IDS(
                                                        "r") " UNION"
                                                             " " FIRST_IDS(
                                                                 "s") " UNION "
                                                                      "(SELECT "
                                                                      "user_id "
                                                                      "FROM "
                                                                      "user_"
                                                                      "follow_"
                                                                      "count"
                                                                      " WHERE "
                                                                      "$1 IS "
                                                                      "NULL OR "
                                                                      "user_id "
                                                                      "> $1"
                                                                      " ORDER "
                                                                      "BY "
                                                                      "user_id "
                                                                      "LIMIT "
                                                                      "$2)) u "
                                                                      "ORDER "
                                                                      "BY id "
                                                                      "LIMIT "
                                                                      "$2)"
                                                                      " SELECT "
                                                                      "i.id, "
                                                                      "coalesce"
                                                                      "(c."
                                                                      "followin"
                                                                      "g_count,"
                                                                      " 0),"
                                                                      " ("
                                                                      "SELECT "
                                                                      "count(*)"
                                                                      " FROM "
                                                                      "user_"
                                                                      "follow t"
                                                                      " WHERE "
                                                                      "t.user_"
                                                                      "id = "
                                                                      "i.id "
                                                                      "AND "
                                                                      "t."
                                                                      "status "
                                                                      "= 1),"
                                                                      " coalesc"
                                                                      "e(c."
                                                                      "follower"
                                                                      "_count, "
                                                                      "0),"
                                                                      " ("
                                                                      "SELECT "
                                                                      "count(*)"
                                                                      " FROM "
                                                                      "user_"
                                                                      "follow t"
                                                                      " WHERE "
                                                                      "t."
                                                                      "followee"
                                                                      "_id = "
                                                                      "i.id "
                                                                      "AND "
                                                                      "t."
                                                                      "status "
                                                                      "= 1)"
                                                                      " FROM "
                                                                      "ids i"
                                                                      " LEFT "
                                                                      "JOIN "
                                                                      "user_"
                                                                      "follow_"
                                                                      "count c "
                                                                      "ON "
                                                                      "c.user_"
                                                                      "id = "
                                                                      "i.id"
                                                                      " ORDER "
                                                                      "BY i.id",
            "LOCK TABLE user_follow_count IN SHARE ROW EXCLUSIVE MODE",
            "INSERT INTO user_follow_count AS c"
            " (user_id, following_count, follower_count, mtime)"
            " SELECT o.id, (SELECT count(*) FROM user_follow t"
            " WHERE t.user_id = o.id AND t.status = 1),"
            " (SELECT count(*) FROM user_follow t"
            " WHERE t.followee_id = o.id AND t.status = 1), now()"
            " FROM unnest($1) AS o(id) ORDER BY o.id"
            " ON CONFLICT (user_id) DO UPDATE SET"
            " following_count = excluded.following_count,"
            " follower_count = excluded.follower_count,"
            " mtime = excluded.mtime",
            {"following_count", "follower_count"},
        },
};

void verify_counts_start(struct verify *v)
{
    v->table.last.len = 0;
    v->table.step = STEP;
    v->table.n = 0;
    v->table.more = true;
}

/* A smaller step, as long as there is one. */
static void step_failed(struct verify *v, enum pg_outcome outcome,
                        const struct pg_result *r)
{
    if (outcome == PG_FAILED && pg_result_sqlstate(r)[0] == '4' &&
        pg_result_sqlstate(r)[1] == '2') {
        job_fail(&v->job, pg_result_message(r)); /* it is not allowed to */
        return;
    }
    if (outcome != PG_AWAY && v->table.step > 1)
        v->table.step /= 2;
    job_wait(&v->job, outcome == PG_FAILED ? pg_result_message(r)
                                           : "PostgreSQL did not answer");
}

static void submit(struct verify *v, int n_stmts, bool transaction,
                   pg_on_done cb)
{
    const struct pg_job job = {
        .stmts = v->table.stmts,
        .n_stmts = n_stmts,
        .transaction = transaction,
        .timeout_ms = STEP_MS,
        .cb = cb,
        .arg = v,
    };

    if (pg_submit(verify_engine(v)->pg, PG_LANE_WRITE, &job) != 0)
        job_wait(&v->job, "PostgreSQL is away");
}

/* ---- mending ---- */

static void on_mended(void *arg, enum pg_outcome outcome,
                      const struct pg_result *r)
{
    struct verify *v = arg;

    if (outcome != PG_DONE) { /* it may have been done: then it is again */
        step_failed(v, outcome, r);
        return;
    }
    v->job.away_ms = 0;
    v->counts[VERIFY_COUNTS].mended += (int64_t)v->table.n;
    v->table.n = 0;
    job_next(&v->job);
}

static void mend(struct verify *v)
{
    struct verify_table *t = &v->table;
    enum id_type type = verify_engine(v)->owner_type;

    t->params[0] = (struct pg_param){id_type_array_oid(type), t->ids.data,
                                     (int)t->ids.len};
    t->stmts[0] = (struct pg_stmt){tables[verify_phase(v)->kind].lock, NULL, 0};
    t->stmts[1] =
        (struct pg_stmt){tables[verify_phase(v)->kind].recount, t->params, 1};
    submit(v, 2, true, on_mended);
}

/* ---- comparing ---- */

static int64_t number(const struct pg_result *r, int row, int col)
{
    int len;

    return pgvalue_i64(pg_result_value(r, 0, row, col, &len));
}

static bool differs(const struct pg_result *r, int row)
{
    return number(r, row, 1) != number(r, row, 2) ||
           number(r, row, 3) != number(r, row, 4);
}

static void tell(struct verify *v, const char *id, size_t id_len,
                 const struct pg_result *r, int row)
{
    const char *const *names = tables[verify_phase(v)->kind].names;
    struct buf text = {0};

    for (int i = 0; i < 2; i++) {
        int64_t counted = number(r, row, 2 * i + 1);
        int64_t there = number(r, row, 2 * i + 2);

        if (counted != there)
            buf_printf(&text,
                       "%s%s of %.*s is %" PRId64 ", it has %" PRId64 " rows",
                       text.len ? "; " : "", names[i], (int)id_len, id, counted,
                       there);
    }
    verify_found(v, VERIFY_COUNTS, false, text.data, text.len);
    buf_free(&text);
}

/* The ids that differ, as an array that is not begun before all are known. */
static void read_rows(struct verify *v, const struct pg_result *r, int n)
{
    enum id_type type = verify_engine(v)->owner_type;
    struct verify_table *t = &v->table;
    uint32_t different = 0;

    for (int row = 0; row < n; row++)
        different += differs(r, row);
    t->ids.len = 0;
    t->n = different;
    pgarray_begin(&t->ids, id_type_oid(type), different);
    for (int row = 0; row < n; row++) {
        char id[ID_KEY_MAX];
        size_t id_len = 0;
        int len;
        const char *value = pg_result_value(r, 0, row, 0, &len);

        if (!differs(r, row))
            continue;
        buf_put_be32(&t->ids, (uint32_t)len);
        buf_append(&t->ids, value, (size_t)len);
        if (id_from_binary(type, value, (size_t)len, id, &id_len) != 0)
            id_len = 0; /* its length is beyond that of an id */
        tell(v, id, id_len, r, row);
    }
}

static void on_rows(void *arg, enum pg_outcome outcome,
                    const struct pg_result *r)
{
    struct verify *v = arg;
    struct verify_table *t = &v->table;
    const char *last;
    int n;
    int len;

    if (outcome != PG_DONE) {
        step_failed(v, outcome, r);
        return;
    }
    v->job.away_ms = 0;
    v->job.why[0] = '\0';
    n = pg_result_rows(r, 0);
    read_rows(v, r, n);
    v->counts[VERIFY_COUNTS].looked += n;
    t->more = n == t->step;
    if (n > 0) {
        last = pg_result_value(r, 0, n - 1, 0, &len);
        t->last.len = 0;
        buf_append(&t->last, last, (size_t)len);
    }
    job_next(&v->job);
}

static void compare(struct verify *v)
{
    struct verify_table *t = &v->table;
    bool first = t->last.len == 0;

    t->limit.len = 0;
    buf_put_be64(&t->limit, (uint64_t)t->step);
    t->params[0] =
        (struct pg_param){id_type_oid(verify_engine(v)->owner_type),
                          first ? NULL : t->last.data, (int)t->last.len};
    t->params[1] =
        (struct pg_param){PG_OID_INT8, t->limit.data, (int)t->limit.len};
    t->stmts[0] =
        (struct pg_stmt){tables[verify_phase(v)->kind].compare, t->params, 2};
    submit(v, 1, false, on_rows);
}

bool verify_counts_next(struct verify *v)
{
    if (v->repair && v->table.n > 0)
        mend(v);
    else if (v->table.more)
        compare(v);
    else
        return false;
    return true;
}
