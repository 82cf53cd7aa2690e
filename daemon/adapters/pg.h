/* SPDX-License-Identifier: MIT */
/* A small pool of asynchronous PostgreSQL connections that heal themselves.
 * pg.c is the only file that names libpq.
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

struct uv_loop_s;
struct pg;
struct pg_result;

/* Binary parameter. data NULL is NULL. */
struct pg_param {
    uint32_t oid;
    const char *data; /* ref */
    int len;
};

struct pg_stmt {
    const char *sql;               /* ref */
    const struct pg_param *params; /* ref */
    int n_params;
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
    /* Run once on each new connection, before any job. */
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

struct pg *pg_new(struct uv_loop_s *loop, const struct pg_config *c);
/* Jobs not yet answered get PG_AWAY or PG_UNKNOWN; on_down is not called. */
void pg_free(struct pg *p);

/* 0 and exactly one callback, never before this returns; or, without callback: */
#define PG_NOT_CONNECTED 1 /* no connection is up */
#define PG_BUSY          2 /* 1 000 jobs are waiting */
MUST_CHECK int pg_submit(struct pg *p, enum pg_lane lane,
                         const struct pg_job *job);

bool pg_is_up(const struct pg *p);
const char *pg_state_text(const struct pg *p);
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
