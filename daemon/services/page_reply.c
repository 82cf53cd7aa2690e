/* SPDX-License-Identifier: MIT */
/* Ranges are counted as ZRANGE does. */
#include "services/page_reply.h"

#include "base/num.h"
#include "services/commands.h"

/* Bytes of an item, while there is none to measure. */
#define ITEM_COST 64

int64_t page_range_size(const struct page_args *a)
{
    int64_t n = INT64_MAX;

    if (a->start >= 0 && a->stop >= 0)
        n = a->stop < a->start ? 0 : a->stop - a->start + 1;
    return a->count && a->count < n ? a->count : n;
}

bool page_range_from_end(const struct page_args *a)
{
    return a->start < 0 || a->stop < -1;
}

void page_put_time(struct buf *b, int64_t us)
{
    char time[NUM_TIME_MAX];
    size_t len = num_format_time_us(us, time);

    while (time[len - 1] == '0')
        len--;
    if (time[len - 1] == '.')
        len--;
    resp_bulk(b, time, len);
}

void page_put_items(struct buf *b, const struct args *items, int64_t from,
                    int64_t to)
{
    size_t start, end;

    if (from >= to) {
        resp_array(b, 0);
        return;
    }
    start = from ? items->ends[from - 1] : 0;
    end = items->ends[to - 1];
    resp_array(b, (size_t)(to - from));
    buf_append(b, items->text.data + start, end - start);
}

static int64_t rank_at(int64_t rank, int64_t n)
{
    return rank >= 0 ? rank : rank + n;
}

void page_put_slice(struct buf *b, const struct args *items,
                    const struct page_args *a)
{
    int64_t n = items->n;
    int64_t from = rank_at(a->start, n);
    int64_t to = rank_at(a->stop, n) + 1;

    if (from < 0)
        from = 0;
    if (to > n)
        to = n;
    if (a->count && to > from + a->count)
        to = from + a->count;
    page_put_items(b, items, from, to);
}

void page_reply_cursor(struct page_reply *r)
{
    r->left = r->args->count ? r->args->count : PAGE_CURSOR_COUNT;
    if (r->left > r->max)
        r->left = r->max;
}

void page_reply_range(struct page_reply *r)
{
    const struct page_args *a = r->args;

    r->slice = page_range_from_end(a);
    r->skip = r->slice ? 0 : a->start;
    r->left = r->slice ? INT64_MAX : page_range_size(a);
    if (r->left > r->max)
        r->left = r->max + 1;
}

void page_item_begin(struct page_reply *r, enum id_type type, const char *id,
                     size_t len, size_t fields)
{
    args_put(&r->items, "", 0);
    buf_clear(&r->raw, ID_KEY_MAX);
    id_put_raw(type, id, len, &r->raw);
    if (fields > 1)
        resp_array(&r->items.text, fields);
    resp_bulk(&r->items.text, r->raw.data, r->raw.len);
}

void page_item_end(struct page_reply *r)
{
    r->items.ends[r->items.n - 1] = r->items.text.len;
}

/* What the whole page will take, going by the items that are there. */
static size_t page_cost(const struct page_reply *r)
{
    size_t n = (size_t)r->items.n;
    size_t item = n ? r->items.text.len / n : ITEM_COST;

    return (item + sizeof(*r->items.ends)) * (n + (size_t)r->left);
}

void page_reply_enter(struct page_reply *r, gate_on_turn on_turn, void *arg)
{
    gate_enter(r->turns, &r->pass, r->rq, page_cost(r), on_turn, arg);
}

static void put_page(struct page_reply *r)
{
    struct buf *b = request_reply(r->rq);

    if (r->items.n > r->max) {
        resp_error(b,
                   "ERR the range has more than %lld entries (%s): use CURSOR",
                   (long long)r->max, r->option);
        return;
    }
    if (r->args->by_cursor) {
        resp_array(b, 2);
        if (r->ended)
            resp_bulk_str(b, "0");
        else
            resp_bulk(b, r->next.data, r->next.len);
    }
    if (r->slice)
        page_put_slice(b, &r->items, r->args);
    else
        page_put_items(b, &r->items, 0, r->items.n);
}

void page_reply_done(struct page_reply *r)
{
    put_page(r);
    request_done(r->rq);
    page_reply_free(r);
}

void page_reply_fail(struct page_reply *r, const char *why)
{
    reply_failed(r->rq, why);
    page_reply_free(r);
}

void page_reply_free(struct page_reply *r)
{
    args_free(&r->items);
    buf_free(&r->raw);
    buf_free(&r->next);
    if (r->let_in)
        gate_leave(r->turns, &r->pass);
}
