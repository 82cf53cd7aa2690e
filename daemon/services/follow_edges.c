/* SPDX-License-Identifier: MIT */
#include "services/follow_edges.h"

#include <stdlib.h>

#include "base/mem.h"
#include "core/pgarray.h"

struct follow_edge {
    size_t user;
    enum list_side side;
    int64_t status; /* of the hash */
    int64_t mtime_us;
    int64_t pg_status; /* 0 without a row */
    int64_t pg_mtime_us;
};

static const char sql[] =
    "SELECT o.n, c.following_count, c.follower_count, NULL::timestamptz"
    " FROM unnest($1) WITH ORDINALITY AS o(id, n)"
    " JOIN user_follow_count c ON c.user_id = o.id"
    " UNION ALL SELECT -o.n, t.status::bigint, 0, t.mtime"
    " FROM unnest($2, $3) WITH ORDINALITY AS o(owner, member, n)"
    " JOIN user_follow t"
    " ON t.user_id = o.owner AND t.followee_id = o.member";

void follow_edges_clear(struct follow_edges *es)
{
    es->n = 0;
    buf_clear(&es->owners, 4096);
    buf_clear(&es->members, 4096);
}

void follow_edges_free(struct follow_edges *es)
{
    free(es->items);
    buf_free(&es->owners);
    buf_free(&es->members);
    for (size_t i = 0; i < ARRAY_LEN(es->arrays); i++)
        buf_free(&es->arrays[i]);
}

void follow_edges_add(struct follow_edges *es, size_t user, enum list_side side,
                      const struct resp_arg *id, const struct resp_arg *other,
                      int64_t status, int64_t mtime_us)
{
    const struct resp_arg *owner = side == LIST_FOLLOW ? id : other;
    const struct resp_arg *member = side == LIST_FOLLOW ? other : id;

    if (id_check_key(es->type, other->data, other->len) != 0)
        return;
    if (es->n == es->cap) {
        es->cap = es->cap ? 2 * es->cap : 16;
        es->items = mem_realloc(es->items, es->cap * sizeof(*es->items));
    }
    es->items[es->n++] = (struct follow_edge){
        .user = user,
        .side = side,
        .status = status,
        .mtime_us = mtime_us,
    };
    pgarray_put_id(&es->owners, es->type, owner->data, owner->len);
    pgarray_put_id(&es->members, es->type, member->data, member->len);
}

static void put_array(struct follow_edges *es, int i, size_t n,
                      const struct buf *elements)
{
    struct buf *b = &es->arrays[i];

    buf_clear(b, 4096);
    pgarray_begin(b, id_type_oid(es->type), (uint32_t)n);
    buf_append(b, elements->data, elements->len);
    es->params[i] =
        (struct pg_param){id_type_array_oid(es->type), b->data, (int)b->len};
}

void follow_edges_ask(struct follow_edges *es, const struct buf *users,
                      size_t n)
{
    put_array(es, 0, n, users);
    put_array(es, 1, es->n, &es->owners);
    put_array(es, 2, es->n, &es->members);
    es->stmt = (struct pg_stmt){sql, es->params, 3};
}

void follow_edges_read(struct follow_edges *es, int64_t n, int64_t status,
                       int64_t mtime_us)
{
    if (n < 1 || (size_t)n > es->n)
        return;
    es->items[n - 1].pg_status = status;
    es->items[n - 1].pg_mtime_us = mtime_us;
}

void follow_edges_count(const struct follow_edges *es,
                        struct follow_count *counts)
{
    for (size_t i = 0; i < es->n; i++) {
        const struct follow_edge *e = &es->items[i];
        int64_t now = e->mtime_us >= e->pg_mtime_us ? e->status : e->pg_status;

        counts[e->user].of[e->side] += now - e->pg_status;
    }
}
