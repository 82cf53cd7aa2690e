/* SPDX-License-Identifier: MIT */
/* Ranges are counted as ZRANGE does. */
#include "services/page_reply.h"

#include "base/num.h"

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
