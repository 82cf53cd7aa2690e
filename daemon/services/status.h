/* SPDX-License-Identifier: MIT */
/* How the daemon is, for load balancers and for the status page. What the
 * metrics and the history hold is taken from there. */
#ifndef SERVICES_STATUS_H
#define SERVICES_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/edge.h"
#include "services/flusher.h"

struct dead_letters_recent;
struct hottest;
struct service;

/* All pointers are refs. */
struct status {
    const char *instance;
    int64_t now_us; /* Unix time */
    double uptime_s;
    bool stopping;
    bool redis_open; /* and what is the matter, if not */
    const char *redis;
    bool pg_up;
    const char *postgres;
    enum id_type post_type;
    struct flusher_status kinds[EDGE_COUNT];
    struct flusher_status all;     /* of all kinds */
    const struct hottest *hottest; /* posts */
    const struct dead_letters_recent *dead_letters;
};

/* Redis' state in words: that it is connected is not enough, since recovery may
 * have to wait, or not want it. */
const char *status_redis(const struct service *s);

/* Appends one line for each thing that is missing; returns how many there are,
 * 0 when all is as it should be. */
size_t status_missing(const struct status *s, struct buf *out);

/* Appends one line for `systemctl status`, of at most STATUS_LINE_MAX bytes (a test
 * checks it): what is away comes first, since a terminal cuts at its width, and each
 * part is there however much a backend says. */
#define STATUS_LINE_MAX 768
void status_line(const struct status *s, struct buf *out);

/* Appends an object of JSON of at most STATUS_JSON_MAX bytes (a test checks it).
 *   ready, missing [text], version, instance, now_ms, uptime_s
 *   redis, postgres {up, state}, flusher "running" | "paused"
 *   clients {connected, refused}
 *   kinds [{kind, changed, same, error, backlog_rows, owners_dirty,
 *           owners_on_record, batches_in_flight, lag_ms}]
 *   samples [[ms, events/s, other requests/s, rows written/s, backlog rows,
 *             lag in s]], flushes [[ms, kind, rows, ms it took]], oldest first
 *   hottest [[post, about how many events of late]]
 *   dead_letters {known, error (why the last question failed, or null), total,
 *                 newest [{id, what, sqlstate, reason, at_ms}]}
 * All times are Unix times. What is not known is null: of kinds and samples what
 * Redis was not asked yet, and the lag as long as there is no watermark. */
#define STATUS_JSON_MAX 131072
void status_json(const struct status *s, struct buf *out);

#endif
