/* SPDX-License-Identifier: MIT */
/* Asks PostgreSQL for the state of pairs: all that come in one turn of the loop
 * are one query. */
#ifndef SERVICES_LOOKUP_H
#define SERVICES_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define LOOKUP_PAIRS 1000 /* of one query */

struct engine;
struct lookup;

struct lookup_state {
    bool found; /* there is a row; without one all others are 0 */
    int status;
    int64_t mtime_us;
    int64_t ctime_us;
};

/* state NULL: PostgreSQL did not answer in time. */
typedef void (*lookup_on_done)(void *arg, const struct lookup_state *state);

struct lookup *lookup_new(const struct engine *e);
/* Waiting ones get their callback with NULL. */
void lookup_free(struct lookup *l);
/* 0 and exactly one callback, never before this returns; or without callback
 * LOOKUP_AWAY: no connection to PostgreSQL, or LOOKUP_FULL: too many wait. */
#define LOOKUP_AWAY 1
#define LOOKUP_FULL 2
MUST_CHECK int lookup_submit(struct lookup *l, const char *owner,
                             size_t owner_len, const char *member,
                             size_t member_len, lookup_on_done cb, void *arg);

#endif
