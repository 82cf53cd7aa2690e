/* SPDX-License-Identifier: MIT */
/* A batch on its way: claim (or reload) → write → ack.
 *
 * Happy path: claim.lua once or more → writer → ack.lua once or more → gone.
 *
 * Who repairs what, at each crash point:
 *   before the claim's answer   the record is complete in Redis; whoever takes
 *                               the lease over reloads it (so do we, when only
 *                               the answer was lost)
 *   claimed, not committed      the same; PostgreSQL has nothing
 *   committed, not acked        written again under the same id: no row changes,
 *                               then acked
 *   acked in part               the record holds the rest
 * A step that Redis did not execute, or whose outcome is unknown, is made again:
 * all of them may be. */
#include "services/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/histogram.h"
#include "core/history.h"
#include "core/resp.h"
#include "services/writer.h"

#define ROW_FIELDS   6
#define HEAD         5 /* fields of a reply in front of its rows */
#define ERROR_LOG_MS 1000

struct flight {
    struct list node;                   /* in the flusher's list */
    const struct engine *engine;        /* ref */
    const struct flight_events *events; /* ref */
    enum flight_state state;
    bool waiting; /* for flight_resume */
    bool may_start_pass;
    struct batch batch;
    size_t writable;
    struct writer *writer; /* owned, in FLIGHT_WRITE */
    uint64_t since_us;     /* monotonic: of the call or write under way */
    uint64_t begun_us;     /* and of the whole flight */
    struct args args;
    char cursor[24];   /* FLIGHT_RELOAD */
    size_t rows_acked; /* FLIGHT_ACK: rows before it are acked */
    size_t rows_sent;  /* and these are being acked */
    size_t orphans_acked;
    size_t orphans_sent;
};

static void write_start(struct flight *fl);
static void ack_next(struct flight *fl);

/* How long it took what began with clock_start. */
static void clock_stop(const struct flight *fl, enum histogram_id first)
{
    histogram_observe(histogram_of(first, (int)fl->engine->kind->index),
                      clock_monotonic_us() - fl->since_us);
}

static void clock_start(struct flight *fl)
{
    fl->since_us = clock_monotonic_us();
}

static void wait(struct flight *fl)
{
    fl->waiting = true;
    fl->events->on_wait(fl->events->arg);
}

static void gone(struct flight *fl)
{
    const struct flight_events *events = fl->events;

    flight_free(fl);
    events->on_gone(events->arg);
}

static bool is_claimer(const struct flight *fl)
{
    size_t len = strlen(fl->batch.taker);

    return len > 2 && strcmp(fl->batch.taker + len - 2, ":0") == 0;
}

/* A lease that ran out, or a failover. After the latter it is still its claimer's,
 * of whom there is one, unless reload.lua says otherwise: nobody has to wait for
 * the end of its lease. */
static void taker_changed(struct flight *fl)
{
    if (is_claimer(fl)) {
        fl->batch.taker[0] = '\0';
        flight_reload(fl);
        return;
    }
    log_info("flush", "batch %s: left to who took it over", fl->batch.id);
    gone(fl);
}

static void send(struct flight *fl, enum script_id script, redis_on_reply cb)
{
    if (args_send(&fl->args, fl->engine, script, cb, fl) != 0)
        wait(fl);
}

static void error_log(const struct flight *fl, const char *what,
                      enum redis_outcome outcome, const struct redis_value *v)
{
    static struct log_limit limit; /* of all flights: each retries for ever */
    uint64_t held;
    size_t len;

    if ((outcome == REDIS_ERROR || outcome == REDIS_FULL) &&
        log_allow(&limit, ERROR_LOG_MS, &held))
        log_error("flush", "batch %s: %s failed: %s (%llu more)", fl->batch.id,
                  what, redis_value_str(v, &len), (unsigned long long)held);
}

/* ---- reading rows ---- */

static const struct redis_value *at(const struct redis_value *v, size_t i)
{
    return redis_value_at(v, i);
}

static size_t read_rows(struct flight *fl, const struct redis_value *v,
                        size_t i, size_t n)
{
    for (; n > 0; n--, i += ROW_FIELDS) {
        size_t owner_len;
        size_t member_len;
        const char *owner = redis_value_str(at(v, i), &owner_len);
        const char *member = redis_value_str(at(v, i + 1), &member_len);
        struct batch_row *r =
            batch_add(&fl->batch, owner, owner_len, member, member_len);

        r->status = (int8_t)redis_value_int(at(v, i + 2));
        r->mtime_us = redis_value_int(at(v, i + 3));
        r->ctime_us = redis_value_int(at(v, i + 4));
        r->foreign = redis_value_int(at(v, i + 5)) == 1;
    }
    return i;
}

