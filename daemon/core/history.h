/* SPDX-License-Identifier: MIT */
/* What the status page draws: samples of the metrics over the last minutes, and
 * the last flushes. Rings of fixed size, static storage as the metrics have. */
#ifndef CORE_HISTORY_H
#define CORE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define HISTORY_STEP_MS 5000
#define HISTORY_SAMPLES 180 /* 15 minutes */
#define HISTORY_FLUSHES 60

struct history_sample {
    int64_t at_ms;  /* Unix time */
    double events;  /* per second since the sample before it */
    double reads;   /* all other requests */
    double written; /* rows per second */
    double backlog; /* rows; NaN: not known */
    double lag_s;   /* of the kind that is further behind; NaN */
};

struct history_flush {
    int64_t at_ms; /* Unix time of its last ack */
    int kind;      /* enum edge_index */
    size_t rows;
    uint64_t us; /* from its claim, or takeover, on */
};

/* Takes a sample when one is due; to be called about once a second. */
void history_tick(int64_t now_ms);
void history_flushed(const struct history_flush *f);

/* i from 0, the oldest first; NULL behind the newest. */
const struct history_sample *history_sample_at(size_t i);
const struct history_flush *history_flush_at(size_t i);

#endif
