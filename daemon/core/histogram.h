/* SPDX-License-Identifier: MIT */
/* Times, counted by how long: Prometheus histograms. Every one is a row of
 * HISTOGRAMS_TABLE, as metrics are rows of theirs (core/metrics.h); rows of one
 * name stand together, the first of them holds the help. */
#ifndef CORE_HISTOGRAM_H
#define CORE_HISTOGRAM_H

#include <stdint.h>

#include "base/buf.h"

/*  id, name, labels, help */
#define HISTOGRAMS_TABLE(X)                                                    \
    X(REQUEST_EVENT, "likesyncd_request_seconds", "class=\"event\"",           \
      "Time from a request to its reply, of writes, reads and all others.")    \
    X(REQUEST_READ, "likesyncd_request_seconds", "class=\"read\"", "")         \
    X(REQUEST_OTHER, "likesyncd_request_seconds", "class=\"other\"", "")       \
    X(LOOKUP_LIKE, "likesyncd_lookup_seconds", "kind=\"like\"",                \
      "Time of a query that asks PostgreSQL for unknown pairs.")               \
    X(LOOKUP_FOLLOW, "likesyncd_lookup_seconds", "kind=\"follow\"", "")        \
    X(CLAIM_LIKE, "likesyncd_claim_seconds", "kind=\"like\"",                  \
      "Time of a call that puts rows on record in Redis.")                     \
    X(CLAIM_FOLLOW, "likesyncd_claim_seconds", "kind=\"follow\"", "")          \
    X(WRITE_LIKE, "likesyncd_write_seconds", "kind=\"like\"",                  \
      "Time to write a batch to PostgreSQL, repeats included.")                \
    X(WRITE_FOLLOW, "likesyncd_write_seconds", "kind=\"follow\"", "")          \
    X(ACK_LIKE, "likesyncd_ack_seconds", "kind=\"like\"",                      \
      "Time of a call that tells Redis what was committed.")                   \
    X(ACK_FOLLOW, "likesyncd_ack_seconds", "kind=\"follow\"", "")

enum histogram_id {
#define X(id, name, labels, help) H_##id,
    HISTOGRAMS_TABLE(X)
#undef X
        H_COUNT
};

/* Rows by kind of edge stand in the order of enum edge_index; `first` is that of
 * kind 0. */
static inline enum histogram_id histogram_of(enum histogram_id first, int kind)
{
    return (enum histogram_id)((int)first + kind);
}

void histogram_observe(enum histogram_id id, uint64_t us);
/* Appends all of them in the Prometheus text format 0.0.4. */
void histograms_render(struct buf *out);

#endif
