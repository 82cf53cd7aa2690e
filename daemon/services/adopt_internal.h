/* SPDX-License-Identifier: MIT */
/* What the files of the adoption share: adopt.c (the job), adopt_scan.c (finds
 * keys, and the edges in them), adopt_pairs.c (takes edges over). */
#ifndef SERVICES_ADOPT_INTERNAL_H
#define SERVICES_ADOPT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "core/resp.h"
#include "services/adopt.h"
#include "services/engine.h"
#include "services/lookup.h"

enum adopt_what {
    ADOPT_SETS,   /* gives way: a set where a list has to be is renamed */
    ADOPT_HASHES, /* of edges */
    ADOPT_STAGED, /* sets that were renamed */
    ADOPT_LISTS
};

struct adopt_phase {
    const char *name;
    enum adopt_what what;
    enum list_side side; /* of ADOPT_SETS, ADOPT_LISTS */
    const char *type;    /* that keys have */
};

enum adopt_pair_state {
    PAIR_NEW,
    PAIR_ASK,   /* to be looked up */
    PAIR_LOOKED /* seen_us and row are set */
};

struct adopt_pair {
    struct adopt *job; /* ref, for the lookup */
    size_t owner_at;   /* offsets in pairs.ids */
    size_t owner_len;
    size_t member_at;
    size_t member_len;
    int64_t time_us; /* of the follow; of a hash: not used */
    enum adopt_pair_state state;
    int64_t seen_us; /* the lookup began after it */
    struct lookup_state row;
};

/* Found and not settled yet. */
struct adopt_pairs {
    struct buf ids;
    struct adopt_pair *items; /* owned */
    size_t n;
    size_t cap;
    size_t sent;     /* so many of the first are under way */
    size_t lookups;  /* under way */
    bool lookup_bad; /* PostgreSQL did not answer one of them */
};

/* The list (or staged set) that is being gone through. */
struct adopt_list {
    struct resp_arg key;  /* refs into adopt.keys */
    struct resp_arg user; /* whose it is */
    enum list_side side;
    int64_t time_us; /* of a staged set */
    int64_t ours;    /* so many members were, when its mark says that all are */
    bool refused;    /* something of it was */
    bool unmarked;   /* its end is to be told to Redis */
    struct scan_cursor cursor;
};

struct adopt {
    struct service *services; /* ref */
    struct service *service;  /* ref: that of the kind */
    struct job job;
    const struct adopt_phase *phases; /* ref */
    struct adopt_counts counts;
    char example[384];
    struct args keys; /* that SCAN found: texts */
    int key;          /* the next of them */
    struct scan_cursor cursor;
    struct adopt_list list;
    struct adopt_pairs pairs;
};

/* ---- adopt.c ---- */

/* Counts a key or an edge, and keeps the first as the example. */
void adopt_refuse(struct adopt *a, const struct resp_arg *key, const char *fmt,
                  ...) PRINTF_LIKE(3, 4);

/* ---- adopt_scan.c ---- */

/* Starts the phase's scan anew. */
void adopt_scan_start(struct adopt *a);
/* One step; false when the phase is over. */
MUST_CHECK bool adopt_scan_next(struct adopt *a);

/* ---- adopt_pairs.c ---- */

void adopt_pairs_clear(struct adopt_pairs *p);
void adopt_pairs_free(struct adopt_pairs *p);
/* Ids in key form; when they are no ids, or none of an edge, it is refused. */
void adopt_pairs_add(struct adopt *a, const struct resp_arg *key,
                     const struct resp_arg *owner,
                     const struct resp_arg *member, int64_t time_us);
/* One step; false when nothing is left to do. */
MUST_CHECK bool adopt_pairs_next(struct adopt *a);

#endif
