/* SPDX-License-Identifier: MIT */
/* Statements that all kinds share, and jobs made of them. */
#include "services/sql.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "core/pgarray.h"
#include "services/engine.h"

/* The rows of a batch may be written in several transactions, and again. */
static const char sql_ledger[] =
    "INSERT INTO sync_batch AS b"
    " (batch_id, instance, kind, n_rows, claimed_at)"
    " VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (batch_id) DO UPDATE SET"
    " claimed_at = greatest(b.claimed_at, excluded.claimed_at),"
    " instance = excluded.instance, n_rows = excluded.n_rows,"
    " written_at = now(), writes = b.writes + 1";

static const char sql_letter[] =
    "INSERT INTO sync_dead_letter (kind, batch_id, owner_id, member_id,"
    " status, delta, ctime, mtime, sqlstate, reason)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    " ON CONFLICT DO NOTHING";

static const char sql_through[] =
    "INSERT INTO sync_state AS s (kind, synced_through, floor)"
    " VALUES ($1, $2, $3)"
    " ON CONFLICT (kind) DO UPDATE SET"
    " synced_through = greatest(s.synced_through, excluded.synced_through),"
    " floor = greatest(s.floor, excluded.floor), updated_at = now()";

static const char sql_prune[] =
    "DELETE FROM sync_batch WHERE ctid = ANY (ARRAY("
    " SELECT ctid FROM sync_batch"
    " WHERE written_at < now() - $1 * interval '1 second'"
    " ORDER BY written_at LIMIT 10000))";

static const char sql_floor_text[] = "SELECT greatest("
                                     "(SELECT max(claimed_at) FROM sync_batch),"
                                     " (SELECT max(floor) FROM sync_state))";

/* A promoted standby goes on with the next timeline, and so does a server that
 * was restored to some point. */
static const char sql_history_text[] =
    "SELECT s.system_identifier || ':' || d.oid || ':' ||"
    " left(pg_walfile_name(pg_current_wal_lsn()), 8)"
    " FROM pg_control_system() s, pg_database d"
    " WHERE d.datname = current_database() AND NOT pg_is_in_recovery()";

/* ---- building ---- */

static void job_reset(struct sql_job *j, bool transaction)
{
    buf_clear(&j->bytes, 1024 * 1024);
    j->n_params = 0;
    j->job = (struct pg_job){.stmts = j->stmts, .transaction = transaction};
}

void sql_job_free(struct sql_job *j)
{
    buf_free(&j->bytes);
}

static void stmt_begin(struct sql_job *j, const char *sql)
{
    j->stmts[j->job.n_stmts++] =
        (struct pg_stmt){fault_edit(sql), &j->params[j->n_params], 0};
}

/* The parameter's bytes are put into j->bytes between these two. */
static void param_begin(struct sql_job *j)
{
    j->offsets[j->n_params] = j->bytes.len;
}

static void param_end(struct sql_job *j, uint32_t oid)
{
    j->params[j->n_params] = (struct pg_param){
        .oid = oid,
        .data = "", /* set by job_finish: the bytes may still move */
        .len = (int)(j->bytes.len - j->offsets[j->n_params]),
    };
    j->n_params++;
    j->stmts[j->job.n_stmts - 1].n_params++;
}

static void job_finish(struct sql_job *j)
{
    for (int i = 0; i < j->n_params; i++)
        if (j->params[i].data)
            j->params[i].data = j->bytes.data + j->offsets[i];
}

static void put_null(struct sql_job *j, uint32_t oid)
{
    param_begin(j);
    param_end(j, oid);
    j->params[j->n_params - 1].data = NULL;
}

static void put_text(struct sql_job *j, const char *s)
{
    if (!s) {
        put_null(j, PG_OID_TEXT);
        return;
    }
    param_begin(j);
    buf_puts(&j->bytes, s);
    param_end(j, PG_OID_TEXT);
}

static void put_i64(struct sql_job *j, int64_t v)
{
    param_begin(j);
    buf_put_be64(&j->bytes, (uint64_t)v);
    param_end(j, PG_OID_INT8);
}

static void put_time(struct sql_job *j, int64_t us)
{
    param_begin(j);
    buf_put_be64(&j->bytes, (uint64_t)(us - PG_EPOCH_US));
    param_end(j, PG_OID_TIMESTAMPTZ);
}

/* Owner, member and batch id together have to fit into an index (2704 bytes). */
#define LETTER_ID_MAX 1000

