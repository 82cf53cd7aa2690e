/* SPDX-License-Identifier: MIT */
/* When all places are taken, only each MISS_STEP-th key without one takes the
 * least, and counts for all of them: finding the least goes through all places,
 * which must not be done for every event. */
#include "core/hottest.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

#define MISS_STEP 8

struct place {
    struct map_node node;
    struct hottest_entry entry; /* count 0: free */
};

struct hottest {
    struct map map; /* of the places taken */
    struct place places[HOTTEST_PLACES];
    unsigned missed; /* since the least was replaced */
};

struct hottest *hottest_new(void)
{
    return mem_zalloc(sizeof(struct hottest));
}

void hottest_free(struct hottest *h)
{
    if (!h)
        return;
    map_free(&h->map);
    free(h);
}

static struct place *least(struct hottest *h)
{
    struct place *least = &h->places[0];

    for (size_t i = 1; i < HOTTEST_PLACES && least->entry.count > 0; i++) {
        if (h->places[i].entry.count < least->entry.count)
            least = &h->places[i];
    }
    return least;
}

static void place_take(struct hottest *h, struct place *p, const char *key,
                       size_t len)
{
    if (p->entry.count > 0)
        map_remove(&h->map, &p->node);
    memcpy(p->entry.key, key, len);
    p->entry.len = len;
    map_insert(&h->map, &p->node, p->entry.key, len);
}

void hottest_add(struct hottest *h, const char *key, size_t len)
{
    struct map_node *node = map_find(&h->map, key, len);
    bool full = h->map.count == HOTTEST_PLACES;
    struct place *p;

    if (node) {
        CONTAINER_OF(node, struct place, node)->entry.count++;
        return;
    }
    if (full && ++h->missed < MISS_STEP)
        return;
    h->missed = 0;
    p = least(h);
    place_take(h, p, key, len);
    p->entry.count += full ? MISS_STEP : 1;
}

void hottest_fade(struct hottest *h)
{
    for (size_t i = 0; i < HOTTEST_PLACES; i++) {
        struct place *p = &h->places[i];

        if (p->entry.count == 1)
            map_remove(&h->map, &p->node);
        p->entry.count /= 2;
    }
}

/* A place by its count. */
struct rank {
    uint64_t count;
    size_t place;
};

static int compare(const void *a, const void *b)
{
    const struct rank *x = a;
    const struct rank *y = b;

    return x->count < y->count ? 1 : x->count > y->count ? -1 : 0;
}

size_t hottest_top(const struct hottest *h, struct hottest_entry *out, size_t n)
{
    struct rank ranks[HOTTEST_PLACES];
    size_t taken = 0;

    for (size_t i = 0; i < HOTTEST_PLACES; i++) {
        if (h->places[i].entry.count > 0)
            ranks[taken++] = (struct rank){h->places[i].entry.count, i};
    }
    qsort(ranks, taken, sizeof(*ranks), compare);
    if (n > taken)
        n = taken;
    for (size_t i = 0; i < n; i++)
        out[i] = h->places[ranks[i].place].entry;
    return n;
}
