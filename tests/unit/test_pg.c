/* SPDX-License-Identifier: MIT */
/* The PostgreSQL adapter against a real server that the test starts. */
#include "pg_server.h"

#include "base/buf.h"
#include "core/pgarray.h"

static struct pg_server server;

/* Another connection, on a loop of its own, that looks from outside and holds
 * an advisory lock. */
static struct world admin;

#define WAIT_FOR_LOCK "SELECT 'got it'::text FROM pg_advisory_xact_lock(7)"

static void admin_sql(const char *sql, struct call *c)
{
    run_sql(c, &admin, sql);
}

static void admin_start(void)
{
    struct call c;

    world_init(&admin, server.conninfo, 1);
    world_start_up(&admin);
    admin_sql("SELECT pg_advisory_lock(7)", &c);
}

static void admin_unlock(void)
{
    struct call c;

    admin_sql("SELECT pg_advisory_unlock(7)", &c);
}

/* Runs w until a backend waits for the lock; returns which one. */
static pid_t wait_until_blocked(struct world *w)
{
    struct call c;

    do {
        uv_run(&w->loop, UV_RUN_NOWAIT);
        admin_sql("SELECT pid::int8 FROM pg_locks WHERE NOT granted", &c);
    } while (c.rows == 0);
    return (pid_t)pgvalue_i64(c.value);
}

static struct pg_param param(uint32_t oid, const struct buf *b)
{
    return (struct pg_param){.oid = oid, .data = b->data, .len = (int)b->len};
}

/* ---- what jobs do ---- */

static void test_results_decode(void **state)
{
    const char *sql[] = {"SELECT -42::int8", "SELECT 'läuft'::text",
                         "SELECT NULL::int8",
                         "SELECT '2024-02-29 12:34:56.789+00'::timestamptz"};
    struct world w;
    struct call c[4];

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    for (int i = 0; i < 4; i++)
        run_sql(&c[i], &w, sql[i]);
    assert_int_equal(c[0].value_len, 8);
    assert_true(pgvalue_i64(c[0].value) == -42);
    assert_string_equal(c[1].value, "läuft");
    assert_true(c[2].is_null);
    assert_int_equal(c[2].rows, 1);
    assert_true(pgvalue_time_us(c[3].value) == INT64_C(1709210096789000));
    assert_int_equal(w.checks, 1);
    world_end(&w);
}

static void test_results_out_of_range(void **state)
{
    int len = 7;

    (void)state;
    assert_int_equal(pg_result_rows(NULL, 0), 0);
    assert_null(pg_result_value(NULL, 0, 0, 0, &len));
    assert_int_equal(len, 0);
    assert_string_equal(pg_result_sqlstate(NULL), "");
    assert_string_equal(pg_result_message(NULL), "");
}

static void test_parameters(void **state)
{
    struct pg_param params[] = {
        {PG_OID_INT8, NULL, 0}, {PG_OID_TEXT, "", 0}, {PG_OID_TEXT, "a'b", 3}};
    struct pg_stmt stmt = {
        "SELECT ($1::int8 IS NULL)::text || ($2::text = '')::text || $3",
        params, 3};
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_init(&c, &w, &stmt, 1);
    run(&c);
    assert_int_equal(c.outcome, PG_DONE);
    assert_string_equal(c.value, "truetruea'b");
    world_end(&w);
}

/* Several megabytes go both ways in one pipeline: neither side may wait for
 * the other to read. */
static void test_large_arrays(void **state)
{
    const uint32_t n = 100000;
    struct buf array = {.len = 0};
    struct pg_param p;
    struct pg_stmt stmts[4];
    struct world w;
    struct call c;

    (void)state;
    pgarray_begin(&array, PG_OID_INT8, n);
    for (uint32_t i = 0; i < n; i++)
        pgarray_put_i64(&array, i);
    p = param(PG_OID_INT8_ARRAY, &array);
    for (int i = 0; i < 3; i++)
        stmts[i] = (struct pg_stmt){
            "SELECT u, repeat('x', 20) FROM unnest($1::int8[]) u", &p, 1};
    stmts[3] = (struct pg_stmt){"SELECT sum(u)::int8 FROM unnest($1) u", &p, 1};
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_init(&c, &w, stmts, 4);
    c.job.transaction = true;
    run(&c);
    assert_int_equal(c.outcome, PG_DONE);
    assert_true(pgvalue_i64(c.value) == (int64_t)n * (n - 1) / 2);
    call_init(&c, &w, stmts, 1);
    run(&c);
    assert_int_equal(c.rows, n);
    world_end(&w);
    buf_free(&array);
}

