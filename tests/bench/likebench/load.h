/* SPDX-License-Identifier: MIT */
/* Sends events on many connections and takes the time of each. Without a rate, a
 * connection sends a batch, waits for all its replies and sends the next, as
 * redis-benchmark does; times count from when the batch was sent. With a rate,
 * events are due at fixed times, however late the replies are, and times count
 * from then: what has to wait is as late as its user would find it. */
#ifndef LIKEBENCH_LOAD_H
#define LIKEBENCH_LOAD_H

#include <stdint.h>

#include "histogram.h"
#include "options.h"
#include "replies.h"

struct result {
    uint64_t events;    /* that were answered, with whatever */
    uint64_t kinds[4];  /* replies, by enum reply */
    char error[128];    /* the first */
    double seconds;     /* from the first event to the last reply */
    double cpu_seconds; /* of this process */
    struct hist took;
};

/* Until all events are answered, or --seconds are over or a SIGTERM came and what
 * was sent is answered. A connection that breaks, or no reply in 60 s, ends the
 * process with status 1 and a text on stderr. */
void load_run(const struct options *o, struct result *r);

#endif
