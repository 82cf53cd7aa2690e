/* SPDX-License-Identifier: MIT */
/* The keys that come most often of late, in bounded memory: Space-Saving
 * (Metwally and others, 2005) over HOTTEST_PLACES counters, which are halved now
 * and then. A count is exact as long as there are places; after that a key that
 * takes the place of another counts on from what that one had, and may be too
 * high. */
#ifndef CORE_HOTTEST_H
#define CORE_HOTTEST_H

#include <stddef.h>
#include <stdint.h>

#include "core/ids.h"

#define HOTTEST_PLACES 128

struct hottest;

struct hottest_entry {
    char key[ID_KEY_MAX];
    size_t len;
    uint64_t count;
};

struct hottest *hottest_new(void);
void hottest_free(struct hottest *h);
/* len is at most ID_KEY_MAX. */
void hottest_add(struct hottest *h, const char *key, size_t len);
/* Halves all counts: older events count less. */
void hottest_fade(struct hottest *h);
/* The n that come most often, those first; returns how many there are. */
size_t hottest_top(const struct hottest *h, struct hottest_entry *out,
                   size_t n);

#endif