static void backend_pid(struct call *c, struct world *w)
{
    run_sql(c, w, "SELECT pg_backend_pid()::text");
}

static void test_failed_statement_rolls_back(void **state)
{
    const struct pg_stmt stmts[] = {
        {"INSERT INTO t VALUES (1, NULL)", NULL, 0},
        {"SELECT 1 / 0", NULL, 0},
        {"INSERT INTO t VALUES (2, NULL)", NULL, 0}};
    struct world w;
    struct call before, c, after;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    run_sql(&c, &w, "CREATE TABLE t (id int PRIMARY KEY, up int)");
    backend_pid(&before, &w);
    call_init(&c, &w, stmts, 3);
    c.job.transaction = true;
    run(&c);
    assert_int_equal(c.outcome, PG_FAILED);
    assert_string_equal(c.sqlstate, "22012");
    assert_string_equal(c.message, "division by zero");
    backend_pid(&after, &w);
    assert_string_equal(before.value, after.value);
    run_sql(&c, &w, "SELECT count(*)::text FROM t");
    assert_string_equal(c.value, "0");
    /* Without a transaction of its own, the pipeline is one all the same. */
    call_init(&c, &w, stmts, 3);
    run(&c);
    assert_int_equal(c.outcome, PG_FAILED);
    run_sql(&c, &w, "SELECT count(*)::text FROM t");
    assert_string_equal(c.value, "0");
    run_sql(&c, &w, "DROP TABLE t");
    assert_int_equal(pg_reconnects(w.pool), 0);
    world_end(&w);
}

static void test_constraint_fails_at_commit(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    run_sql(&c, &w,
            "CREATE TABLE t (id int PRIMARY KEY, up int REFERENCES t "
            "DEFERRABLE INITIALLY DEFERRED)");
    for (int transaction = 0; transaction < 2; transaction++) {
        call_sql(&c, &w, "INSERT INTO t VALUES (1, 99)");
        c.job.transaction = transaction;
        run(&c);
        assert_int_equal(c.outcome, PG_FAILED);
        assert_string_equal(c.sqlstate, "23503");
        run_sql(&c, &w, "SELECT count(*)::text FROM t");
        assert_string_equal(c.value, "0");
    }
    run_sql(&c, &w, "DROP TABLE t");
    world_end(&w);
}

static void test_settings_of_transactions(void **state)
{
    const char *const role[] = {"DROP ROLE IF EXISTS lax",
                                "CREATE ROLE lax LOGIN",
                                "ALTER ROLE lax SET synchronous_commit = off"};
    char conninfo[300];
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    for (size_t i = 0; i < 3; i++)
        run_sql(&c, &w, role[i]);
    world_end(&w);

    snprintf(conninfo, sizeof(conninfo), "%s user=lax", server.conninfo);
    world_init(&w, conninfo, 1);
    w.config.lock_timeout_ms = 1234;
    world_start_up(&w);
    run_sql(&c, &w, "SHOW synchronous_commit");
    assert_string_equal(c.value, "off");
    call_sql(&c, &w,
             "SELECT current_setting('synchronous_commit') || ' ' || "
             "current_setting('lock_timeout')");
    c.job.transaction = true;
    run(&c);
    assert_string_equal(c.value, "on 1234ms");
    run_sql(&c, &w, "SHOW synchronous_commit");
    assert_string_equal(c.value, "off");
    run_sql(&c, &w, "SHOW application_name");
    assert_string_equal(c.value, "likesyncd");
    run_sql(&c, &w, "SHOW client_encoding");
    assert_string_equal(c.value, "UTF8");
    world_end(&w);
}

static void test_lock_timeout(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 1);
    w.config.lock_timeout_ms = 50;
    world_start_up(&w);
    call_sql(&c, &w, WAIT_FOR_LOCK);
    c.job.transaction = true;
    run(&c);
    assert_int_equal(c.outcome, PG_FAILED);
    assert_string_equal(c.sqlstate, "55P03");
    world_end(&w);
    world_end(&admin);
}

