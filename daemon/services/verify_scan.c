/* SPDX-License-Identifier: MIT */
/* Finds what is to be compared: keys by SCAN; the members of lists and sets with a
 * cursor of their own; and of a list that is loaded PostgreSQL's rows, since a
 * member that it misses is found there only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "services/lists_rows.h"
#include "services/service.h"
#include "services/verify_internal.h"

#define BASE "likesync:count:"

static const struct resp_arg none = {NULL, 0};

static struct resp_arg text_arg(const char *s)
{
    return (struct resp_arg){s, strlen(s)};
}

void verify_scan_start(struct verify *v)
{
    args_clear(&v->keys);
    v->key = 0;
    scan_start(&v->cursor);
}

/* ---- keys of edges and owners ---- */

/* Takes a prefix and a suffix off; false when they are not there. */
static bool strip(struct resp_arg *s, const char *pre, const char *post)
{
    size_t a = strlen(pre);
    size_t b = strlen(post);

    if (s->len < a + b || memcmp(s->data, pre, a) != 0 ||
        memcmp(s->data + s->len - b, post, b) != 0)
        return false;
    s->data += a;
    s->len -= a + b;
    return true;
}

/* Takes off all up to a character. */
static bool split(struct resp_arg *s, char at, struct resp_arg *head_r)
{
    const char *p = memchr(s->data, at, s->len);

    if (!p)
        return false;
    *head_r = (struct resp_arg){s->data, (size_t)(p - s->data)};
    s->len -= head_r->len + 1;
    s->data = p + 1;
    return true;
}

static void add_key(struct verify *v, struct resp_arg key)
{
    const struct edge_kind *kind = verify_engine(v)->kind;
    struct resp_arg head;

    switch (verify_phase(v)->source) {
    case FROM_COUNTERS:
        if (strip(&key, kind->counter_prefix, kind->counter_suffix))
            verify_items_add(v, &key, &none);
        break;
    case FROM_SETS:
        if (strip(&key, kind->set_prefix, ""))
            verify_items_add(v, &key, &none);
        break;
    case FROM_BASES: /* likesync:count:<kind>:<generation>:<owner> */
        if (strip(&key, BASE, "") && split(&key, ':', &head) &&
            split(&key, ':', &head))
            verify_items_add(v, &key, &none);
        break;
    default:
        if (strip(&key, kind->hash_prefix, "") && split(&key, '_', &head))
            verify_items_add(v, &head, &key);
        break;
    }
}

static bool has_members(const struct verify *v)
{
    enum verify_source source = verify_phase(v)->source;

    return source == FROM_MARKS || source == FROM_UNSYNCED;
}

static void on_keys(void *arg, enum redis_outcome outcome,
                    const struct redis_value *value)
{
    struct verify *v = arg;
    const struct redis_value *keys = redis_value_at(value, 1);

    if (!job_answered(&v->job, outcome, value))
        return;
    scan_move(&v->cursor, value);
    v->job.scanned += SCAN_KEYS;
    args_clear(&v->keys);
    v->key = 0;
    for (size_t i = 0; i < redis_value_len(keys); i++) {
        struct resp_arg key = scan_text(redis_value_at(keys, i));

        if (has_members(v))
            args_put(&v->keys, key.data, key.len);
        else
            add_key(v, key);
    }
    job_next(&v->job);
}

/* What the names of a phase's sets have in front. A kind without lists has sets
 * of its owners and of its members: likesync:unsynced:like:post:<id>. */
static void put_set_prefix(const struct verify *v, struct buf *b)
{
    const struct edge_kind *kind = verify_engine(v)->kind;
    const char *field = verify_phase(v)->side == LIST_FOLLOW
                            ? kind->owner_field
                            : kind->member_field;

    buf_puts(b, LIST_UNSYNCED);
    if (!kind->has_lists)
        buf_printf(b, "%s:%.*s:", kind->name, (int)strcspn(field, "_"), field);
}