/* An id for the eyes of people: its raw form, or what stands in Redis, made
 * printable and cut, when it is none. */
static void put_id_text(struct sql_job *j, enum id_type type, const char *key,
                        size_t len)
{
    param_begin(j);
    if (id_check_key(type, key, len) == 0) {
        id_put_raw(type, key, len, &j->bytes);
    } else {
        size_t end = j->bytes.len + LETTER_ID_MAX;

        for (size_t i = 0; i < len && j->bytes.len < end; i++) {
            bool plain = key[i] > 0x20 && key[i] < 0x7f && key[i] != '\\';

            if (plain)
                buf_putc(&j->bytes, key[i]);
            else
                buf_printf(&j->bytes, "\\x%02x", (unsigned char)key[i]);
        }
    }
    param_end(j, PG_OID_TEXT);
}

static void put_array(struct sql_job *j, const struct batch *b, size_t from,
                      size_t to, enum batch_column column, enum id_type type,
                      bool foreign_only)
{
    uint32_t oid;

    param_begin(j);
    oid = batch_put_array(b, from, to, column, type, foreign_only, &j->bytes);
    param_end(j, oid);
}

static void put_pairs(struct sql_job *j, const struct engine *e,
                      const struct batch *b, size_t from, size_t to,
                      bool foreign_only)
{
    put_array(j, b, from, to, BATCH_OWNER, e->owner_type, foreign_only);
    put_array(j, b, from, to, BATCH_MEMBER, e->member_type, foreign_only);
}

/* ---- jobs ---- */

void sql_lookup(struct sql_job *j, const struct engine *e,
                const struct batch *b, size_t from, size_t to,
                bool foreign_only)
{
    job_reset(j, false);
    stmt_begin(j, e->kind->sql_lookup);
    put_pairs(j, e, b, from, to, foreign_only);
    job_finish(j);
}

/* Row number i (from 0) among those that the lookup asked for. */
static struct batch_row *nth_row(struct batch *b, size_t *cursor, size_t *n,
                                 size_t to, size_t i, bool foreign_only)
{
    while (*cursor < to) {
        struct batch_row *r = &b->rows[*cursor];

        if (!foreign_only || r->foreign) {
            if (*n == i)
                return r;
            (*n)++;
        }
        (*cursor)++;
    }
    return NULL;
}

void sql_read_states(const struct pg_result *r, int stmt, struct batch *b,
                     size_t from, size_t to, bool foreign_only)
{
    size_t cursor = from;
    size_t n = 0;
    int len;

    for (size_t i = from; i < to; i++) {
        if (foreign_only && !b->rows[i].foreign)
            continue;
        b->rows[i].pg_status = 0;
        b->rows[i].pg_mtime_us = 0;
        b->rows[i].pg_ctime_us = 0;
    }
    for (int row = 0; row < pg_result_rows(r, stmt); row++) {
        int64_t at = pgvalue_i64(pg_result_value(r, stmt, row, 0, &len));
        struct batch_row *found;

        if ((size_t)at <= n) { /* not in order: from the start again */
            cursor = from;
            n = 0;
        }
        found = nth_row(b, &cursor, &n, to, (size_t)at - 1, foreign_only);
        if (!found)
            continue;
        found->pg_status =
            (int8_t)pgvalue_i16(pg_result_value(r, stmt, row, 1, &len));
        found->pg_mtime_us =
            pgvalue_time_us(pg_result_value(r, stmt, row, 2, &len));
        found->pg_ctime_us =
            pgvalue_time_us(pg_result_value(r, stmt, row, 3, &len));
    }
}

static void put_ledger(struct sql_job *j, const struct engine *e,
                       const struct batch *b)
{
    stmt_begin(j, sql_ledger);
    put_text(j, b->id);
    put_text(j, e->instance);
    put_text(j, e->kind->name);
    put_i64(j, (int64_t)b->n_rows);
    put_time(j, b->claimed_us);
}

void sql_write(struct sql_job *j, const struct engine *e, const struct batch *b,
               size_t from, size_t to)
{
    job_reset(j, true);
    put_ledger(j, e, b);
    stmt_begin(j, e->kind->sql_write);
    put_pairs(j, e, b, from, to, false);
    put_array(j, b, from, to, BATCH_STATUS, ID_BIGINT, false);
    put_array(j, b, from, to, BATCH_CTIME, ID_BIGINT, false);
    put_array(j, b, from, to, BATCH_MTIME, ID_BIGINT, false);
    job_finish(j);
}