static void test_copy_does_not_hang(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_sql(&c, &w, "COPY (SELECT 1) TO STDOUT");
    run(&c);
    assert_int_equal(c.outcome, PG_UNKNOWN);
    WAIT_FOR(&w, pg_is_up(w.pool));
    run_sql(&c, &w, "SELECT 1");
    world_end(&w);
}

static void test_notices_are_not_errors(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    run_sql(&c, &w, "DO $$ BEGIN RAISE WARNING 'two\nlines'; END $$");
    assert_string_equal(c.message, "");
    world_end(&w);
}

/* ---- order ---- */

static void test_lookups_pass_writes(void **state)
{
    struct world w;
    struct call blocked, write, lookup;

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_sql(&blocked, &w, WAIT_FOR_LOCK);
    call_sql(&write, &w, "SELECT 1");
    call_sql(&lookup, &w, "SELECT 1");
    submit(&blocked, PG_LANE_WRITE); /* one connection: both lanes share it */
    wait_until_blocked(&w);
    submit(&write, PG_LANE_WRITE);
    submit(&lookup, PG_LANE_LOOKUP);
    admin_unlock();
    WAIT_FOR(&w, write.answers && lookup.answers);
    assert_int_equal(lookup.sequence, blocked.sequence + 1);
    assert_int_equal(write.sequence, blocked.sequence + 2);
    world_end(&w);
    world_end(&admin);
}

static void test_writes_leave_a_connection(void **state)
{
    struct world w;
    struct call blocked, write[3], lookup[20];

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 2);
    world_start_up(&w);
    call_sql(&blocked, &w, WAIT_FOR_LOCK);
    submit(&blocked, PG_LANE_WRITE);
    wait_until_blocked(&w);
    for (int i = 0; i < 3; i++) {
        call_sql(&write[i], &w, "SELECT 1");
        submit(&write[i], PG_LANE_WRITE);
    }
    for (int i = 0; i < 20; i++) {
        call_sql(&lookup[i], &w, "SELECT 1");
        submit(&lookup[i], PG_LANE_LOOKUP);
        WAIT_FOR(&w, lookup[i].answers);
        assert_int_equal(lookup[i].outcome, PG_DONE);
    }
    assert_int_equal(write[0].answers + blocked.answers, 0);
    admin_unlock();
    WAIT_FOR(&w, write[2].answers);
    assert_int_equal(write[0].sequence, blocked.sequence + 1);
    assert_int_equal(write[1].sequence, blocked.sequence + 2);
    assert_int_equal(write[2].sequence, blocked.sequence + 3);
    world_end(&w);
    world_end(&admin);
}

static void test_queue_is_bounded(void **state)
{
    enum { FULL = 1000 };
    struct world w;
    struct call *calls = calloc(FULL + 1, sizeof(*calls));

    (void)state;
    world_init(&w, server.conninfo, 2);
    world_start_up(&w);
    for (int i = 0; i <= FULL; i++)
        call_sql(&calls[i], &w, "SELECT 1");
    for (int i = 0; i < FULL; i++)
        submit(&calls[i], PG_LANE_LOOKUP);
    assert_int_equal(pg_submit(w.pool, PG_LANE_LOOKUP, &calls[FULL].job),
                     PG_BUSY);
    for (int i = 0; i < FULL; i++) {
        WAIT_FOR(&w, calls[i].answers);
        assert_int_equal(calls[i].outcome, PG_DONE);
    }
    assert_int_equal(calls[FULL].answers, 0);
    world_end(&w);
    free(calls);
}

static void test_callbacks_may_submit(void **state)
{
    struct world w;
    struct call first, second;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_sql(&first, &w, "SELECT 1 / 0");
    call_sql(&second, &w, "SELECT 'ok'::text");
    first.again = &second;
    submit(&first, PG_LANE_WRITE);
    WAIT_FOR(&w, second.answers);
    assert_int_equal(first.outcome, PG_FAILED);
    assert_int_equal(second.outcome, PG_DONE);
    world_end(&w);
}

/* ---- deadlines and lost connections ---- */

