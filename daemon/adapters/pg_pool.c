/* SPDX-License-Identifier: MIT */
/* The pool over pg.c's connections: lanes, deadlines, reconnects.
 *
 * A slot is WAITING (backoff) → OPENING → CHECKING → IDLE ⇄ BUSY, and goes back
 * to WAITING from each of them when its connection ends. Its one timer is the
 * backoff, the deadline of connect and check together, or that of the job.
 * pg_submit() only queues; everything that calls back is started by the loop.
 *
 * Any callback may call pg_free(): it empties the pool at once, but the memory
 * stays until libuv closes `turn`, so that whoever is on the stack can still
 * see `closing`. */
#include "adapters/pg.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "adapters/pg_conn.h"
#include "adapters/pg_queue.h"
#include "adapters/timer.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    MAX_QUEUED = 1000,
    BACKOFF_MS = 100,
    BACKOFF_CAP_MS = 10000,
    /* Something a human has to put right. */
    REFUSED_BACKOFF_MS = 1000,
    REFUSED_BACKOFF_CAP_MS = 30000,
    REPEAT_LOG_MS = 60000,
    WHY_MAX = 512,
    TEXT_MAX = WHY_MAX + 64,
};

enum slot_state {
    SLOT_WAITING,
    SLOT_OPENING,
    SLOT_CHECKING,
    SLOT_IDLE,
    SLOT_BUSY,
};

struct slot {
    struct pg *pool;      /* ref */
    struct pg_conn *conn; /* owned */
    enum slot_state state;
    struct timer *timer;  /* owned */
    struct pg_task *task; /* owned: BUSY */
    bool refused;         /* by the check; until the connection has ended */
    bool was_up;          /* ever */
    uint64_t retry_at_us;
    struct backoff backoff;
    struct backoff refused_backoff;
};

struct pg {
    struct pg_config config;
    struct slot *slots; /* owned array */
    struct pg_queue queue;
    char settings[160];   /* SQL in front of a transaction */
    uv_idle_t turn;       /* runs dispatch() in the next turn of the loop */
    struct timer *expiry; /* owned: earliest deadline in the queues */
    uint64_t expiry_us;   /* 0: not set */
    uint64_t reconnects;
    bool closing;
    char why[WHY_MAX]; /* the last connection ended so; "" after a new one */
    const char *what;  /* static: what kind of end that was */
    struct log_limit why_limit;
    char *text; /* owned, TEXT_MAX: pg_state_text */
};

/* ---- counts ---- */

static bool slot_up(const struct slot *s)
{
    return s->state == SLOT_IDLE || s->state == SLOT_BUSY;
}

static int count_up(const struct pg *p)
{
    int n = 0;

    for (int i = 0; i < p->config.connections; i++)
        n += slot_up(&p->slots[i]);
    return n;
}

static int count_writes(const struct pg *p)
{
    int n = 0;

    for (int i = 0; i < p->config.connections; i++)
        n += p->slots[i].task && p->slots[i].task->lane == PG_LANE_WRITE;
    return n;
}

/* ---- dispatch ---- */

/* Lookups first. Writes leave one connection free, unless it is the only one;
 * what counts is how many are up. */
static struct pg_task *next_task(struct pg *p)
{
    int up = count_up(p);
    int max_writes = up > 1 ? up - 1 : 1;

    return pg_queue_pop(&p->queue, count_writes(p) < max_writes);
}

static struct slot *idle_slot(struct pg *p)
{
    for (int i = 0; i < p->config.connections; i++)
        if (p->slots[i].state == SLOT_IDLE)
            return &p->slots[i];
    return NULL;
}

static void slot_run(struct slot *s, struct pg_task *t)
{
    s->task = t;
    s->state = SLOT_BUSY;
    timer_start(s->timer, pg_left_ms(t->deadline_us), 0);
    pg_conn_run(s->conn, t->job.stmts, t->job.n_stmts,
                t->job.transaction ? s->pool->settings : NULL);
}

static void dispatch(struct pg *p)
{
    struct slot *s;
    struct pg_task *t;

    while ((s = idle_slot(p)) && (t = next_task(p))) {
        if (pg_left_ms(t->deadline_us) > 0)
            slot_run(s, t);
        else
            pg_task_finish(t, PG_AWAY, NULL);
    }
}

static void on_turn(uv_idle_t *handle)
{
    uv_idle_stop(handle);
    dispatch(handle->data);
}

/* ---- the queue ---- */

/* Nothing can be queued while this runs: there is no connection. */
static void give_back_queue(struct pg *p)
{
    struct pg_task *t;

    while ((t = pg_queue_pop(&p->queue, true)))
        pg_task_finish(t, PG_AWAY, NULL);
}

static void set_expiry(struct pg *p, uint64_t deadline_us)
{
    p->expiry_us = deadline_us;
    timer_start(p->expiry, pg_left_ms(deadline_us), 0);
}

