/* SPDX-License-Identifier: MIT */
/* Takes over a graph that an app wrote into Redis itself: one job at a time, in
 * bounded steps, while all else goes on. It may end anywhere and be started
 * again: what it has taken over is then known. */
#ifndef SERVICES_ADOPT_H
#define SERVICES_ADOPT_H

#include <stdint.h>

#include "base/compiler.h"
#include "core/edge.h"
#include "services/job.h"

struct adopt;
struct service;
struct uv_loop_s;

struct adopt_counts {
    int64_t keys;    /* that were looked at */
    int64_t edges;   /* found in them: each of the next three */
    int64_t adopted; /* taken over */
    int64_t known;   /* already */
    int64_t refused; /* edges and keys: left as they are */
};

struct adopt_status {
    enum job_state state;
    const struct edge_kind *kind; /* NULL: none yet */
    const char *phase;
    const char *why; /* ref: the failure, or what is waited for; or "" */
    int64_t scanned; /* about so many of all keys */
    int64_t total;   /* when each phase has seen all */
    struct adopt_counts counts;
    const char *example; /* ref: of what was refused; or "" */
};

/* `services`: those of all kinds (ref). */
struct adopt *adopt_new(struct service *services, struct uv_loop_s *loop);
/* The connections and the services' lookups must be freed before. */
void adopt_free(struct adopt *a);

/* A job of this kind that is running goes on. 0, or without effect: */
#define ADOPT_BUSY 1 /* one of another kind is running */
MUST_CHECK int adopt_start(struct adopt *a, enum edge_index kind);
/* The job, if there is one, ends after the step under way. */
void adopt_stop(struct adopt *a);
void adopt_status(const struct adopt *a, struct adopt_status *st_r);

#endif