static void test_waiting_job_expires(void **state)
{
    struct world w;
    struct call blocked, soon, later;

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_sql(&blocked, &w, WAIT_FOR_LOCK);
    submit(&blocked, PG_LANE_WRITE);
    wait_until_blocked(&w);
    call_sql(&later, &w, "SELECT 1");
    call_sql(&soon, &w, "SELECT 1");
    soon.job.timeout_ms = 20;
    submit(&later, PG_LANE_LOOKUP);
    submit(&soon, PG_LANE_LOOKUP);
    WAIT_FOR(&w, soon.answers);
    assert_int_equal(soon.outcome, PG_AWAY);
    assert_int_equal(later.answers + blocked.answers, 0);
    admin_unlock();
    WAIT_FOR(&w, later.answers);
    assert_int_equal(later.outcome, PG_DONE);
    assert_int_equal(blocked.outcome, PG_DONE);
    assert_int_equal(pg_reconnects(w.pool), 0);
    world_end(&w);
    world_end(&admin);
}

/* A stopped backend says nothing and closes nothing. */
static void test_stopped_backend(void **state)
{
    struct world w;
    struct call blocked, other;
    pid_t pid;

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 2);
    world_start_up(&w);
    call_sql(&blocked, &w, WAIT_FOR_LOCK);
    blocked.job.transaction = true;
    blocked.job.timeout_ms = 1000;
    submit(&blocked, PG_LANE_WRITE);
    pid = wait_until_blocked(&w);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    while (!blocked.answers) {
        call_sql(&other, &w, "SELECT 1");
        submit(&other, PG_LANE_LOOKUP);
        WAIT_FOR(&w, other.answers);
        assert_int_equal(other.outcome, PG_DONE);
    }
    assert_int_equal(blocked.outcome, PG_UNKNOWN);
    assert_int_equal(w.downs, 0);
    WAIT_FOR(&w, pg_reconnects(w.pool) == 1);
    kill(pid, SIGCONT);
    world_end(&w);
    world_end(&admin);
}

static void test_terminated_backend(void **state)
{
    struct world w;
    struct call blocked, queued, c;
    char sql[64];

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_sql(&blocked, &w, WAIT_FOR_LOCK);
    blocked.job.transaction = true;
    submit(&blocked, PG_LANE_WRITE);
    snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%d)",
             (int)wait_until_blocked(&w));
    call_sql(&queued, &w, "SELECT 1");
    submit(&queued, PG_LANE_WRITE);
    admin_sql(sql, &c);
    WAIT_FOR(&w, w.downs);
    assert_int_equal(blocked.outcome, PG_UNKNOWN);
    assert_string_equal(blocked.sqlstate, "57P01");
    assert_int_equal(queued.answers, 1);
    assert_int_equal(queued.outcome, PG_AWAY);
    assert_true(queued.sequence > blocked.sequence);
    WAIT_FOR(&w, w.ups == 2);
    assert_int_equal(pg_reconnects(w.pool), 1);
    run_sql(&c, &w, "SELECT 1");
    world_end(&w);
    world_end(&admin);
}

static void test_idle_connection_terminated(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    admin_start();
    world_init(&w, server.conninfo, 2);
    world_start_up(&w);
    admin_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
              "WHERE backend_type = 'client backend' AND "
              "pid <> pg_backend_pid()",
              &c);
    WAIT_FOR(&w, w.downs);
    assert_int_equal(pg_submit(w.pool, PG_LANE_WRITE, &c.job),
                     PG_NOT_CONNECTED);
    WAIT_FOR(&w, pg_reconnects(w.pool) == 2);
    assert_int_equal(w.ups, 2);
    world_end(&w);
    world_end(&admin);
}

static void test_read_only_server(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    run_sql(&c, &w, "SET default_transaction_read_only = on");
    call_sql(&c, &w, "CREATE TABLE never ()");
    c.job.transaction = true;
    run(&c);
    assert_int_equal(c.outcome, PG_FAILED);
    assert_string_equal(c.sqlstate, "25006");
    WAIT_FOR(&w, w.ups == 2);
    run_sql(&c, &w, "CREATE TEMPORARY TABLE here ()");
    world_end(&w);
}

