/* SPDX-License-Identifier: MIT */
/* One PostgreSQL connection on libpq, never blocking.
 *
 * Happy path: resolve the hosts → PQconnectPoll until it is up → IDLE; then for
 * each run: the statements and one Sync go out as a pipeline → results are
 * collected until the Sync is answered → IDLE.
 * Failure modes: a statement fails (the server skips the rest up to the Sync;
 * an open transaction is rolled back before the run is answered); the
 * connection breaks or is dropped (what the server did is unknown, unless
 * COMMIT was answered).
 *
 * Reading goes on while a large pipeline is being written: the server may not
 * read further until it has got rid of its results. */
#include "adapters/pg.h"

#include <assert.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "adapters/pg_conn.h"
#include "adapters/pg_hosts.h"
#include "adapters/pg_text.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"

#define MESSAGE_MAX 512
#define BINARY      1 /* libpq's format code */

enum conn_state {
    CONN_CLOSED,
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_IDLE,
    CONN_RUNNING,
    CONN_ROLLBACK, /* the run failed inside its transaction */
};

struct pg_result {
    char sqlstate[6];
    char message[MESSAGE_MAX];
    int n;
    PGresult *stmts[]; /* owned; NULL: no answer or not a success */
};

/* What is in the pipeline. */
struct run {
    const struct pg_stmt *stmts; /* ref */
    int n_stmts;
    bool transaction;
    int at;                   /* command whose results are being read */
    bool synced;              /* the Sync was answered */
    enum pg_outcome outcome;  /* as far as is known */
    struct pg_result *result; /* owned until it is handed over */
};

struct pg_conn {
    struct uv_loop_s *loop;              /* ref */
    const char *conninfo;                /* ref */
    const struct pg_conn_events *events; /* ref */
    void *arg;
    enum conn_state state;
    PQconninfoOption *options; /* owned: RESOLVING */
    struct pg_hosts hosts;     /* RESOLVING */
    unsigned first_host;       /* failed connects since the last good one */
    PGconn *pg;                /* owned: from CONNECTING on */
    uv_poll_t *poll;           /* owned: freed after it is closed; or NULL */
    int poll_fd;
    struct run run;
};

static void on_poll(uv_poll_t *handle, int status, int events);

/* ---- results ---- */

static void on_notice(void *arg, const char *message)
{
    char line[MESSAGE_MAX];

    (void)arg;
    pg_text_line(line, sizeof(line), message);
    log_debug("pg", "notice: %s", line);
}

static struct pg_result *result_new(int n)
{
    struct pg_result *r =
        mem_zalloc(sizeof(*r) + (size_t)n * sizeof(PGresult *));

    r->n = n;
    return r;
}

void pg_result_free(struct pg_result *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n; i++)
        PQclear(r->stmts[i]);
    free(r);
}

static PGresult *answer_of(const struct pg_result *r, int stmt)
{
    return r && stmt >= 0 && stmt < r->n ? r->stmts[stmt] : NULL;
}

int pg_result_rows(const struct pg_result *r, int stmt)
{
    return PQntuples(answer_of(r, stmt));
}

const char *pg_result_value(const struct pg_result *r, int stmt, int row,
                            int col, int *len_r)
{
    const PGresult *res = answer_of(r, stmt);

    *len_r = 0;
    if (row < 0 || row >= PQntuples(res) || col < 0 || col >= PQnfields(res) ||
        PQgetisnull(res, row, col))
        return NULL;
    *len_r = PQgetlength(res, row, col);
    return PQgetvalue(res, row, col);
}

const char *pg_result_sqlstate(const struct pg_result *r)
{
    return r ? r->sqlstate : "";
}

const char *pg_result_message(const struct pg_result *r)
{
    return r ? r->message : "";
}

/* ---- closing ---- */

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void close_poll(struct pg_conn *c)
{
    if (!c->poll)
        return;
    c->poll->data = NULL;
    uv_close((uv_handle_t *)c->poll, on_poll_closed);
    c->poll = NULL;
}

/* To CLOSED from any state. libuv must not see libpq close the socket. */
static void close_all(struct pg_conn *c)
{
    close_poll(c);
    PQfinish(c->pg);
    c->pg = NULL;
    pg_hosts_cancel(&c->hosts);
    PQconninfoFree(c->options);
    c->options = NULL;
    c->run = (struct run){.result = NULL};
    c->state = CONN_CLOSED;
}