static size_t read_orphans(struct flight *fl, const struct redis_value *v,
                           size_t i, size_t n)
{
    for (; n > 0; n--, i += 2) {
        size_t len;
        const char *owner = redis_value_str(at(v, i), &len);

        batch_add_orphan(&fl->batch, owner, len, redis_value_int(at(v, i + 1)));
    }
    return i;
}

static void claimed_at(struct flight *fl, int64_t high_us)
{
    if (high_us > fl->batch.claimed_us)
        fl->batch.claimed_us = high_us;
}

/* The first one that is heard of: rows that come later may be another's. */
static void take_taker(struct flight *fl, const struct redis_value *v)
{
    size_t len;

    if (!fl->batch.taker[0])
        snprintf(fl->batch.taker, sizeof(fl->batch.taker), "%s",
                 redis_value_str(v, &len));
}

/* ---- claim ---- */

static void log_bad_owners(const struct flight *fl, const struct redis_value *v,
                           size_t i)
{
    for (; i < redis_value_len(v); i++) {
        size_t len;
        const char *owner = redis_value_str(at(v, i), &len);
        char shown[RESP_SHOW_MAX];

        log_error("flush",
                  "%s '%s': no id, or its dirty set is no set, or its counter "
                  "no number: left alone",
                  fl->engine->kind->owner_field,
                  resp_show(&(struct resp_arg){owner, len}, shown));
    }
}

static void claim_end(struct flight *fl, int64_t left)
{
    if (fl->batch.n_rows > 0)
        write_start(fl);
    fl->events->on_claimed(fl->events->arg, fl, left);
    if (fl->batch.n_rows == 0)
        gone(fl);
}

static void claim_read(struct flight *fl, const struct redis_value *v)
{
    int64_t left = redis_value_int(at(v, 2));
    size_t n = (size_t)redis_value_int(at(v, 3));
    size_t i = read_rows(fl, v, HEAD, n);
    size_t n_orphans = (size_t)redis_value_int(at(v, i));
    char orphan_id[BATCH_ID_MAX + 2];

    if (n + n_orphans > 0)
        fault_point("claimed");
    claimed_at(fl, redis_value_int(at(v, 1)));
    fl->batch.read_us = redis_value_int(at(v, 0));
    take_taker(fl, at(v, 4));
    metric_add(M_ROWS_CLAIMED, n);
    fl->may_start_pass = false;
    log_bad_owners(fl, v, i + 1 + 2 * n_orphans);
    if (n_orphans > 0) {
        snprintf(orphan_id, sizeof(orphan_id), "%so", fl->batch.id);
        fl->events->on_orphans(fl->events->arg, orphan_id, fl->batch.taker);
    }
    if (left > 0 && n > 0 &&
        fl->batch.n_rows < (size_t)fl->engine->options->flush_batch_rows)
        flight_claim(fl, false);
    else
        claim_end(fl, left);
}

/* The record says what was claimed; the next tick, whether more is due. */
static void claim_unknown(struct flight *fl)
{
    fl->events->on_claimed(fl->events->arg, fl, -1);
    flight_reload(fl);
}

static void on_claim(void *arg, enum redis_outcome outcome,
                     const struct redis_value *v)
{
    struct flight *fl = arg;

    if (outcome == REDIS_OK && redis_value_len(v) > HEAD) {
        clock_stop(fl, H_CLAIM_LIKE);
        claim_read(fl, v);
        return;
    }
    error_log(fl, "claim", outcome, v);
    if (outcome == REDIS_RETRY || outcome == REDIS_AWAY ||
        outcome == REDIS_FULL)
        claim_end(fl, -1); /* not executed: what is there, if anything */
    else
        claim_unknown(fl);
}

void flight_claim(struct flight *fl, bool may_start_pass)
{
    const struct options *o = fl->engine->options;
    int64_t room = o->flush_batch_rows - (int64_t)fl->batch.n_rows;
    bool is_first = fl->batch.n_rows == 0;
    char orphan_id[BATCH_ID_MAX + 2];

    fl->may_start_pass = may_start_pass;
    snprintf(orphan_id, sizeof(orphan_id), "%so", fl->batch.id);
    args_clear(&fl->args);
    args_put_str(&fl->args, fl->batch.id);
    args_put_str(&fl->args, is_first ? orphan_id : "");
    args_put_i64(&fl->args, o->flush_lease_ms);
    args_put_i64(&fl->args,
                 room < o->flush_claim_rows ? room : o->flush_claim_rows);
    args_put_i64(&fl->args, may_start_pass);
    args_put_i64(&fl->args, o->cache_ttl_s);
    args_put_i64(&fl->args, o->follow_idle_ttl_s);
    clock_start(fl);
    if (args_send(&fl->args, fl->engine, SCRIPT_CLAIM, on_claim, fl) != 0)
        claim_end(fl, -1);
}

