/* SPDX-License-Identifier: MIT */
/* Happy path: a step of the list → the states that filter it, or the relations
 * to the viewer → items, until there are enough or the list ends → reply. A page
 * of more than one step first waits for its turn, since it holds its items.
 * Failure modes: whatever ends a step or a read of states ends the page with its
 * error; so do too many pages that wait. */
#include "services/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "services/gate.h"
#include "services/list_walk.h"
#include "services/page_reply.h"
#include "services/relations.h"
#include "services/states.h"

/* A filter may leave few of a step. */
#define FILTER_STEP_MIN 100

struct page {
    struct commands *commands; /* ref */
    struct page_query q;
    struct list_walk walk;
    struct page_reply reply;
    size_t walked;
};

static void finish(struct page *p)
{
    page_reply_done(&p->reply);
    list_walk_deinit(&p->walk);
    free(p);
}

static void fail(struct page *p, const char *why)
{
    page_reply_fail(&p->reply, why);
    list_walk_deinit(&p->walk);
    free(p);
}

/* ---- items ---- */

/* A score as seconds with no more decimals than it needs; as it is when it can
 * be no time. */
static void put_time(struct buf *b, const char *text, size_t len)
{
    char *score = mem_strndup(text, len);
    double s = strtod(score, NULL);

    free(score);
    if (!(s > -1e12 && s < 1e12)) {
        resp_bulk(b, text, len);
        return;
    }
    page_put_time(b, (int64_t)(s * 1e6 + (s < 0 ? -0.5 : 0.5)));
}

static void put_item(struct page *p, size_t i, int relation)
{
    const struct page_args *a = &p->q.args;
    size_t len;
    const char *member = list_walk_member(&p->walk, i, &len);

    page_item_begin(&p->reply, p->walk.engine->member_type, member, len,
                    1 + (size_t)a->with_times + a->has_viewer);
    if (a->with_times) {
        const char *time = list_walk_time(&p->walk, i, &len);

        put_time(&p->reply.items.text, time, len);
    }
    if (a->has_viewer)
        resp_int(&p->reply.items.text, relation);
    page_item_end(&p->reply);
}

static void set_next(struct page *p, size_t i)
{
    size_t len;
    const char *s = list_walk_time(&p->walk, i, &len);

    buf_clear(&p->reply.next, ID_KEY_MAX);
    buf_append(&p->reply.next, s, len);
    buf_putc(&p->reply.next, '_');
    s = list_walk_member(&p->walk, i, &len);
    buf_append(&p->reply.next, s, len);
}

/* What somebody else put into the list may be no id: it is left out. */
static bool is_id(const struct page *p, size_t i)
{
    size_t len;
    const char *member = list_walk_member(&p->walk, i, &len);

    return id_check_key(p->walk.engine->member_type, member, len) == 0;
}

static bool is_filtered(const struct page *p)
{
    return p->q.filter != PAGE_ALL;
}

/* Counted by the list, so what is no id has its place, too. */
static bool is_plain_range(const struct page *p)
{
    return !p->q.args.by_cursor && !is_filtered(p);
}

/* ---- steps ---- */

static void go_on(struct page *p);

/* `codes`: per entry with an id, whether it passes the filter or how it relates
 * to the viewer; NULL without either. */
static void take_step(struct page *p, const uint8_t *codes)
{
    size_t n = list_walk_count(&p->walk);
    size_t i;

    for (i = 0; i < n && p->reply.left > 0; i++) {
        bool valid = is_id(p, i);
        int code = valid && codes ? *codes++ : 0;

        if (valid)
            set_next(p, i);
        else if (!is_plain_range(p))
            continue;
        if (is_filtered(p) && code == 0)
            continue;
        if (p->reply.skip > 0) {
            p->reply.skip--;
            continue;
        }
        if (valid)
            put_item(p, i, code);
        p->reply.left--;
    }
    p->walked += n;
    p->reply.ended = i == n && !p->walk.more;
    go_on(p);
}

static void on_codes(void *arg, const uint8_t *codes, size_t n, const char *why)
{
    struct page *p = arg;

    (void)n;
    if (codes)
        take_step(p, codes);
    else
        fail(p, why);
}

static void relate(struct page *p)
{
    const struct page_args *a = &p->q.args;
    size_t n = list_walk_count(&p->walk);
    struct relations *r =
        relations_new(p->commands->follow, a->viewer, a->viewer_len, n);

    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *member = list_walk_member(&p->walk, i, &len);

        if (is_id(p, i))
            relations_add(r, member, len);
    }
    relations_get(r, p->reply.rq, on_codes, p);
}

