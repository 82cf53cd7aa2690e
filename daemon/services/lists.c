/* SPDX-License-Identifier: MIT */
/* Who waits for which list, and whose turn it is.
 *
 * Happy path: a list that is wanted queues → it is loaded (lists_load.c) → those
 * who wait are told as soon as what they want may be there → after TURN_STEPS it
 * goes behind those that queue by then, so that long lists do not keep short
 * ones waiting → all is there: all are told. It goes to its end also when nobody
 * waits any more.
 * Failure modes: a load fails (all who wait for it are told why, and it is
 * forgotten: the next read goes on from the mark); a waiter's deadline; too many
 * lists or waiters (refused at once). */
#include "services/lists.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/metrics.h"
#include "services/engine.h"
#include "services/lists_load.h"

#define LOADS_MAX   4
#define QUEUED_MAX  1000
#define WAITERS_MAX 10000
#define TURN_STEPS  8

struct lists {
    struct loader loader;
    struct map jobs;      /* by side and user */
    struct list running;  /* jobs with a load */
    struct list queue;    /* the others, in order of arrival */
    size_t n_running;     /* at most LOADS_MAX */
    struct list waiters;  /* all, oldest first */
    size_t n_waiters;     /* at most WAITERS_MAX */
    struct timer *oldest; /* owned: deadline of the first of them */
    bool closing;
};

/* A list to be loaded. */
struct job {
    struct map_node by_key;
    struct list node; /* of running or queue */
    struct lists *lists;
    struct list waiters;
    struct load *load; /* owned; NULL in the queue */
    int steps;         /* of this turn */
    int64_t members;   /* so far */
    size_t len;
    char key[]; /* side, then user */
};

struct waiter {
    struct list node;   /* of its job */
    struct list by_age; /* of all */
    struct job *job;    /* ref */
    uint64_t since_ms;
    size_t want;
    lists_on_there cb;
    void *arg;
};

static void gauges(const struct lists *l)
{
    metric_set(M_LISTS_LOADING, (double)l->jobs.count);
    metric_set(M_LISTS_WAITING, (double)l->n_waiters);
}

/* ---- waiters ---- */

/* The callback may ask for a list again, also for this one. */
static void waiter_done(struct lists *l, struct waiter *w, const char *why)
{
    list_remove(&w->node);
    list_remove(&w->by_age);
    l->n_waiters--;
    w->cb(w->arg, why);
    free(w);
}

static void waiters_done(struct lists *l, struct list *waiters, const char *why)
{
    struct list *node;

    while ((node = list_pop_front(waiters)))
        waiter_done(l, LIST_ENTRY(node, struct waiter, node), why);
}

/* Of those who want a part of the list: they look for themselves. */
static void waiters_look(struct job *job)
{
    struct lists *l = job->lists;
    struct list ready;

    list_init(&ready);
    LIST_FOREACH_SAFE(it, &job->waiters) {
        struct waiter *w = LIST_ENTRY(it, struct waiter, node);

        if (w->want == 0 || (int64_t)w->want > job->members)
            continue;
        list_remove(it);
        list_push_back(&ready, it);
    }
    waiters_done(l, &ready, NULL);
}

static void too_late(struct lists *l, struct waiter *w)
{
    char why[96];

    snprintf(why, sizeof(why),
             "TRYAGAIN the list is being loaded: %lld entries so far",
             (long long)w->job->members);
    waiter_done(l, w, why);
}

/* postgres.lookup_timeout_ms may change, but is the same for all. */
static void on_oldest(void *arg)
{
    struct lists *l = arg;
    uint64_t timeout_ms =
        (uint64_t)l->loader.engine->options->pg_lookup_timeout_ms;
    uint64_t now_ms = clock_monotonic_ms();

    LIST_FOREACH_SAFE(it, &l->waiters) {
        struct waiter *w = LIST_ENTRY(it, struct waiter, by_age);

        if (now_ms < w->since_ms + timeout_ms) {
            timer_start(l->oldest, w->since_ms + timeout_ms - now_ms, 0);
            break;
        }
        too_late(l, w);
    }
    gauges(l);
}

static void waiter_add(struct job *job, size_t want, lists_on_there cb,
                       void *arg)
{
    struct lists *l = job->lists;
    struct waiter *w = mem_alloc(sizeof(*w));

    w->job = job;
    w->since_ms = clock_monotonic_ms();
    w->want = want;
    w->cb = cb;
    w->arg = arg;
    list_push_back(&job->waiters, &w->node);
    list_push_back(&l->waiters, &w->by_age);
    l->n_waiters++;
    if (!timer_active(l->oldest))
        timer_start(l->oldest,
                    (uint64_t)l->loader.engine->options->pg_lookup_timeout_ms,
                    0);
}

