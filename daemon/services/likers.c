/* SPDX-License-Identifier: MIT */
/* Happy path: steps of the list → items, until there are enough or the list ends →
 * reply. A page of more than one step first waits for its turn, since it holds
 * its items. Failure modes: without the option or the indexes it is refused;
 * whatever ends a step ends the page with its error. */
#include "services/likers.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "services/likers_step.h"
#include "services/page_reply.h"
#include "services/schema.h"

/* Bytes of an item, while there is none to measure. */
#define ITEM_COST 64

/* The latest time of a cursor: the end of the year 9999. */
#define TIME_MAX_US INT64_C(253402300799999999)

struct likers {
    const struct engine *engine; /* ref */
    struct gate *pages;          /* ref */
    bool indexed;
};

struct page {
    struct likers *likers; /* ref */
    struct request *rq;
    struct likers_query q;
    struct likers_step step;
    struct pg_stmt check; /* while the indexes are asked for */
    struct gate_pass pass;
    struct args items; /* replies, in order */
    struct buf raw;    /* an id */
    int64_t skip;      /* entries in front of the page */
    int64_t left;      /* items wanted still */
    int64_t page_max;
    bool slice;  /* all entries are needed to know which are meant */
    bool ended;  /* nothing is behind the last entry looked at */
    bool let_in; /* by the gate of pages */
};

/* ---- the reply ---- */

static void page_free(struct page *p)
{
    likers_step_free(&p->step);
    args_free(&p->items);
    buf_free(&p->raw);
    if (p->let_in)
        gate_leave(p->likers->pages, &p->pass);
    free(p);
}

static void fail(struct page *p, const char *why)
{
    reply_failed(p->rq, why);
    page_free(p);
}

static const char *command_of(const struct page *p)
{
    return p->q.side == LIKERS_OF_POST ? "LIKERS" : "LIKEDPOSTS";
}

static void fail_too_many(struct page *p)
{
    resp_error(request_reply(p->rq),
               "ERR the range has more than %lld entries (like.page_max): use "
               "CURSOR",
               (long long)p->page_max);
    request_done(p->rq);
    page_free(p);
}

static void put_next(const struct page *p, struct buf *b)
{
    const struct likers_pos *pos = &p->step.pos;
    struct buf next = {0};

    if (!p->ended) {
        buf_put_i64(&next, pos->time_us);
        buf_putc(&next, '_');
        buf_append(&next, pos->id, pos->len);
    } else {
        buf_putc(&next, '0');
    }
    resp_bulk(b, next.data, next.len);
    buf_free(&next);
}

static void finish(struct page *p)
{
    struct buf *b = request_reply(p->rq);

    if (p->items.n > p->page_max) {
        fail_too_many(p);
        return;
    }
    if (p->q.args.by_cursor) {
        resp_array(b, 2);
        put_next(p, b);
    }
    if (p->slice)
        page_put_slice(b, &p->items, &p->q.args);
    else
        page_put_items(b, &p->items, 0, p->items.n);
    request_done(p->rq);
    page_free(p);
}

/* ---- steps ---- */

static void put_item(struct page *p, size_t i)
{
    bool with_time = p->q.args.with_times;
    struct buf *b = &p->items.text;
    size_t len;
    const char *id = likers_step_id(&p->step, i, &len);

    args_put(&p->items, "", 0);
    buf_clear(&p->raw, ID_KEY_MAX);
    id_put_raw(likers_entry_type(p->likers->engine, p->q.side), id, len,
               &p->raw);
    if (with_time)
        resp_array(b, 2);
    resp_bulk(b, p->raw.data, p->raw.len);
    if (with_time)
        page_put_time(b, likers_step_time_us(&p->step, i));
    p->items.ends[p->items.n - 1] = b->len;
}

static void next_step(struct page *p)
{
    int64_t n = p->skip + p->left;

    likers_step_next(&p->step, n < LIKERS_STEP ? n : LIKERS_STEP);
}

static void on_turn(void *arg, const char *why)
{
    struct page *p = arg;

    p->let_in = !why;
    if (why)
        fail(p, why);
    else
        next_step(p);
}

/* What the whole page will take, going by the items that are there. */
static size_t page_cost(const struct page *p)
{
    size_t n = (size_t)p->items.n;
    size_t item = n ? p->items.text.len / n : ITEM_COST;

    return (item + sizeof(*p->items.ends)) * (n + (size_t)p->left);
}

