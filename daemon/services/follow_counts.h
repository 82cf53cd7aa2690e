/* SPDX-License-Identifier: MIT */
/* How many users follow and are followed by: from their lists where these are
 * loaded, else from what PostgreSQL counts and what is not synced yet. */
#ifndef SERVICES_FOLLOW_COUNTS_H
#define SERVICES_FOLLOW_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "services/engine.h"

struct follow_counts;
struct lists;
struct request;

struct follow_count {
    int64_t of[2]; /* by enum list_side: follows, followers */
};

/* In the order asked; NULL with an error reply when a backend that is needed is
 * away, or has too much to do. */
typedef void (*follow_counts_on_done)(void *arg,
                                      const struct follow_count *counts,
                                      size_t n, const char *why);

struct follow_counts *follow_counts_new(const struct engine *e,
                                        struct lists *lists);
/* Those that wait are refused. The connections and the lists must be freed
 * before. */
void follow_counts_free(struct follow_counts *fc);

/* At most so many users at a time, ids in key form; `users` is taken over.
 * FOLLOW_COUNTS_STEP of them are read at a time for this request; exact unless claims or acks
 * come in between FOLLOW_COUNTS_TRIES times: then a count may be off by what is
 * between commit and ack. Exactly one callback, perhaps before this returns. */
#define FOLLOW_COUNTS_MAX   1024
#define FOLLOW_COUNTS_STEP  16
#define FOLLOW_COUNTS_TRIES 40
void follow_counts_get(struct follow_counts *fc, struct request *rq,
                       struct args *users, follow_counts_on_done cb, void *arg);

#endif
