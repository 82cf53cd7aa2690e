/* SPDX-License-Identifier: MIT */
/* Compares what was found, up to ITEMS_PER_CALL in a script.
 *
 * The script says of each that it is fine, or wrong, or that PostgreSQL is to be
 * asked; then it is sent again with the answer. What is not as it should be and may
 * be about to change is put off, and looked at again when the phase has nothing
 * else to do or much was put off. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/pgarray.h"
#include "services/service.h"
#include "services/verify_internal.h"

#define ITEMS_PER_CALL 100
#define LATER_MAX      400 /* then they come first */
#define LATER_MS       150
#define LATER_MAX_MS   10000
#define TRIES          60 /* of one that never stays the same */

/* As in the scripts. */
enum { CODE_FINE, CODE_LOOK, CODE_LATER, CODE_WRONG };

static void item_free(struct verify_item *it)
{
    free(it->owner);
    free(it->member);
    free(it->mark);
}

static void list_clear(struct verify_items *l)
{
    while (l->n > 0)
        item_free(&l->items[--l->n]);
}

void verify_items_clear(struct verify *v)
{
    list_clear(&v->now);
    list_clear(&v->later);
}

static void list_add(struct verify_items *l, const struct verify_item *it)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : ITEMS_PER_CALL;
        l->items = mem_realloc(l->items, l->cap * sizeof(*l->items));
    }
    l->items[l->n++] = *it;
}

static bool is_edge(const struct engine *e, const struct resp_arg *owner,
                    const struct resp_arg *member)
{
    if (id_check_key(e->member_type, member->data, member->len) != 0)
        return false;
    return !e->kind->has_lists || owner->len != member->len ||
           memcmp(owner->data, member->data, owner->len) != 0;
}

void verify_items_add(struct verify *v, const struct resp_arg *owner,
                      const struct resp_arg *member)
{
    const struct engine *e = verify_engine(v);
    struct verify_item it = {.job = v};

    if (id_check_key(e->owner_type, owner->data, owner->len) != 0 ||
        (member->data && !is_edge(e, owner, member)))
        return;
    it.owner = mem_strndup(owner->data, owner->len);
    if (member->data)
        it.member = mem_strndup(member->data, member->len);
    v->counts[verify_phase(v)->part].looked++;
    list_add(&v->now, &it);
}

/* ---- what a script says ---- */

/* Lines of kind, "+" or "-", and text. */
static void tell(struct verify *v, const char *text, size_t len)
{
    static const char kinds[VERIFY_PARTS] = {
        [VERIFY_COUNTS] = '-', [VERIFY_COUNTERS] = 'c', [VERIFY_BASES] = 'b',
        [VERIFY_HASHES] = 'h', [VERIFY_LISTS] = 'l',    [VERIFY_UNSYNCED] = 'u',
    };

    while (len > 2) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        const char *kind = memchr(kinds, text[0], sizeof(kinds));

        if (kind && n > 2)
            verify_found(v, (enum verify_part)(kind - kinds), text[1] == '+',
                         text + 2, n - 2);
        len -= end ? n + 1 : n;
        text += end ? n + 1 : n;
    }
}

static void put_off(struct verify *v, struct verify_item *it)
{
    it->state = ITEM_NEW;
    if (++it->tries < TRIES) {
        list_add(&v->later, it);
        return;
    }
    v->unsettled++;
    item_free(it);
}

static void set_mark(struct verify_item *it, const char *text, size_t len)
{
    free(it->mark);
    it->mark = mem_strndup(text, len);
}

/* Whether it stays among those that are compared now. */
static bool settle(struct verify *v, struct verify_item *it, int64_t code,
                   const struct redis_value *text, int64_t now_us)
{
    size_t len;
    const char *s = redis_value_str(text, &len);

    switch (code) {
    case CODE_LOOK:
        set_mark(it, s, len);
        it->state = ITEM_LOOK;
        it->seen_us = now_us;
        if (++it->tries < TRIES)
            return true;
        v->unsettled++;
        break;
    case CODE_LATER:
        set_mark(it, s, len);
        put_off(v, it);
        return false;
    case CODE_WRONG:
        tell(v, s, len);
        break;
    default:
        break;
    }
    item_free(it);
    return false;
}

static void on_compared(void *arg, enum redis_outcome outcome,
                        const struct redis_value *value)
{
    struct verify *v = arg;
    struct verify_items *l = &v->now;
    size_t left = 0;

    if (!job_answered(&v->job, outcome, value))
        return;
    for (size_t i = 0; i < v->sent; i++) {
        struct verify_item it = l->items[i];

        if (settle(v, &it, redis_value_int(redis_value_at(value, 2 * i + 1)),
                   redis_value_at(value, 2 * i + 2),
                   redis_value_int(redis_value_at(value, 0))))
            l->items[left++] = it;
    }
    memmove(l->items + left, l->items + v->sent,
            (l->n - v->sent) * sizeof(*l->items));
    l->n -= v->sent - left;
    job_next(&v->job);
}

/* ---- asking a script ---- */

static enum script_id script_of(enum verify_source source)
{
    switch (source) {
    case FROM_COUNTERS:
    case FROM_SETS:
        return SCRIPT_VERIFY_COUNTERS;
    case FROM_BASES:
        return SCRIPT_VERIFY_BASES;
    default:
        return SCRIPT_VERIFY_PAIRS;
    }
}

static void put_item(struct verify *v, const struct verify_item *it,
                     enum script_id id)
{
    int64_t seen_us = it->state == ITEM_LOOKED ? it->seen_us : 0;

