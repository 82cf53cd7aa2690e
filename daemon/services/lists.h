/* SPDX-License-Identifier: MIT */
/* Loads the lists of a kind with lists into Redis, from PostgreSQL, in steps of
 * LISTS_STEP rows, newest first (lua/lists.lua says how far one is). */
#ifndef SERVICES_LISTS_H
#define SERVICES_LISTS_H

#include <stddef.h>

#include "base/compiler.h"
#include "core/list_names.h"

struct engine;
struct lookup;
struct lists;

/* Rows of one query and of one script call. */
#define LISTS_STEP 100

/* `why` NULL: look again; else an error reply that says why not, valid during
 * the call. */
typedef void (*lists_on_there)(void *arg, const char *why);

struct lists *lists_new(const struct engine *e, struct lookup *lookup);
/* Those who wait are refused. The connections and the lookup must be freed
 * before. */
void lists_free(struct lists *l);

/* Loads the list of a user (id in key form), or goes on with it, to its end; other
 * calls for the same list join in. The callback comes once about `want` of its
 * newest entries are there (0: all of them), or after
 * postgres.lookup_timeout_ms, or when a backend is away: exactly once, never
 * before this returns. Or without callback: */
#define LISTS_FULL 1 /* too many lists or callers wait */
MUST_CHECK int lists_load(struct lists *l, enum list_side side,
                          const char *user, size_t len, size_t want,
                          lists_on_there cb, void *arg);

/* Appends the error reply to who needs a list whose key is something else. */
void lists_put_wrong_type(const struct list_names *names, enum list_side side,
                          const char *user, size_t len, struct buf *out);

#endif