/* `why` NULL or "": ask libpq. */
static void lose(struct pg_conn *c, const char *why)
{
    char message[MESSAGE_MAX], sqlstate[6] = "";
    struct pg_loss loss = {.why = message,
                           .sqlstate = sqlstate,
                           .outcome = c->run.outcome,
                           .result = c->run.result};

    pg_text_line(message, sizeof(message),
                 why && *why ? why : PQerrorMessage(c->pg));
    if (!message[0])
        snprintf(message, sizeof(message), "the connection broke");
    if (c->state == CONN_CONNECTING) {
        pg_text_cut_sqlstate(message, sqlstate);
        c->first_host++;
    }
    if (loss.result && loss.outcome == PG_UNKNOWN && !loss.result->message[0])
        memcpy(loss.result->message, message, sizeof(message));
    close_all(c);
    c->events->on_lost(c->arg, &loss);
}

/* ---- waiting for the socket ---- */

static int open_poll(struct pg_conn *c, int fd)
{
    uv_poll_t *poll = mem_zalloc(sizeof(*poll));

    if (uv_poll_init(c->loop, poll, fd) < 0) {
        free(poll);
        return -1;
    }
    poll->data = c;
    c->poll = poll;
    c->poll_fd = fd;
    return 0;
}

/* The socket may be another one after every PQconnectPoll. */
static void watch(struct pg_conn *c, int events)
{
    int fd = PQsocket(c->pg);

    if (c->poll && c->poll_fd != fd)
        close_poll(c);
    if (fd < 0 || (!c->poll && open_poll(c, fd) < 0) ||
        uv_poll_start(c->poll, events, on_poll) < 0)
        lose(c, "the socket cannot be watched");
}

/* ---- connecting ---- */

static void on_connected(struct pg_conn *c)
{
    if (PQsetnonblocking(c->pg, 1) != 0 || PQenterPipelineMode(c->pg) != 1) {
        lose(c, NULL);
        return;
    }
    c->state = CONN_IDLE;
    c->first_host = 0;
    watch(c, UV_READABLE);
    if (c->state == CONN_IDLE)
        c->events->on_open(c->arg);
}

static void connect_step(struct pg_conn *c)
{
    uv_poll_stop(c->poll);
    switch (PQconnectPoll(c->pg)) {
    case PGRES_POLLING_READING:
        watch(c, UV_READABLE);
        break;
    case PGRES_POLLING_WRITING:
        watch(c, UV_WRITABLE);
        break;
    case PGRES_POLLING_OK:
        on_connected(c);
        break;
    default:
        lose(c, NULL);
    }
}

/* conninfo's options between our defaults and what overrides them. */
static PGconn *start_connect(const struct pg_conn *c)
{
    const struct pg_hosts *h = &c->hosts;
    const struct {
        const char *name, *value;
    } last[] = {{"host", h->host.data},
                {"hostaddr", h->hostaddr.data},
                {"port", h->port.data},
                {"client_encoding", "UTF8"}};
    const char **names, **values;
    size_t n = 0;
    PGconn *pg;

    while (c->options[n].keyword)
        n++;
    names = mem_zalloc((n + ARRAY_LEN(last) + 2) * sizeof(*names));
    values = mem_zalloc((n + ARRAY_LEN(last) + 2) * sizeof(*values));
    names[0] = "fallback_application_name";
    values[0] = "likesyncd";
    n = 1;
    for (const PQconninfoOption *o = c->options; o->keyword; o++) {
        names[n] = o->keyword;
        values[n++] = o->val;
    }
    for (size_t i = 0; i < ARRAY_LEN(last); i++) {
        names[n] = last[i].name;
        values[n++] = last[i].value;
    }
    pg = PQconnectStartParams(names, values, 0);
    free(names);
    free(values);
    return pg;
}

static void on_hosts(void *arg, const char *error)
{
    struct pg_conn *c = arg;

    if (error) {
        lose(c, error);
        return;
    }
    c->pg = start_connect(c);
    c->state = CONN_CONNECTING;
    if (!c->pg || PQstatus(c->pg) == CONNECTION_BAD) {
        lose(c, c->pg ? NULL : "out of memory");
        return;
    }
    PQsetErrorVerbosity(c->pg, PQERRORS_VERBOSE);
    PQsetNoticeProcessor(c->pg, on_notice, NULL);
    watch(c, UV_WRITABLE);
}

static const char *option(const PQconninfoOption *o, const char *keyword)
{
    while (o->keyword && strcmp(o->keyword, keyword) != 0)
        o++;
    return o->keyword && o->val && *o->val ? o->val : NULL;
}

void pg_conn_open(struct pg_conn *c, unsigned lookup_ms)
{
    char *fault = NULL;
    const char *host, *hostaddr, *port;

    assert(c->state == CONN_CLOSED);
    c->state = CONN_RESOLVING;
    c->options = PQconninfoParse(c->conninfo, &fault);
    if (!c->options) {
        lose(c, fault ? fault : "out of memory");
        PQfreemem(fault);
        return;
    }
    host = option(c->options, "host");
    hostaddr = option(c->options, "hostaddr");
    port = option(c->options, "port");
    if (host && !hostaddr) {
        pg_hosts_start(&c->hosts, c->loop, host, port, c->first_host, lookup_ms,
                       on_hosts, c);
        return;
    }
    if (hostaddr)
        pg_hosts_given(&c->hosts, host, hostaddr, port, c->first_host);
    on_hosts(c, NULL);
}