    args_put_str(&v->job.args, it->owner);
    if (it->member)
        args_put_str(&v->job.args, it->member);
    args_put_str(&v->job.args, it->mark ? it->mark : "");
    if (id == SCRIPT_VERIFY_COUNTERS)
        return;
    args_put_i64(&v->job.args, seen_us);
    if (id == SCRIPT_VERIFY_BASES) {
        args_put_i64(&v->job.args, it->count);
        return;
    }
    args_put_i64(&v->job.args, it->row.status);
    args_put_i64(&v->job.args, it->row.mtime_us);
    args_put_i64(&v->job.args, it->row.ctime_us);
}

static void compare(struct verify *v)
{
    const struct engine *e = verify_engine(v);
    enum script_id id = script_of(verify_phase(v)->source);

    args_clear(&v->job.args);
    args_put_i64(&v->job.args, v->repair);
    args_put_i64(&v->job.args, e->options->follow_idle_ttl_s);
    for (size_t i = 0; i < v->sent; i++)
        put_item(v, &v->now.items[i], id);
    job_script(&v->job, id, on_compared);
}

/* ---- asking PostgreSQL ---- */

static void looked(struct verify *v)
{
    if (v->lookup_bad) {
        job_wait(&v->job, "PostgreSQL did not answer");
        return;
    }
    v->job.away_ms = 0;
    job_next(&v->job);
}

static void on_row(void *arg, const struct lookup_state *state)
{
    struct verify_item *it = arg;
    struct verify *v = it->job;

    if (state) {
        it->row = *state;
        it->state = ITEM_LOOKED;
    } else {
        v->lookup_bad = true;
    }
    if (--v->lookups == 0)
        looked(v);
}

static void look_up_pairs(struct verify *v)
{
    int rc = 0;

    for (size_t i = 0; i < v->sent && rc == 0; i++) {
        struct verify_item *it = &v->now.items[i];

        if (it->state != ITEM_LOOK)
            continue;
        rc = lookup_submit(verify_service(v)->lookup, it->owner,
                           strlen(it->owner), it->member, strlen(it->member),
                           on_row, it);
        if (rc == 0)
            v->lookups++;
    }
    if (rc != 0)
        v->lookup_bad = true; /* of those under way, the last one waits */
    if (v->lookups == 0)
        job_wait(&v->job, "PostgreSQL is away");
}

static void on_totals(void *arg, enum pg_outcome outcome,
                      const struct pg_result *r)
{
    struct verify *v = arg;
    int len;

    v->lookup_bad = outcome != PG_DONE;
    for (size_t i = 0; i < v->sent && !v->lookup_bad; i++) {
        v->now.items[i].state = ITEM_LOOKED;
        v->now.items[i].count = 0;
    }
    for (int row = 0; !v->lookup_bad && row < pg_result_rows(r, 0); row++) {
        int64_t n = pgvalue_i64(pg_result_value(r, 0, row, 0, &len));

        if (n >= 1 && (size_t)n <= v->sent)
            v->now.items[n - 1].count =
                pgvalue_i64(pg_result_value(r, 0, row, 1, &len));
    }
    looked(v);
}

/* All that are sent: of those that are not asked about, it is not used. */
static void look_up_totals(struct verify *v)
{
    const struct engine *e = verify_engine(v);
    const struct pg_job job = {
        .stmts = &v->stmt,
        .n_stmts = 1,
        .timeout_ms = (unsigned)e->options->pg_lookup_timeout_ms,
        .cb = on_totals,
        .arg = v,
    };

    v->ids.len = 0;
    pgarray_begin(&v->ids, id_type_oid(e->owner_type), (uint32_t)v->sent);
    for (size_t i = 0; i < v->sent; i++)
        pgarray_put_id(&v->ids, e->owner_type, v->now.items[i].owner,
                       strlen(v->now.items[i].owner));
    v->param = (struct pg_param){id_type_array_oid(e->owner_type), v->ids.data,
                                 (int)v->ids.len};
    v->stmt = (struct pg_stmt){e->kind->sql_totals, &v->param, 1};
    if (pg_submit(e->pg, PG_LANE_LOOKUP, &job) != 0)
        job_wait(&v->job, "PostgreSQL is away");
}

static bool look_up(struct verify *v)
{
    bool any = false;

    for (size_t i = 0; i < v->sent; i++)
        any = any || v->now.items[i].state == ITEM_LOOK;
    if (!any)
        return false;
    v->lookups = 0;
    v->lookup_bad = false;
    if (verify_phase(v)->source == FROM_BASES)
        look_up_totals(v);
    else
        look_up_pairs(v);
    return true;
}

/* ---- steps ---- */

bool verify_items_next(struct verify *v)
{
    if (v->now.n == 0)
        return v->later.n >= LATER_MAX && verify_items_again(v);
    v->sent = v->now.n < ITEMS_PER_CALL ? v->now.n : ITEMS_PER_CALL;
    if (!look_up(v))
        compare(v);
    return true;
}

/* A flush lies between: what an app added to a counter is taken by then. */
static uint64_t later_ms(const struct verify *v)
{
    int64_t ms = verify_service(v)->engine.options->flush_interval_ms;

    if (ms > LATER_MAX_MS)
        ms = LATER_MAX_MS;
    return ms > LATER_MS ? (uint64_t)ms : LATER_MS;
}

bool verify_items_again(struct verify *v)
{
    struct verify_items empty = v->now;

    if (v->later.n == 0)
        return false;
    v->now = v->later; /* there is nothing in it */
    v->later = empty;
    job_later(&v->job, later_ms(v));
    return true;
}
