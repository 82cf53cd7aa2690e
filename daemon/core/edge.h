/* SPDX-License-Identifier: MIT */
/* Kinds of edge. A like is an edge user→post kept per post; a follow an edge
 * user→user kept per follower. The engine (ingest, lookup, flusher) is written
 * once and driven by one row of the table in edge.c: key names, id types, SQL
 * and verbs. */
#ifndef CORE_EDGE_H
#define CORE_EDGE_H

#include "core/ids.h"
#include "core/metrics.h"

/* `owner` is the id whose dirty set lists the edge (the post of a like),
 * `member` the other one (the user). All text is static. */
struct edge_kind {
    const char *name;        /* in likesync: keys, in logs, in tables */
    const char *registry;    /* set of owners with unsynced edges */
    const char *set_prefix;  /* + owner: members with an unsynced edge */
    const char *hash_prefix; /* + owner _ member: the edge */
    const char *owner_field; /* hash field with the raw owner id */
    const char *member_field;
    const char *counter_prefix; /* + owner + counter_suffix; NULL: none */
    const char *counter_suffix;
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
    /* $1 owners → n, total */
    const char *sql_totals;

    /* Metrics by verb (0 take back, 1 make) and result. */
    enum metric_id m_changed[2];
    enum metric_id m_same[2];
    enum metric_id m_error[2];
};

extern const struct edge_kind edge_like;

/* Lua source of a script for this kind: the names above as locals, then
 * `common`, then `body`. An owned C string. */
char *edge_script(const struct edge_kind *kind, const char *common,
                  const char *body);

#endif