static void test_server_restarts(void **state)
{
    struct world w;
    struct call blocked, c;

    (void)state;
    world_init(&w, server.conninfo, 2);
    world_start_up(&w);
    call_sql(&blocked, &w, "SELECT pg_sleep(60)");
    submit(&blocked, PG_LANE_WRITE);
    uv_run(&w.loop, UV_RUN_NOWAIT);
    server_stop(&server);
    WAIT_FOR(&w, w.downs);
    assert_int_equal(blocked.outcome, PG_UNKNOWN);
    assert_true(w.down_why[0]);
    assert_int_equal(pg_submit(w.pool, PG_LANE_LOOKUP, &blocked.job),
                     PG_NOT_CONNECTED);
    WAIT_FOR(&w, strstr(pg_state_text(w.pool), "cannot connect: "));
    assert_non_null(strstr(pg_state_text(w.pool), "No such file"));
    server_start(&server);
    WAIT_FOR(&w, w.ups == 2);
    run_sql(&c, &w, "SELECT 1");
    assert_int_equal(w.downs, 1);
    world_end(&w);
}

/* ---- connecting ---- */

static void test_wrong_database(void **state)
{
    char conninfo[300];
    struct world w;

    (void)state;
    snprintf(conninfo, sizeof(conninfo), "%s dbname=nowhere", server.conninfo);
    world_init(&w, conninfo, 1);
    world_start(&w);
    assert_string_equal(pg_state_text(w.pool), "connecting");
    WAIT_FOR(&w, strstr(pg_state_text(w.pool), ", retry in 1 s"));
    assert_int_equal(strncmp(pg_state_text(w.pool), "refused: ", 9), 0);
    assert_non_null(strstr(pg_state_text(w.pool),
                           "FATAL: database \"nowhere\" does not exist"));
    assert_null(strstr(pg_state_text(w.pool), "LOCATION"));
    assert_int_equal(w.ups + w.downs, 0);
    world_end(&w);
}

static void test_check_refuses(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, server.conninfo, 1);
    w.check_result = -1;
    world_start(&w);
    WAIT_FOR(&w, strstr(pg_state_text(w.pool), "retry in 1 s"));
    assert_string_equal(
        pg_state_text(w.pool),
        "refused: the schema is missing: run schema.sql, retry in 1 s");
    assert_int_equal(w.ups, 0);
    assert_false(pg_is_up(w.pool));
    w.check_result = 0; /* put right: it finds out by itself */
    WAIT_FOR(&w, w.ups);
    assert_int_equal(w.checks, 2);
    assert_int_equal(w.downs, 0);
    world_end(&w);
}

static void test_check_fails(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, server.conninfo, 1);
    w.config.check.sql = "SELECT 1 FROM no_such_table";
    world_start(&w);
    WAIT_FOR(&w, strstr(pg_state_text(w.pool), "refused: relation "));
    assert_int_equal(w.checks + w.ups, 0);
    world_end(&w);
}

static void test_connects_by_name(void **state)
{
    char conninfo[300];
    struct world w;
    struct call c;

    (void)state;
    /* Only the last of these has a server; at the third, libpq finds out when
     * it is polled, and takes another socket. */
    snprintf(conninfo, sizeof(conninfo),
             "host=/nonexistent,no-such-host.invalid,127.0.0.2,localhost "
             "port=%d user=postgres dbname=postgres application_name=mine",
             server.port);
    world_init(&w, conninfo, 1);
    world_start_up(&w);
    run_sql(&c, &w, "SELECT host(inet_server_addr())");
    assert_string_equal(c.value, "127.0.0.1");
    run_sql(&c, &w, "SHOW application_name");
    assert_string_equal(c.value, "mine");
    world_end(&w);
}

/* ---- the end, from everywhere ---- */

static void test_free_from_callbacks(void **state)
{
    struct world w;

    (void)state;
    for (int i = 0; i < 2; i++) {
        world_init(&w, server.conninfo, 2);
        w.free_on_up = i == 0;
        w.free_on_check = i == 1;
        world_start(&w);
        WAIT_FOR(&w, !w.pool);
        world_end(&w);
        assert_int_equal(w.ups, i == 0);
        assert_int_equal(w.downs, 0);
    }
}

