/* SPDX-License-Identifier: MIT */
/* Moves what changed from Redis to PostgreSQL: claims, writes, acks, takes over
 * what others left, and keeps the watermark. */
#ifndef SERVICES_FLUSHER_H
#define SERVICES_FLUSHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct flusher;

enum drain_result {
    DRAIN_DONE,
    DRAIN_TIMEOUT,
    DRAIN_PAUSED, /* refused: the flusher is paused */
    DRAIN_ABORTED /* the daemon stops */
};

typedef void (*drain_on_done)(void *arg, enum drain_result result);

/* As of the last tick that was answered; -1: no tick has told. */
struct flusher_status {
    bool paused;
    uint64_t told_ms;     /* monotonic: when that was */
    int64_t redis_now_us; /* 0: Redis was not asked yet */
    int64_t through_us;   /* watermark as Redis has it; 0 none yet */
    int64_t lag_us;       /* its age by now; -1 without one */
    int64_t stored_us;    /* watermark as PostgreSQL has it */
    int64_t owners_dirty; /* registry and pass */
    int64_t rows_dirty;   /* of these, about (lua/tick.lua) */
    int64_t owners_on_record;
    int64_t batches;     /* on record, of all daemons */
    int64_t batches_own; /* under way here */
    int64_t second_look; /* 1 when something waits for a second look */
};

struct flusher *flusher_new(const struct engine *e);
/* Batches under way stay on record. The connections must be freed before. */
void flusher_free(struct flusher *f);

void flusher_open(struct flusher *f);  /* Redis may be used */
void flusher_close(struct flusher *f); /* or not */
void flusher_pg_up(struct flusher *f);
/* The highest floor known here (us): from PostgreSQL, or from own claims. */
int64_t flusher_floor(const struct flusher *f);
void flusher_raise_floor(struct flusher *f, int64_t floor_us);

void flusher_pause(struct flusher *f);
void flusher_resume(struct flusher *f);
void flusher_status(const struct flusher *f, struct flusher_status *st_r);
/* Exactly one callback, never before this returns: once all that was acked
 * before the call is in the tables and the watermark says so. */
void flusher_drain(struct flusher *f, uint64_t timeout_ms, drain_on_done cb,
                   void *arg);
/* No more claims; the leases of what is under way end now, so that others need
 * not wait for them. */
void flusher_release(struct flusher *f);
/* Intervals and sizes in the options may have changed. */
void flusher_reconfigure(struct flusher *f);

#endif
