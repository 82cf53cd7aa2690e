/* SPDX-License-Identifier: MIT */
/* What an event is on the wire. */
#ifndef LIKEBENCH_WORKLOAD_H
#define LIKEBENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "pairs.h"

#define EVENT_MAX 1024 /* bytes of one event's requests, at most */

struct workload {
    const char *name;
    const char *help;
    /* Writes the requests of event `i`; returns how many bytes. */
    size_t (*put)(const struct options *o, char *p, uint64_t i);
    unsigned replies; /* of an event */
    bool needs_sha;
    bool needs_known;
};

extern const struct workload workloads[];
extern const size_t workload_count;

/* NULL: there is none of this name. */
const struct workload *workload_find(const char *name);

#endif
