/* SPDX-License-Identifier: MIT */
/* Walks through a list of follows in steps of at most LIST_WALK_STEP entries. */
#ifndef SERVICES_LIST_WALK_H
#define SERVICES_LIST_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/resp.h"
#include "services/engine.h"
#include "services/gate.h"

struct lists;
struct request;

#define LIST_WALK_STEP 500

/* `why` NULL: the step's entries are there. Else an error reply; the walk has
 * ended. */
typedef void (*list_walk_on_step)(void *arg, const char *why);

/* Embedded in whoever walks. */
struct list_walk {
    const struct engine *engine; /* ref */
    struct request *rq;          /* ref: whom it is for */
    struct lists *lists;         /* ref */
    enum list_side side;
    const char *user; /* ref, key form */
    size_t user_len;
    bool oldest_first;
    list_walk_on_step cb;
    void *arg;

    /* The step, until the next one is asked for: member and time of each. */
    struct args entries;
    int64_t total; /* of a range: entries that the whole range has */
    bool more;     /* there may be entries behind these */

    /* Internal. */
    bool by_rank;
    uint64_t deadline_ms; /* for what must be loaded */
    struct args call;
    struct gate_pass pass;
    char why[RESP_ERROR_MAX];
};

/* The fields above `entries` are the caller's to set, the others 0. */
void list_walk_init(struct list_walk *w);
void list_walk_deinit(struct list_walk *w);
/* One at a time, and exactly one callback each, perhaps before this returns.
 * The first `limit` entries of the range start to stop (as ZRANGE counts),
 * which may have `max`: */
void list_walk_range(struct list_walk *w, int64_t start, int64_t stop,
                     int64_t max, int64_t limit);
/* The next `limit` ones behind this entry, whether it is there or not; empty:
 * from the start on. */
void list_walk_behind(struct list_walk *w, const char *time, size_t time_len,
                      const char *member, size_t member_len, int64_t limit);
/* ... behind the last entry of the step before. */
void list_walk_next(struct list_walk *w, int64_t limit);

size_t list_walk_count(const struct list_walk *w);
const char *list_walk_member(const struct list_walk *w, size_t i,
                             size_t *len_r);
const char *list_walk_time(const struct list_walk *w, size_t i, size_t *len_r);

#endif