static void put_pattern(const struct verify *v, struct buf *b)
{
    const struct verify_phase *p = verify_phase(v);
    const struct engine *e = verify_engine(v);

    switch (p->source) {
    case FROM_COUNTERS:
        buf_printf(b, "%s*%s", e->kind->counter_prefix,
                   e->kind->counter_suffix);
        break;
    case FROM_SETS:
        buf_printf(b, "%s*", e->kind->set_prefix);
        break;
    case FROM_BASES:
        buf_printf(b, BASE "%s:*", e->kind->name);
        break;
    case FROM_MARKS:
        buf_puts(b, LIST_MARK);
        list_key_glob(e->lists, p->side, b);
        break;
    case FROM_UNSYNCED:
        put_set_prefix(v, b);
        if (e->lists)
            list_key_glob(e->lists, p->side, b);
        else
            buf_putc(b, '*');
        break;
    default:
        buf_printf(b, "%s*", e->kind->hash_prefix);
        break;
    }
}

static void scan_keys(struct verify *v)
{
    struct buf pattern = {0};

    put_pattern(v, &pattern);
    args_clear(&v->job.args);
    args_put_str(&v->job.args, "SCAN");
    args_put_str(&v->job.args, v->cursor.text);
    args_put_str(&v->job.args, "MATCH");
    args_put(&v->job.args, pattern.data, pattern.len);
    args_put_str(&v->job.args, "COUNT");
    args_put_i64(&v->job.args, SCAN_KEYS);
    args_put_str(&v->job.args, "TYPE");
    args_put_str(&v->job.args, verify_phase(v)->type);
    buf_free(&pattern);
    job_call(&v->job, on_keys);
}

/* ---- members of a list, or of a set beside it ---- */

void verify_list_end(struct verify *v)
{
    struct verify_list *l = &v->list;

    free(l->key);
    free(l->user);
    l->key = NULL;
    l->user = NULL;
    l->cursor.open = false;
    if (l->rows)
        rows_free(l->rows);
    l->rows = NULL;
}

static void add_member(struct verify *v, const struct resp_arg *other)
{
    struct resp_arg user = text_arg(v->list.user);

    if (verify_phase(v)->side == LIST_FOLLOW)
        verify_items_add(v, &user, other);
    else
        verify_items_add(v, other, &user);
}

static void on_members(void *arg, enum redis_outcome outcome,
                       const struct redis_value *value)
{
    struct verify *v = arg;
    const struct redis_value *members = redis_value_at(value, 1);
    size_t step = verify_phase(v)->source == FROM_MARKS ? 2 : 1;

    if (outcome == REDIS_ERROR) { /* it has become something else */
        verify_list_end(v);
        job_next(&v->job);
        return;
    }
    if (!job_answered(&v->job, outcome, value))
        return;
    scan_move(&v->list.cursor, value);
    for (size_t i = 0; i < redis_value_len(members); i += step) {
        struct resp_arg other = scan_text(redis_value_at(members, i));

        add_member(v, &other);
    }
    job_next(&v->job);
}

static void scan_members(struct verify *v)
{
    args_clear(&v->job.args);
    args_put_str(&v->job.args,
                 verify_phase(v)->source == FROM_MARKS ? "ZSCAN" : "SSCAN");
    args_put_str(&v->job.args, v->list.key);
    args_put_str(&v->job.args, v->list.cursor.text);
    args_put_str(&v->job.args, "COUNT");
    args_put_i64(&v->job.args, SCAN_MEMBERS);
    job_call(&v->job, on_members);
}

/* ---- a list's rows ---- */

/* Of four words each, the member first. */
static void add_rows(struct verify *v, const struct args *rows)
{
    for (int i = 0; i + 4 <= rows->n; i += 4) {
        struct resp_arg other = args_at(rows, (size_t)i);

        add_member(v, &other);
    }
}

