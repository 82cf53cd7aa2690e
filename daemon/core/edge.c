/* SPDX-License-Identifier: MIT */
/* The table of edge kinds. */
#include "core/edge.h"

#include "base/buf.h"

/* Rows come sorted, so that two daemons take their locks in one order; the
 * counters are summed up first and sorted by the same statement. The guard
 * makes replays and older states change nothing; status - prev_status is the
 * row's true change, whatever Redis believed. */
const struct edge_kind edge_like = {
    .name = "like",
    .registry = "post_set",
    .set_prefix = "post_user_like_set_",
    .hash_prefix = "post_user_like_",
    .owner_field = "post_id",
    .member_field = "user_id",
    .counter_prefix = "post_",
    .counter_suffix = "_counter",
    .table = "user_like_post",
    .owner_column = "post_id",
    .member_column = "user_id",
    .sql_lookup = "SELECT o.n, t.status, t.mtime, t.ctime"
                  " FROM unnest($1, $2) WITH ORDINALITY AS o(owner, member, n)"
                  " JOIN user_like_post t"
                  " ON t.post_id = o.owner AND t.user_id = o.member",
    .sql_write =
        "WITH up AS ("
        " INSERT INTO user_like_post AS t"
        " (post_id, user_id, status, prev_status, ctime, mtime)"
        " SELECT o.owner, o.member, o.status, 0, o.ctime, o.mtime"
        " FROM unnest($1, $2, $3, $4, $5)"
        " AS o(owner, member, status, ctime, mtime)"
        " ON CONFLICT (post_id, user_id) DO UPDATE SET"
        " prev_status = t.status, status = excluded.status,"
        " mtime = excluded.mtime"
        " WHERE excluded.mtime > t.mtime"
        " OR (excluded.mtime = t.mtime AND excluded.status <> t.status)"
        " RETURNING post_id, status - prev_status AS change"
        "), counted AS ("
        " INSERT INTO post_like AS p (post_id, like_count, mtime)"
        " SELECT post_id, sum(change), now() FROM up"
        " GROUP BY post_id HAVING sum(change) <> 0 ORDER BY post_id"
        " ON CONFLICT (post_id) DO UPDATE SET"
        " like_count = p.like_count + excluded.like_count,"
        " mtime = excluded.mtime"
        ") SELECT count(*) FROM up",
    .sql_orphans =
        "WITH given AS ("
        " SELECT $1 || ':' || o.owner AS id, o.owner, o.delta"
        " FROM unnest($4, $5) AS o(owner, delta)"
        "), ledger AS ("
        " INSERT INTO sync_batch"
        " (batch_id, instance, kind, n_rows, claimed_at)"
        " SELECT id, $2, 'like', 0, $3 FROM given"
        " ON CONFLICT (batch_id) DO NOTHING RETURNING batch_id"
        ") INSERT INTO post_like AS p"
        " (post_id, like_count, unattributed, mtime)"
        " SELECT g.owner, g.delta, g.delta, now()"
        " FROM given g JOIN ledger l ON l.batch_id = g.id ORDER BY g.owner"
        " ON CONFLICT (post_id) DO UPDATE SET"
        " like_count = p.like_count + excluded.like_count,"
        " unattributed = p.unattributed + excluded.unattributed,"
        " mtime = excluded.mtime",
    .sql_totals = "SELECT o.n, p.like_count"
                  " FROM unnest($1) WITH ORDINALITY AS o(owner, n)"
                  " JOIN post_like p ON p.post_id = o.owner",
    .m_changed = {M_EVENTS_UNLIKE_CHANGED, M_EVENTS_LIKE_CHANGED},
    .m_same = {M_EVENTS_UNLIKE_SAME, M_EVENTS_LIKE_SAME},
    .m_error = {M_EVENTS_UNLIKE_ERROR, M_EVENTS_LIKE_ERROR},
};

static void put_local(struct buf *b, const char *name, const char *value)
{
    if (value)
        buf_printf(b, "local %s = '%s'\n", name, value);
    else
        buf_printf(b, "local %s = false\n", name);
}

char *edge_script(const struct edge_kind *kind, const char *common,
                  const char *body)
{
    struct buf b = {0};

    put_local(&b, "KIND", kind->name);
    put_local(&b, "REGISTRY", kind->registry);
    put_local(&b, "SET", kind->set_prefix);
    put_local(&b, "HASH", kind->hash_prefix);
    put_local(&b, "OWNER_FIELD", kind->owner_field);
    put_local(&b, "MEMBER_FIELD", kind->member_field);
    put_local(&b, "COUNTER_PRE", kind->counter_prefix);
    put_local(&b, "COUNTER_POST", kind->counter_suffix);
    buf_puts(&b, common);
    buf_puts(&b, body);
    buf_cstr(&b);
    return b.data;
}
