/* SPDX-License-Identifier: MIT */
/* What must be true of Redis before it is used, at each connect and every few
 * seconds: a primary, a policy that keeps dirty keys, the right generation and
 * floor. */
#ifndef SERVICES_RECOVERY_H
#define SERVICES_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/redis_info.h"

struct recovery;
struct service;

struct recovery_events {
    /* Redis may be used from now on, or no longer. */
    void (*on_open)(void *arg);
    void (*on_close)(void *arg, const char *why);
    /* What the clock of Redis said, just before this is called. */
    void (*on_time)(void *arg, int64_t redis_us);
    /* The highest server-made time that is known without asking PostgreSQL. */
    int64_t (*floor_us)(void *arg);
    /* What PostgreSQL holds. */
    void (*on_floor)(void *arg, int64_t floor_us);
    /* The first Redis that was met can never be used (its policy). */
    void (*on_refused)(void *arg);
    void *arg;
};

/* `services`: those of all kinds, EDGE_COUNT of them (ref). */
struct recovery *recovery_new(const struct service *services,
                              const struct recovery_events *events);
/* The connections must be freed before. */
void recovery_free(struct recovery *r);

/* For the adapters' callbacks of the same names. */
const char *recovery_redis_up(struct recovery *r,
                              const struct redis_info *info);
void recovery_redis_down(struct recovery *r, const char *why);
void recovery_pg_up(struct recovery *r);

bool recovery_is_open(const struct recovery *r);
/* Of the last connect or check; "" fields before. */
const struct redis_info *recovery_info(const struct recovery *r);

#endif
