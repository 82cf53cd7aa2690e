/* SPDX-License-Identifier: MIT */
/* A small pool of asynchronous PostgreSQL connections that heal themselves.
 * pg.c is the only file that names libpq; pg_pool.c is the pool.
 *
 * A job is a list of statements, sent in one pipeline (libpq pipeline mode,
 * unnamed statements: works through PgBouncer in transaction mode). With
 * `transaction`, the adapter puts BEGIN and the settings in front and COMMIT
 * behind, and rolls back when one fails. Every job has a deadline, counted
 * from submission: a job not yet sent then fails with PG_AWAY, a job under way
 * with PG_UNKNOWN and its connection is closed. */
#ifndef ADAPTERS_PG_H
#define ADAPTERS_PG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "core/sqlstate.h"

struct buf;
struct uv_loop_s;
struct pg;
struct pg_result;

#define PG_MAX_PARAMS 32

/* Binary parameter. data NULL is NULL. */
struct pg_param {
    uint32_t oid;
    const char *data; /* ref */
    int len;
};

struct pg_stmt {
    const char *sql;               /* ref */
    const struct pg_param *params; /* ref */
    int n_params;                  /* at most PG_MAX_PARAMS */
};

/* Lookups go first and, with two connections or more, one of them is kept free
 * of writes. */
enum pg_lane { PG_LANE_LOOKUP, PG_LANE_WRITE };

enum pg_outcome {
    PG_DONE,    /* all statements succeeded, and COMMIT was answered */
    PG_FAILED,  /* PostgreSQL refused; sqlstate, action and message are set;
                   nothing was committed */
    PG_UNKNOWN, /* the connection broke or the deadline passed after sending */
    PG_AWAY,    /* never sent */
};

/* result is NULL for PG_AWAY and may be NULL for PG_UNKNOWN; the functions that
 * read it allow that. The callback may submit again and may call pg_free(). */
typedef void (*pg_on_done)(void *arg, enum pg_outcome outcome,
                           const struct pg_result *result);

/* Everything referred to must stay until the callback. */
struct pg_job {
    const struct pg_stmt *stmts; /* ref */
    int n_stmts;
    bool transaction;
    unsigned timeout_ms;
    pg_on_done cb;
    void *arg;
};

struct pg_config {
    const char *conninfo; /* ref */
    int connections;
    unsigned connect_timeout_ms;
    unsigned lock_timeout_ms; /* SET LOCAL lock_timeout in transactions */
    /* Run once on each new connection, before any job. sql NULL: no check. When
     * it fails, that counts as a refusal. */
    struct pg_stmt check;
    /* Judges its result: 0, or -1 with a message in why (at most size bytes)
     * that says what to run; then the connection is closed and tried again
     * slowly. */
    int (*on_check)(void *arg, const struct pg_result *result, char *why,
                    size_t size);
    void (*on_up)(void *arg);                    /* first connection is up */
    void (*on_down)(void *arg, const char *why); /* last one went */
    void *arg;
};

/* Whether it can be understood; no connection is made. 0, or -1 with the
 * reason appended to why. */
MUST_CHECK int pg_check_conninfo(const char *conninfo, struct buf *why);

/* conninfo and check must live as long as the pool. A host name in conninfo is
 * resolved without blocking; one that comes from a service file or from PGHOST
 * is left to libpq, which blocks. Callbacks come from the loop only. */
struct pg *pg_new(struct uv_loop_s *loop, const struct pg_config *c);
/* Jobs not yet answered get PG_AWAY or PG_UNKNOWN before this returns; on_down
 * is not called. May be called from any of the callbacks. */
void pg_free(struct pg *p);

/* 0 and exactly one callback, never before this returns; or, without one: */
#define PG_NOT_CONNECTED 1 /* no connection is up */
#define PG_BUSY          2 /* 1 000 jobs are waiting */
MUST_CHECK int pg_submit(struct pg *p, enum pg_lane lane,
                         const struct pg_job *job);

bool pg_is_up(const struct pg *p);
/* For status lines: "connected (2 of 2)", "refused: ..., retry in 2 s"; valid
 * until the next call. */
const char *pg_state_text(const struct pg *p);
/* How often a connection was made anew after it was lost. */
uint64_t pg_reconnects(const struct pg *p);

/* Results, valid during the callback. Binary format. Statement numbers are
 * those of the job. value is NULL for NULL. */
int pg_result_rows(const struct pg_result *r, int stmt);
const char *pg_result_value(const struct pg_result *r, int stmt, int row,
                            int col, int *len_r);
/* After PG_FAILED: five characters or "". */
const char *pg_result_sqlstate(const struct pg_result *r);
const char *
pg_result_message(const struct pg_result *r); /* one line; "" if none */

#endif