/* ---- reload ---- */

static void reload_send(struct flight *fl);

static void on_reload(void *arg, enum redis_outcome outcome,
                      const struct redis_value *v)
{
    struct flight *fl = arg;
    size_t len;
    size_t i;

    if (outcome == REDIS_OK && redis_value_len(v) == 1) {
        taker_changed(fl);
        return;
    }
    if (outcome != REDIS_OK || redis_value_len(v) <= HEAD) {
        error_log(fl, "reload", outcome, v);
        wait(fl);
        return;
    }
    take_taker(fl, at(v, 4));
    claimed_at(fl, redis_value_int(at(v, 1)));
    fl->batch.read_us = redis_value_int(at(v, 0));
    snprintf(fl->cursor, sizeof(fl->cursor), "%s",
             redis_value_str(at(v, 2), &len));
    i = read_rows(fl, v, HEAD, (size_t)redis_value_int(at(v, 3)));
    read_orphans(fl, v, i + 1, (size_t)redis_value_int(at(v, i)));
    if (strcmp(fl->cursor, "0") != 0) {
        reload_send(fl);
        return;
    }
    fault_point("reloaded");
    write_start(fl);
}

static void reload_send(struct flight *fl)
{
    args_clear(&fl->args);
    args_put_str(&fl->args, fl->batch.id);
    args_put_str(&fl->args, fl->batch.taker);
    args_put_str(&fl->args, fl->cursor);
    args_put_i64(&fl->args, fl->engine->options->flush_claim_rows);
    send(fl, SCRIPT_RELOAD, on_reload);
}

void flight_reload(struct flight *fl)
{
    fl->state = FLIGHT_RELOAD;
    batch_reset(&fl->batch);
    snprintf(fl->cursor, sizeof(fl->cursor), "0");
    reload_send(fl);
}

/* ---- write ---- */

static void on_written(void *arg)
{
    struct flight *fl = arg;

    clock_stop(fl, H_WRITE_LIKE);
    fl->writer = NULL;
    fl->state = FLIGHT_ACK;
    fault_point("before_ack");
    ack_next(fl);
}

static void write_start(struct flight *fl)
{
    const struct engine *e = fl->engine;

    fl->state = FLIGHT_WRITE;
    fl->rows_acked = 0;
    fl->orphans_acked = 0;
    fl->writable = batch_sort(&fl->batch, e->owner_type, e->member_type);
    clock_start(fl);
    fl->writer = writer_start(e, &fl->batch, fl->writable, on_written, fl);
}

/* ---- ack ---- */

static void remember(const struct flight *fl)
{
    const struct history_flush f = {
        .at_ms = clock_realtime_us() / 1000,
        .kind = (int)fl->engine->kind->index,
        .rows = fl->batch.n_rows,
        .us = clock_monotonic_us() - fl->begun_us,
    };

    if (f.rows > 0)
        history_flushed(&f);
}

static void ack_done(struct flight *fl, const struct redis_value *v)
{
    bool more = fl->rows_acked < fl->batch.n_rows ||
                fl->orphans_acked < fl->batch.n_orphans;

    if (more) {
        fault_point("ack_part");
        ack_next(fl);
        return;
    }
    remember(fl);
    if (redis_value_int(at(v, 1)) > 0) {
        flight_reload(fl); /* a claim whose answer was lost added rows */
    } else {
        fault_point("acked");
        gone(fl);
    }
}

/* Redis hears of all rows all the same: what it believes of them, or has read of
 * PostgreSQL, may be older. */
static void ack_refused(struct flight *fl)
{
    if (fl->rows_acked < fl->batch.n_rows)
        ack_next(fl);
    else
        taker_changed(fl);
}

static void on_ack(void *arg, enum redis_outcome outcome,
                   const struct redis_value *v)
{
    struct flight *fl = arg;

    if (outcome != REDIS_OK) {
        error_log(fl, "ack", outcome, v);
        wait(fl);
        return;
    }
    clock_stop(fl, H_ACK_LIKE);
    fl->rows_acked = fl->rows_sent;
    fl->orphans_acked = fl->orphans_sent;
    if (redis_value_int(at(v, 0)) < 0) {
        ack_refused(fl);
        return;
    }
    metric_add(M_ROWS_ACKED, (uint64_t)redis_value_int(at(v, 0)));
    ack_done(fl, v);
}

