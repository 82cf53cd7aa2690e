/* SPDX-License-Identifier: MIT */
/* What PostgreSQL said of pairs, for a while: reads of what Redis has no hash of
 * do not ask again. See recall.c for why that is right. */
#ifndef SERVICES_RECALL_H
#define SERVICES_RECALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/metrics.h"

#define RECALL_US    30000000 /* ASKED_MAX of common.lua */
#define RECALL_MAX   100000   /* pairs */
#define RECALL_BYTES ((size_t)16 << 20)

struct lookup_state;
struct recall;

struct recall_pair {
    const char *owner;
    size_t owner_len;
    const char *member;
    size_t member_len;
};

/* `entries`: the metric of how many there are. */
struct recall *recall_new(enum metric_id entries);
void recall_free(struct recall *r);

/* Times are those of the monotonic clock. */

/* To be told by each answer of Redis, before recall_get: what state.lua says of
 * its history. Another one drops all; an unknown one ("") keeps nothing. */
void recall_history(struct recall *r, uint64_t now_us, const char *history,
                    size_t len);
/* Whether it is known. Only right for a pair that Redis was asked for first. */
bool recall_get(struct recall *r, uint64_t now_us,
                const struct recall_pair *pair, struct lookup_state *state_r);
/* `asked_us`: a time before the query was begun. */
void recall_put(struct recall *r, uint64_t asked_us,
                const struct recall_pair *pair,
                const struct lookup_state *state);
void recall_forget(struct recall *r, const struct recall_pair *pair);

#endif
