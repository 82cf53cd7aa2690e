/* SPDX-License-Identifier: MIT */
/* What the operator's long jobs have in common: how one stands, and where it is
 * in what Redis lists by SCAN and the like. */
#ifndef SERVICES_JOB_H
#define SERVICES_JOB_H

#include <stdbool.h>

#include "adapters/redis.h"
#include "core/resp.h"

enum job_state { JOB_IDLE, JOB_RUNNING, JOB_DONE, JOB_STOPPED, JOB_FAILED };

/* For a STATUS. */
const char *job_state_name(enum job_state state);

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
