/* SPDX-License-Identifier: MIT */
/* Finds keys, and the edges in them.
 *
 * A hash is an edge. A list is gone through with a cursor of its own. A plain set
 * where a list has to be is first renamed to STAGED time ":" key, with the time
 * at which its edges are known to be there: they have none of their own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "services/adopt_internal.h"
#include "services/service.h"

#define OURS     "likesync:" /* keys of the daemon start with it */
#define STAGED   OURS "adopt:"
/* As far as a client's time may be ahead. */
#define AHEAD_US INT64_C(60000000)

static const struct adopt_phase *phase(const struct adopt *a)
{
    return &a->phases[a->job.phase];
}

static void put_arg(struct args *args, const struct resp_arg *arg)
{
    args_put(args, arg->data, arg->len);
}

static bool starts_with(const struct resp_arg *s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s->len >= n && memcmp(s->data, prefix, n) == 0;
}

/* ---- keys ---- */

void adopt_scan_start(struct adopt *a)
{
    adopt_pairs_clear(&a->pairs);
    args_clear(&a->keys);
    a->key = 0;
    memset(&a->list, 0, sizeof(a->list));
    scan_start(&a->cursor);
}

static void put_hash_keys(struct adopt *a, const struct redis_value *keys)
{
    const char *prefix = a->service->engine.kind->hash_prefix;
    size_t n = strlen(prefix);

    for (size_t i = 0; i < redis_value_len(keys); i++) {
        struct resp_arg key = scan_text(redis_value_at(keys, i));
        const char *end = key.data + key.len;
        const char *owner = key.data + n;
        const char *bar = memchr(owner, '_', key.len - n);

        if (bar)
            adopt_pairs_add(
                a, &key, &(struct resp_arg){owner, (size_t)(bar - owner)},
                &(struct resp_arg){bar + 1, (size_t)(end - bar - 1)}, 0);
        else
            adopt_refuse(a, &key, "its name is not that of an edge");
    }
}

static void put_keys(struct adopt *a, const struct redis_value *keys)
{
    args_clear(&a->keys);
    a->key = 0;
    for (size_t i = 0; i < redis_value_len(keys); i++) {
        struct resp_arg key = scan_text(redis_value_at(keys, i));

        if (phase(a)->what == ADOPT_STAGED || !starts_with(&key, OURS))
            put_arg(&a->keys, &key);
    }
}

static void on_keys(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct adopt *a = arg;
    const struct redis_value *keys;

    if (!job_answered(&a->job, outcome, v))
        return;
    keys = redis_value_at(v, 1);
    scan_move(&a->cursor, v);
    a->job.scanned += SCAN_KEYS;
    if (phase(a)->what == ADOPT_HASHES) {
        a->counts.keys += (int64_t)redis_value_len(keys);
        put_hash_keys(a, keys);
    } else {
        put_keys(a, keys);
    }
    job_next(&a->job);
}

static void put_pattern(const struct adopt *a, struct buf *b)
{
    const struct engine *e = &a->service->engine;

    switch (phase(a)->what) {
    case ADOPT_SETS:
    case ADOPT_LISTS:
        list_key_glob(e->lists, phase(a)->side, b);
        break;
    case ADOPT_HASHES:
        buf_printf(b, "%s*", e->kind->hash_prefix);
        break;
    case ADOPT_STAGED:
        buf_puts(b, STAGED "*");
        break;
    }
}

static void scan_keys(struct adopt *a)
{
    struct buf pattern = {0};

    put_pattern(a, &pattern);
    args_clear(&a->job.args);
    args_put_str(&a->job.args, "SCAN");
    args_put_str(&a->job.args, a->cursor.text);
    args_put_str(&a->job.args, "MATCH");
    args_put(&a->job.args, pattern.data, pattern.len);
    args_put_str(&a->job.args, "COUNT");
    args_put_i64(&a->job.args, SCAN_KEYS);
    args_put_str(&a->job.args, "TYPE");
    args_put_str(&a->job.args, phase(a)->type);
    buf_free(&pattern);
    job_call(&a->job, on_keys);
}