/* libpq quotes the place of a fault, and that may be in a password. The name
 * of an option that does not exist is worth it. */
int pg_check_conninfo(const char *conninfo, struct buf *why)
{
    static const char UNKNOWN[] = "invalid connection option ";
    char line[MESSAGE_MAX];
    char *fault = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &fault);

    if (!options && fault && strncmp(fault, UNKNOWN, strlen(UNKNOWN)) == 0) {
        pg_text_line(line, sizeof(line), fault);
        buf_puts(why, line);
    } else if (!options) {
        buf_puts(why, "expected name=value pairs, with '' around a value that "
                      "has spaces, or postgresql://...");
    }
    PQfreemem(fault);
    PQconninfoFree(options);
    return options ? 0 : -1;
}

/* ---- reading ---- */

/* The first error is the cause, those behind it follow from it; one that comes
 * after COMMIT was answered is the connection's, not the run's. On a broken
 * connection libpq makes up errors of its own; those have no SQLSTATE. */
static void keep_error(struct pg_conn *c, const PGresult *res)
{
    struct pg_result *r = c->run.result;
    const char *code = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);

    if (r->message[0] || c->run.outcome == PG_DONE ||
        (!code && PQstatus(c->pg) != CONNECTION_OK))
        return;
    snprintf(r->sqlstate, sizeof(r->sqlstate), "%s", code ? code : "");
    pg_text_line(r->message, sizeof(r->message),
                 text ? text : PQresultErrorMessage(res));
    if (!r->message[0])
        snprintf(r->message, sizeof(r->message), "unexpected answer: %s",
                 PQresStatus(PQresultStatus(res)));
}

/* A command of the run has succeeded. COMMIT also succeeds when it has rolled
 * back; then its tag is ROLLBACK. */
static void keep_success(struct run *run, PGresult *res)
{
    struct pg_result *r = run->result;
    int stmt = run->at - (run->transaction ? 2 : 0);

    if (stmt >= 0 && stmt < run->n_stmts) {
        PQclear(r->stmts[stmt]);
        r->stmts[stmt] = res;
        return;
    }
    if (stmt == run->n_stmts && strcmp(PQcmdStatus(res), "COMMIT") == 0)
        run->outcome = PG_DONE;
    PQclear(res);
}

static void on_sync(struct pg_conn *c)
{
    struct run *run = &c->run;

    run->synced = true;
    if (c->state == CONN_ROLLBACK || run->outcome == PG_DONE)
        return;
    if (!run->transaction && !run->result->message[0]) {
        run->outcome = PG_DONE;
        return;
    }
    run->outcome = PG_FAILED;
    if (!run->result->message[0])
        snprintf(run->result->message, MESSAGE_MAX, "COMMIT rolled back");
}

/* Takes res. */
static void on_result(struct pg_conn *c, PGresult *res)
{
    bool of_run = c->state == CONN_RUNNING; /* else ROLLBACK's */

    switch (PQresultStatus(res)) {
    case PGRES_PIPELINE_SYNC:
        on_sync(c);
        break;
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
        if (of_run) {
            keep_success(&c->run, res);
            return;
        }
        break;
    case PGRES_PIPELINE_ABORTED:
        break;
    default:
        if (of_run)
            keep_error(c, res);
    }
    PQclear(res);
}

static bool is_copy(const PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);

    return status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
           status == PGRES_COPY_BOTH;
}

/* All that has arrived; also on a connection that has just been found broken,
 * for COMMIT's answer may be among it. libpq ends the results of each command
 * with a NULL; a second NULL means that there is nothing more to come. False
 * when the rest will never come: COPY does not end in a pipeline. */
static bool read_results(struct pg_conn *c)
{
    int nulls = 0;

    /* PQisBusy also takes in notices on an idle connection. */
    while (!PQisBusy(c->pg) && c->state >= CONN_RUNNING && !c->run.synced &&
           nulls < 2) {
        PGresult *res = PQgetResult(c->pg);
        bool endless = is_copy(res);

        if (res) {
            nulls = 0;
            on_result(c, res);
        } else if (nulls++ == 0) {
            c->run.at++;
        }
        if (endless)
            return false;
    }
    return true;
}

/* ---- sending ---- */

