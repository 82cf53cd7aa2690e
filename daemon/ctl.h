/* SPDX-License-Identifier: MIT */
/* What the verbs of likesyncctl share. */
#ifndef CTL_H
#define CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "ctl_conn.h"

#define CTL_PROGRESS_MS 200
#define CTL_BAR         30

enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    /* of verify */
    EXIT_DIFFERENT = 1,
    EXIT_UNKNOWN = 2
};

struct ctl {
    const char *where;         /* ref */
    const char *arg;           /* ref: of the verb; NULL: none */
    const char *password_file; /* ref; NULL: none */
    char *password;            /* owned; NULL: none */
    bool repair;
    bool compares; /* 1 is EXIT_DIFFERENT, so a failure is EXIT_UNKNOWN */
    int64_t timeout_ms;
    struct ctl_conn conn;
    struct buf why;
};

/* Says why; the exit status. */
int ctl_fail(struct ctl *ctl);
/* One request and its reply; not 0 when it failed, which was then said. */
MUST_CHECK int ctl_ask(struct ctl *ctl, int n, const char *const *words,
                       struct resp_value *v_r);
/* Of a reply that is a map: 0, or "", where there is no such field. */
int64_t ctl_field(const struct resp_value *v, const char *name);
const char *ctl_text(const struct resp_value *v, const char *name);
/* Over the one before, and to the end of the line, which may have been longer. */
void ctl_draw_bar(const char *what, int full, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* ---- ctl_job.c ---- */

/* A job of the daemon: `start[0]` also takes STATUS and STOP. */
struct ctl_job {
    const char *const *start; /* ref */
    int n_start;
    const char *doing; /* ref */
    void (*says)(const struct resp_value *v, struct buf *out);
};

/* Starts it and shows how far it is until it has ended. 0 and its last status, or
 * the exit status: what failed was said. */
MUST_CHECK int ctl_job_run(struct ctl *ctl, const struct ctl_job *job,
                           struct resp_value *v_r);
bool ctl_job_is(const struct resp_value *v, const char *state);
/* Says why it is not done; the exit status. */
int ctl_job_unfinished(struct ctl *ctl, const struct resp_value *v);

/* ctl_adopt.c */
int verb_adopt(struct ctl *ctl);
/* ctl_verify.c */
int verb_verify(struct ctl *ctl);

#endif