static void on_step(void *arg, const char *why)
{
    struct page *p = arg;

    if (why) {
        fail(p, why);
        return;
    }
    for (size_t i = 0; i < p->step.rows.n; i++) {
        if (p->skip > 0) {
            p->skip--;
        } else {
            put_item(p, i);
            p->left--;
        }
    }
    p->ended = !p->step.rows.more;
    if (p->left == 0 || p->ended || !request_session(p->rq))
        finish(p);
    else if (p->let_in)
        next_step(p);
    else
        gate_enter(p->likers->pages, &p->pass, page_cost(p), on_turn, p);
}

/* ---- the start ---- */

/* 0, or -1: it is no cursor of these lists. */
static int start_cursor(struct page *p)
{
    const struct page_args *a = &p->q.args;
    struct likers_pos *pos = &p->step.pos;

    p->left = a->count ? a->count : PAGE_CURSOR_COUNT;
    if (p->left > p->page_max)
        p->left = p->page_max;
    if (a->time_len == 0)
        return 0;
    if (num_parse_i64(a->time, a->time_len, &pos->time_us) != 0 ||
        pos->time_us > TIME_MAX_US || pos->time_us < -TIME_MAX_US)
        return -1;
    memcpy(pos->id, a->member, a->member_len);
    pos->len = a->member_len;
    pos->any = false;
    return 0;
}

static int start_range(struct page *p)
{
    const struct page_args *a = &p->q.args;

    p->slice = page_range_from_end(a);
    p->skip = p->slice ? 0 : a->start;
    p->left = p->slice ? INT64_MAX : page_range_size(a);
    if (p->left > p->page_max)
        p->left = p->page_max + 1;
    return p->skip > PAGE_RANGE_WALK ? -1 : 0;
}

static void start(struct page *p)
{
    if (p->q.args.by_cursor && start_cursor(p) != 0)
        fail(p, "ERR invalid CURSOR: expected 0, or the cursor of the page "
                "before");
    else if (!p->q.args.by_cursor && start_range(p) != 0)
        fail(p, "ERR more than 100000 entries to look through: use CURSOR");
    else if (p->left == 0)
        finish(p);
    else
        next_step(p);
}

static void refuse(struct page *p, const char *what)
{
    resp_error(request_reply(p->rq),
               "ERR %s needs %s (psql -d DB -f likers.sql)", command_of(p),
               what);
    request_done(p->rq);
    page_free(p);
}

static void on_checked(void *arg, enum pg_outcome outcome,
                       const struct pg_result *result)
{
    struct page *p = arg;

    if (outcome != PG_DONE) {
        fail(p, "UNAVAILABLE PostgreSQL did not answer");
        return;
    }
    p->likers->indexed = schema_has_likers(result);
    if (p->likers->indexed)
        start(p);
    else
        refuse(p, "two indexes: apply sql/likers.sql");
}

/* They may have been made since. */
static void check_indexes(struct page *p)
{
    const struct engine *e = p->likers->engine;
    const struct pg_job job = {
        .stmts = &p->check,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = on_checked,
        .arg = p,
    };
    int rc;

    p->check = schema_check();
    rc = pg_submit(e->pg, PG_LANE_LOOKUP, &job);
    if (rc != 0)
        fail(p, engine_pg_why(rc));
}

void likers_run(struct likers *l, struct request *rq,
                const struct likers_query *q)
{
    struct page *p = mem_zalloc(sizeof(*p));

    p->likers = l;
    p->rq = rq;
    p->q = *q;
    p->page_max = l->engine->options->like_page_max;
    p->step = (struct likers_step){
        .id = p->q.id.text,
        .len = p->q.id.len,
        .oldest_first = q->args.order == PAGE_OLDEST_FIRST,
        .pos = {.any = true},
        .cb = on_step,
        .arg = p,
        .rows = {.engine = l->engine, .side = q->side},
    };
    if (!engine_keeps_sets(l->engine))
        refuse(p, "[like] lists = yes and two indexes: set the one, apply "
                  "sql/likers.sql");
    else if (!l->indexed)
        check_indexes(p);
    else
        start(p);
}

struct likers *likers_new(const struct engine *e, struct gate *pages)
{
    struct likers *l = mem_zalloc(sizeof(*l));

    l->engine = e;
    l->pages = pages;
    return l;
}

void likers_free(struct likers *l)
{
    free(l);
}

void likers_set_indexed(struct likers *l, bool indexed)
{
    l->indexed = indexed;
}
