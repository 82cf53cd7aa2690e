/* SPDX-License-Identifier: MIT */
/* Kinds of edge. A like is an edge user→post kept per post; a follow an edge
 * user→user kept per follower. The engine (ingest, lookup, flusher) is written
 * once and driven by one row of the table in edge.c: key names, SQL and
 * verbs. */
#ifndef CORE_EDGE_H
#define CORE_EDGE_H

#include "base/buf.h"

/* `owner` is the id whose dirty set lists the edge (the post of a like),
 * `member` the other one (the user). */
struct edge_kind {
    const char *name;        /* "like": in likesync: keys, logs, tables */
    const char *registry;    /* set of owners with unsynced edges */
    const char *set_prefix;  /* + owner: members with an unsynced edge */
    const char *hash_prefix; /* + owner _ member: the edge */
    const char *owner_field; /* hash field with the raw owner id */
    const char *member_field;
    const char *counter_prefix; /* + owner + counter_suffix; NULL: none */
    const char *counter_suffix;
    /* SQL; parameters and columns are documented in edge.c. */
    const char *sql_lookup;
    const char *sql_write;
    const char *sql_read_back;
    const char *sql_orphans;
    const char *sql_totals;
};

extern const struct edge_kind edge_like;

/* Lua source of a script for this kind: the names above as locals, then
 * common.lua, then `body`. An owned C string. */
char *edge_script(const struct edge_kind *kind, const char *common,
                  const char *body);

#endif
