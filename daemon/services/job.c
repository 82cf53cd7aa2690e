/* SPDX-License-Identifier: MIT */
/* States and cursors of jobs. */
#include "services/job.h"

#include <stdio.h>
#include <string.h>

const char *job_state_name(enum job_state state)
{
    static const char *const names[] = {
        [JOB_IDLE] = "idle",     [JOB_RUNNING] = "running",
        [JOB_DONE] = "done",     [JOB_STOPPED] = "stopped",
        [JOB_FAILED] = "failed",
    };

    return names[state];
}

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
