/* SPDX-License-Identifier: MIT */
/* Takes edges over, up to PAIRS_PER_CALL in a script.
 *
 * From lists: adopt_list.lua settles each. From hashes: adopt_hashes.lua settles
 * those that are nothing new; of the others PostgreSQL's rows are looked up, and
 * sent with them once more. A hash that was written just now is asked about again
 * a little later. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "services/adopt_internal.h"
#include "services/service.h"

#define PAIRS_PER_CALL 100
#define YOUNG_MS       300

/* As in adopt_hashes.lua. */
enum { CODE_GONE, CODE_TAKEN, CODE_KNOWN, CODE_ASK, CODE_LATER };

void adopt_pairs_clear(struct adopt_pairs *p)
{
    p->n = 0;
    buf_clear(&p->ids, 64 * 1024);
}

void adopt_pairs_free(struct adopt_pairs *p)
{
    buf_free(&p->ids);
    free(p->items);
}

static bool is_edge(const struct engine *e, const struct resp_arg *owner,
                    const struct resp_arg *member)
{
    if (id_check_key(e->owner_type, owner->data, owner->len) != 0 ||
        id_check_key(e->member_type, member->data, member->len) != 0)
        return false;
    return !e->kind->has_lists || owner->len != member->len ||
           memcmp(owner->data, member->data, owner->len) != 0;
}

static size_t put_id(struct adopt_pairs *p, const struct resp_arg *id)
{
    buf_append(&p->ids, id->data, id->len);
    return p->ids.len - id->len;
}

void adopt_pairs_add(struct adopt *a, const struct resp_arg *key,
                     const struct resp_arg *owner,
                     const struct resp_arg *member, int64_t time_us)
{
    struct adopt_pairs *p = &a->pairs;
    char shown[2][RESP_SHOW_MAX];

    a->counts.edges++;
    if (!is_edge(&a->service->engine, owner, member)) {
        adopt_refuse(a, key, "'%s' and '%s' are no ids of an edge",
                     resp_show(owner, shown[0]), resp_show(member, shown[1]));
        return;
    }
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : PAIRS_PER_CALL;
        p->items = mem_realloc(p->items, p->cap * sizeof(*p->items));
    }
    p->items[p->n++] = (struct adopt_pair){
        .job = a,
        .owner_at = put_id(p, owner),
        .owner_len = owner->len,
        .member_at = put_id(p, member),
        .member_len = member->len,
        .time_us = time_us,
    };
}

static void put_pair(struct adopt *a, const struct adopt_pair *pair)
{
    const char *ids = a->pairs.ids.data;

    args_put(&a->job.args, ids + pair->owner_at, pair->owner_len);
    args_put(&a->job.args, ids + pair->member_at, pair->member_len);
}

/* Drops the settled ones of those sent: `left` of them stay, at the front. */
static void drop_settled(struct adopt_pairs *p, size_t left)
{
    memmove(p->items + left, p->items + p->sent,
            (p->n - p->sent) * sizeof(*p->items));
    p->n -= p->sent - left;
    if (p->n == 0)
        adopt_pairs_clear(p);
}

static size_t take_some(struct adopt_pairs *p)
{
    p->sent = p->n < PAIRS_PER_CALL ? p->n : PAIRS_PER_CALL;
    return p->sent;
}

/* Counts what a script says of a pair. */
static void settle(struct adopt *a, const struct resp_arg *key,
                   const struct redis_value *v)
{
    size_t len;

    if (redis_value_type(v) == REDIS_T_STR)
        adopt_refuse(a, key, "%s", redis_value_str(v, &len));
    else if (redis_value_int(v) == CODE_TAKEN)
        a->counts.adopted++;
    else
        a->counts.known++;
}

/* ---- from lists ---- */

static void on_list(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct adopt *a = arg;

    if (!job_answered(&a->job, outcome, v))
        return;
    for (size_t i = 0; i < a->pairs.sent; i++)
        settle(a, &a->list.key, redis_value_at(v, i));
    if (!a->list.cursor.open && a->pairs.sent == a->pairs.n)
        a->list.unmarked = false;
    drop_settled(&a->pairs, 0);
    fault_point("adopt_list");
    job_next(&a->job);
}

/* Pairs of one list; with its last ones, that all has been seen of it. */
static bool list_next(struct adopt *a)
{
    const struct adopt_list *l = &a->list;
    bool staged = a->phases[a->job.phase].what == ADOPT_STAGED;
    size_t n = take_some(&a->pairs);
    bool marks =
        l->unmarked && !l->cursor.open && n == a->pairs.n && !l->refused;

    if (n == 0 && !marks)
        return false;
    args_clear(&a->job.args);
    args_put_i64(&a->job.args, l->side);
    args_put(&a->job.args, l->key.data, staged ? l->key.len : 0);
    args_put(&a->job.args, l->key.data, marks ? l->key.len : 0);
    for (size_t i = 0; i < n; i++) {
        put_pair(a, &a->pairs.items[i]);
        args_put_i64(&a->job.args, a->pairs.items[i].time_us);
    }
    job_script(&a->job, SCRIPT_ADOPT_LIST, on_list);
    return true;
}

