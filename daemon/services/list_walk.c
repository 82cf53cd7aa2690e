/* SPDX-License-Identifier: MIT */
/* Happy path: turn at the gate → page.lua → callback. When the script says that
 * the list is not loaded so far: lists_load, then the same call again, until the
 * deadline. Failure modes: Redis away or the list no sorted set; whatever the
 * load says; too much under way. */
#include "services/list_walk.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "services/lists.h"

/* What goes to Redis and back, about. */
#define COST       512
#define ENTRY_COST 64

/* First item of page.lua's reply. */
enum { PAGE_NOT_LOADED = 0, PAGE_ENTRIES = 1, PAGE_TOO_MANY = 2 };

static void enter(struct list_walk *w);

/* ---- the answer ---- */

static void not_a_list(struct list_walk *w)
{
    struct buf text = {0};

    lists_put_wrong_type(w->engine->lists, w->side, w->user, w->user_len,
                         &text);
    snprintf(w->why, sizeof(w->why), "%s", buf_cstr(&text));
    buf_free(&text);
    w->cb(w->arg, w->why);
}

static void failed(struct list_walk *w, enum redis_outcome outcome,
                   const struct redis_value *v)
{
    size_t len;
    const char *text = redis_value_str(v, &len);

    if (outcome == REDIS_ERROR && len >= 9 && memcmp(text, "WRONGTYPE", 9) == 0)
        not_a_list(w);
    else
        w->cb(w->arg, engine_reply_why(outcome));
}

static void on_loaded(void *arg, const char *why)
{
    struct list_walk *w = arg;

    if (why)
        w->cb(w->arg, why);
    else
        enter(w);
}

static void load(struct list_walk *w, size_t want)
{
    if (clock_monotonic_ms() >= w->deadline_ms)
        w->cb(w->arg, "TRYAGAIN the list is being loaded");
    else if (lists_load(w->lists, w->side, w->user, w->user_len, want,
                        on_loaded, w) != 0)
        w->cb(w->arg, "TRYAGAIN too many lists are being loaded");
}

static void too_many(struct list_walk *w, int64_t n)
{
    snprintf(w->why, sizeof(w->why),
             "ERR the range has %lld entries, more than follow.page_max "
             "(%lld): use CURSOR",
             (long long)n, (long long)w->engine->options->follow_page_max);
    w->cb(w->arg, w->why);
}

static void take(struct list_walk *w, const struct redis_value *v)
{
    size_t n = redis_value_len(v);
    size_t len;

    args_clear(&w->entries);
    for (size_t i = 2; i + 1 < n; i += 2) {
        const char *member = redis_value_str(redis_value_at(v, i), &len);

        args_put(&w->entries, member, len);
        member = redis_value_str(redis_value_at(v, i + 1), &len);
        args_put(&w->entries, member, len);
    }
    w->total = redis_value_int(redis_value_at(v, 1));
    w->more =
        w->by_rank ? (int64_t)list_walk_count(w) < w->total : w->total != 0;
    w->cb(w->arg, NULL);
}

static void on_page(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct list_walk *w = arg;
    bool is_reply = outcome == REDIS_OK && redis_value_len(v) >= 2;
    int64_t x = redis_value_int(redis_value_at(v, is_reply ? 1 : 0));

    gate_leave(w->engine->reads, &w->pass);
    if (!is_reply) {
        failed(w, outcome, v);
        return;
    }
    switch (redis_value_int(redis_value_at(v, 0))) {
    case PAGE_ENTRIES:
        take(w, v);
        break;
    case PAGE_TOO_MANY:
        too_many(w, x);
        break;
    default:
        load(w, (size_t)redis_value_int(redis_value_at(v, 2)));
        break;
    }
}

/* ---- the call ---- */

static void on_turn(void *arg, const char *why)
{
    struct list_walk *w = arg;
    const struct engine *e = w->engine;
    int rc;

    if (why) {
        w->cb(w->arg, why);
        return;
    }
    rc = args_ask(&w->call, e, SCRIPT_PAGE, on_page, w);
    if (rc == 0)
        return;
    gate_leave(e->reads, &w->pass);
    w->cb(w->arg, engine_redis_why(e, rc));
}

static void enter(struct list_walk *w)
{
    gate_enter(w->engine->reads, &w->pass, w->rq, w->pass.cost, on_turn, w);
}

static void call_begin(struct list_walk *w, bool by_rank)
{
    args_clear(&w->call);
    args_put_i64(&w->call, w->side);
    args_put(&w->call, w->user, w->user_len);
    args_put_i64(&w->call, w->engine->options->follow_idle_ttl_s);
    args_put_str(&w->call, w->oldest_first ? "a" : "d");
    args_put_str(&w->call, by_rank ? "r" : "c");
    w->by_rank = by_rank;
}

static void call_send(struct list_walk *w, int64_t limit)
{
    w->pass.cost = COST + w->call.text.len + (size_t)limit * ENTRY_COST;
    enter(w);
}

void list_walk_range(struct list_walk *w, int64_t start, int64_t stop,
                     int64_t max, int64_t limit)
{
    call_begin(w, true);
    args_put_i64(&w->call, start);
    args_put_i64(&w->call, stop);
    args_put_i64(&w->call, limit);
    args_put_i64(&w->call, max);
    call_send(w, limit);
}

void list_walk_behind(struct list_walk *w, const char *time, size_t time_len,
                      const char *member, size_t member_len, int64_t limit)
{
    call_begin(w, false);
    args_put(&w->call, time, time_len);
    args_put(&w->call, member, member_len);
    args_put_i64(&w->call, limit);
    call_send(w, limit);
}

void list_walk_next(struct list_walk *w, int64_t limit)
{
    size_t last = list_walk_count(w) - 1;
    size_t time_len, member_len;
    const char *time = list_walk_time(w, last, &time_len);
    const char *member = list_walk_member(w, last, &member_len);

    list_walk_behind(w, time, time_len, member, member_len, limit);
}

/* ---- entries ---- */

static const char *item(const struct list_walk *w, size_t i, size_t *len_r)
{
    struct resp_arg text = args_at(&w->entries, i);

    *len_r = text.len;
    return text.data;
}

size_t list_walk_count(const struct list_walk *w)
{
    return (size_t)w->entries.n / 2;
}

const char *list_walk_member(const struct list_walk *w, size_t i, size_t *len_r)
{
    return item(w, 2 * i, len_r);
}

const char *list_walk_time(const struct list_walk *w, size_t i, size_t *len_r)
{
    return item(w, 2 * i + 1, len_r);
}

void list_walk_init(struct list_walk *w)
{
    w->deadline_ms = clock_monotonic_ms() +
                     (uint64_t)w->engine->options->pg_lookup_timeout_ms;
}

void list_walk_deinit(struct list_walk *w)
{
    args_free(&w->entries);
    args_free(&w->call);
}