static void filter(struct page *p)
{
    const struct page_query *q = &p->q;
    size_t n = list_walk_count(&p->walk);
    struct states *s =
        states_new(p->walk.engine, p->commands->follow->lookup, n);

    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *member = list_walk_member(&p->walk, i, &len);

        if (!is_id(p, i))
            continue;
        if (q->filter == PAGE_MUTUALS)
            states_add(s, member, len, q->user.text, q->user.len);
        else
            states_add(s, q->other.text, q->other.len, member, len);
    }
    states_get(s, p->reply.rq, on_codes, p);
}

static void on_step(void *arg, const char *why)
{
    struct page *p = arg;
    bool any = list_walk_count(&p->walk) > 0;

    if (why) {
        fail(p, why);
        return;
    }
    if (p->walk.by_rank && p->reply.left > p->walk.total)
        p->reply.left = p->walk.total;
    if (any && is_filtered(p))
        filter(p);
    else if (any && p->q.args.has_viewer)
        relate(p);
    else
        take_step(p, NULL);
}

static int64_t step_size(const struct page *p)
{
    int64_t n = p->reply.left;

    if (is_filtered(p) && n < FILTER_STEP_MIN)
        n = FILTER_STEP_MIN;
    return n < LIST_WALK_STEP ? n : LIST_WALK_STEP;
}

static void on_turn(void *arg, const char *why)
{
    struct page *p = arg;

    p->reply.let_in = !why;
    if (why)
        fail(p, why);
    else
        go_on(p);
}

static bool is_enough(struct page *p)
{
    if (p->reply.left == 0 || p->reply.ended || !request_session(p->reply.rq))
        return true;
    return p->q.args.by_cursor && is_filtered(p) &&
           p->walked >= PAGE_CURSOR_WALK && p->reply.next.len > 0;
}

static void go_on(struct page *p)
{
    if (is_enough(p))
        finish(p);
    else if (!p->q.args.by_cursor && is_filtered(p) &&
             p->walked >= PAGE_RANGE_WALK)
        fail(p, "ERR more than 100000 entries to look through: use CURSOR");
    else if (p->reply.let_in)
        list_walk_next(&p->walk, step_size(p));
    else
        page_reply_enter(&p->reply, on_turn, p);
}

/* ---- the start ---- */

static void start_filtered(struct page *p)
{
    page_reply_range(&p->reply);
    if (p->reply.left == 0)
        finish(p);
    else
        list_walk_behind(&p->walk, "", 0, "", 0, step_size(p));
}

static void start_range(struct page *p)
{
    const struct page_args *a = &p->q.args;
    int64_t stop = a->stop;

    p->reply.left = page_range_size(a);
    /* The whole list need not be there for the first of it. */
    if (a->count && a->start >= 0 && (stop == -1 || stop >= 0))
        stop = a->start + p->reply.left - 1;
    list_walk_range(&p->walk, a->start, stop,
                    a->count ? INT64_C(1) << 50 : p->reply.max, step_size(p));
}

static void start(struct page *p)
{
    const struct page_args *a = &p->q.args;

    if (a->by_cursor) {
        page_reply_cursor(&p->reply);
        list_walk_behind(&p->walk, a->time, a->time_len, a->member,
                         a->member_len, step_size(p));
    } else if (is_filtered(p)) {
        start_filtered(p);
    } else {
        start_range(p);
    }
}

void pages_run(struct commands *c, struct request *rq,
               const struct page_query *q)
{
    const struct engine *e = &c->follow->engine;
    struct page *p = mem_zalloc(sizeof(*p));

    p->commands = c;
    p->q = *q;
    p->reply = (struct page_reply){
        .rq = rq,
        .args = &p->q.args,
        .turns = c->pages,
        .option = "follow.page_max",
        .max = e->options->follow_page_max,
    };
    p->walk = (struct list_walk){
        .engine = e,
        .rq = rq,
        .lists = c->lists,
        .side = q->side,
        .user = p->q.user.text,
        .user_len = q->user.len,
        .oldest_first = q->args.order == PAGE_OLDEST_FIRST,
        .cb = on_step,
        .arg = p,
    };
    list_walk_init(&p->walk);
    start(p);
}