static int send_stmt(struct pg_conn *c, const struct pg_stmt *s)
{
    Oid types[PG_MAX_PARAMS];
    const char *values[PG_MAX_PARAMS];
    int lengths[PG_MAX_PARAMS], formats[PG_MAX_PARAMS];

    assert(s->n_params <= PG_MAX_PARAMS);
    for (int i = 0; i < s->n_params; i++) {
        types[i] = s->params[i].oid;
        values[i] = s->params[i].data;
        lengths[i] = s->params[i].len;
        formats[i] = BINARY;
    }
    return PQsendQueryParams(c->pg, s->sql, s->n_params, types, values, lengths,
                             formats, BINARY);
}

static int send_sql(struct pg_conn *c, const char *sql)
{
    return PQsendQueryParams(c->pg, sql, 0, NULL, NULL, NULL, NULL, BINARY);
}

/* 1, or 0 as libpq has it. */
static int send_run(struct pg_conn *c, const char *settings)
{
    int ok = 1;

    if (settings)
        ok = send_sql(c, "BEGIN") && send_sql(c, settings);
    for (int i = 0; ok && i < c->run.n_stmts; i++)
        ok = send_stmt(c, &c->run.stmts[i]);
    if (ok && settings)
        ok = send_sql(c, "COMMIT");
    return ok && PQpipelineSync(c->pg);
}

/* Writes what the socket takes, and waits for the rest and for answers. */
static void flush_and_watch(struct pg_conn *c)
{
    int left = PQflush(c->pg);

    if (left < 0) {
        (void)read_results(c);
        lose(c, NULL);
    } else {
        watch(c, UV_READABLE | (left ? UV_WRITABLE : 0));
    }
}

void pg_conn_run(struct pg_conn *c, const struct pg_stmt *stmts, int n_stmts,
                 const char *settings)
{
    assert(c->state == CONN_IDLE);
    c->state = CONN_RUNNING;
    c->run = (struct run){.stmts = stmts,
                          .n_stmts = n_stmts,
                          .transaction = settings,
                          .outcome = PG_UNKNOWN,
                          .result = result_new(n_stmts)};
    if (send_run(c, settings))
        flush_and_watch(c);
    else
        lose(c, NULL);
}

static void send_rollback(struct pg_conn *c)
{
    c->state = CONN_ROLLBACK;
    c->run.synced = false;
    if (send_sql(c, "ROLLBACK") && PQpipelineSync(c->pg))
        flush_and_watch(c);
    else
        lose(c, NULL);
}

/* ---- progress ---- */

/* The connection is whole and the Sync was answered. */
static void end_run(struct pg_conn *c)
{
    struct run run = c->run;

    if (PQtransactionStatus(c->pg) != PQTRANS_IDLE) {
        if (c->state == CONN_ROLLBACK)
            lose(c, "the transaction cannot be rolled back");
        else
            send_rollback(c);
        return;
    }
    watch(c, UV_READABLE);
    if (c->state == CONN_CLOSED)
        return;
    c->state = CONN_IDLE;
    c->run = (struct run){.result = NULL};
    c->events->on_answer(c->arg, run.outcome, run.result);
}

static void run_step(struct pg_conn *c)
{
    char broken[MESSAGE_MAX] = "";
    bool whole = PQconsumeInput(c->pg) == 1;

    if (!whole) /* before reading on makes libpq add to it */
        pg_text_line(broken, sizeof(broken), PQerrorMessage(c->pg));
    if (!read_results(c) || !whole || PQstatus(c->pg) != CONNECTION_OK) {
        /* What the server said before it closed says more than libpq. */
        if (c->run.outcome == PG_UNKNOWN && pg_result_message(c->run.result)[0])
            pg_text_line(broken, sizeof(broken), c->run.result->message);
        lose(c, broken);
    } else if (c->state != CONN_IDLE && c->run.synced) {
        end_run(c);
    } else {
        flush_and_watch(c);
    }
}

/* An error status says only that the socket has something to tell: libpq finds
 * out what when it reads or connects. */
static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct pg_conn *c = handle->data;

    (void)status;
    (void)events;
    if (c->state == CONN_CONNECTING)
        connect_step(c);
    else
        run_step(c);
}

/* ---- life ---- */

struct pg_conn *pg_conn_new(struct uv_loop_s *loop, const char *conninfo,
                            const struct pg_conn_events *events, void *arg)
{
    struct pg_conn *c = mem_zalloc(sizeof(*c));

    c->loop = loop;
    c->conninfo = conninfo;
    c->events = events;
    c->arg = arg;
    return c;
}

void pg_conn_drop(struct pg_conn *c, const char *why)
{
    if (c->state != CONN_CLOSED)
        lose(c, why);
}

void pg_conn_free(struct pg_conn *c)
{
    assert(c->state == CONN_CLOSED);
    free(c);
}
