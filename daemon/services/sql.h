/* SPDX-License-Identifier: MIT */
/* The jobs that are sent to PostgreSQL: statements, their parameters, and how
 * their results are read. */
#ifndef SERVICES_SQL_H
#define SERVICES_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapters/pg.h"
#include "core/batch.h"

struct engine;

#define SQL_MAX_STMTS  3
#define SQL_MAX_PARAMS 24

/* A job with its own memory; zero-initialised is empty. Building one anew
 * replaces what it held. */
struct sql_job {
    struct pg_job job; /* cb, arg and timeout_ms are the caller's to set */
    struct pg_stmt stmts[SQL_MAX_STMTS];
    struct pg_param params[SQL_MAX_PARAMS];
    size_t offsets[SQL_MAX_PARAMS];
    int n_params;
    struct buf bytes;
};

void sql_job_free(struct sql_job *j);

/* Rows [from, to): their states, in statement 0. */
void sql_lookup(struct sql_job *j, const struct engine *e,
                const struct batch *b, size_t from, size_t to,
                bool foreign_only);
/* Sets pg_status and pg_mtime_us of rows [from, to) (0 without a row) from the
 * result of a lookup over just these. */
void sql_read_states(const struct pg_result *r, int stmt, struct batch *b,
                     size_t from, size_t to, bool foreign_only);
/* Ledger, then rows [from, to) with their counters: statement 1 counts the
 * rows that were changed. */
void sql_write(struct sql_job *j, const struct engine *e, const struct batch *b,
               size_t from, size_t to);
size_t sql_count(const struct pg_result *r, int stmt);
void sql_orphans(struct sql_job *j, const struct engine *e,
                 const struct batch *b, size_t from, size_t to);
/* Statement 1 looks the row up, when its ids can be. sqlstate NULL: refused by
 * the daemon itself. */
void sql_dead_letter(struct sql_job *j, const struct engine *e,
                     const struct batch *b, const struct batch_row *row,
                     const char *sqlstate, const char *reason);
void sql_orphan_dead_letter(struct sql_job *j, const struct engine *e,
                            const struct batch *b,
                            const struct batch_orphan *orphan,
                            const char *sqlstate, const char *reason);
/* Moves sync_state forward; with keep_s, prunes the ledger. */
void sql_watermark(struct sql_job *j, const struct engine *e,
                   int64_t through_us, int64_t floor_us, int64_t keep_s);
/* The floor of all kinds: one row, one time or NULL. */
void sql_floor(struct sql_job *j);
int64_t sql_read_floor(const struct pg_result *r);
/* What names the history of this database: another one after a failover, or
 * where it was restored. "" where that is not known. */
#define SQL_HISTORY_MAX 64
void sql_history(struct sql_job *j);
void sql_read_history(const struct pg_result *r, char history[SQL_HISTORY_MAX]);

#endif