size_t sql_count(const struct pg_result *r, int stmt)
{
    int len;

    if (pg_result_rows(r, stmt) != 1)
        return 0;
    return (size_t)pgvalue_i64(pg_result_value(r, stmt, 0, 0, &len));
}

void sql_orphans(struct sql_job *j, const struct engine *e,
                 const struct batch *b, size_t from, size_t to)
{
    job_reset(j, true);
    stmt_begin(j, e->kind->sql_orphans);
    put_text(j, b->id);
    put_text(j, e->instance);
    put_time(j, b->claimed_us);
    param_begin(j);
    pgarray_begin(&j->bytes, id_type_oid(e->owner_type), (uint32_t)(to - from));
    for (size_t i = from; i < to; i++)
        pgarray_put_id(&j->bytes, e->owner_type, b->orphans[i].owner,
                       b->orphans[i].owner_len);
    param_end(j, id_type_array_oid(e->owner_type));
    param_begin(j);
    pgarray_begin(&j->bytes, PG_OID_INT8, (uint32_t)(to - from));
    for (size_t i = from; i < to; i++)
        pgarray_put_i64(&j->bytes, b->orphans[i].delta);
    param_end(j, PG_OID_INT8_ARRAY);
    job_finish(j);
}

void sql_dead_letter(struct sql_job *j, const struct engine *e,
                     const struct batch *b, const struct batch_row *row,
                     const char *sqlstate, const char *reason)
{
    size_t at = (size_t)(row - b->rows);

    job_reset(j, true);
    stmt_begin(j, sql_letter);
    put_text(j, e->kind->name);
    put_text(j, b->id);
    put_id_text(j, e->owner_type, row->owner, row->owner_len);
    put_id_text(j, e->member_type, row->member, row->member_len);
    if (row->status < 0) {
        put_null(j, PG_OID_INT8);
        put_null(j, PG_OID_INT8);
        put_null(j, PG_OID_TIMESTAMPTZ);
        put_null(j, PG_OID_TIMESTAMPTZ);
    } else {
        put_i64(j, row->status);
        put_null(j, PG_OID_INT8);
        put_time(j, row->ctime_us);
        put_time(j, row->mtime_us);
    }
    put_text(j, sqlstate);
    put_text(j, reason);
    if (row->status >= 0) {
        stmt_begin(j, e->kind->sql_lookup);
        put_pairs(j, e, b, at, at + 1, false);
    }
    job_finish(j);
}

void sql_orphan_dead_letter(struct sql_job *j, const struct engine *e,
                            const struct batch *b,
                            const struct batch_orphan *orphan,
                            const char *sqlstate, const char *reason)
{
    job_reset(j, true);
    stmt_begin(j, sql_letter);
    put_text(j, e->kind->name);
    put_text(j, b->id);
    put_id_text(j, e->owner_type, orphan->owner, orphan->owner_len);
    put_null(j, PG_OID_TEXT);
    put_null(j, PG_OID_INT8);
    put_i64(j, orphan->delta);
    put_null(j, PG_OID_TIMESTAMPTZ);
    put_null(j, PG_OID_TIMESTAMPTZ);
    put_text(j, sqlstate);
    put_text(j, reason);
    job_finish(j);
}

void sql_watermark(struct sql_job *j, const struct engine *e,
                   int64_t through_us, int64_t floor_us, int64_t keep_s)
{
    job_reset(j, true);
    stmt_begin(j, sql_through);
    put_text(j, e->kind->name);
    put_time(j, through_us);
    put_time(j, floor_us);
    if (keep_s > 0) {
        stmt_begin(j, sql_prune);
        put_i64(j, keep_s);
    }
    job_finish(j);
}

void sql_floor(struct sql_job *j)
{
    job_reset(j, false);
    stmt_begin(j, sql_floor_text);
    job_finish(j);
}

void sql_history(struct sql_job *j)
{
    job_reset(j, false);
    stmt_begin(j, sql_history_text);
    job_finish(j);
}

void sql_read_history(const struct pg_result *r, char history[SQL_HISTORY_MAX])
{
    int len;
    const char *p = pg_result_value(r, 0, 0, 0, &len);

    snprintf(history, SQL_HISTORY_MAX, "%.*s", p ? len : 0, p ? p : "");
}

int64_t sql_read_floor(const struct pg_result *r)
{
    const char *p;
    int len;

    if (pg_result_rows(r, 0) != 1)
        return 0;
    p = pg_result_value(r, 0, 0, 0, &len);
    return p ? pgvalue_time_us(p) : 0;
}
