/* SPDX-License-Identifier: MIT */
/* The flushers of all kinds as one. */
#include "services/flushers.h"

#include <stdlib.h>

#include "base/mem.h"
#include "services/service.h"

void flushers_open(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_open(services[i].flusher);
}

void flushers_close(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_close(services[i].flusher);
}

void flushers_pg_up(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_pg_up(services[i].flusher);
}

int64_t flushers_floor(const struct service *services)
{
    int64_t highest = 0;

    for (int i = 0; i < EDGE_COUNT; i++) {
        int64_t us = flusher_floor(services[i].flusher);

        highest = us > highest ? us : highest;
    }
    return highest;
}

void flushers_raise_floor(struct service *services, int64_t floor_us)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_raise_floor(services[i].flusher, floor_us);
}

void flushers_pause(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_pause(services[i].flusher);
}

void flushers_resume(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_resume(services[i].flusher);
}

/* What one kind does not know, the sum does not. */
static void add_known(int64_t *sum, int64_t n)
{
    *sum = *sum < 0 || n < 0 ? -1 : *sum + n;
}

static void status_add(struct flusher_status *sum,
                       const struct flusher_status *st)
{
    if (st->redis_now_us > sum->redis_now_us)
        sum->redis_now_us = st->redis_now_us;
    if (sum->lag_us >= 0 && (st->lag_us < 0 || st->lag_us > sum->lag_us))
        sum->lag_us = st->lag_us;
    if (st->through_us < sum->through_us)
        sum->through_us = st->through_us;
    if (st->stored_us < sum->stored_us)
        sum->stored_us = st->stored_us;
    add_known(&sum->owners_dirty, st->owners_dirty);
    add_known(&sum->rows_dirty, st->rows_dirty);
    add_known(&sum->owners_on_record, st->owners_on_record);
    add_known(&sum->batches, st->batches);
    sum->batches_own += st->batches_own;
    sum->second_look |= st->second_look;
}

void flushers_status(const struct service *services,
                     struct flusher_status *st_r)
{
    flusher_status(services[0].flusher, st_r);
    for (int i = 1; i < EDGE_COUNT; i++) {
        struct flusher_status st;

        flusher_status(services[i].flusher, &st);
        status_add(st_r, &st);
    }
}

/* ---- drain ---- */

struct drain {
    int waiting; /* kinds that have not answered */
    bool answered;
    drain_on_done cb;
    void *arg;
};

static void on_drained(void *arg, enum drain_result result)
{
    struct drain *d = arg;
    bool last = --d->waiting == 0;

    if (!d->answered && (last || result != DRAIN_DONE)) {
        d->answered = true;
        d->cb(d->arg, result);
    }
    if (last)
        free(d);
}

void flushers_drain(struct service *services, uint64_t timeout_ms,
                    drain_on_done cb, void *arg)
{
    struct drain *d = mem_zalloc(sizeof(*d));

    d->waiting = EDGE_COUNT;
    d->cb = cb;
    d->arg = arg;
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_drain(services[i].flusher, timeout_ms, on_drained, d);
}

void flushers_release(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_release(services[i].flusher);
}

void flushers_reconfigure(struct service *services)
{
    for (int i = 0; i < EDGE_COUNT; i++)
        flusher_reconfigure(services[i].flusher);
}
