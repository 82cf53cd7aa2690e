/* SPDX-License-Identifier: MIT */
/* Capped backoff, and the random numbers for its jitter (xoshiro256**,
 * Blackman and Vigna: "Scrambled linear pseudorandom number generators"). */
#include "base/backoff.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

static uint64_t state[4];
static bool seeded;

static void seed(void)
{
    ssize_t n;

    do {
        n = getrandom(state, sizeof(state), 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(state)) {
        log_error("random", "getrandom: %s", strerror(errno));
        abort();
    }
    state[0] |= 1; /* all zero would stay all zero */
    seeded = true;
}

static uint64_t rotl(uint64_t v, unsigned bits)
{
    return (v << bits) | (v >> (64 - bits));
}

uint64_t random_u64(void)
{
    uint64_t result, shifted;

    if (!seeded)
        seed();
    result = rotl(state[1] * 5, 7) * 9;
    shifted = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotl(state[3], 45);
    return result;
}

void backoff_init(struct backoff *b, unsigned base_ms, unsigned cap_ms)
{
    *b = (struct backoff){.base_ms = base_ms, .cap_ms = cap_ms};
}

/* From 32 doublings on any base but 0 is over the cap. */
static unsigned ceiling_ms(const struct backoff *b)
{
    unsigned doublings = b->attempt < 32 ? b->attempt : 32;
    uint64_t ms = (uint64_t)b->base_ms << doublings;

    return ms < b->cap_ms ? (unsigned)ms : b->cap_ms;
}

unsigned backoff_next_ms(struct backoff *b)
{
    unsigned ms = ceiling_ms(b);
    unsigned least = ms / 2;

    if (b->attempt < UINT32_MAX)
        b->attempt++;
    return least + (unsigned)(random_u64() % ((uint64_t)ms - least + 1));
}

void backoff_reset(struct backoff *b)
{
    b->attempt = 0;
}