/* ---- members of a list ---- */

static void add_pair(struct adopt *a, const struct resp_arg *other,
                     int64_t time_us)
{
    const struct adopt_list *l = &a->list;

    if (l->side == LIST_FOLLOW)
        adopt_pairs_add(a, &l->key, &l->user, other, time_us);
    else
        adopt_pairs_add(a, &l->key, other, &l->user, time_us);
}

/* Microseconds of a score; 0 when it is no time in seconds. */
static int64_t score_us(const char *text)
{
    char *end;
    double us = strtod(text, &end) * 1e6;

    if (*end != '\0' || !(us >= 1) ||
        us > (double)(clock_realtime_us() + AHEAD_US))
        return 0;
    return (int64_t)(us + 0.5);
}

static void add_members(struct adopt *a, const struct redis_value *members)
{
    bool scored = phase(a)->what == ADOPT_LISTS;
    size_t step = scored ? 2 : 1;
    size_t len;

    for (size_t i = 0; i + step <= redis_value_len(members); i += step) {
        struct resp_arg other = scan_text(redis_value_at(members, i));
        const char *score =
            redis_value_str(redis_value_at(members, i + 1), &len);
        int64_t us = scored ? score_us(score) : a->list.time_us;

        if (us > 0) {
            add_pair(a, &other, us);
            continue;
        }
        a->counts.edges++;
        adopt_refuse(a, &a->list.key, "%s is no Unix time in seconds", score);
    }
}

/* A key that has become something else. */
static bool is_list(struct adopt *a, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    size_t len;

    if (outcome != REDIS_ERROR)
        return true;
    adopt_refuse(a, &a->list.key, "%s", redis_value_str(v, &len));
    a->list.cursor.open = false;
    job_next(&a->job);
    return false;
}

static void on_members(void *arg, enum redis_outcome outcome,
                       const struct redis_value *v)
{
    struct adopt *a = arg;

    if (!is_list(a, outcome, v) || !job_answered(&a->job, outcome, v))
        return;
    scan_move(&a->list.cursor, v);
    add_members(a, redis_value_at(v, 1));
    job_next(&a->job);
}

static void scan_members(struct adopt *a)
{
    args_clear(&a->job.args);
    args_put_str(&a->job.args,
                 phase(a)->what == ADOPT_LISTS ? "ZSCAN" : "SSCAN");
    put_arg(&a->job.args, &a->list.key);
    args_put_str(&a->job.args, a->list.cursor.text);
    args_put_str(&a->job.args, "COUNT");
    args_put_i64(&a->job.args, SCAN_MEMBERS);
    job_call(&a->job, on_members);
}

/* ---- one key ---- */

/* Whose list a key is, if it is one. */
static bool find_user(const struct adopt *a, const struct resp_arg *key,
                      enum list_side side, struct resp_arg *user_r)
{
    const struct engine *e = &a->service->engine;

    return list_key_parse(e->lists, side, key->data, key->len, &user_r->data,
                          &user_r->len) == 0 &&
           id_check_key(e->owner_type, user_r->data, user_r->len) == 0;
}

static void on_renamed(void *arg, enum redis_outcome outcome,
                       const struct redis_value *v)
{
    struct adopt *a = arg;

    /* An error: it has gone since. */
    if (outcome != REDIS_ERROR && !job_answered(&a->job, outcome, v))
        return;
    a->key++;
    job_next(&a->job);
}

static void rename_set(struct adopt *a)
{
    const struct resp_arg *key = &a->list.key;
    struct buf name = {0};

    buf_printf(&name, STAGED "%" PRId64 ":", clock_realtime_us());
    buf_append(&name, key->data, key->len);
    args_clear(&a->job.args);
    args_put_str(&a->job.args, "RENAMENX");
    put_arg(&a->job.args, key);
    args_put(&a->job.args, name.data, name.len);
    buf_free(&name);
    job_call(&a->job, on_renamed);
}

