/* SPDX-License-Identifier: MIT */
/* Edges of some users that may not be in PostgreSQL yet, and the query that
 * reads their rows together with the users' counts. */
#ifndef SERVICES_FOLLOW_EDGES_H
#define SERVICES_FOLLOW_EDGES_H

#include "core/resp.h"
#include "services/follow_counts.h"

struct follow_edge;

/* Zero-initialised but for the type. */
struct follow_edges {
    enum id_type type;
    struct follow_edge *items; /* owned */
    size_t n;
    size_t cap;
    struct buf owners; /* array elements, of the edges */
    struct buf members;
    struct buf arrays[3];
    struct pg_param params[3];
    struct pg_stmt stmt;
};

void follow_edges_clear(struct follow_edges *es);
void follow_edges_free(struct follow_edges *es);
/* An edge of users[user] with another (key form), as its hash has it; no id has
 * no row either and is left out. */
void follow_edges_add(struct follow_edges *es, size_t user, enum list_side side,
                      const struct resp_arg *id, const struct resp_arg *other,
                      int64_t status, int64_t mtime_us);
/* Makes stmt, of n users given as array elements → n, follows and followers of
 * user n (from 1); or -n, status and mtime of edge n. */
void follow_edges_ask(struct follow_edges *es, const struct buf *users,
                      size_t n);
/* An edge's row; n from 1. */
void follow_edges_read(struct follow_edges *es, int64_t n, int64_t status,
                       int64_t mtime_us);
/* Adds what the edges make of the counts in that snapshot: of hash and row, the
 * newer counts. */
void follow_edges_count(const struct follow_edges *es,
                        struct follow_count *counts);

#endif
