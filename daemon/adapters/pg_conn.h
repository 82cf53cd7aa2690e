/* SPDX-License-Identifier: MIT */
/* One PostgreSQL connection, as pg_pool.c drives it. Internal to the adapter.
 * The connection has no timers: the pool says when it has waited enough. */
#ifndef ADAPTERS_PG_CONN_H
#define ADAPTERS_PG_CONN_H

#include "adapters/pg.h"

struct uv_loop_s;
struct pg_conn;

/* Why a connection ended. Valid during the callback; result is owned by the
 * callee. */
struct pg_loss {
    const char *why;      /* one line */
    const char *sqlstate; /* of a refused connect, else "" */
    /* Of the run that was under way, if one was. */
    enum pg_outcome outcome;
    struct pg_result *result;
};

/* After each of these the connection touches nothing of its own, so they may
 * call anything. */
struct pg_conn_events {
    void (*on_open)(void *arg);
    /* The run has ended and the connection is free for the next one. DONE or
     * FAILED; the result is now the callee's. */
    void (*on_answer)(void *arg, enum pg_outcome outcome,
                      struct pg_result *result);
    /* Closed: could not connect, or was lost, or was dropped. */
    void (*on_lost)(void *arg, const struct pg_loss *loss);
};

struct pg_conn *pg_conn_new(struct uv_loop_s *loop, const char *conninfo,
                            const struct pg_conn_events *events, void *arg);
/* It must be closed: new, or after on_lost. */
void pg_conn_free(struct pg_conn *c);
/* on_open or on_lost follows, perhaps before this returns. Each host name may
 * take lookup_ms to be resolved. Hosts are tried in their order; after a failed
 * connect the next attempt begins one further on, so that a host that is silent
 * until the pool gives up does not hide those behind it. */
void pg_conn_open(struct pg_conn *c, unsigned lookup_ms);
/* on_answer or on_lost follows, perhaps before this returns. The statements
 * stay until then. With `settings` (SQL without parameters) the run is
 * BEGIN, settings, statements, COMMIT. */
void pg_conn_run(struct pg_conn *c, const struct pg_stmt *stmts, int n_stmts,
                 const char *settings);
/* Closes it, with on_lost, unless it is closed already. */
void pg_conn_drop(struct pg_conn *c, const char *why);

void pg_result_free(struct pg_result *r); /* NULL is allowed */

#endif