static void list_start(struct adopt *a, bool needed)
{
    a->key++;
    if (needed) {
        scan_start(&a->list.cursor);
        a->list.unmarked = true;
    }
    job_next(&a->job);
}

static void on_card(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct adopt *a = arg;

    if (outcome == REDIS_ERROR) /* no list any more: ZSCAN will say so */
        list_start(a, true);
    else if (job_answered(&a->job, outcome, v))
        list_start(a, redis_value_int(v) > a->list.ours);
}

static void ask_card(struct adopt *a)
{
    args_clear(&a->job.args);
    args_put_str(&a->job.args, "ZCARD");
    put_arg(&a->job.args, &a->list.key);
    job_call(&a->job, on_card);
}

static void on_mark(void *arg, enum redis_outcome outcome,
                    const struct redis_value *v)
{
    struct adopt *a = arg;

    if (!job_answered(&a->job, outcome, v))
        return;
    a->list.ours = redis_value_int(redis_value_at(v, 1));
    if (redis_value_int(redis_value_at(v, 0)) == 1)
        ask_card(a);
    else
        list_start(a, true);
}

/* Are all its members ours already? The mark says so, and how many there were. */
static void ask_mark(struct adopt *a)
{
    struct buf mark = {0};

    buf_puts(&mark, LIST_MARK);
    buf_append(&mark, a->list.key.data, a->list.key.len);
    args_clear(&a->job.args);
    args_put_str(&a->job.args, "HMGET");
    args_put(&a->job.args, mark.data, mark.len);
    args_put_str(&a->job.args, "own");
    args_put_str(&a->job.args, "n");
    buf_free(&mark);
    job_call(&a->job, on_mark);
}

/* The parts of a staged set's name. */
static bool find_staged(struct adopt *a)
{
    struct adopt_list *l = &a->list;
    size_t pre = strlen(STAGED);
    struct resp_arg rest = {l->key.data + pre, l->key.len - pre};
    const char *colon = memchr(rest.data, ':', rest.len);

    if (!colon ||
        num_parse_i64(rest.data, (size_t)(colon - rest.data), &l->time_us) != 0)
        return false;
    rest.len -= (size_t)(colon + 1 - rest.data);
    rest.data = colon + 1;
    for (int side = LIST_FOLLOW; side <= LIST_FANS; side++) {
        l->side = (enum list_side)side;
        if (find_user(a, &rest, l->side, &l->user))
            return true;
    }
    return false;
}

static bool key_known(struct adopt *a)
{
    if (phase(a)->what == ADOPT_STAGED)
        return find_staged(a);
    a->list.side = phase(a)->side;
    return find_user(a, &a->list.key, a->list.side, &a->list.user);
}

/* Whether a command was sent for it. */
static bool key_begin(struct adopt *a)
{
    memset(&a->list, 0, sizeof(a->list));
    a->list.key = args_at(&a->keys, (size_t)a->key);
    if (!key_known(a)) {
        adopt_refuse(a, &a->list.key, "its name holds no user id");
        a->key++;
        return false;
    }
    if (phase(a)->what == ADOPT_SETS) {
        rename_set(a);
        return true;
    }
    a->counts.keys++;
    if (phase(a)->what == ADOPT_LISTS) {
        ask_mark(a);
        return true;
    }
    scan_start(&a->list.cursor);
    a->key++;
    return false;
}

bool adopt_scan_next(struct adopt *a)
{
    for (;;) {
        if (a->list.cursor.open) {
            scan_members(a);
            return true;
        }
        if (a->key < a->keys.n) {
            if (key_begin(a))
                return true;
        } else if (a->cursor.open) {
            scan_keys(a);
            return true;
        } else {
            return false;
        }
    }
}
