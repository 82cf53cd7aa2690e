/* SPDX-License-Identifier: MIT */
/* The flushers of all kinds as one. Each function takes the services of the
 * daemon, EDGE_COUNT of them, and does what its namesake in flusher.h does for
 * one. */
#ifndef SERVICES_FLUSHERS_H
#define SERVICES_FLUSHERS_H

#include <stdint.h>

#include "services/flusher.h"

struct service;

void flushers_open(struct service *services);
void flushers_close(struct service *services);
void flushers_pg_up(struct service *services);
/* The highest of all kinds. */
int64_t flushers_floor(const struct service *services);
void flushers_raise_floor(struct service *services, int64_t floor_us);

void flushers_pause(struct service *services);
void flushers_resume(struct service *services);
/* Sums; but the longest lag, and the oldest watermarks, which are 0 as long as
 * one kind has none. What is not known of one kind is not known of all. */
void flushers_status(const struct service *services,
                     struct flusher_status *st_r);
/* Exactly one callback, never before this returns: when all kinds are done, or
 * at the first one that fails. */
void flushers_drain(struct service *services, uint64_t timeout_ms,
                    drain_on_done cb, void *arg);
void flushers_release(struct service *services);
void flushers_reconfigure(struct service *services);

#endif
