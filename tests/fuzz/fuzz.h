/* SPDX-License-Identifier: MIT */
/* What the fuzz targets have in common. Each states properties of a parser, and
 * aborts where an input breaks one. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define CHECK(truth)                                                           \
    do {                                                                       \
        if (!(truth)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__,         \
                    #truth);                                                   \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* Called by libFuzzer; the return value has to be 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Choices that depend on nothing but the input (FNV-1a, then xorshift64). */
struct choice {
    uint64_t state;
};

static inline struct choice choice_of(const uint8_t *data, size_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * UINT64_C(1099511628211);
    return (struct choice){hash | 1};
}

static inline size_t choose(struct choice *c, size_t below)
{
    c->state ^= c->state << 13;
    c->state ^= c->state >> 7;
    c->state ^= c->state << 17;
    return (size_t)(c->state >> 11) % below;
}

/* Exactly these bytes, so that ASan sees a read of one more. Owned. */
static inline char *exact_copy(const void *data, size_t size)
{
    char *copy = malloc(size);

    CHECK(copy || size == 0);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

static inline int buf_same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len &&
           (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

#endif
