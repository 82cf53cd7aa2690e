/* SPDX-License-Identifier: MIT */
/* The job: phases, each a walk through a table or a scan of all keys.
 *
 * Happy path, one step at a time: SCAN → what is to be compared → PostgreSQL's rows
 * of it → a script compares, with what Redis has now → … → the next phase. Counts of
 * PostgreSQL come first, since what Redis keeps is compared with them. Failure
 * modes: a backend away (the step is made again; after AWAY_MS the job fails); a new
 * connection to Redis (the phase begins anew, since another process has other
 * cursors); a step is refused (the job fails). */
#include "services/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "services/service.h"
#include "services/verify_internal.h"

const char *const verify_part_names[VERIFY_PARTS] = {
    [VERIFY_COUNTS] = "counts", [VERIFY_COUNTERS] = "counters",
    [VERIFY_BASES] = "totals",  [VERIFY_HASHES] = "hashes",
    [VERIFY_LISTS] = "lists",   [VERIFY_UNSYNCED] = "unsynced",
};

static const struct verify_phase phases[] = {
    {"counts of likes", EDGE_LIKE, FROM_TABLES, VERIFY_COUNTS, 0, NULL},
    {"counts of follows", EDGE_FOLLOW, FROM_TABLES, VERIFY_COUNTS, 0, NULL},
    {"counters", EDGE_LIKE, FROM_COUNTERS, VERIFY_COUNTERS, 0, "string"},
    {"counters of what is not synced", EDGE_LIKE, FROM_SETS, VERIFY_COUNTERS, 0,
     "set"},
    {"sets of follows not synced", EDGE_FOLLOW, FROM_SETS, VERIFY_UNSYNCED, 0,
     "set"},
    {"totals", EDGE_LIKE, FROM_BASES, VERIFY_BASES, 0, "string"},
    {"hashes of likes", EDGE_LIKE, FROM_HASHES, VERIFY_HASHES, 0, "hash"},
    {"hashes of follows", EDGE_FOLLOW, FROM_HASHES, VERIFY_HASHES, 0, "hash"},
    {"likes of posts not synced", EDGE_LIKE, FROM_UNSYNCED, VERIFY_UNSYNCED,
     LIST_FOLLOW, "set"},
    {"likes of users not synced", EDGE_LIKE, FROM_UNSYNCED, VERIFY_UNSYNCED,
     LIST_FANS, "set"},
    {"lists of followed users", EDGE_FOLLOW, FROM_MARKS, VERIFY_LISTS,
     LIST_FOLLOW, "hash"},
    {"lists of fans", EDGE_FOLLOW, FROM_MARKS, VERIFY_LISTS, LIST_FANS, "hash"},
    {"followed users not synced", EDGE_FOLLOW, FROM_UNSYNCED, VERIFY_UNSYNCED,
     LIST_FOLLOW, "set"},
    {"fans not synced", EDGE_FOLLOW, FROM_UNSYNCED, VERIFY_UNSYNCED, LIST_FANS,
     "set"},
};
#define N_PHASES ((int)ARRAY_LEN(phases))

const struct verify_phase *verify_phase(const struct verify *v)
{
    return &phases[v->job.phase];
}

struct service *verify_service(const struct verify *v)
{
    return &v->services[verify_phase(v)->kind];
}

struct engine *verify_engine(const struct verify *v)
{
    return &verify_service(v)->engine;
}

static void release(struct verify *v)
{
    verify_items_clear(v);
    verify_list_end(v);
    args_clear(&v->keys);
    v->table.last.len = 0;
}

static int64_t sum_different(const struct verify *v)
{
    int64_t n = 0;

    for (int i = 0; i < VERIFY_PARTS; i++)
        n += v->counts[i].different;
    return n;
}

/* ---- the job ---- */

static void on_end(void *arg)
{
    struct verify *v = arg;
    const struct job *j = &v->job;

    release(v);
    log_info("verify", "%s: %lld differ, %lld never stayed the same",
             j->state == JOB_FAILED ? j->why : job_state_name(j->state),
             (long long)sum_different(v), (long long)v->unsettled);
}

static const struct engine *engine(void *arg)
{
    const struct verify *v = arg;

    return v->job.phase < 0 ? &v->services[0].engine : verify_engine(v);
}

static void phase_start(void *arg)
{
    struct verify *v = arg;

    release(v);
    if (verify_phase(v)->source == FROM_TABLES)
        verify_counts_start(v);
    else
        verify_scan_start(v);
}

static bool phase_next(void *arg)
{
    struct verify *v = arg;

    if (verify_phase(v)->source == FROM_TABLES)
        return verify_counts_next(v);
    return verify_items_next(v) || verify_scan_next(v) || verify_items_again(v);
}

static const struct job_kind kind_verify = {
    .engine = engine,
    .phase_start = phase_start,
    .phase_next = phase_next,
    .on_end = on_end,
};

/* ---- its owner ---- */

struct verify *verify_new(struct service *services, struct uv_loop_s *loop)
{
    struct verify *v = mem_zalloc(sizeof(*v));

    v->services = services;
    job_init(&v->job, loop, &kind_verify, v);
    return v;
}

void verify_free(struct verify *v)
{
    if (!v)
        return;
    job_deinit(&v->job);
    release(v);
    verify_found_clear(v);
    free(v->now.items);
    free(v->later.items);
    args_free(&v->keys);
    buf_free(&v->ids);
    buf_free(&v->list.pos);
    buf_free(&v->table.last);
    buf_free(&v->table.ids);
    buf_free(&v->table.limit);
    free(v);
}

int verify_start(struct verify *v, bool repair)
{
    if (v->job.state == JOB_RUNNING)
        return VERIFY_BUSY;
    v->repair = repair;
    memset(v->counts, 0, sizeof(v->counts));
    v->unsettled = 0;
    verify_found_clear(v);
    job_start(&v->job, N_PHASES);
    return 0;
}

void verify_stop(struct verify *v)
{
    job_stop(&v->job);
}

void verify_status(const struct verify *v, struct verify_status *st_r)
{
    *st_r = (struct verify_status){
        .state = v->job.state,
        .repair = v->repair,
        .phase = v->job.state != JOB_IDLE && v->job.phase >= 0
                     ? phases[v->job.phase].name
                     : "",
        .why = v->job.why,
        .scanned = job_scanned(&v->job),
        .total = job_total(&v->job),
        .unsettled = v->unsettled,
        .shown = v->shown,
        .n_shown = v->n_shown,
    };
    memcpy(st_r->counts, v->counts, sizeof(st_r->counts));
}
