/* SPDX-License-Identifier: MIT */
/* Happy path: DBSIZE → the steps of each phase → the end. Failure modes: a backend
 * away (the step is made again; after AWAY_MS the job fails); a new connection to
 * Redis (the phase begins anew); Redis refuses a step (the job fails). */
#include "services/job.h"

#include <stdio.h>
#include <string.h>

#include "adapters/timer.h"
#include "base/clock.h"

#define RETRY_MS 200
#define AWAY_MS  60000

const char *job_state_name(enum job_state state)
{
    static const char *const names[] = {
        [JOB_IDLE] = "idle",     [JOB_RUNNING] = "running",
        [JOB_DONE] = "done",     [JOB_STOPPED] = "stopped",
        [JOB_FAILED] = "failed",
    };

    return names[state];
}

static const struct engine *engine_of(const struct job *j)
{
    return j->kind->engine(j->arg);
}

static void end(struct job *j, enum job_state state)
{
    j->state = state;
    j->stopping = false;
    j->kind->on_end(j->arg);
}

static void set_why(struct job *j, const char *why)
{
    snprintf(j->why, sizeof(j->why), "%s", why);
}

void job_fail(struct job *j, const char *why)
{
    set_why(j, why);
    end(j, JOB_FAILED);
}

void job_later(struct job *j, unsigned ms)
{
    timer_start(j->timer, ms, 0);
}

void job_wait_on(struct job *j, const char *why)
{
    set_why(j, why);
    job_later(j, RETRY_MS);
}

void job_wait(struct job *j, const char *why)
{
    uint64_t now = clock_monotonic_ms();

    if (j->away_ms == 0)
        j->away_ms = now;
    if (now - j->away_ms > AWAY_MS)
        job_fail(j, why);
    else
        job_wait_on(j, why);
}

/* ---- Redis ---- */

static void sent(struct job *j, int rc)
{
    if (rc != 0)
        job_wait(j, rc == REDIS_BUSY ? "Redis has too much to do"
                                     : "Redis is away");
}

void job_call(struct job *j, redis_on_reply cb)
{
    sent(j, args_call(&j->args, engine_of(j), cb, j->arg));
}

void job_script(struct job *j, enum script_id id, redis_on_reply cb)
{
    sent(j, args_send(&j->args, engine_of(j), id, cb, j->arg));
}

bool job_answered(struct job *j, enum redis_outcome outcome,
                  const struct redis_value *v)
{
    size_t len;

    switch (outcome) {
    case REDIS_OK:
        j->away_ms = 0;
        j->why[0] = '\0';
        return true;
    case REDIS_ERROR:
        job_fail(j, redis_value_str(v, &len));
        return false;
    case REDIS_FULL:
        job_wait(j, redis_value_str(v, &len));
        return false;
    default:
        job_wait(j, "Redis did not answer");
        return false;
    }
}

/* ---- steps ---- */

static void phase_start(struct job *j, int phase)
{
    j->phase = phase;
    j->reconnects = redis_reconnects(engine_of(j)->redis);
    j->scanned = 0;
    j->kind->phase_start(j->arg);
}

static void on_size(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct job *j = arg;

    if (!job_answered(j, outcome, v))
        return;
    j->db_size = redis_value_int(v);
    phase_start(j, 0);
    job_next(j);
}

static void ask_size(struct job *j)
{
    args_clear(&j->args);
    args_put_str(&j->args, "DBSIZE");
    sent(j, args_call(&j->args, engine_of(j), on_size, j));
}

void job_next(struct job *j)
{
    const struct engine *e = engine_of(j);

    if (j->stopping) {
        end(j, JOB_STOPPED);
        return;
    }
    if (!e->open || !e->redis) {
        job_wait(j, "Redis is away");
        return;
    }
    if (j->phase < 0) {
        ask_size(j);
        return;
    }
    if (redis_reconnects(e->redis) != j->reconnects)
        phase_start(j, j->phase);
    while (!j->kind->phase_next(j->arg)) {
        if (j->phase + 1 == j->n_phases) {
            end(j, JOB_DONE);
            return;
        }
        phase_start(j, j->phase + 1);
    }
}

static void on_timer(void *arg)
{
    job_next(arg);
}

/* ---- its owner ---- */

void job_init(struct job *j, struct uv_loop_s *loop,
              const struct job_kind *kind, void *arg)
{
    j->kind = kind;
    j->arg = arg;
    j->timer = timer_new(loop, on_timer, j);
}

void job_deinit(struct job *j)
{
    timer_free(j->timer);
    args_free(&j->args);
}

void job_start(struct job *j, int n_phases)
{
    j->state = JOB_RUNNING;
    j->n_phases = n_phases;
    j->phase = -1;
    j->away_ms = 0;
    j->db_size = 0;
    j->scanned = 0;
    j->why[0] = '\0';
    job_later(j, 0);
}

void job_stop(struct job *j)
{
    if (j->state == JOB_RUNNING)
        j->stopping = true;
}

int64_t job_scanned(const struct job *j)
{
    int64_t here = j->scanned < j->db_size ? j->scanned : j->db_size;

    if (j->state == JOB_DONE)
        return job_total(j);
    return j->phase < 0 ? 0 : j->phase * j->db_size + here;
}

int64_t job_total(const struct job *j)
{
    return j->db_size * j->n_phases;
}

/* ---- SCAN and the like ---- */

void scan_start(struct scan_cursor *c)
{
    snprintf(c->text, sizeof(c->text), "0");
    c->open = true;
}

void scan_move(struct scan_cursor *c, const struct redis_value *reply)
{
    struct resp_arg text = scan_text(redis_value_at(reply, 0));

    snprintf(c->text, sizeof(c->text), "%s", text.data);
    c->open = strcmp(c->text, "0") != 0;
}

struct resp_arg scan_text(const struct redis_value *v)
{
    struct resp_arg arg;

    arg.data = redis_value_str(v, &arg.len);
    return arg;
}
