/* SPDX-License-Identifier: MIT */
/* Every metric is one row of METRICS_TABLE: it makes the enum, the storage and
 * the Prometheus text. Rows of one name stand together; HELP and TYPE are
 * written once per name. */
#ifndef CORE_METRICS_H
#define CORE_METRICS_H

#include <stdint.h>

#include "base/buf.h"

/*  id, kind, name, labels, help */
#define METRICS_TABLE(X)                                                       \
    X(EVENTS_LIKE_CHANGED, COUNTER, "likesyncd_events_total",                  \
      "verb=\"like\",result=\"changed\"", "Events by verb and result.")        \
    X(EVENTS_LIKE_SAME, COUNTER, "likesyncd_events_total",                     \
      "verb=\"like\",result=\"same\"", "")                                     \
    X(EVENTS_LIKE_ERROR, COUNTER, "likesyncd_events_total",                    \
      "verb=\"like\",result=\"error\"", "")                                    \
    X(EVENTS_UNLIKE_CHANGED, COUNTER, "likesyncd_events_total",                \
      "verb=\"unlike\",result=\"changed\"", "")                                \
    X(EVENTS_UNLIKE_SAME, COUNTER, "likesyncd_events_total",                   \
      "verb=\"unlike\",result=\"same\"", "")                                   \
    X(EVENTS_UNLIKE_ERROR, COUNTER, "likesyncd_events_total",                  \
      "verb=\"unlike\",result=\"error\"", "")                                  \
    X(UPTIME, GAUGE, "likesyncd_uptime_seconds", "",                           \
      "Seconds since the daemon started.")

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE };

enum metric_id {
#define X(id, kind, name, labels, help) M_##id,
    METRICS_TABLE(X)
#undef X
        M_COUNT
};

void metric_add(enum metric_id id, uint64_t n);
void metric_set(enum metric_id id, double v);
double metric_get(enum metric_id id);
/* Appends all of them in the Prometheus text format 0.0.4. */
void metrics_render(struct buf *out);

#endif