static void on_expiry(void *arg)
{
    struct pg *p = arg;
    struct pg_task *t;

    p->expiry_us = 0;
    while ((t = pg_queue_earliest(&p->queue)) && !pg_left_ms(t->deadline_us)) {
        pg_queue_remove(&p->queue, t);
        pg_task_finish(t, PG_AWAY, NULL);
    }
    if (t && !p->closing)
        set_expiry(p, t->deadline_us);
}

int pg_submit(struct pg *p, enum pg_lane lane, const struct pg_job *job)
{
    const struct pg_task *t;

    if (p->closing || !pg_is_up(p))
        return PG_NOT_CONNECTED;
    if (p->queue.n >= MAX_QUEUED)
        return PG_BUSY;
    t = pg_queue_push(&p->queue, lane, job);
    if (!p->expiry_us || t->deadline_us < p->expiry_us)
        set_expiry(p, t->deadline_us);
    uv_idle_start(&p->turn, on_turn);
    return 0;
}

/* ---- a connection's events ---- */

/* At once when the reason is new, then now and then. */
static void report(struct pg *p, const char *what, const char *why, unsigned ms)
{
    uint64_t held;

    if (strcmp(why, p->why) != 0)
        p->why_limit = (struct log_limit){.held = 0};
    snprintf(p->why, sizeof(p->why), "%s", why);
    p->what = what;
    if (!log_allow(&p->why_limit, REPEAT_LOG_MS, &held))
        return;
    if (held > 0)
        log_warn("pg", "%s: %s (%llu times more since)", what, why,
                 (unsigned long long)held);
    else
        log_warn("pg", "%s: %s, retry in %u ms", what, why, ms);
}

static void slot_retry(struct slot *s, const struct pg_loss *loss, bool was_up)
{
    bool refused =
        s->refused ||
        (loss->sqlstate[0] && sqlstate_action(loss->sqlstate) == SQL_CONFIG);
    unsigned ms = backoff_next_ms(refused ? &s->refused_backoff : &s->backoff);

    s->refused = false;
    s->retry_at_us = clock_monotonic_us() + ms * UINT64_C(1000);
    timer_start(s->timer, ms, 0);
    report(s->pool,
           refused  ? "refused"
           : was_up ? "connection lost"
                    : "cannot connect",
           loss->why, ms);
}

static void on_lost(void *arg, const struct pg_loss *loss)
{
    struct slot *s = arg;
    struct pg *p = s->pool;
    struct pg_task *task = s->task;
    bool was_up = slot_up(s);

    s->task = NULL;
    s->state = SLOT_WAITING;
    if (!p->closing)
        slot_retry(s, loss, was_up);
    if (task)
        pg_task_finish(task, loss->outcome, loss->result);
    pg_result_free(loss->result);
    if (p->closing || !was_up || pg_is_up(p))
        return;
    give_back_queue(p);
    if (!p->closing && p->config.on_down)
        p->config.on_down(p->config.arg, loss->why);
}

static void slot_ready(struct slot *s)
{
    struct pg *p = s->pool;
    bool first = !pg_is_up(p);

    timer_stop(s->timer);
    s->state = SLOT_IDLE;
    backoff_reset(&s->refused_backoff);
    p->reconnects += s->was_up;
    s->was_up = true;
    p->why[0] = '\0';
    log_info("pg", "%s", pg_state_text(p));
    if (first && p->config.on_up)
        p->config.on_up(p->config.arg);
    dispatch(p);
}

static void on_open(void *arg)
{
    struct slot *s = arg;
    const struct pg_stmt *check = &s->pool->config.check;

    if (!check->sql) {
        slot_ready(s);
        return;
    }
    s->state = SLOT_CHECKING;
    pg_conn_run(s->conn, check, 1, NULL);
}

static void on_checked(struct slot *s, enum pg_outcome outcome,
                       const struct pg_result *result)
{
    const struct pg_config *c = &s->pool->config;
    char why[WHY_MAX] = "";

    if (outcome != PG_DONE) {
        s->refused =
            sqlstate_action(pg_result_sqlstate(result)) != SQL_RECONNECT;
        pg_conn_drop(s->conn, pg_result_message(result));
        return;
    }
    if (c->on_check && c->on_check(c->arg, result, why, sizeof(why)) != 0)
        s->refused = true;
    if (s->pool->closing)
        return;
    if (s->refused)
        pg_conn_drop(s->conn, why);
    else
        slot_ready(s);
}

/* A server that shuts down or has become a standby refuses everything from now
 * on. The backoff starts anew only after a job went well, lest a standby that
 * passes the check is asked in a tight loop. */
static void on_job_answer(struct slot *s, enum pg_outcome outcome,
                          const struct pg_result *result)
{
    struct pg *p = s->pool;
    struct pg_task *task = s->task;
    bool leave = outcome == PG_FAILED &&
                 sqlstate_action(pg_result_sqlstate(result)) == SQL_RECONNECT;

    timer_stop(s->timer);
    s->task = NULL;
    if (!leave) {
        s->state = SLOT_IDLE;
        backoff_reset(&s->backoff);
    }
    pg_task_finish(task, outcome, result);
    if (p->closing)
        return;
    if (leave)
        pg_conn_drop(s->conn, pg_result_message(result));
    else
        dispatch(p);
}

