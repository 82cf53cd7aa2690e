/* SPDX-License-Identifier: MIT */
/* Takes events: batches them into the event script, looks up pairs that Redis
 * does not know, and keeps the order per pair (a pair is in at most one batch
 * under way; its later events wait). */
#ifndef SERVICES_INGEST_H
#define SERVICES_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct engine;
struct lists;
struct lookup;
struct ingest;

enum ingest_result {
    INGEST_SAME, /* already so */
    INGEST_CHANGED,
    INGEST_FUTURE, /* client time too far ahead: not recorded */
    INGEST_BAD,    /* a key of the pair holds something else: not recorded */
    INGEST_FULL,   /* Redis refuses to grow: not recorded */
    INGEST_UNAVAILABLE, /* Redis is away: not recorded */
    INGEST_UNKNOWN,     /* sent, and no answer; it happened by now, or never */
    INGEST_LIMIT,       /* the owner has follow.max_following already: not
                           recorded */
    INGEST_TRYAGAIN,    /* the text says why: not recorded */
};

/* `text` explains a result that is an error; "" otherwise. */
typedef void (*ingest_on_done)(void *arg, enum ingest_result result,
                               const char *text);

/* lists: NULL for a kind without. */
struct ingest *ingest_new(const struct engine *e, struct lookup *lookup,
                          struct lists *lists);
/* Events still waiting are answered INGEST_UNAVAILABLE. The connections and the
 * lists must be freed before. */
void ingest_free(struct ingest *in);

/* Redis may be used, or not (`why` is kept for messages). While it is not,
 * events wait half a second, then are refused. */
void ingest_open(struct ingest *in);
void ingest_close(struct ingest *in, const char *why);
/* What the clock of Redis said, just now; from time to time, and before
 * ingest_open. */
void ingest_heard(struct ingest *in, int64_t redis_us);

/* An event: status 1 make, 0 take back; at_us the client's time or -1. Ids in
 * key form. 0 and exactly one callback, never before this returns; or without
 * callback: */
#define INGEST_OVERLOAD 1 /* redis.max_queue events wait */
#define INGEST_AWAY     2 /* Redis has been away for longer; ingest_why says why */
MUST_CHECK int ingest_submit(struct ingest *in, const char *owner,
                             size_t owner_len, const char *member,
                             size_t member_len, int status, int64_t at_us,
                             ingest_on_done cb, void *arg);
const char *ingest_why(const struct ingest *in);
/* Events not answered yet. */
size_t ingest_pending(const struct ingest *in);

#endif
