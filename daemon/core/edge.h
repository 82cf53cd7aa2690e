/* SPDX-License-Identifier: MIT */
/* Kinds of edge. A like is an edge user→post kept per post; a follow an edge
 * user→user kept per follower. The engine (ingest, lookup, flusher) is written
 * once and driven by one row of the table in edge.c: key names, id types, SQL
 * and verbs. */
#ifndef CORE_EDGE_H
#define CORE_EDGE_H

#include <stdbool.h>

#include "core/ids.h"
#include "core/list_names.h"
#include "core/metrics.h"

enum edge_index { EDGE_LIKE, EDGE_FOLLOW, EDGE_COUNT };

/* `owner` is the id whose dirty set lists the edge (the post of a like),
 * `member` the other one (the user). All text is static. */
struct edge_kind {
    enum edge_index index;
    const char *name;        /* in likesync: keys, in logs, in tables */
    const char *registry;    /* set of owners with unsynced edges */
    const char *set_prefix;  /* + owner: members with an unsynced edge */
    const char *hash_prefix; /* + owner _ member: the edge */
    const char *owner_field; /* hash field with the raw owner id */
    const char *member_field;
    const char *counter_prefix; /* + owner + counter_suffix; NULL: none */
    const char *counter_suffix;
    /* Two sorted sets go with an edge (lua/lists.lua), and its ctime is the time
     * of the present status 1, not of the first. */
    bool has_lists;
    const char *table; /* and its key columns */
    const char *owner_column;
    const char *member_column;

    /* $1 owners, $2 members → n (1-based position), status, mtime, ctime of
     * those that have a row */
    const char *sql_lookup;
    /* $1 owners, $2 members, $3 status, $4 ctime, $5 mtime, sorted and
     * distinct → how many rows were changed */
    const char *sql_write;
    /* $1 batch, $2 instance, $3 claimed_at, $4 owners, $5 deltas */
    const char *sql_orphans;
    /* $1 owners → n, total; NULL without counters */
    const char *sql_totals;
    /* By enum list_side. $1 user, and from where on: $2 ctime, $3 id; $4 how many
     * → id, mtime, ctime of status 1, newest first */
    const char *sql_list[2];

    /* Metrics by verb (0 take back, 1 make) and result. */
    enum metric_id m_changed[2];
    enum metric_id m_same[2];
    enum metric_id m_error[2];
};

extern const struct edge_kind edge_like;
extern const struct edge_kind edge_follow;
extern const struct edge_kind *const edge_kinds[EDGE_COUNT];

/* Lua source of a script for this kind: the names above as locals (and those of
 * the lists: NULL for a kind without), then the parts up to a NULL. An owned C
 * string. */
char *edge_script(const struct edge_kind *kind, const struct list_names *lists,
                  const char *const *parts);

#endif
