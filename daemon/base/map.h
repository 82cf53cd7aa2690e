/* SPDX-License-Identifier: MIT */
/* Intrusive hash table keyed by byte strings (seeded hash: keys come from
 * clients). The node lives in the caller's object, as does the key. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_node {
    struct map_node *next; /* ref: same bucket */
    const char *key;       /* ref: owned by the object that holds the node */
    size_t key_len;
    uint64_t hash;
};

struct map {
    struct map_node **buckets; /* owned array of refs */
    size_t n_buckets;          /* power of two, 0 before the first insert */
    size_t count;
};

/* Zero-initialised is an empty map. NULL when the key is not there. */
struct map_node *map_find(const struct map *m, const char *key, size_t len);
/* The key must not be there yet. Sets node's key fields. */
void map_insert(struct map *m, struct map_node *node, const char *key,
                size_t len);
/* The node must be there. Shrinks when mostly empty. */
void map_remove(struct map *m, struct map_node *node);
/* Frees the bucket array; nodes belong to the caller. */
void map_free(struct map *m);

#endif
