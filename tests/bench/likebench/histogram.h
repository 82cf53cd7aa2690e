/* SPDX-License-Identifier: MIT */
/* Times in microseconds, to three digits, as HdrHistogram keeps them: buckets are
 * 1 wide up to 2048, then 2 up to 4096, and so on. */
#ifndef LIKEBENCH_HISTOGRAM_H
#define LIKEBENCH_HISTOGRAM_H

#include <stdint.h>

#define HIST_HALF    1024
#define HIST_DOUBLES 17 /* 2048 µs × 2^16: over two minutes */

struct hist {
    uint64_t n;
    uint64_t max;
    uint64_t sum;
    uint64_t buckets[HIST_HALF * (HIST_DOUBLES + 1)];
};

/* More than it can hold counts as the most. */
void hist_add(struct hist *h, uint64_t us);

/* The least time that so many of all (0 to 1) do not exceed; never above the
 * longest. 0: none was added. */
uint64_t hist_quantile(const struct hist *h, double share);

#endif
