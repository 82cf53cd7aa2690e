/* SPDX-License-Identifier: MIT */
/* Jobs that wait for a connection: one FIFO for each lane. Internal to the
 * PostgreSQL adapter. */
#ifndef ADAPTERS_PG_QUEUE_H
#define ADAPTERS_PG_QUEUE_H

#include "adapters/pg.h"
#include "base/list.h"

enum { PG_LANES = PG_LANE_WRITE + 1 };

struct pg_task {
    struct list node; /* in its lane, while it waits */
    struct pg_job job;
    enum pg_lane lane;
    uint64_t deadline_us; /* monotonic */
};

struct pg_queue {
    struct list lanes[PG_LANES];
    size_t n;
};

void pg_queue_init(struct pg_queue *q);
/* The task stays owned by the queue until it is popped or removed. */
const struct pg_task *pg_queue_push(struct pg_queue *q, enum pg_lane lane,
                                    const struct pg_job *job);
/* The first lookup, or else the first write if `writes`; NULL: none. */
struct pg_task *pg_queue_pop(struct pg_queue *q, bool writes);
/* The one with the earliest deadline; NULL when empty. */
struct pg_task *pg_queue_earliest(struct pg_queue *q);
void pg_queue_remove(struct pg_queue *q, struct pg_task *t);

/* Until the deadline, rounded up; 0 when it has passed. */
unsigned pg_left_ms(uint64_t deadline_us);
/* Calls back and frees the task, which is in no queue. */
void pg_task_finish(struct pg_task *t, enum pg_outcome outcome,
                    const struct pg_result *result);

#endif
