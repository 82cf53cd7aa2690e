/* SPDX-License-Identifier: MIT */
/* Totals per owner: what PostgreSQL counts and what is not synced yet. */
#ifndef SERVICES_COUNTS_H
#define SERVICES_COUNTS_H

#include <stddef.h>
#include <stdint.h>

struct engine;

struct counts_owner {
    const char *key; /* ref, key form; copied by counts_get */
    size_t len;
};

/* Totals in the order asked; NULL with the reason when a backend is away. */
typedef void (*counts_on_done)(void *arg, const int64_t *totals,
                               const char *why);

/* One round trip to Redis and one query, side by side. Exact when no batch of
 * the owner is between its commit and its ack. Exactly one callback, perhaps
 * before this returns. */
void counts_get(const struct engine *e, const struct counts_owner *owners,
                size_t n, counts_on_done cb, void *arg);

#endif