static void on_answer(void *arg, enum pg_outcome outcome,
                      struct pg_result *result)
{
    struct slot *s = arg;

    if (s->state == SLOT_CHECKING)
        on_checked(s, outcome, result);
    else
        on_job_answer(s, outcome, result);
    pg_result_free(result);
}

static const struct pg_conn_events conn_events = {
    .on_open = on_open, .on_answer = on_answer, .on_lost = on_lost};

/* ---- a slot's timer ---- */

static void on_slot_timer(void *arg)
{
    struct slot *s = arg;
    unsigned connect_ms = s->pool->config.connect_timeout_ms;
    char why[64];

    switch (s->state) {
    case SLOT_WAITING:
        s->state = SLOT_OPENING;
        timer_start(s->timer, connect_ms, 0);
        /* A silent name server must not cost the other hosts their turn. */
        pg_conn_open(s->conn, connect_ms / 2);
        break;
    case SLOT_OPENING:
    case SLOT_CHECKING:
        snprintf(why, sizeof(why), "no answer within %u ms", connect_ms);
        pg_conn_drop(s->conn, why);
        break;
    case SLOT_BUSY:
        pg_conn_drop(s->conn, "a job's deadline has passed");
        break;
    case SLOT_IDLE:
        break; /* its timer is stopped */
    }
}

/* ---- state ---- */

bool pg_is_up(const struct pg *p)
{
    return count_up(p) > 0;
}

uint64_t pg_reconnects(const struct pg *p)
{
    return p->reconnects;
}

const char *pg_state_text(const struct pg *p)
{
    int up = count_up(p);
    uint64_t at = 0;

    for (int i = 0; i < p->config.connections; i++) {
        const struct slot *s = &p->slots[i];

        if (s->state == SLOT_WAITING && (!at || s->retry_at_us < at))
            at = s->retry_at_us;
    }
    if (up > 0)
        snprintf(p->text, TEXT_MAX, "connected (%d of %d)", up,
                 p->config.connections);
    else if (!p->why[0])
        snprintf(p->text, TEXT_MAX, "connecting");
    else if (!at)
        snprintf(p->text, TEXT_MAX, "%s: %s, trying again", p->what, p->why);
    else
        snprintf(p->text, TEXT_MAX, "%s: %s, retry in %u s", p->what, p->why,
                 (pg_left_ms(at) + 999) / 1000);
    return p->text;
}

/* ---- life ---- */

static void slot_init(struct slot *s, struct pg *p, struct uv_loop_s *loop)
{
    s->pool = p;
    s->conn = pg_conn_new(loop, p->config.conninfo, &conn_events, s);
    s->timer = timer_new(loop, on_slot_timer, s);
    backoff_init(&s->backoff, BACKOFF_MS, BACKOFF_CAP_MS);
    backoff_init(&s->refused_backoff, REFUSED_BACKOFF_MS,
                 REFUSED_BACKOFF_CAP_MS);
    timer_start(s->timer, 0, 0);
}

struct pg *pg_new(struct uv_loop_s *loop, const struct pg_config *c)
{
    struct pg *p = mem_zalloc(sizeof(*p));

    assert(c->connections > 0);
    p->config = *c;
    /* For the transaction only, as a pooler in front may demand it. A role that
     * trades durability for speed must not decide for us. */
    snprintf(p->settings, sizeof(p->settings),
             "SELECT %s, set_config('lock_timeout', '%u', true)",
             fault_edit("set_config('synchronous_commit', 'on', true)"),
             c->lock_timeout_ms);
    p->text = mem_zalloc(TEXT_MAX);
    pg_queue_init(&p->queue);
    uv_idle_init(loop, &p->turn);
    p->turn.data = p;
    p->expiry = timer_new(loop, on_expiry, p);
    p->slots = mem_zalloc((size_t)c->connections * sizeof(*p->slots));
    for (int i = 0; i < c->connections; i++)
        slot_init(&p->slots[i], p, loop);
    return p;
}

static void on_turn_closed(uv_handle_t *handle)
{
    struct pg *p = handle->data;

    for (int i = 0; i < p->config.connections; i++)
        pg_conn_free(p->slots[i].conn);
    free(p->slots);
    free(p->text);
    free(p);
}

void pg_free(struct pg *p)
{
    p->closing = true;
    for (int i = 0; i < p->config.connections; i++) {
        pg_conn_drop(p->slots[i].conn, "shutting down");
        timer_free(p->slots[i].timer);
    }
    give_back_queue(p);
    timer_free(p->expiry);
    uv_close((uv_handle_t *)&p->turn, on_turn_closed);
}
