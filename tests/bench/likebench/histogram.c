/* SPDX-License-Identifier: MIT */
#include "histogram.h"

#include <math.h>
#include <stddef.h>

#define BUCKETS (sizeof(((struct hist *)0)->buckets) / sizeof(uint64_t))

static size_t bucket_of(uint64_t us)
{
    unsigned shift = 0;
    size_t i;

    while (us >> shift >= 2 * HIST_HALF)
        shift++;
    i = shift * HIST_HALF + (size_t)(us >> shift);
    return i < BUCKETS ? i : BUCKETS - 1;
}

/* The highest that falls into it. */
static uint64_t top_of(size_t i)
{
    unsigned shift = i < 2 * HIST_HALF ? 0 : (unsigned)(i / HIST_HALF - 1);

    return ((uint64_t)(i - shift * HIST_HALF + 1) << shift) - 1;
}

void hist_add(struct hist *h, uint64_t us)
{
    h->n++;
    h->sum += us;
    h->max = us > h->max ? us : h->max;
    h->buckets[bucket_of(us)]++;
}

uint64_t hist_quantile(const struct hist *h, double share)
{
    uint64_t wanted = (uint64_t)ceil(share * (double)h->n);
    uint64_t seen = 0;

    for (size_t i = 0; i < BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= wanted && seen > 0)
            return top_of(i) < h->max ? top_of(i) : h->max;
    }
    return h->max;
}
