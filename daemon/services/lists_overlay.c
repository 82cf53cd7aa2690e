/* SPDX-License-Identifier: MIT */
/* SSCAN of the unsynced members, then ZSCAN of the list. A page of them is cut
 * into parts: Redis returns small sets whole, and what it calls small is an
 * option of its own. */
#include "services/lists_overlay.h"

#include <stdlib.h>

#include "base/mem.h"
#include "services/engine.h"
#include "services/lists.h"
#include "services/lookup.h"

/* What is to be scanned. */
enum scan { SCAN_UNSYNCED, SCAN_LISTED, SCAN_NONE };

/* A member of the part and its row. */
struct item {
    struct overlay *overlay; /* ref */
    struct lookup_state row;
};

struct overlay {
    const struct engine *engine; /* ref */
    struct lookup *lookup;       /* ref */
    enum list_side side;
    struct buf user; /* key form */
    enum scan scan;
    bool listed;         /* SCAN_LISTED comes, too */
    struct buf cursor;   /* for the next call */
    struct args members; /* of the last one */
    int from;            /* where the part starts in there */
    struct item *items;  /* owned: of the part */
    int waiting;         /* lookups under way, and one while asking */
    const char *why;     /* static: an error reply of one of them */
    overlay_on_rows cb;
    void *arg;
};

struct overlay *overlay_new(const struct engine *e, struct lookup *lookup,
                            enum list_side side, const char *user, size_t len)
{
    struct overlay *o = mem_zalloc(sizeof(*o));

    o->engine = e;
    o->lookup = lookup;
    o->side = side;
    buf_append(&o->user, user, len);
    return o;
}

void overlay_free(struct overlay *o)
{
    free(o->items);
    args_free(&o->members);
    buf_free(&o->user);
    buf_free(&o->cursor);
    free(o);
}

/* ---- members ---- */

static void set_cursor(struct overlay *o, const char *s, size_t len)
{
    o->cursor.len = 0;
    buf_append(&o->cursor, s, len);
}

static void next_scan(struct overlay *o)
{
    if (o->scan == SCAN_UNSYNCED && o->listed)
        o->scan = SCAN_LISTED;
    else
        o->scan = SCAN_NONE;
}

void overlay_reset(struct overlay *o, bool unsynced, bool listed)
{
    args_clear(&o->members);
    o->from = 0;
    o->listed = listed;
    o->scan = SCAN_UNSYNCED;
    set_cursor(o, "0", 1);
    if (!unsynced)
        next_scan(o);
}

bool overlay_wants_scan(const struct overlay *o)
{
    return o->scan != SCAN_NONE && o->from == o->members.n;
}

void overlay_put_scan(const struct overlay *o, struct args *out)
{
    struct buf key = {0};

    if (o->scan == SCAN_UNSYNCED)
        buf_puts(&key, LIST_UNSYNCED);
    list_key_put(o->engine->lists, o->side, o->user.data, o->user.len, &key);
    args_put_str(out, o->scan == SCAN_UNSYNCED ? "SSCAN" : "ZSCAN");
    args_put(out, key.data, key.len);
    args_put(out, o->cursor.data, o->cursor.len);
    args_put_str(out, "COUNT");
    args_put_i64(out, LISTS_STEP);
    buf_free(&key);
}

int overlay_scanned(struct overlay *o, const struct redis_value *v)
{
    const struct redis_value *page = redis_value_at(v, 1);
    size_t stride =
        o->scan == SCAN_UNSYNCED ? 1 : 2; /* member, or with score */
    size_t len;
    const char *s = redis_value_str(redis_value_at(v, 0), &len);

    if (len == 0 || redis_value_type(page) != REDIS_T_ARRAY)
        return -1;
    set_cursor(o, s, len);
    if (len == 1 && s[0] == '0')
        next_scan(o);
    args_clear(&o->members);
    o->from = 0;
    for (size_t i = 0; i < redis_value_len(page); i += stride) {
        s = redis_value_str(redis_value_at(page, i), &len);
        if (len > 0 && id_check_key(o->engine->member_type, s, len) == 0)
            args_put(&o->members, s, len);
    }
    return 0;
}

static int part_end(const struct overlay *o)
{
    int left = o->members.n - o->from;

    return o->from + (left < LISTS_STEP ? left : LISTS_STEP);
}

bool overlay_is_last(const struct overlay *o)
{
    return o->scan == SCAN_NONE && part_end(o) == o->members.n;
}

void overlay_put(const struct overlay *o, struct args *out)
{
    for (int i = o->from; i < part_end(o); i++) {
        const struct lookup_state *row = &o->items[i - o->from].row;
        struct resp_arg member = args_at(&o->members, (size_t)i);

        args_put(out, member.data, member.len);
        args_put_i64(out, row->status);
        args_put_i64(out, row->mtime_us);
        args_put_i64(out, row->ctime_us);
    }
}

void overlay_next(struct overlay *o)
{
    o->from = part_end(o);
}

/* ---- their rows ---- */

static void done_one(struct overlay *o)
{
    if (--o->waiting == 0)
        o->cb(o->arg, o->why);
}

static void on_lookup(void *arg, const struct lookup_state *state)
{
    struct item *item = arg;

    if (state)
        item->row = *state;
    else
        item->overlay->why = LISTS_PG_AWAY;
    done_one(item->overlay);
}

static void lookup_member(struct overlay *o, int i)
{
    struct item *item = &o->items[i - o->from];
    const struct buf *user = &o->user;
    struct resp_arg member = args_at(&o->members, (size_t)i);
    int rc;

    item->overlay = o;
    if (o->side == LIST_FOLLOW)
        rc = lookup_submit(o->lookup, user->data, user->len, member.data,
                           member.len, on_lookup, item);
    else
        rc = lookup_submit(o->lookup, member.data, member.len, user->data,
                           user->len, on_lookup, item);
    if (rc == 0)
        o->waiting++;
    else if (rc == LOOKUP_FULL)
        o->why = "TRYAGAIN too many lookups are waiting";
    else
        o->why = LISTS_PG_AWAY;
}

void overlay_lookup(struct overlay *o, overlay_on_rows cb, void *arg)
{
    o->cb = cb;
    o->arg = arg;
    o->why = NULL;
    if (!o->items)
        o->items = mem_alloc(LISTS_STEP * sizeof(*o->items));
    o->waiting = 1;
    for (int i = o->from; i < part_end(o) && !o->why; i++)
        lookup_member(o, i);
    done_one(o);
}
