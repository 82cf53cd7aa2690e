/* SPDX-License-Identifier: MIT */
/* The table of edge kinds. */
#include "core/edge.h"

#include "base/buf.h"

/* Rows come sorted, so that two daemons take their locks in one order; the
 * counters are summed up first and sorted by the same statement. The guard
 * makes replays and older states change nothing; status - prev_status is the
 * row's true change, whatever Redis believed. */
const struct edge_kind edge_like = {
    .index = EDGE_LIKE,
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

/* Both ends of an edge are counted in one statement, each user once and all
 * sorted. A row that is newer brings its ctime: the time of the follow. */
const struct edge_kind edge_follow = {
    .index = EDGE_FOLLOW,
    .name = "follow",
    .registry = "follow_set",
    .set_prefix = "user_follow_set_",
    .hash_prefix = "user_follow_",
    .owner_field = "user_id",
    .member_field = "followee_id",
    .has_lists = true,
    .table = "user_follow",
    .owner_column = "user_id",
    .member_column = "followee_id",
    .sql_lookup = "SELECT o.n, t.status, t.mtime, t.ctime"
                  " FROM unnest($1, $2) WITH ORDINALITY AS o(owner, member, n)"
                  " JOIN user_follow t"
                  " ON t.user_id = o.owner AND t.followee_id = o.member",
    .sql_write =
        "WITH up AS ("
        " INSERT INTO user_follow AS t"
        " (user_id, followee_id, status, prev_status, ctime, mtime)"
        " SELECT o.owner, o.member, o.status, 0, o.ctime, o.mtime"
        " FROM unnest($1, $2, $3, $4, $5)"
        " AS o(owner, member, status, ctime, mtime)"
        " ON CONFLICT (user_id, followee_id) DO UPDATE SET"
        " prev_status = t.status, status = excluded.status,"
        " ctime = excluded.ctime, mtime = excluded.mtime"
        " WHERE excluded.mtime > t.mtime"
        " OR (excluded.mtime = t.mtime AND excluded.status <> t.status)"
        " RETURNING user_id, followee_id, status - prev_status AS change"
        "), ends AS ("
        " SELECT user_id, change AS following, 0 AS followers FROM up"
        " UNION ALL SELECT followee_id, 0, change FROM up"
        "), counted AS ("
        " INSERT INTO user_follow_count AS c"
        " (user_id, following_count, follower_count, mtime)"
        " SELECT user_id, sum(following), sum(followers), now() FROM ends"
        " GROUP BY user_id"
        " HAVING sum(following) <> 0 OR sum(followers) <> 0 ORDER BY user_id"
        " ON CONFLICT (user_id) DO UPDATE SET"
        " following_count = c.following_count + excluded.following_count,"
        " follower_count = c.follower_count + excluded.follower_count,"
        " mtime = excluded.mtime"
        ") SELECT count(*) FROM up",
    .sql_list = {"SELECT followee_id, mtime, ctime FROM user_follow"
                 " WHERE user_id = $1 AND status = 1"
                 " AND (ctime, followee_id) < ($2, $3)"
                 " ORDER BY ctime DESC, followee_id DESC LIMIT $4",
                 "SELECT user_id, mtime, ctime FROM user_follow"
                 " WHERE followee_id = $1 AND status = 1"
                 " AND (ctime, user_id) < ($2, $3)"
                 " ORDER BY ctime DESC, user_id DESC LIMIT $4"},
    .m_changed = {M_EVENTS_UNFOLLOW_CHANGED, M_EVENTS_FOLLOW_CHANGED},
    .m_same = {M_EVENTS_UNFOLLOW_SAME, M_EVENTS_FOLLOW_SAME},
    .m_error = {M_EVENTS_UNFOLLOW_ERROR, M_EVENTS_FOLLOW_ERROR},
};

const struct edge_kind *const edge_kinds[EDGE_COUNT] = {
    [EDGE_LIKE] = &edge_like,
    [EDGE_FOLLOW] = &edge_follow,
};

static void put_local(struct buf *b, const char *name, const char *value)
{
    if (value)
        buf_printf(b, "local %s = '%s'\n", name, value);
    else
        buf_printf(b, "local %s = false\n", name);
}

/* As the inside of a Lua string in single quotes. */
static void put_quoted(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\' || (unsigned char)*s < ' ')
            buf_printf(b, "\\%03u", (unsigned char)*s);
        else
            buf_putc(b, *s);
    }
}

static void put_list(struct buf *b, const char *name,
                     const struct list_names *lists, enum list_side side)
{
    buf_printf(b, "local %s_PRE, %s_POST = '", name, name);
    put_quoted(b, lists->pre[side]);
    buf_puts(b, "', '");
    put_quoted(b, lists->post[side]);
    buf_puts(b, "'\n");
}

char *edge_script(const struct edge_kind *kind, const struct list_names *lists,
                  const char *const *parts)
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
    buf_printf(&b, "local LISTS = %s\n", kind->has_lists ? "true" : "false");
    if (kind->has_lists) {
        put_list(&b, "FOLLOW", lists, LIST_FOLLOW);
        put_list(&b, "FANS", lists, LIST_FANS);
    } else {
        buf_puts(&b, "local FOLLOW_PRE, FOLLOW_POST, FANS_PRE, FANS_POST\n");
    }
    for (; *parts; parts++)
        buf_puts(&b, *parts);
    buf_cstr(&b);
    return b.data;
}