static void test_free_from_on_down(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    world_init(&w, server.conninfo, 1);
    w.free_on_down = true;
    world_start_up(&w);
    call_sql(&c, &w, "SELECT pg_terminate_backend(pg_backend_pid())");
    submit(&c, PG_LANE_WRITE);
    WAIT_FOR(&w, !w.pool);
    assert_int_equal(c.outcome, PG_UNKNOWN);
    world_end(&w);
}

/* From the callback of each outcome, with one job under way on the other
 * connection and one waiting. */
static void test_free_from_job(void **state)
{
    const struct {
        const char *sql;
        enum pg_outcome outcome;
        unsigned timeout_ms;
    } rows[] = {{"SELECT 1", PG_DONE, PATIENCE_MS},
                {"SELECT 1 / 0", PG_FAILED, PATIENCE_MS},
                {"SELECT pg_sleep(60)", PG_UNKNOWN, 20}};
    struct world w;
    struct call c, sleeping, waiting;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        world_init(&w, server.conninfo, 2);
        world_start_up(&w);
        call_sql(&sleeping, &w, "SELECT pg_sleep(60)");
        call_sql(&c, &w, rows[i].sql);
        call_sql(&waiting, &w, "SELECT 1");
        c.job.timeout_ms = rows[i].timeout_ms;
        c.free_pool = true;
        submit(&sleeping, PG_LANE_WRITE);
        submit(&c, PG_LANE_LOOKUP);
        submit(&waiting, PG_LANE_WRITE);
        WAIT_FOR(&w, !w.pool);
        assert_int_equal(c.outcome, rows[i].outcome);
        assert_int_equal(sleeping.outcome, PG_UNKNOWN);
        assert_int_equal(sleeping.answers, 1);
        assert_int_equal(waiting.outcome, PG_AWAY);
        assert_int_equal(waiting.answers, 1);
        world_end(&w);
    }
}

static void test_free_in_each_state(void **state)
{
    struct world w;
    struct call c;

    (void)state;
    /* Not started, then after each turn of the loop until it is up. */
    for (int turns = 0, up = 0; !up; turns++) {
        world_init(&w, server.conninfo, 2);
        world_start(&w);
        for (int i = 0; i < turns; i++)
            uv_run(&w.loop, UV_RUN_ONCE);
        up = w.ups;
        world_end(&w);
    }
    /* Submitted, not yet looked at. */
    world_init(&w, server.conninfo, 1);
    world_start_up(&w);
    call_sql(&c, &w, "SELECT 1");
    submit(&c, PG_LANE_WRITE);
    world_free_pool(&w);
    assert_int_equal(c.answers, 1);
    assert_int_equal(c.outcome, PG_AWAY);
    world_end(&w);
}

/* ---- the group ---- */

static int start_server(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    server_create(&server);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    server_destroy(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_decode),
        cmocka_unit_test(test_results_out_of_range),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_large_arrays),
        cmocka_unit_test(test_failed_statement_rolls_back),
        cmocka_unit_test(test_constraint_fails_at_commit),
        cmocka_unit_test(test_settings_of_transactions),
        cmocka_unit_test(test_lock_timeout),
        cmocka_unit_test(test_copy_does_not_hang),
        cmocka_unit_test(test_notices_are_not_errors),
        cmocka_unit_test(test_lookups_pass_writes),
        cmocka_unit_test(test_writes_leave_a_connection),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_callbacks_may_submit),
        cmocka_unit_test(test_waiting_job_expires),
        cmocka_unit_test(test_stopped_backend),
        cmocka_unit_test(test_terminated_backend),
        cmocka_unit_test(test_idle_connection_terminated),
        cmocka_unit_test(test_read_only_server),
        cmocka_unit_test(test_server_restarts),
        cmocka_unit_test(test_wrong_database),
        cmocka_unit_test(test_check_refuses),
        cmocka_unit_test(test_check_fails),
        cmocka_unit_test(test_connects_by_name),
        cmocka_unit_test(test_free_from_callbacks),
        cmocka_unit_test(test_free_from_on_down),
        cmocka_unit_test(test_free_from_job),
        cmocka_unit_test(test_free_in_each_state),
    };

    return cmocka_run_group_tests(tests, start_server, stop_server);
}
