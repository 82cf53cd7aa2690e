/* SPDX-License-Identifier: MIT */
/* Compares what Redis keeps with PostgreSQL, and PostgreSQL's counts with its
 * rows: one job at a time, in bounded steps, while all else goes on. What changes
 * while it is looked at is looked at again before it counts as different. */
#ifndef SERVICES_VERIFY_H
#define SERVICES_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "services/job.h"

#define VERIFY_SHOWN 20 /* of what differs */

struct service;
struct uv_loop_s;
struct verify;

/* What is compared; verify_part_names has their names. */
enum verify_part {
    VERIFY_COUNTS,   /* of PostgreSQL, with its rows */
    VERIFY_COUNTERS, /* of posts, with what is not synced */
    VERIFY_BASES,    /* of totals, with the counts */
    VERIFY_HASHES,   /* of edges, with their rows */
    VERIFY_LISTS,    /* of follows, with the rows */
    VERIFY_UNSYNCED, /* sets of what is not synced, with the hashes */
    VERIFY_PARTS
};

extern const char *const verify_part_names[VERIFY_PARTS];

struct verify_count {
    int64_t looked;    /* at so many; pairs at each of their places */
    int64_t different; /* of them */
    int64_t mended;    /* of these */
};

struct verify_status {
    enum job_state state;
    bool repair;
    const char *phase;
    const char *why; /* ref: the failure, or what is waited for; or "" */
    int64_t scanned; /* about so many of all keys */
    int64_t total;   /* when each phase has seen all */
    struct verify_count counts[VERIFY_PARTS];
    int64_t unsettled; /* never stayed the same, so nothing is known of them */
    const char *const *shown; /* ref: the first that differ */
    size_t n_shown;
};

/* `services`: those of all kinds (ref). */
struct verify *verify_new(struct service *services, struct uv_loop_s *loop);
/* The connections and the services' lookups must be freed before. */
void verify_free(struct verify *v);

/* 0, or without effect: */
#define VERIFY_BUSY 1 /* one is running */
MUST_CHECK int verify_start(struct verify *v, bool repair);
/* The job, if there is one, ends after the step under way. */
void verify_stop(struct verify *v);
void verify_status(const struct verify *v, struct verify_status *st_r);

#endif
