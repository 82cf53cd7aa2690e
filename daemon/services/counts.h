/* SPDX-License-Identifier: MIT */
/* Totals per owner: what PostgreSQL counts and what is not synced yet. */
#ifndef SERVICES_COUNTS_H
#define SERVICES_COUNTS_H

#include <stddef.h>
#include <stdint.h>

struct counts;
struct engine;

struct counts_owner {
    const char *key; /* ref, key form; copied by counts_get */
    size_t len;
};

/* Totals in the order asked; NULL with an error reply when a backend is away,
 * or has too much to do. */
typedef void (*counts_on_done)(void *arg, const int64_t *totals,
                               const char *why);

struct counts *counts_new(const struct engine *e);
/* Those that wait are refused. The connections must be freed before. */
void counts_free(struct counts *counts);

/* Two round trips to Redis and one query. The totals are exact when none of the
 * owners has pairs on record and nothing is claimed or acked meanwhile; as long
 * as that is not so it asks again, COUNTS_TRIES times, and then answers what it
 * has: it may be off by what is between commit and ack. Exactly one callback,
 * perhaps before this returns. */
#define COUNTS_TRIES 40
/* Owners at a time: all are read by one script call. */
#define COUNTS_MAX   1024
void counts_get(struct counts *counts, const struct counts_owner *owners,
                size_t n, counts_on_done cb, void *arg);

#endif
