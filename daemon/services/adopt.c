/* SPDX-License-Identifier: MIT */
/* The job: phases, each a scan of all keys.
 *
 * Happy path, one step at a time: SCAN → the edges in the keys found → those not
 * known are taken over → … → the next phase. Failure modes: Redis away (the step
 * is made again; after AWAY_MS the job fails); a new connection to Redis (the
 * phase begins anew, since another process has other cursors); PostgreSQL away
 * (waited for); Redis refuses a step (the job fails). */
#include "services/adopt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "core/resp.h"
#include "services/adopt_internal.h"
#include "services/service.h"

/* Sets first, so that lists may have their names. Hashes before lists, which
 * make more of them. */
static const struct adopt_phase phases[] = {
    {"sets of followed users", ADOPT_SETS, LIST_FOLLOW, "set"},
    {"sets of fans", ADOPT_SETS, LIST_FANS, "set"},
    {"hashes", ADOPT_HASHES, LIST_FOLLOW, "hash"},
    {"members of sets", ADOPT_STAGED, LIST_FOLLOW, "set"},
    {"lists of followed users", ADOPT_LISTS, LIST_FOLLOW, "zset"},
    {"lists of fans", ADOPT_LISTS, LIST_FANS, "zset"},
};
#define HASHES 2 /* the only one of a kind without lists */

static void on_end(void *arg)
{
    struct adopt *a = arg;
    const struct job *j = &a->job;

    adopt_pairs_clear(&a->pairs);
    args_clear(&a->keys);
    log_info("adopt",
             "%ss: %s: %lld edges found, %lld taken over, %lld known, %lld "
             "refused",
             a->service->engine.kind->name,
             j->state == JOB_FAILED ? j->why : job_state_name(j->state),
             (long long)a->counts.edges, (long long)a->counts.adopted,
             (long long)a->counts.known, (long long)a->counts.refused);
}

void adopt_refuse(struct adopt *a, const struct resp_arg *key, const char *fmt,
                  ...)
{
    char shown[RESP_SHOW_MAX];
    char why[256];
    va_list ap;

    a->counts.refused++;
    a->list.refused = true;
    if (a->example[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    snprintf(a->example, sizeof(a->example), "%s: %s", resp_show(key, shown),
             why);
}

/* ---- the job ---- */

static const struct engine *engine(void *arg)
{
    const struct adopt *a = arg;

    return &a->service->engine;
}

static void phase_start(void *arg)
{
    adopt_scan_start(arg);
}

static bool phase_next(void *arg)
{
    return adopt_pairs_next(arg) || adopt_scan_next(arg);
}

static const struct job_kind kind_adopt = {
    .engine = engine,
    .phase_start = phase_start,
    .phase_next = phase_next,
    .on_end = on_end,
};

/* ---- its owner ---- */

struct adopt *adopt_new(struct service *services, struct uv_loop_s *loop)
{
    struct adopt *a = mem_zalloc(sizeof(*a));

    a->services = services;
    job_init(&a->job, loop, &kind_adopt, a);
    return a;
}

void adopt_free(struct adopt *a)
{
    if (!a)
        return;
    job_deinit(&a->job);
    adopt_pairs_free(&a->pairs);
    args_free(&a->keys);
    free(a);
}

int adopt_start(struct adopt *a, enum edge_index kind)
{
    bool has_lists = edge_kinds[kind]->has_lists;

    if (a->job.state == JOB_RUNNING) {
        if (a->service != &a->services[kind])
            return ADOPT_BUSY;
        a->job.stopping = false;
        return 0;
    }
    a->service = &a->services[kind];
    a->phases = has_lists ? phases : &phases[HASHES];
    memset(&a->counts, 0, sizeof(a->counts));
    a->example[0] = '\0';
    job_start(&a->job, has_lists ? (int)ARRAY_LEN(phases) : 1);
    return 0;
}

void adopt_stop(struct adopt *a)
{
    job_stop(&a->job);
}

void adopt_status(const struct adopt *a, struct adopt_status *st_r)
{
    *st_r = (struct adopt_status){
        .state = a->job.state,
        .kind = a->service ? a->service->engine.kind : NULL,
        .phase =
            a->job.phase >= 0 && a->service ? a->phases[a->job.phase].name : "",
        .why = a->job.why,
        .scanned = job_scanned(&a->job),
        .total = job_total(&a->job),
        .counts = a->counts,
        .example = a->example,
    };
}
