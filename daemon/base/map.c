/* SPDX-License-Identifier: MIT */
/* Hash table with chains. The hash is SipHash-1-3 (Aumasson, Bernstein:
 * "SipHash: a fast short-input PRF") under a random key of the process: keys
 * come from clients, who must not be able to aim them at one bucket. */
#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/mem.h"

enum { MAP_MIN_BUCKETS = 16 };

struct sip {
    uint64_t a, b, c, d;
};

/* The key of this process; drawn at the first hash. */
static uint64_t sip_key[2];
static bool sip_keyed;

static void sip_draw_key(void)
{
    ssize_t n;

    do {
        n = getrandom(sip_key, sizeof(sip_key), 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(sip_key)) {
        log_error("map", "getrandom: %s", strerror(errno));
        abort();
    }
    sip_keyed = true;
}

static uint64_t rotl(uint64_t v, unsigned bits)
{
    return (v << bits) | (v >> (64 - bits));
}

static void sip_round(struct sip *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = rotl(s->b, 13) ^ s->a;
    s->d = rotl(s->d, 16) ^ s->c;
    s->a = rotl(s->a, 32);
    s->c += s->b;
    s->a += s->d;
    s->b = rotl(s->b, 17) ^ s->c;
    s->d = rotl(s->d, 21) ^ s->a;
    s->c = rotl(s->c, 32);
}

static void sip_word(struct sip *s, uint64_t word)
{
    s->d ^= word;
    sip_round(s);
    s->a ^= word;
}

static uint64_t sip_hash(const char *key, size_t len)
{
    struct sip s;
    uint64_t word;
    size_t at = 0;

    if (!sip_keyed)
        sip_draw_key();
    s.a = sip_key[0] ^ UINT64_C(0x736f6d6570736575);
    s.b = sip_key[1] ^ UINT64_C(0x646f72616e646f6d);
    s.c = sip_key[0] ^ UINT64_C(0x6c7967656e657261);
    s.d = sip_key[1] ^ UINT64_C(0x7465646279746573);
    for (; len - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, key + at, sizeof(word));
        sip_word(&s, word);
    }
    word = (uint64_t)len << 56;
    for (unsigned shift = 0; at < len; at++, shift += 8)
        word |= (uint64_t)(unsigned char)key[at] << shift;
    sip_word(&s, word);
    s.c ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return s.a ^ s.b ^ s.c ^ s.d;
}

static struct map_node **bucket_of(const struct map *m, uint64_t hash)
{
    return &m->buckets[hash & (m->n_buckets - 1)];
}

static void link_node(struct map *m, struct map_node *node)
{
    struct map_node **bucket = bucket_of(m, node->hash);

    node->next = *bucket;
    *bucket = node;
}

static void resize(struct map *m, size_t n_buckets)
{
    struct map old = *m;

    m->buckets = mem_zalloc(n_buckets * sizeof(struct map_node *));
    m->n_buckets = n_buckets;
    for (size_t i = 0; i < old.n_buckets; i++) {
        struct map_node *next;

        for (struct map_node *node = old.buckets[i]; node; node = next) {
            next = node->next;
            link_node(m, node);
        }
    }
    map_free(&old);
}

struct map_node *map_find(const struct map *m, const char *key, size_t len)
{
    struct map_node *node;
    uint64_t hash;

    if (!m->count)
        return NULL;
    hash = sip_hash(key, len);
    for (node = *bucket_of(m, hash); node; node = node->next) {
        if (node->hash == hash && node->key_len == len &&
            (!len || memcmp(node->key, key, len) == 0))
            return node;
    }
    return NULL;
}

void map_insert(struct map *m, struct map_node *node, const char *key,
                size_t len)
{
    if (m->count >= m->n_buckets)
        resize(m, m->n_buckets ? m->n_buckets * 2 : MAP_MIN_BUCKETS);
    node->key = key;
    node->key_len = len;
    node->hash = sip_hash(key, len);
    link_node(m, node);
    m->count++;
}

void map_remove(struct map *m, struct map_node *node)
{
    struct map_node **at;

    assert(m->count > 0);
    at = bucket_of(m, node->hash);
    while (*at != node) {
        assert(*at);
        at = &(*at)->next;
    }
    *at = node->next;
    node->next = NULL;
    m->count--;
    /* Far below the point of growth, so that it does not swing. */
    if (m->n_buckets > MAP_MIN_BUCKETS && m->count < m->n_buckets / 8)
        resize(m, m->n_buckets / 2);
}

void map_free(struct map *m)
{
    free(m->buckets);
    *m = (struct map){0};
}
