/* SPDX-License-Identifier: MIT */
/* What the files of verify share: verify.c (the job), verify_scan.c (finds what is
 * to be compared in Redis), verify_items.c (compares it), verify_counts.c
 * (compares PostgreSQL's counts with its rows). */
#ifndef SERVICES_VERIFY_INTERNAL_H
#define SERVICES_VERIFY_INTERNAL_H

#include "base/map.h"
#include "core/resp.h"
#include "services/engine.h"
#include "services/lookup.h"
#include "services/verify.h"

/* Where the items of a phase come from. */
enum verify_source {
    FROM_TABLES,   /* no items: verify_counts.c */
    FROM_COUNTERS, /* of owners */
    FROM_SETS,     /* dirty ones, whose counters are looked at */
    FROM_BASES,
    FROM_HASHES,
    FROM_MARKS,   /* of lists: their members, and their rows */
    FROM_UNSYNCED /* sets beside lists: their members */
};

struct verify_phase {
    const char *name;
    enum edge_index kind;
    enum verify_source source;
    enum verify_part part;
    enum list_side
        side;         /* of lists; of other sets: the owner's, the member's */
    const char *type; /* that keys have */
};

enum verify_item_state {
    ITEM_NEW,
    ITEM_LOOK,  /* PostgreSQL is to be asked */
    ITEM_LOOKED /* seen_us, and row or count, are set */
};

/* A pair, or an owner. */
struct verify_item {
    struct verify *job; /* ref, for the lookup */
    char *owner;        /* owned, key form */
    char *member;       /* owned; NULL: an owner */
    char *mark;         /* owned, of the script; NULL: none yet */
    enum verify_item_state state;
    int tries;
    int64_t seen_us; /* PostgreSQL was asked after it */
    struct lookup_state row;
    int64_t count;
};

struct verify_items {
    struct verify_item *items; /* owned */
    size_t n;
    size_t cap;
};

/* The list, or set, that is being gone through. */
struct verify_list {
    char *key;  /* owned; NULL: none */
    char *user; /* owned: whose it is */
    struct scan_cursor cursor;
    struct rows *rows; /* owned: of the list in PostgreSQL; NULL: none to ask */
    struct buf pos;    /* where these are */
};

/* verify_counts.c */
struct verify_table {
    struct buf last; /* id that was looked at, binary; empty: none yet */
    struct buf ids;  /* that are to be mended, an array */
    struct buf limit;
    int64_t step; /* ids in one query */
    size_t n;     /* different in this step */
    bool more;
    struct pg_param params[2];
    struct pg_stmt stmts[2];
};

struct verify {
    struct service *services; /* ref */
    struct job job;
    bool repair;
    struct verify_count counts[VERIFY_PARTS];
    int64_t unsettled;
    struct map seen;                 /* texts of what was found */
    struct verify_finding *found;    /* owned: they */
    const char *shown[VERIFY_SHOWN]; /* refs: the first of them */
    size_t n_shown;
    struct scan_cursor cursor;
    struct args keys; /* that SCAN found */
    int key;          /* the next of them */
    struct verify_list list;
    struct verify_items now;   /* to be compared */
    struct verify_items later; /* to be looked at again in a moment */
    size_t sent;               /* so many of the first in `now` are under way */
    size_t lookups;            /* under way */
    bool lookup_bad;
    struct buf ids; /* of owners, for the query */
    struct pg_param param;
    struct pg_stmt stmt;
    struct verify_table table;
};

/* ---- verify.c ---- */

const struct verify_phase *verify_phase(const struct verify *v);
struct service *verify_service(const struct verify *v);
/* Of a phase's kind. */
struct engine *verify_engine(const struct verify *v);

/* ---- verify_found.c ---- */

/* Counts what differs, and keeps it to be shown; once. */
void verify_found(struct verify *v, enum verify_part part, bool mended,
                  const char *text, size_t len);
void verify_found_clear(struct verify *v);

/* ---- verify_scan.c ---- */

/* Starts the phase's scan anew. */
void verify_scan_start(struct verify *v);
/* One step; false when the phase has nothing more. */
MUST_CHECK bool verify_scan_next(struct verify *v);
void verify_list_end(struct verify *v);

/* ---- verify_items.c ---- */

void verify_items_clear(struct verify *v);
/* Ids in key form; what is no id is left out. member.data NULL: an owner. */
void verify_items_add(struct verify *v, const struct resp_arg *owner,
                      const struct resp_arg *member);
/* One step; false when nothing can be done now. */
MUST_CHECK bool verify_items_next(struct verify *v);
/* What was put off comes again after a pause; false when there is none. */
MUST_CHECK bool verify_items_again(struct verify *v);

/* ---- verify_counts.c ---- */

void verify_counts_start(struct verify *v);
MUST_CHECK bool verify_counts_next(struct verify *v);

#endif
