/* SPDX-License-Identifier: MIT */
/* Jobs that wait for a connection. */
#include "adapters/pg_queue.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

void pg_queue_init(struct pg_queue *q)
{
    q->n = 0;
    for (int lane = 0; lane < PG_LANES; lane++)
        list_init(&q->lanes[lane]);
}

const struct pg_task *pg_queue_push(struct pg_queue *q, enum pg_lane lane,
                                    const struct pg_job *job)
{
    struct pg_task *t = mem_zalloc(sizeof(*t));

    t->job = *job;
    t->lane = lane;
    t->deadline_us = clock_monotonic_us() + job->timeout_ms * UINT64_C(1000);
    list_push_back(&q->lanes[lane], &t->node);
    q->n++;
    return t;
}

struct pg_task *pg_queue_pop(struct pg_queue *q, bool writes)
{
    struct list *node = list_pop_front(&q->lanes[PG_LANE_LOOKUP]);

    if (!node && writes)
        node = list_pop_front(&q->lanes[PG_LANE_WRITE]);
    if (!node)
        return NULL;
    q->n--;
    return LIST_ENTRY(node, struct pg_task, node);
}

struct pg_task *pg_queue_earliest(struct pg_queue *q)
{
    struct pg_task *first = NULL;

    for (int lane = 0; lane < PG_LANES; lane++) {
        LIST_FOREACH(node, &q->lanes[lane]) {
            struct pg_task *t = LIST_ENTRY(node, struct pg_task, node);

            if (!first || t->deadline_us < first->deadline_us)
                first = t;
        }
    }
    return first;
}

void pg_queue_remove(struct pg_queue *q, struct pg_task *t)
{
    list_remove(&t->node);
    q->n--;
}

unsigned pg_left_ms(uint64_t deadline_us)
{
    uint64_t now = clock_monotonic_us();

    return deadline_us > now ? (unsigned)((deadline_us - now + 999) / 1000) : 0;
}

void pg_task_finish(struct pg_task *t, enum pg_outcome outcome,
                    const struct pg_result *result)
{
    pg_on_done cb = t->job.cb;
    void *arg = t->job.arg;

    free(t);
    cb(arg, outcome, result);
}
