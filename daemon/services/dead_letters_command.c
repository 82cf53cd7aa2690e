/* SPDX-License-Identifier: MIT */
/* DEADLETTER: for the operator. Each request is one job of PostgreSQL. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "services/commands.h"
#include "services/dead_letters.h"

#define LIST_DEFAULT 20
#define LIST_MAX     1000

static const char retry_sql[] =
    "SELECT retry_dead_letter(id) FROM sync_dead_letter WHERE id = $1";
static const char drop_sql[] =
    "DELETE FROM sync_dead_letter WHERE id = $1 RETURNING id::text";

struct letter_request {
    struct request *rq;
    const char *done; /* for the log: what became of it; NULL: nothing does */
    int64_t id;
    struct dead_letters_query query;
};

static void finish(struct letter_request *l)
{
    request_done(l->rq);
    free(l);
}

/* ---- what goes wrong ---- */

static bool is_missing(const char *sqlstate)
{
    static const char *const codes[] = {
        "42501", /* insufficient_privilege */
        "42883", /* undefined_function */
        "42P01", /* undefined_table */
    };

    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (strcmp(sqlstate, codes[i]) == 0)
            return true;
    return false;
}

static void put_refusal(struct letter_request *l,
                        const struct pg_result *result)
{
    const char *sqlstate = pg_result_sqlstate(result);
    const char *message = pg_result_message(result);
    struct buf *b = request_reply(l->rq);

    if (is_missing(sqlstate) && l->done)
        resp_error(b, "ERR %s: apply sql/views.sql (psql -d DB -f views.sql)",
                   message);
    else if (is_missing(sqlstate))
        resp_error(b,
                   "ERR %s: apply sql/schema.sql and sql/roles.sql "
                   "(psql -d DB -f FILE)",
                   message);
    else if (sqlstate_action(sqlstate) == SQL_RETRY)
        resp_error(b, "TRYAGAIN %s", message);
    else if (sqlstate_action(sqlstate) == SQL_RECONNECT)
        resp_error(b, "UNAVAILABLE %s", message);
    else
        resp_error(b, "ERR %s", message);
}

static void put_failure(struct letter_request *l, enum pg_outcome outcome,
                        const struct pg_result *result)
{
    if (outcome == PG_FAILED)
        put_refusal(l, result);
    else if (outcome == PG_UNKNOWN && l->done)
        resp_error(request_reply(l->rq),
                   "UNKNOWN PostgreSQL did not answer: ask again, which does "
                   "no harm");
    else
        resp_error(request_reply(l->rq),
                   "UNAVAILABLE PostgreSQL did not answer");
}

/* ---- LIST ---- */

static void put_arg(struct buf *b, const char *name, const struct resp_arg *a)
{
    resp_bulk_str(b, name);
    resp_bulk(b, a->data, a->len);
}

static void put_letter(struct buf *b, int proto,
                       const struct dead_letter_row *row)
{
    bool like = resp_arg_is(&row->kind, "like");
    struct buf what = {0};

    dead_letter_what(row, &what);
    resp_map(b, proto, 10);
    reply_put_int(b, "id", row->id);
    reply_put_text(b, "what", buf_cstr(&what));
    put_arg(b, "kind", &row->kind);
    reply_put_text(b, "verb", row->verb);
    put_arg(b, "user", &row->user);
    put_arg(b, like ? "post" : "followee", &row->other);
    reply_put_int(b, "event_us", row->event_us);
    reply_put_int(b, "refused_us", row->refused_us);
    put_arg(b, "sqlstate", &row->sqlstate);
    put_arg(b, "reason", &row->reason);
    buf_free(&what);
}

static void on_list(void *arg, enum pg_outcome outcome,
                    const struct pg_result *result)
{
    struct letter_request *l = arg;
    struct buf *b = request_reply(l->rq);
    int proto = request_proto(l->rq);
    struct dead_letter_row row;

    if (outcome != PG_DONE) {
        put_failure(l, outcome, result);
        finish(l);
        return;
    }
    resp_map(b, proto, 2);
    reply_put_int(b, "total", dead_letters_total(result));
    resp_bulk_str(b, "letters");
    resp_array(b, (size_t)pg_result_rows(result, 0));
    for (int i = 0; i < pg_result_rows(result, 0); i++) {
        dead_letters_row(result, i, &row);
        put_letter(b, proto, &row);
    }
    finish(l);
}

/* ---- RETRY and DROP ---- */

