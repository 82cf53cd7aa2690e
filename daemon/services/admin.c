/* SPDX-License-Identifier: MIT */
/* FLUSHER: for the operator. */
#include "services/commands.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/num.h"
#include "core/metrics.h"
#include "services/flushers.h"
#include "services/status.h"

#define DRAIN_DEFAULT_MS 30000
#define DRAIN_MAX_MS     3600000

static void on_drained(void *arg, enum drain_result result)
{
    struct request *rq = arg;
    struct buf *b = request_reply(rq);

    switch (result) {
    case DRAIN_DONE:
        resp_simple(b, "OK");
        break;
    case DRAIN_TIMEOUT:
        resp_error(b, "TIMEOUT not all is durable yet; it goes on (see FLUSHER "
                      "STATUS)");
        break;
    case DRAIN_PAUSED:
        resp_error(b, "ERR the flusher is paused: FLUSHER RESUME first");
        break;
    case DRAIN_ABORTED:
        resp_error(b, "ERR the daemon stops; what is not durable yet stays in "
                      "Redis");
        break;
    }
    request_done(rq);
}

void cmd_flusher_drain(struct commands *c, struct request *rq, int argc,
                       const struct resp_arg *argv)
{
    int64_t ms = DRAIN_DEFAULT_MS;

    if (argc > 3) {
        reply_arity(rq, "flusher|drain");
        return;
    }
    if (argc == 3 && (num_parse_i64(argv[2].data, argv[2].len, &ms) != 0 ||
                      ms < 1 || ms > DRAIN_MAX_MS)) {
        resp_error(request_reply(rq),
                   "ERR invalid timeout: expected milliseconds from 1 to %d",
                   DRAIN_MAX_MS);
        request_done(rq);
        return;
    }
    flushers_drain(c->services, (uint64_t)ms, on_drained, rq);
}

#define STATUS_FIELDS 7 /* that a kind has, too */

static void put_name(struct buf *b, const char *kind, const char *name)
{
    char field[64];

    snprintf(field, sizeof(field), "%s%s%s", kind, kind[0] ? "_" : "", name);
    resp_bulk_str(b, field);
}

static void put_number(struct buf *b, const char *kind, const char *name,
                       int64_t v)
{
    put_name(b, kind, name);
    resp_int(b, v);
}

/* Negative: not known. */
static void put_known(struct buf *b, int proto, const char *kind,
                      const char *name, int64_t v)
{
    if (v >= 0) {
        put_number(b, kind, name, v);
        return;
    }
    put_name(b, kind, name);
    resp_null(b, proto);
}

/* That were answered since the start, errors too. */
static int64_t events_of(const struct edge_kind *kind)
{
    double n = 0;

    for (int verb = 0; verb < 2; verb++)
        n += metric_get(kind->m_changed[verb]) +
             metric_get(kind->m_same[verb]) + metric_get(kind->m_error[verb]);
    return (int64_t)n;
}

static int64_t events_of_all(void)
{
    int64_t n = 0;

    for (int i = 0; i < EDGE_COUNT; i++)
        n += events_of(edge_kinds[i]);
    return n;
}

/* Of all kinds, or of the one that is named. */
static void put_numbers(struct buf *b, int proto, const char *kind,
                        const struct flusher_status *st, int64_t events)
{
    put_number(b, kind, "events", events);
    put_known(b, proto, kind, "rows_dirty", st->rows_dirty);
    put_known(b, proto, kind, "owners_dirty", st->owners_dirty);
    put_known(b, proto, kind, "owners_on_record", st->owners_on_record);
    put_known(b, proto, kind, "batches_on_record", st->batches);
    put_known(b, proto, kind, "lag_ms",
              st->lag_us < 0 ? -1 : st->lag_us / 1000);
    put_number(b, kind, "synced_through_us", st->stored_us);
}

void cmd_flusher_status(struct commands *c, struct request *rq, int argc,
                        const struct resp_arg *argv)
{
    const struct engine *e = &c->services[0].engine;
    struct buf *b = request_reply(rq);
    int proto = request_proto(rq);
    struct flusher_status st;

    (void)argc;
    (void)argv;
    flushers_status(c->services, &st);
    resp_map(b, proto, 10 + STATUS_FIELDS * (1 + EDGE_COUNT));
    reply_put_text(b, "version", LIKESYNCD_VERSION);
    reply_put_text(b, "instance", e->instance);
    reply_put_text(b, "flusher", st.paused ? "paused" : "running");
    reply_put_text(b, "redis", status_redis(&c->services[0]));
    reply_put_text(b, "postgres", pg_state_text(e->pg));
    reply_put_int(b, "uptime_s",
                  (int64_t)(clock_monotonic_ms() - c->started_ms) / 1000);
    reply_put_int(b, "clients", (int64_t)server_clients(c->server));
    reply_put_int(b, "rows_written", (int64_t)metric_get(M_ROWS_WRITTEN));
    reply_put_int(b, "dead_letters", (int64_t)metric_get(M_DEAD_LETTERS));
    reply_put_int(b, "batches_own", st.batches_own);
    put_numbers(b, proto, "", &st, events_of_all());
    for (int i = 0; i < EDGE_COUNT; i++) {
        flusher_status(c->services[i].flusher, &st);
        put_numbers(b, proto, edge_kinds[i]->name, &st,
                    events_of(edge_kinds[i]));
    }
    request_done(rq);
}

void cmd_flusher_pause(struct commands *c, struct request *rq, int argc,
                       const struct resp_arg *argv)
{
    (void)argc;
    (void)argv;
    flushers_pause(c->services);
    reply_ok(rq);
}

void cmd_flusher_resume(struct commands *c, struct request *rq, int argc,
                        const struct resp_arg *argv)
{
    (void)argc;
    (void)argv;
    flushers_resume(c->services);
    reply_ok(rq);
}
