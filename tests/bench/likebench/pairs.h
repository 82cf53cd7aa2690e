/* SPDX-License-Identifier: MIT */
/* Which pair an event is about. The same numbers give the same pairs, so that a
 * second run finds those of the first. */
#ifndef LIKEBENCH_PAIRS_H
#define LIKEBENCH_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

struct pair {
    uint64_t user;
    uint64_t other;
    bool on; /* of --churn: whether it begins */
};

/* A number that looks like chance, of another. */
uint64_t scramble(uint64_t n);

/* Of event `i`: each has a user of its own, unless there is churn. */
struct pair pair_of(const struct options *o, uint64_t i);

#endif
