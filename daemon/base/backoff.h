/* SPDX-License-Identifier: MIT */
/* Capped exponential backoff with jitter: attempt n waits a random time in
 * [d/2, d], d = min(cap, base * 2^n). */
#ifndef BASE_BACKOFF_H
#define BASE_BACKOFF_H

#include <stdint.h>

struct backoff {
    unsigned base_ms;
    unsigned cap_ms;
    unsigned attempt;
};

void backoff_init(struct backoff *b, unsigned base_ms, unsigned cap_ms);
/* How long to wait before the next attempt; moves one attempt on. */
unsigned backoff_next_ms(struct backoff *b);
void backoff_reset(struct backoff *b);

/* A fast generator for jitter and ids, seeded from getrandom(2); not for
 * secrets. */
uint64_t random_u64(void);

#endif
