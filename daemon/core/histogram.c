/* SPDX-License-Identifier: MIT */
/* Storage and Prometheus text of the histograms. */
#include "core/histogram.h"

#include <string.h>

#include "base/compiler.h"

struct histogram_row {
    const char *name;
    const char *labels;
    const char *help;
};

static const struct histogram_row rows[H_COUNT] = {
#define X(id, name, labels, help) [H_##id] = {name, labels, help},
    HISTOGRAMS_TABLE(X)
#undef X
};

/* Upper bounds, inclusive; a last bucket takes what is above. */
static const struct {
    uint64_t us;
    const char *seconds;
} bounds[] = {
    {100, "0.0001"},  {250, "0.00025"}, {500, "0.0005"},  {1000, "0.001"},
    {2500, "0.0025"}, {5000, "0.005"},  {10000, "0.01"},  {25000, "0.025"},
    {50000, "0.05"},  {100000, "0.1"},  {250000, "0.25"}, {500000, "0.5"},
    {1000000, "1"},   {2500000, "2.5"}, {5000000, "5"},   {10000000, "10"},
};

static struct {
    uint64_t counts[ARRAY_LEN(bounds) + 1];
    uint64_t sum_us;
} histograms[H_COUNT];

void histogram_observe(enum histogram_id id, uint64_t us)
{
    size_t i = 0;

    while (i < ARRAY_LEN(bounds) && us > bounds[i].us)
        i++;
    histograms[id].counts[i]++;
    histograms[id].sum_us += us;
}

/* Buckets are cumulative. */
static void put_histogram(struct buf *out, enum histogram_id id)
{
    const struct histogram_row *row = &rows[id];
    unsigned long long n = 0;

    for (size_t i = 0; i <= ARRAY_LEN(bounds); i++) {
        n += histograms[id].counts[i];
        buf_printf(out, "%s_bucket{%s,le=\"%s\"} %llu\n", row->name,
                   row->labels,
                   i < ARRAY_LEN(bounds) ? bounds[i].seconds : "+Inf", n);
    }
    buf_printf(out, "%s_sum{%s} %.6f\n", row->name, row->labels,
               (double)histograms[id].sum_us / 1e6);
    buf_printf(out, "%s_count{%s} %llu\n", row->name, row->labels, n);
}

void histograms_render(struct buf *out)
{
    for (int i = 0; i < H_COUNT; i++) {
        if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0)
            buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", rows[i].name,
                       rows[i].help, rows[i].name);
        put_histogram(out, (enum histogram_id)i);
    }
}
