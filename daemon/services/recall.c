/* SPDX-License-Identifier: MIT */
/* The memory of lookups, so that users who never liked anything neither cost a
 * query for each page that they see, nor fill Redis with what is not there.
 *
 * Why it is right: Redis is asked first, always, and only a pair that it does not
 * know is recalled. Whatever changed the pair since PostgreSQL was asked, by any
 * daemon, wrote its hash, which stays until its ack and for cache.ttl behind it,
 * 60 s at least; an answer is used for half of that (RECALL_US, as ASKED_MAX in
 * common.lua). So where there is no hash, nothing was changed.
 *
 * That holds for one history of Redis. One that was emptied or came back older
 * may lack a hash, so each answer of state.lua tells its history: generation, and
 * when that began (recover.lua). With another one nothing is recalled that was
 * asked before it was seen, nor what is under way to PostgreSQL then. (ack.lua
 * begins one, too, for a row without a hash: written for a record that Redis
 * lost; recover.lua, when Redis has evicted keys.) Where Redis may evict hashes
 * (maxmemory-policy volatile-*), nothing is recalled at all (states.c).
 *
 * The clock is the monotonic one: only ages are compared, and the system's clock
 * may be set back. Events do not use this: a base carries the time at which Redis
 * missed the pair (event.lua), and leaves a hash behind it.
 *
 * Nothing is dropped at once, since that would take the loop long: old entries
 * are passed by, and go a few at a time as new ones come. */
#include "services/recall.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/ids.h"
#include "services/lookup.h"

#define HISTORY_MAX 64
#define DROP_STEPS  4 /* more than one, so that the old do not stay */

struct entry {
    struct map_node map_node; /* key: owner, a space, member */
    struct list node;         /* in entries */
    uint64_t asked_us;
    struct lookup_state state;
    size_t bytes;
    char key[];
};

struct recall {
    struct map map;
    struct list entries; /* the oldest first */
    size_t bytes;
    uint64_t since_us; /* what was asked before does not count */
    char history[HISTORY_MAX];
    enum metric_id metric;
};

struct recall *recall_new(enum metric_id entries)
{
    struct recall *r = mem_zalloc(sizeof(*r));

    list_init(&r->entries);
    r->metric = entries;
    return r;
}

static void entry_free(struct recall *r, struct entry *e)
{
    list_remove(&e->node);
    map_remove(&r->map, &e->map_node);
    r->bytes -= e->bytes;
    free(e);
}

void recall_free(struct recall *r)
{
    if (!r)
        return;
    LIST_FOREACH_SAFE(it, &r->entries)
        entry_free(r, LIST_ENTRY(it, struct entry, node));
    map_free(&r->map);
    free(r);
}

void recall_history(struct recall *r, uint64_t now_us, const char *history,
                    size_t len)
{
    if (len >= HISTORY_MAX)
        len = 0;
    if (strlen(r->history) == len && memcmp(r->history, history, len) == 0)
        return;
    memcpy(r->history, history, len);
    r->history[len] = '\0';
    r->since_us = now_us;
}

static size_t key_make(const struct recall_pair *p,
                       char key[2 * ID_KEY_MAX + 1])
{
    memcpy(key, p->owner, p->owner_len);
    key[p->owner_len] = ' ';
    memcpy(key + p->owner_len + 1, p->member, p->member_len);
    return p->owner_len + 1 + p->member_len;
}

static struct entry *entry_find(const struct recall *r, const char *key,
                                size_t len)
{
    struct map_node *node = map_find(&r->map, key, len);

    return node ? CONTAINER_OF(node, struct entry, map_node) : NULL;
}

static bool is_old(const struct recall *r, uint64_t now_us, uint64_t asked_us)
{
    return asked_us < r->since_us || asked_us + RECALL_US <= now_us;
}

bool recall_get(struct recall *r, uint64_t now_us,
                const struct recall_pair *pair, struct lookup_state *state_r)
{
    char key[2 * ID_KEY_MAX + 1];
    struct entry *e;

    if (!r->history[0])
        return false;
    e = entry_find(r, key, key_make(pair, key));
    if (!e || is_old(r, now_us, e->asked_us))
        return false;
    *state_r = e->state;
    metric_add(M_RECALL_HITS, 1);
    return true;
}

static void drop_old(struct recall *r, uint64_t now_us)
{
    for (int i = 0; i < DROP_STEPS && !list_empty(&r->entries); i++) {
        struct entry *e = LIST_ENTRY(r->entries.next, struct entry, node);

        if (!is_old(r, now_us, e->asked_us))
            return;
        entry_free(r, e);
    }
}

static void make_room(struct recall *r, size_t bytes)
{
    while (r->map.count >= RECALL_MAX || r->bytes + bytes > RECALL_BYTES)
        entry_free(r, LIST_ENTRY(r->entries.next, struct entry, node));
}

void recall_put(struct recall *r, uint64_t asked_us,
                const struct recall_pair *pair,
                const struct lookup_state *state)
{
    char key[2 * ID_KEY_MAX + 1];
    size_t len = key_make(pair, key);
    struct entry *e = entry_find(r, key, len);

    if (!r->history[0] || asked_us < r->since_us ||
        (e && e->asked_us > asked_us))
        return;
    if (e)
        entry_free(r, e);
    drop_old(r, asked_us);
    make_room(r, sizeof(*e) + len);
    e = mem_alloc(sizeof(*e) + len);
    e->asked_us = asked_us;
    e->state = *state;
    e->bytes = sizeof(*e) + len;
    memcpy(e->key, key, len);
    map_insert(&r->map, &e->map_node, e->key, len);
    list_push_back(&r->entries, &e->node);
    r->bytes += e->bytes;
    metric_set(r->metric, (double)r->map.count);
}

void recall_forget(struct recall *r, const struct recall_pair *pair)
{
    char key[2 * ID_KEY_MAX + 1];
    struct entry *e = entry_find(r, key, key_make(pair, key));

    if (!e)
        return;
    entry_free(r, e);
    metric_set(r->metric, (double)r->map.count);
}
