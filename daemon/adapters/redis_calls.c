/* SPDX-License-Identifier: MIT */
/* The list of commands under way and its caps. */
#include "adapters/redis_calls.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

#define ARG_OVERHEAD 16 /* length line and line ends */

struct call {
    struct list node;
    uint64_t sent_ms;
    size_t bytes;
    struct redis_pending pending;
};

void redis_calls_init(struct redis_calls *q)
{
    list_init(&q->list);
    q->n = 0;
    q->bytes = 0;
}

bool redis_calls_full(const struct redis_calls *q, size_t bytes)
{
    return q->n >= REDIS_MAX_CALLS ||
           (q->n > 0 && q->bytes + bytes > REDIS_MAX_BYTES);
}

void redis_calls_push(struct redis_calls *q, size_t bytes, uint64_t now_ms,
                      redis_on_reply cb, void *arg)
{
    struct call *c = mem_alloc(sizeof(*c));

    c->sent_ms = now_ms;
    c->bytes = bytes;
    c->pending = (struct redis_pending){cb, arg};
    list_push_back(&q->list, &c->node);
    q->n++;
    q->bytes += bytes;
}

struct redis_pending redis_calls_pop(struct redis_calls *q)
{
    struct list *node = list_pop_front(&q->list);
    struct call *c = LIST_ENTRY(node, struct call, node);
    struct redis_pending pending;

    assert(node);
    pending = c->pending;
    q->n--;
    q->bytes -= c->bytes;
    free(c);
    return pending;
}

uint64_t redis_calls_oldest_ms(const struct redis_calls *q)
{
    assert(!list_empty(&q->list));
    return LIST_ENTRY(q->list.next, struct call, node)->sent_ms;
}

size_t redis_calls_owners(const struct redis_calls *q)
{
    size_t n = 0;

    LIST_FOREACH(it, &q->list)
        n += LIST_ENTRY(it, struct call, node)->pending.cb != NULL;
    return n;
}

size_t redis_calls_size(int argc, const size_t *len)
{
    size_t n = 0;

    for (int i = 0; i < argc; i++)
        n += len[i] + ARG_OVERHEAD;
    return n;
}
