/* SPDX-License-Identifier: MIT */
/* A loop with a pool and jobs on it, as the tests of the PostgreSQL adapter
 * share it. */
#ifndef TESTS_PG_HARNESS_H
#define TESTS_PG_HARNESS_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "adapters/pg.h"

/* Longer than anything takes, also under a sanitizer on a busy machine. */
#define PATIENCE_MS 15000

struct world {
    uv_loop_t loop;
    uv_timer_t patience;
    struct pg_config config;
    struct pg *pool;
    int ups, downs, checks;
    int check_result;
    bool free_on_up, free_on_down, free_on_check;
    char down_why[256];
};

/* A job and what came of it. */
struct call {
    struct world *w;
    struct pg_job job;
    struct pg_stmt stmt; /* of jobs with one statement */
    int answers;
    enum pg_outcome outcome;
    char sqlstate[6];
    char message[256];
    int rows;
    bool is_null;
    char value[512]; /* first column of the last statement's first row */
    int value_len;
    bool free_pool;     /* pg_free from the callback */
    struct call *again; /* submitted from the callback */
    int sequence;       /* how many had been answered before */
};

static int answered;

static inline void out_of_patience(uv_timer_t *t)
{
    (void)t;
    fail_msg("waited too long");
}

static inline void world_free_pool(struct world *w)
{
    if (w->pool)
        pg_free(w->pool);
    w->pool = NULL;
}

static inline int on_check(void *arg, const struct pg_result *result, char *why,
                           size_t size)
{
    struct world *w = arg;

    assert_int_equal(pg_result_rows(result, 0), 1);
    w->checks++;
    if (w->check_result != 0)
        snprintf(why, size, "the schema is missing: run schema.sql");
    if (w->free_on_check)
        world_free_pool(w);
    return w->check_result;
}

static inline void on_up(void *arg)
{
    struct world *w = arg;

    w->ups++;
    assert_true(pg_is_up(w->pool));
    if (w->free_on_up)
        world_free_pool(w);
}

static inline void on_down(void *arg, const char *why)
{
    struct world *w = arg;

    w->downs++;
    assert_false(pg_is_up(w->pool));
    snprintf(w->down_why, sizeof(w->down_why), "%s", why);
    if (w->free_on_down)
        world_free_pool(w);
}

static inline void world_init(struct world *w, const char *conninfo,
                              int connections)
{
    *w = (struct world){.downs = 0};
    assert_int_equal(uv_loop_init(&w->loop), 0);
    uv_timer_init(&w->loop, &w->patience);
    uv_timer_start(&w->patience, out_of_patience, PATIENCE_MS, 0);
    uv_unref((uv_handle_t *)&w->patience);
    w->config = (struct pg_config){
        .conninfo = conninfo,
        .connections = connections,
        .connect_timeout_ms = 10000,
        .lock_timeout_ms = 5000,
        .check = {.sql = "SELECT 1"},
        .on_check = on_check,
        .on_up = on_up,
        .on_down = on_down,
        .arg = w,
    };
}

static inline void world_start(struct world *w)
{
    w->pool = pg_new(&w->loop, &w->config);
}

#define WAIT_FOR(w, condition)                                                 \
    do {                                                                       \
        while (!(condition))                                                   \
            uv_run(&(w)->loop, UV_RUN_ONCE);                                   \
    } while (0)

/* Up with all connections. */
static inline void world_start_up(struct world *w)
{
    char all[64];

    world_start(w);
    snprintf(all, sizeof(all), "connected (%d of %d)", w->config.connections,
             w->config.connections);
    WAIT_FOR(w, strcmp(pg_state_text(w->pool), all) == 0);
}

/* A loop that closes clean: nothing was forgotten. */
static inline void world_end(struct world *w)
{
    world_free_pool(w);
    uv_close((uv_handle_t *)&w->patience, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

static inline void submit(struct call *c, enum pg_lane lane);

static inline void on_job_done(void *arg, enum pg_outcome outcome,
                               const struct pg_result *result)
{
    struct call *c = arg;
    int last = c->job.n_stmts - 1;
    const char *value = pg_result_value(result, last, 0, 0, &c->value_len);

    c->answers++;
    assert_int_equal(c->answers, 1);
    c->sequence = answered++;
    c->outcome = outcome;
    snprintf(c->sqlstate, sizeof(c->sqlstate), "%s",
             pg_result_sqlstate(result));
    snprintf(c->message, sizeof(c->message), "%s", pg_result_message(result));
    c->rows = pg_result_rows(result, last);
    c->is_null = !value;
    if (value && c->value_len < (int)sizeof(c->value)) {
        memcpy(c->value, value, (size_t)c->value_len);
        c->value[c->value_len] = '\0';
    }
    if (c->free_pool)
        world_free_pool(c->w);
    if (c->again)
        submit(c->again, PG_LANE_LOOKUP);
    /* What the result holds is still there. */
    assert_string_equal(pg_result_message(result), c->message);
}

static inline void call_init(struct call *c, struct world *w,
                             const struct pg_stmt *stmts, int n)
{
    *c = (struct call){.w = w};
    c->job = (struct pg_job){.stmts = stmts,
                             .n_stmts = n,
                             .timeout_ms = PATIENCE_MS,
                             .cb = on_job_done,
                             .arg = c};
}

static inline void call_sql(struct call *c, struct world *w, const char *sql)
{
    call_init(c, w, NULL, 1);
    c->stmt.sql = sql;
    c->job.stmts = &c->stmt;
}

static inline void submit(struct call *c, enum pg_lane lane)
{
    assert_int_equal(pg_submit(c->w->pool, lane, &c->job), 0);
    assert_int_equal(c->answers, 0);
}

static inline void run(struct call *c)
{
    submit(c, PG_LANE_WRITE);
    WAIT_FOR(c->w, c->answers == 1);
}

/* Runs a statement that must succeed; returns its first value as text. */
static inline void run_sql(struct call *c, struct world *w, const char *sql)
{
    call_sql(c, w, sql);
    run(c);
    if (c->outcome != PG_DONE)
        fail_msg("%s: %s %s", sql, c->sqlstate, c->message);
}

#endif