static void on_changed(void *arg, enum pg_outcome outcome,
                       const struct pg_result *result)
{
    struct letter_request *l = arg;
    struct buf *b = request_reply(l->rq);
    const char *text;
    int len;

    if (outcome != PG_DONE) {
        put_failure(l, outcome, result);
    } else if (pg_result_rows(result, 0) == 0) {
        resp_error(b, "ERR there is no dead letter %lld", (long long)l->id);
    } else {
        text = pg_result_value(result, 0, 0, 0, &len);
        resp_bulk(b, text ? text : "", text ? (size_t)len : 0);
        log_info("dead letters", "%s by the operator (id %lld)", l->done,
                 (long long)l->id);
    }
    finish(l);
}

/* ---- requests ---- */

static void submit(struct commands *c, struct letter_request *l,
                   enum pg_lane lane, pg_on_done cb)
{
    int rc;

    l->query.job.cb = cb;
    l->query.job.arg = l;
    rc = pg_submit(c->services[0].engine.pg, lane, &l->query.job);
    if (rc == 0)
        return;
    resp_error(request_reply(l->rq), "%s", engine_pg_why(rc));
    finish(l);
}

static struct letter_request *new_request(struct request *rq, const char *done)
{
    struct letter_request *l = mem_zalloc(sizeof(*l));

    l->rq = rq;
    l->done = done;
    return l;
}

static void change(struct commands *c, struct request *rq, int64_t id,
                   const char *sql, const char *done)
{
    const struct engine *e = &c->services[0].engine;
    struct letter_request *l = new_request(rq, done);

    l->id = id;
    dead_letters_ask(&l->query, e, id, 0); /* for its parameter */
    l->query.stmts[0] = (struct pg_stmt){sql, l->query.params, 1};
    l->query.job.n_stmts = 1;
    l->query.job.transaction = true;
    l->query.job.timeout_ms = (unsigned)e->options->pg_write_timeout_ms;
    submit(c, l, PG_LANE_WRITE, on_changed);
}

/* False, with an error put, when it is not a number from 1 to max. */
static bool read_number(struct request *rq, const char *what,
                        const struct resp_arg *arg, int64_t max, int64_t *v_r)
{
    char shown[RESP_SHOW_MAX];

    if (num_parse_i64(arg->data, arg->len, v_r) == 0 && *v_r >= 1 &&
        *v_r <= max)
        return true;
    resp_error(request_reply(rq),
               "ERR invalid %s '%s': expected a number from 1 to %lld", what,
               resp_show(arg, shown), (long long)max);
    request_done(rq);
    return false;
}

/* LIST [FROM id] [COUNT n]; false, with an error put. */
static bool read_list_args(struct request *rq, int argc,
                           const struct resp_arg *argv, int64_t *from_r,
                           int64_t *n_r)
{
    for (int i = 2; i < argc; i += 2) {
        bool from = resp_arg_is(&argv[i], "FROM");

        if (i + 1 == argc || (!from && !resp_arg_is(&argv[i], "COUNT"))) {
            resp_error(request_reply(rq), "ERR syntax error: expected "
                                          "DEADLETTER LIST [FROM id] "
                                          "[COUNT n]");
            request_done(rq);
            return false;
        }
        if (from && !read_number(rq, "id", &argv[i + 1], INT64_MAX, from_r))
            return false;
        if (!from && !read_number(rq, "COUNT", &argv[i + 1], LIST_MAX, n_r))
            return false;
    }
    return true;
}

void cmd_deadletter_list(struct commands *c, struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    int64_t from = INT64_MAX;
    int64_t n = LIST_DEFAULT;
    struct letter_request *l;

    if (!read_list_args(rq, argc, argv, &from, &n))
        return;
    l = new_request(rq, NULL);
    dead_letters_ask(&l->query, &c->services[0].engine, from, n);
    submit(c, l, PG_LANE_LOOKUP, on_list);
}

void cmd_deadletter_retry(struct commands *c, struct request *rq, int argc,
                          const struct resp_arg *argv)
{
    int64_t id;

    (void)argc;
    if (read_number(rq, "id", &argv[2], INT64_MAX, &id))
        change(c, rq, id, retry_sql, "applied");
}

void cmd_deadletter_drop(struct commands *c, struct request *rq, int argc,
                         const struct resp_arg *argv)
{
    int64_t id;

    (void)argc;
    if (read_number(rq, "id", &argv[2], INT64_MAX, &id))
        change(c, rq, id, drop_sql, "dropped");
}
