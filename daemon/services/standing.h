/* SPDX-License-Identifier: MIT */
/* How a kind stands, as the ticks tell: kept in the flusher's status, and in the
 * metrics. What no tick has told is not known, which is not the same as 0. */
#ifndef SERVICES_STANDING_H
#define SERVICES_STANDING_H

#include <stdbool.h>
#include <stdint.h>

struct edge_kind;
struct flusher_status;

/* The numbers that a tick's reply begins with (lua/tick.lua). */
enum standing_field {
    TICK_NOW,
    TICK_THROUGH,
    TICK_REGISTRY,
    TICK_PASS,
    TICK_OLDEST_LOOK,
    TICK_BATCHES,
    TICK_ON_RECORD,
    TICK_WAITING,
    TICK_FIELDS
};

/* Before the first tick. */
void standing_unknown(struct flusher_status *st, const struct edge_kind *kind);
void standing_told(struct flusher_status *st, const struct edge_kind *kind,
                   const int64_t field[TICK_FIELDS]);
/* How old the watermark is, -1 without one. Where the last tick was answered
 * longer ago than two of its periods, or Redis may not be used (is_open), it is
 * counted on from there: nothing is acked meanwhile. */
int64_t standing_lag_us(const struct flusher_status *st, bool is_open,
                        uint64_t period_ms);

#endif