/* As ack.lua has it. */
static void put_ack(struct args *a, const struct batch_row *r, bool has_lists)
{
    char note[32] = "";

    if (r->dead)
        note[0] = 'd';
    args_put(a, r->owner, r->owner_len);
    args_put(a, r->member, r->member_len);
    args_put_i64(a, r->pg_status);
    args_put_i64(a, r->pg_mtime_us);
    args_put_i64(a, r->mtime_us);
    if (has_lists && r->pg_ctime_us > 0)
        snprintf(note + r->dead, sizeof(note) - 1, "%lld",
                 (long long)r->pg_ctime_us);
    args_put_str(a, note);
}

static bool is_same_owner(const struct batch_row *a, const struct batch_row *b)
{
    return a->owner_len == b->owner_len &&
           memcmp(a->owner, b->owner, a->owner_len) == 0;
}

/* Where one call of ack.lua ends: an owner is as much work as a pair; the lists
 * of one, as much as two more. */
static size_t ack_end(const struct flight *fl)
{
    const struct batch_row *rows = fl->batch.rows;
    size_t most = (size_t)fl->engine->options->flush_claim_rows;
    size_t i = fl->rows_acked + 1;
    size_t pair = fl->engine->kind->has_lists ? 3 : 1;
    size_t work = pair;

    for (; i < fl->batch.n_rows; i++) {
        work += pair + !is_same_owner(&rows[i], &rows[i - 1]);
        if (work > most)
            break;
    }
    return i < fl->batch.n_rows ? i : fl->batch.n_rows;
}

static void ack_rows(struct flight *fl)
{
    const struct options *o = fl->engine->options;
    size_t to = ack_end(fl);

    args_clear(&fl->args);
    args_put_str(&fl->args, fl->batch.id);
    args_put_str(&fl->args, fl->batch.taker);
    args_put_i64(&fl->args, o->cache_ttl_s);
    args_put_i64(&fl->args, o->follow_idle_ttl_s);
    for (size_t i = fl->rows_acked; i < to; i++)
        put_ack(&fl->args, &fl->batch.rows[i], fl->engine->kind->has_lists);
    fl->rows_sent = to;
    fl->orphans_sent = fl->orphans_acked;
    send(fl, SCRIPT_ACK, on_ack);
}

static void ack_orphans(struct flight *fl)
{
    size_t to =
        fl->orphans_acked + (size_t)fl->engine->options->flush_claim_rows;

    if (to > fl->batch.n_orphans)
        to = fl->batch.n_orphans;
    args_clear(&fl->args);
    args_put_str(&fl->args, fl->batch.id);
    args_put_str(&fl->args, fl->batch.taker);
    for (size_t i = fl->orphans_acked; i < to; i++) {
        const struct batch_orphan *o = &fl->batch.orphans[i];

        args_put(&fl->args, o->owner, o->owner_len);
        args_put_i64(&fl->args, o->delta);
    }
    fl->rows_sent = fl->rows_acked;
    fl->orphans_sent = to;
    send(fl, SCRIPT_ACK_ORPHANS, on_ack);
}

/* Without rows, too: an empty record's batch has to leave the lists. */
static void ack_next(struct flight *fl)
{
    clock_start(fl);
    if (fl->rows_acked < fl->batch.n_rows || fl->batch.n_orphans == 0)
        ack_rows(fl);
    else
        ack_orphans(fl);
}

/* ---- for the flusher ---- */

struct flight *flight_new(const struct engine *e,
                          const struct flight_events *events,
                          struct list *flights, const char *id,
                          const char *taker)
{
    struct flight *fl = mem_zalloc(sizeof(*fl));

    fl->engine = e;
    fl->events = events;
    fl->begun_us = clock_monotonic_us();
    batch_init(&fl->batch, id);
    snprintf(fl->batch.taker, sizeof(fl->batch.taker), "%s", taker);
    list_push_back(flights, &fl->node);
    return fl;
}

void flight_resume(struct flight *fl)
{
    if (!fl->waiting)
        return;
    fl->waiting = false;
    if (fl->state == FLIGHT_ACK)
        ack_next(fl);
    else
        flight_reload(fl);
}

void flight_pg_up(struct flight *fl)
{
    if (fl->writer)
        writer_poke(fl->writer);
}

void flight_free(struct flight *fl)
{
    list_remove(&fl->node);
    writer_free(fl->writer);
    batch_free(&fl->batch);
    args_free(&fl->args);
    free(fl);
}

const char *flight_id(const struct flight *fl)
{
    return fl->batch.id;
}

enum flight_state flight_state(const struct flight *fl)
{
    return fl->state;
}

bool flight_has_orphans(const struct flight *fl)
{
    size_t len = strlen(fl->batch.id);

    return len > 0 && fl->batch.id[len - 1] == 'o';
}

int64_t flight_claimed_us(const struct flight *fl)
{
    return fl->batch.claimed_us;
}

struct flight *flight_of(struct list *node)
{
    return LIST_ENTRY(node, struct flight, node);
}
