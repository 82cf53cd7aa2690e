/* SPDX-License-Identifier: MIT */
/* Totals per owner: what PostgreSQL counts and what is not synced yet. */
#ifndef SERVICES_COUNTS_H
#define SERVICES_COUNTS_H

#include <stddef.h>
#include <stdint.h>

struct counts;
struct engine;
struct lookup;
struct request;

struct counts_owner {
    const char *key; /* ref, key form; copied by counts_get */
    size_t len;
};

/* Totals in the order asked; NULL with an error reply when a backend is away,
 * or has too much to do. */
typedef void (*counts_on_done)(void *arg, const int64_t *totals,
                               const char *why);

struct counts *counts_new(const struct engine *e, struct lookup *lookup);
/* Those that wait are refused. The connections must be freed before. */
void counts_free(struct counts *counts);

/* Owners at a time: all are read by one script call. */
#define COUNTS_MAX 1024
/* One round trip to Redis when all totals are kept there; else one query and a
 * second round trip that keeps them, which is repeated while an owner's rows are
 * just being written, for postgres.lookup_timeout_ms. Each total is exact: what
 * the events that were answered come to, one after the other. Exactly one
 * callback, perhaps before this returns. */
void counts_get(struct counts *counts, struct request *rq,
                const struct counts_owner *owners, size_t n, counts_on_done cb,
                void *arg);

#endif