static void on_rows(void *arg, enum pg_outcome outcome,
                    const struct pg_result *r)
{
    struct verify *v = arg;
    struct verify_list *l = &v->list;
    struct args rows = {0};

    if (outcome != PG_DONE) {
        job_wait(&v->job, outcome == PG_FAILED ? pg_result_message(r)
                                               : "PostgreSQL did not answer");
        return;
    }
    v->job.away_ms = 0;
    l->pos.len = 0;
    if (rows_put_pos(l->rows, r, &l->pos) != 0 ||
        rows_put(l->rows, r, &rows) != 0) {
        args_free(&rows);
        job_fail(&v->job, "an id in PostgreSQL is of another type");
        return;
    }
    add_rows(v, &rows);
    args_free(&rows);
    if (l->pos.len == 3 && memcmp(l->pos.data, "end", 3) == 0)
        verify_list_end(v);
    job_next(&v->job);
}

static void ask_rows(struct verify *v)
{
    if (rows_ask(v->list.rows, &v->list.pos, on_rows, v) != 0)
        job_wait(&v->job, "PostgreSQL is away");
}

/* ---- one key ---- */

static void list_open(struct verify *v, const struct resp_arg *key,
                      const struct resp_arg *user)
{
    struct verify_list *l = &v->list;

    l->key = mem_strndup(key->data, key->len);
    l->user = mem_strndup(user->data, user->len);
}

static void on_pos(void *arg, enum redis_outcome outcome,
                   const struct redis_value *value)
{
    struct verify *v = arg;
    const struct verify_phase *p = verify_phase(v);
    struct verify_list *l = &v->list;
    struct resp_arg pos = scan_text(value);

    if (!job_answered(&v->job, outcome, value))
        return;
    if (pos.len == 3 && memcmp(pos.data, "end", 3) == 0) {
        l->rows = rows_new(verify_engine(v), p->side, l->user, strlen(l->user));
        l->pos.len = 0;
        buf_putc(&l->pos, 's');
        scan_start(&l->cursor);
    } /* one that is not loaded will be, before it is read */
    v->key++;
    job_next(&v->job);
}

static void ask_pos(struct verify *v)
{
    struct resp_arg mark = args_at(&v->keys, (size_t)v->key);

    args_clear(&v->job.args);
    args_put_str(&v->job.args, "HGET");
    args_put(&v->job.args, mark.data, mark.len);
    args_put_str(&v->job.args, "pos");
    job_call(&v->job, on_pos);
}

/* Whose list, or set, a key stands for; the list's own key. */
static bool find_user(const struct verify *v, struct resp_arg *key_r,
                      struct resp_arg *user_r)
{
    const struct verify_phase *p = verify_phase(v);
    const struct engine *e = verify_engine(v);
    enum id_type type = p->side == LIST_FOLLOW ? e->owner_type : e->member_type;
    struct buf prefix = {0};
    bool found;

    if (p->source == FROM_MARKS)
        buf_puts(&prefix, LIST_MARK);
    else
        put_set_prefix(v, &prefix);
    found = strip(key_r, buf_cstr(&prefix), "");
    buf_free(&prefix);
    *user_r = *key_r;
    if (found && e->lists)
        found = list_key_parse(e->lists, p->side, key_r->data, key_r->len,
                               &user_r->data, &user_r->len) == 0;
    return found && id_check_key(type, user_r->data, user_r->len) == 0;
}

/* Whether a command was sent for it. */
static bool key_begin(struct verify *v)
{
    struct resp_arg name = args_at(&v->keys, (size_t)v->key);
    struct resp_arg key = name;
    struct resp_arg user;

    if (find_user(v, &key, &user)) {
        verify_list_end(v);
        if (verify_phase(v)->source == FROM_MARKS) {
            list_open(v, &key, &user);
            ask_pos(v);
            return true;
        }
        list_open(v, &name, &user);
        scan_start(&v->list.cursor);
    }
    v->key++;
    return false;
}

/* One step of the list, or set, that is open; false when there is none. */
static bool list_next(struct verify *v)
{
    struct verify_list *l = &v->list;

    if (l->cursor.open) {
        scan_members(v);
        return true;
    }
    if (l->rows) {
        ask_rows(v);
        return true;
    }
    verify_list_end(v);
    return false;
}

bool verify_scan_next(struct verify *v)
{
    if (list_next(v))
        return true;
    while (v->key < v->keys.n) {
        if (key_begin(v) || list_next(v))
            return true;
    }
    if (!v->cursor.open)
        return false;
    scan_keys(v);
    return true;
}
