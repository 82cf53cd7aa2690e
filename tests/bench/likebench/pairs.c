/* SPDX-License-Identifier: MIT */
#include "pairs.h"

#include <math.h>

/* The finalizer of SplitMix64. */
uint64_t scramble(uint64_t n)
{
    n += 0x9e3779b97f4a7c15ULL;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
    return n ^ (n >> 31);
}

static double unit(uint64_t n)
{
    return (double)(scramble(n) >> 11) * 0x1p-53;
}

static double zipf_h(double s, double x)
{
    return pow(x, 1 - s) / (1 - s);
}

static double zipf_h_inverse(double s, double y)
{
    return pow((1 - s) * y, 1 / (1 - s));
}

/* W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from
 * monotone discrete distributions" (1996): a rank from 1 to n. Chance is drawn
 * from the number of the event. */
static uint64_t zipf(double s, uint64_t n, uint64_t event)
{
    double low = zipf_h(s, 1.5) - 1;
    double high = zipf_h(s, (double)n + 0.5);

    for (uint64_t turn = event << 8;; turn++) {
        double y = high + unit(turn) * (low - high);
        double x = zipf_h_inverse(s, y);
        uint64_t rank = (uint64_t)(x + 0.5);

        rank = rank < 1 ? 1 : rank > n ? n : rank;
        if (y >= zipf_h(s, (double)rank + 0.5) - pow((double)rank, -s))
            return rank;
    }
}

struct pair pair_of(const struct options *o, uint64_t i)
{
    uint64_t churn = o->churn > 1 ? o->churn : 1;
    uint64_t number = i / churn;
    uint64_t other = number;

    if (o->zipf > 1)
        other = zipf(o->zipf, o->others, number);
    else if (o->others)
        other = number * 2654435761ULL % o->others;
    return (struct pair){ID_BASE + number, ID_BASE + other, i % churn % 2 == 0};
}
