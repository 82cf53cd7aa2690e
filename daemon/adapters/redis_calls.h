/* SPDX-License-Identifier: MIT */
/* The commands that wait for Redis' answer, oldest first. */
#ifndef ADAPTERS_REDIS_CALLS_H
#define ADAPTERS_REDIS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapters/redis.h"
#include "base/list.h"

struct redis_calls {
    struct list list; /* owned calls */
    size_t n;
    size_t bytes; /* of the commands, about */
};

/* One of the owner's, or (cb NULL) one of the connection's own. */
struct redis_pending {
    redis_on_reply cb;
    void *arg;
};

void redis_calls_init(struct redis_calls *q);
/* Whether one more of this size would be over the caps. One that is larger than
 * the cap may go alone. */
bool redis_calls_full(const struct redis_calls *q, size_t bytes);
void redis_calls_push(struct redis_calls *q, size_t bytes, uint64_t now_ms,
                      redis_on_reply cb, void *arg);
/* Takes the oldest one. There must be one. */
struct redis_pending redis_calls_pop(struct redis_calls *q);
/* When the oldest one was sent. There must be one. */
uint64_t redis_calls_oldest_ms(const struct redis_calls *q);
/* How many are the owner's. */
size_t redis_calls_owners(const struct redis_calls *q);

/* What a command takes on the wire, about. */
size_t redis_calls_size(int argc, const size_t *len);

#endif