/* ---- from hashes ---- */

static void on_row(void *arg, const struct lookup_state *state)
{
    struct adopt_pair *pair = arg;
    struct adopt *a = pair->job;
    struct adopt_pairs *p = &a->pairs;

    if (state) {
        pair->row = *state;
        pair->state = PAIR_LOOKED;
    } else {
        p->lookup_bad = true;
    }
    if (--p->lookups > 0)
        return;
    if (p->lookup_bad)
        job_wait_on(&a->job, "PostgreSQL did not answer");
    else
        job_next(&a->job);
}

/* Whether there was anything to look up. */
static bool look_up(struct adopt *a, size_t n)
{
    struct adopt_pairs *p = &a->pairs;
    int rc = 0;
    bool any = false;

    p->lookups = 0;
    p->lookup_bad = false;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct adopt_pair *pair = &p->items[i];
        const char *ids = p->ids.data;

        if (pair->state != PAIR_ASK)
            continue;
        any = true;
        rc = lookup_submit(a->service->lookup, ids + pair->owner_at,
                           pair->owner_len, ids + pair->member_at,
                           pair->member_len, on_row, pair);
        if (rc == 0)
            p->lookups++;
    }
    if (rc != 0)
        p->lookup_bad = true; /* of those under way, the last one waits */
    if (rc != 0 && p->lookups == 0)
        job_wait_on(&a->job, "PostgreSQL is away");
    return any;
}

static void put_hash_key(const struct adopt *a, const struct adopt_pair *pair,
                         struct buf *out)
{
    const char *ids = a->pairs.ids.data;

    buf_puts(out, a->service->engine.kind->hash_prefix);
    buf_append(out, ids + pair->owner_at, pair->owner_len);
    buf_putc(out, '_');
    buf_append(out, ids + pair->member_at, pair->member_len);
}

/* Whether the pair is settled. */
static bool settle_hash(struct adopt *a, struct adopt_pair *pair,
                        const struct redis_value *v, int64_t now_us)
{
    bool refused = redis_value_type(v) == REDIS_T_STR;
    int64_t code = refused ? CODE_GONE : redis_value_int(v);
    struct buf key = {0};

    pair->state = code == CODE_ASK ? PAIR_ASK : PAIR_NEW;
    pair->seen_us = now_us;
    if (refused || code == CODE_TAKEN || code == CODE_KNOWN) {
        put_hash_key(a, pair, &key);
        settle(a, &(struct resp_arg){key.data, key.len}, v);
        buf_free(&key);
    }
    return code != CODE_ASK && code != CODE_LATER;
}

static void on_hashes(void *arg, enum redis_outcome outcome,
                      const struct redis_value *v)
{
    struct adopt *a = arg;
    struct adopt_pairs *p = &a->pairs;
    bool asks = false;
    size_t left = 0;

    if (!job_answered(&a->job, outcome, v))
        return;
    for (size_t i = 0; i < p->sent; i++) {
        struct adopt_pair *pair = &p->items[i];

        if (settle_hash(a, pair, redis_value_at(v, i + 1),
                        redis_value_int(redis_value_at(v, 0))))
            continue;
        asks = asks || pair->state == PAIR_ASK;
        p->items[left++] = *pair;
    }
    drop_settled(p, left);
    fault_point("adopt_hashes");
    if (left > 0 && !asks)
        job_later(&a->job, YOUNG_MS);
    else
        job_next(&a->job);
}

static bool hashes_next(struct adopt *a)
{
    size_t n = take_some(&a->pairs);

    if (n == 0)
        return false;
    if (look_up(a, n))
        return true;
    args_clear(&a->job.args);
    args_put_i64(&a->job.args, a->service->engine.options->cache_ttl_s);
    for (size_t i = 0; i < n; i++) {
        const struct adopt_pair *pair = &a->pairs.items[i];

        put_pair(a, pair);
        args_put_i64(&a->job.args,
                     pair->state == PAIR_LOOKED ? pair->seen_us : 0);
        args_put_i64(&a->job.args, pair->row.status);
        args_put_i64(&a->job.args, pair->row.mtime_us);
        args_put_i64(&a->job.args, pair->row.ctime_us);
    }
    job_script(&a->job, SCRIPT_ADOPT_HASHES, on_hashes);
    return true;
}

bool adopt_pairs_next(struct adopt *a)
{
    return a->phases[a->job.phase].what == ADOPT_HASHES ? hashes_next(a)
                                                        : list_next(a);
}
