/* SPDX-License-Identifier: MIT */
/* Happy path: steps of the list → items, until there are enough or the list ends →
 * reply. A page of more than one step first waits for its turn, since it holds
 * its items. Failure modes: without the option or the indexes it is refused;
 * whatever ends a step ends the page with its error. */
#include "services/likers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"
#include "services/likers_step.h"
#include "services/page_reply.h"
#include "services/schema.h"

/* The latest time of a cursor: the end of the year 9999. */
#define TIME_MAX_US INT64_C(253402300799999999)

struct likers {
    const struct engine *engine; /* ref */
    struct gate *pages;          /* ref */
    bool indexed;
};

struct page {
    struct likers *likers; /* ref */
    struct likers_query q;
    struct likers_step step;
    struct pg_stmt check; /* while the indexes are asked for */
    struct page_reply reply;
};

/* ---- the reply ---- */

static void finish(struct page *p)
{
    page_reply_done(&p->reply);
    likers_step_free(&p->step);
    free(p);
}

static void fail(struct page *p, const char *why)
{
    page_reply_fail(&p->reply, why);
    likers_step_free(&p->step);
    free(p);
}

static const char *command_of(const struct page *p)
{
    return p->q.side == LIKERS_OF_POST ? "LIKERS" : "LIKEDPOSTS";
}

/* ---- steps ---- */

static void put_item(struct page *p, size_t i)
{
    bool with_time = p->q.args.with_times;
    size_t len;
    const char *id = likers_step_id(&p->step, i, &len);

    page_item_begin(&p->reply, likers_entry_type(p->likers->engine, p->q.side),
                    id, len, 1 + (size_t)with_time);
    if (with_time)
        page_put_time(&p->reply.items.text, likers_step_time_us(&p->step, i));
    page_item_end(&p->reply);
}

static void set_next(struct page *p)
{
    const struct likers_pos *pos = &p->step.pos;
    struct buf *next = &p->reply.next;

    buf_clear(next, ID_KEY_MAX);
    buf_put_i64(next, pos->time_us);
    buf_putc(next, '_');
    buf_append(next, pos->id, pos->len);
}

static void next_step(struct page *p)
{
    int64_t n = p->reply.skip + p->reply.left;

    likers_step_next(&p->step, n < LIKERS_STEP ? n : LIKERS_STEP);
}

static void on_turn(void *arg, const char *why)
{
    struct page *p = arg;

    p->reply.let_in = !why;
    if (why)
        fail(p, why);
    else
        next_step(p);
}

static void on_step(void *arg, const char *why)
{
    struct page *p = arg;

    if (why) {
        fail(p, why);
        return;
    }
    for (size_t i = 0; i < p->step.rows.n; i++) {
        if (p->reply.skip > 0) {
            p->reply.skip--;
        } else {
            put_item(p, i);
            p->reply.left--;
        }
    }
    p->reply.ended = !p->step.rows.more;
    set_next(p);
    if (p->reply.left == 0 || p->reply.ended || !request_session(p->reply.rq))
        finish(p);
    else if (p->reply.let_in)
        next_step(p);
    else
        page_reply_enter(&p->reply, on_turn, p);
}

/* ---- the start ---- */

/* 0, or -1: it is no cursor of these lists. */
static int start_cursor(struct page *p)
{
    const struct page_args *a = &p->q.args;
    struct likers_pos *pos = &p->step.pos;

    page_reply_cursor(&p->reply);
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
    page_reply_range(&p->reply);
    return p->reply.skip > PAGE_RANGE_WALK ? -1 : 0;
}

static void start(struct page *p)
{
    if (p->q.args.by_cursor && start_cursor(p) != 0)
        fail(p, "ERR invalid CURSOR: expected 0, or the cursor of the page "
                "before");
    else if (!p->q.args.by_cursor && start_range(p) != 0)
        fail(p, "ERR more than 100000 entries to look through: use CURSOR");
    else if (p->reply.left == 0)
        finish(p);
    else
        next_step(p);
}

static void refuse(struct page *p, const char *what)
{
    char why[200];

    snprintf(why, sizeof(why), "ERR %s needs %s (psql -d DB -f likers.sql)",
             command_of(p), what);
    fail(p, why);
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
    p->q = *q;
    p->reply = (struct page_reply){
        .rq = rq,
        .args = &p->q.args,
        .turns = l->pages,
        .option = "like.page_max",
        .max = l->engine->options->like_page_max,
    };
    p->step = (struct likers_step){
        .rq = rq,
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
