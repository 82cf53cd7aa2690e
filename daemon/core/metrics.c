/* SPDX-License-Identifier: MIT */
/* Storage and Prometheus text of the metrics table. */
#include "core/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

struct metric_row {
    enum metric_kind kind;
    const char *name;
    const char *labels;
    const char *help;
};

static const struct metric_row rows[M_COUNT] = {
#define X(id, kind, name, labels, help)                                        \
    [M_##id] = {METRIC_##kind, name, labels, help},
    METRICS_TABLE(X)
#undef X
};

/* A double holds a count exactly up to 2^53. */
static double values[M_COUNT];

void metric_add(enum metric_id id, uint64_t n)
{
    values[id] += (double)n;
}

void metric_set(enum metric_id id, double v)
{
    values[id] = v;
}

double metric_get(enum metric_id id)
{
    return values[id];
}

static void put_head(struct buf *out, const struct metric_row *row)
{
    buf_printf(out, "# HELP %s %s\n", row->name, row->help);
    buf_printf(out, "# TYPE %s %s\n", row->name,
               row->kind == METRIC_COUNTER ? "counter" : "gauge");
}

/* Whole numbers up to 2^53, which is where doubles are no longer exact. */
static bool is_whole(double v)
{
    return fabs(v) <= 9007199254740992.0 && v == (double)(int64_t)v;
}

static void put_value(struct buf *out, double v)
{
    if (isnan(v))
        buf_puts(out, "NaN");
    else if (isinf(v))
        buf_puts(out, v > 0 ? "+Inf" : "-Inf");
    else if (is_whole(v))
        buf_put_i64(out, (int64_t)v);
    else
        buf_printf(out, "%.6f", v);
}

static void put_row(struct buf *out, const struct metric_row *row, double v)
{
    buf_puts(out, row->name);
    if (row->labels[0] != '\0')
        buf_printf(out, "{%s}", row->labels);
    buf_putc(out, ' ');
    put_value(out, v);
    buf_putc(out, '\n');
}

void metrics_render(struct buf *out)
{
    for (int i = 0; i < M_COUNT; i++) {
        bool first = i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0;
        if (first)
            put_head(out, &rows[i]);
        put_row(out, &rows[i], values[i]);
    }
}
