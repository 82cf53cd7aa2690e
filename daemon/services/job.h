/* SPDX-License-Identifier: MIT */
/* A long job for the operator: phases, one step of one phase at a time, while all
 * else goes on. A backend that is away is waited for; after a new connection to
 * Redis the phase begins anew, since another process has other cursors. */
#ifndef SERVICES_JOB_H
#define SERVICES_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "core/resp.h"
#include "services/engine.h"

enum job_state { JOB_IDLE, JOB_RUNNING, JOB_DONE, JOB_STOPPED, JOB_FAILED };

/* For a STATUS. */
const char *job_state_name(enum job_state state);

/* What one kind of job does; `arg` is job.arg. */
struct job_kind {
    /* Of the phase; of any while there is none yet. */
    const struct engine *(*engine)(void *arg);
    void (*phase_start)(void *arg);
    /* One step, after which job_next is called; false: the phase is over. */
    bool (*phase_next)(void *arg);
    /* job.state and job.why say how it went. */
    void (*on_end)(void *arg);
};

struct job {
    const struct job_kind *kind; /* ref */
    void *arg;                   /* ref: also of the replies */
    struct timer *timer;         /* owned: the next try */
    enum job_state state;
    bool stopping;
    int phase; /* -1: none yet */
    int n_phases;
    uint64_t reconnects; /* of Redis, when the phase began */
    uint64_t away_ms;    /* since when a backend fails; 0: it does not */
    int64_t db_size;     /* keys at the start */
    int64_t scanned;     /* in this phase, about */
    char why[256];       /* the failure, or what is waited for; or "" */
    struct args args;    /* of the call to Redis */
};

void job_init(struct job *j, struct uv_loop_s *loop,
              const struct job_kind *kind, void *arg);
/* The connections must be freed before. */
void job_deinit(struct job *j);
/* None may be running. */
void job_start(struct job *j, int n_phases);
/* It ends after the step under way. */
void job_stop(struct job *j);
/* The next step; once each, when one is over. */
void job_next(struct job *j);
/* The same after a pause. */
void job_later(struct job *j, unsigned ms);
/* A backend is away: the step is made again, but not for ever. */
void job_wait(struct job *j, const char *why);
/* The same, for as long as it takes. */
void job_wait_on(struct job *j, const char *why);
void job_fail(struct job *j, const char *why);
/* Sends j->args; what cannot be sent is tried again by job_next. */
void job_call(struct job *j, redis_on_reply cb);
void job_script(struct job *j, enum script_id id, redis_on_reply cb);
/* Whether the reply can be used. If not, it has been seen to. */
MUST_CHECK bool job_answered(struct job *j, enum redis_outcome outcome,
                             const struct redis_value *v);
/* Keys looked at, about, of so many in all phases. */
int64_t job_scanned(const struct job *j);
int64_t job_total(const struct job *j);

/* ---- SCAN and the like ---- */

#define SCAN_KEYS    200 /* of one SCAN */
#define SCAN_MEMBERS 250 /* of one SSCAN, ZSCAN */

struct scan_cursor {
    char text[24];
    bool open; /* there may be more */
};

void scan_start(struct scan_cursor *c);
/* On to what a reply of SCAN or the like says. */
void scan_move(struct scan_cursor *c, const struct redis_value *reply);
/* A text in a reply: a ref. */
struct resp_arg scan_text(const struct redis_value *v);

#endif
