/* SPDX-License-Identifier: MIT */
/* Checks version, column types and rights at each connect. */
#include "services/schema.h"

#include <stdio.h>
#include <string.h>

#include "core/pgarray.h"
#include "core/ids.h"
#include "core/options.h"

/* One row per column of our tables that exists: recovery and version (the same
 * in all rows), table, column, type, may we write, how many of the indexes of
 * sql/likers.sql are there (the same in all rows). At least one row. */
static const char check_sql[] =
    "SELECT pg_is_in_recovery()::int::bigint,"
    " obj_description(to_regclass('sync_state'), 'pg_class'),"
    " t.name, a.attname::text, a.atttypid::bigint,"
    " (has_table_privilege(c.oid, 'SELECT')"
    " AND has_table_privilege(c.oid, 'INSERT')"
    " AND has_table_privilege(c.oid, 'UPDATE'))::int::bigint,"
    " (SELECT count(*) FROM pg_index i WHERE i.indisvalid"
    " AND i.indrelid = to_regclass('user_like_post')"
    " AND i.indexrelid IN (to_regclass('user_like_post_likers'),"
    " to_regclass('user_like_post_likedposts')))"
    " FROM (VALUES ('user_like_post'), ('post_like'), ('sync_batch'),"
    " ('user_follow'), ('user_follow_count'), ('sync_dead_letter'),"
    " ('sync_state')) AS t(name)"
    " LEFT JOIN pg_class c ON c.oid = to_regclass(t.name)"
    " LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
    " AND NOT a.attisdropped";

enum {
    COL_RECOVERY,
    COL_VERSION,
    COL_TABLE,
    COL_COLUMN,
    COL_TYPE,
    COL_RIGHTS,
    COL_LIKERS
};

static const char apply[] = "apply sql/schema.sql (psql -d DB -f schema.sql)";

struct pg_stmt schema_check(void)
{
    return (struct pg_stmt){check_sql, NULL, 0};
}

static bool text_is(const struct pg_result *r, int row, int col,
                    const char *text)
{
    int len;
    const char *p = pg_result_value(r, 0, row, col, &len);

    return p && (size_t)len == strlen(text) &&
           memcmp(p, text, (size_t)len) == 0;
}

static int64_t number(const struct pg_result *r, int row, int col)
{
    int len;
    const char *p = pg_result_value(r, 0, row, col, &len);

    return p ? pgvalue_i64(p) : 0;
}

static int check_version(const struct pg_result *r, char *why, size_t size)
{
    char want[64];
    int len;
    const char *have = pg_result_value(r, 0, 0, COL_VERSION, &len);

    snprintf(want, sizeof(want), "likesyncd schema version %d", SCHEMA_VERSION);
    if (text_is(r, 0, COL_VERSION, want))
        return 0;
    if (have)
        snprintf(why, size,
                 "the database has \"%.*s\", expected \"%s\": %s of this "
                 "version",
                 len, have, want, apply);
    else
        snprintf(why, size, "the tables are not there: %s", apply);
    return -1;
}

struct expected {
    const char *table;
    const char *column;
    uint32_t oid;
    const char *type;
    const char *source; /* who says so */
};

/* oid, type and source of an expected column */
#define OF_SCHEMA(oid, type) (oid), (type), "sql/schema.sql"
#define SMALLINT             OF_SCHEMA(PG_OID_INT2, "smallint")
#define BIGINT               OF_SCHEMA(PG_OID_INT8, "bigint")
#define TEXT                 OF_SCHEMA(PG_OID_TEXT, "text")
#define TIMESTAMPTZ          OF_SCHEMA(PG_OID_TIMESTAMPTZ, "timestamptz")
#define OF_IDS(type, source) id_type_oid(type), id_type_name(type), (source)
#define POST_ID(o)           OF_IDS((enum id_type)(o)->id_post, "ids.post")
#define USER_ID(o)           OF_IDS((enum id_type)(o)->id_user, "ids.user")

static int check_column(const struct pg_result *r, const struct expected *x,
                        char *why, size_t size)
{
    for (int row = 0; row < pg_result_rows(r, 0); row++) {
        if (!text_is(r, row, COL_TABLE, x->table) ||
            !text_is(r, row, COL_COLUMN, x->column))
            continue;
        if (!number(r, row, COL_RIGHTS)) {
            snprintf(why, size,
                     "no right to read and write %s: apply sql/roles.sql",
                     x->table);
            return -1;
        }
        if (number(r, row, COL_TYPE) == x->oid)
            return 0;
        snprintf(why, size, "%s.%s is not %s, as %s says: change one of them",
                 x->table, x->column, x->type, x->source);
        return -1;
    }
    snprintf(why, size, "%s.%s is not there: %s", x->table, x->column, apply);
    return -1;
}

bool schema_has_likers(const struct pg_result *r)
{
    return pg_result_rows(r, 0) > 0 && number(r, 0, COL_LIKERS) == 2;
}

int schema_judge(const struct options *o, const struct pg_result *r, char *why,
                 size_t size)
{
    const struct expected expected[] = {
        {"user_like_post", "post_id", POST_ID(o)},
        {"user_like_post", "user_id", USER_ID(o)},
        {"user_like_post", "status", SMALLINT},
        {"user_like_post", "prev_status", SMALLINT},
        {"user_like_post", "ctime", TIMESTAMPTZ},
        {"user_like_post", "mtime", TIMESTAMPTZ},
        {"post_like", "post_id", POST_ID(o)},
        {"post_like", "like_count", BIGINT},
        {"post_like", "unattributed", BIGINT},
        {"user_follow", "user_id", USER_ID(o)},
        {"user_follow", "followee_id", USER_ID(o)},
        {"user_follow", "status", SMALLINT},
        {"user_follow", "prev_status", SMALLINT},
        {"user_follow", "ctime", TIMESTAMPTZ},
        {"user_follow", "mtime", TIMESTAMPTZ},
        {"user_follow_count", "user_id", USER_ID(o)},
        {"user_follow_count", "following_count", BIGINT},
        {"user_follow_count", "follower_count", BIGINT},
        {"sync_batch", "batch_id", TEXT},
        {"sync_dead_letter", "reason", TEXT},
        {"sync_state", "synced_through", TIMESTAMPTZ},
    };

    if (pg_result_rows(r, 0) < 1) {
        snprintf(why, size, "the catalogs gave no answer");
        return -1;
    }
    if (number(r, 0, COL_RECOVERY)) {
        snprintf(why, size, "it is a standby: waiting for a primary");
        return -1;
    }
    if (check_version(r, why, size) != 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        if (check_column(r, &expected[i], why, size) != 0)
            return -1;
    return 0;
}