/* ---- jobs ---- */

static void jobs_start(struct lists *l)
{
    while (l->n_running < LOADS_MAX && !list_empty(&l->queue) && !l->closing) {
        struct list *node = list_pop_front(&l->queue);
        struct job *job = LIST_ENTRY(node, struct job, node);

        list_push_back(&l->running, node);
        l->n_running++;
        job->steps = 0;
        job->load = load_new(&l->loader, (enum list_side)job->key[0],
                             job->key + 1, job->len - 1, job);
    }
}

static void job_stop(struct job *job)
{
    load_free(job->load);
    job->load = NULL;
    list_remove(&job->node);
    job->lists->n_running--;
}

static struct job *job_new(struct lists *l, enum list_side side,
                           const char *user, size_t len)
{
    struct job *job = mem_zalloc(sizeof(*job) + 1 + len);

    job->lists = l;
    job->len = 1 + len;
    job->key[0] = (char)side;
    memcpy(job->key + 1, user, len);
    list_init(&job->waiters);
    list_push_back(&l->queue, &job->node);
    map_insert(&l->jobs, &job->by_key, job->key, job->len);
    return job;
}

static void job_free(struct job *job)
{
    if (job->load)
        job_stop(job);
    list_remove(&job->node);
    free(job);
}

/* `why` may be text of the load. */
static void job_end(struct job *job, const char *why)
{
    struct lists *l = job->lists;

    map_remove(&l->jobs, &job->by_key); /* who comes now begins anew */
    waiters_done(l, &job->waiters, why);
    job_free(job);
    jobs_start(l);
    gauges(l);
}

static void on_step(void *arg, int64_t members)
{
    struct job *job = arg;
    struct lists *l = job->lists;

    job->members = members;
    waiters_look(job);
    gauges(l);
    if (++job->steps < TURN_STEPS || list_empty(&l->queue)) {
        load_go_on(job->load);
        return;
    }
    job_stop(job);
    list_push_back(&l->queue, &job->node);
    jobs_start(l);
}

static void on_end(void *arg, const char *why)
{
    job_end(arg, why);
}

/* ---- public ---- */

struct lists *lists_new(const struct engine *e, struct lookup *lookup)
{
    struct lists *l = mem_zalloc(sizeof(*l));

    l->loader = (struct loader){
        .engine = e,
        .lookup = lookup,
        .on_step = on_step,
        .on_end = on_end,
    };
    l->oldest = timer_new(e->loop, on_oldest, l);
    list_init(&l->running);
    list_init(&l->queue);
    list_init(&l->waiters);
    return l;
}

/* What is running was wanted while the connections went, and sent nothing. */
void lists_free(struct lists *l)
{
    if (!l)
        return;
    l->closing = true;
    list_splice_back(&l->queue, &l->running);
    LIST_FOREACH_SAFE(it, &l->queue)
        job_end(LIST_ENTRY(it, struct job, node),
                "UNAVAILABLE the daemon stops");
    timer_free(l->oldest);
    map_free(&l->jobs);
    free(l);
}

static struct job *job_find(const struct lists *l, enum list_side side,
                            const char *user, size_t len)
{
    char key[1 + ID_KEY_MAX];
    struct map_node *node;

    assert(len <= ID_KEY_MAX);
    key[0] = (char)side;
    memcpy(key + 1, user, len);
    node = map_find(&l->jobs, key, 1 + len);
    return node ? CONTAINER_OF(node, struct job, by_key) : NULL;
}

int lists_load(struct lists *l, enum list_side side, const char *user,
               size_t len, size_t want, lists_on_there cb, void *arg)
{
    struct job *job = job_find(l, side, user, len);

    if (l->closing || l->n_waiters >= WAITERS_MAX ||
        (!job && l->jobs.count >= LOADS_MAX + QUEUED_MAX))
        return LISTS_FULL;
    if (!job)
        job = job_new(l, side, user, len);
    waiter_add(job, want, cb, arg);
    jobs_start(l);
    gauges(l);
    return 0;
}

void lists_put_wrong_type(const struct list_names *names, enum list_side side,
                          const char *user, size_t len, struct buf *out)
{
    struct buf key = {0};
    char shown[RESP_SHOW_MAX];

    list_key_put(names, side, user, len, &key);
    buf_printf(out, "ERR %s is not a sorted set: run likesyncctl adopt follows",
               resp_show(&(struct resp_arg){key.data, key.len}, shown));
    buf_free(&key);
}
