/* SPDX-License-Identifier: MIT */
/* Whether key names of users can meet: two templates are walked side by side,
 * and an id may stand for any run of the bytes that ids are made of. */
#include "core/option_keys.h"

#include <string.h>

#include "base/buf.h"
#include "core/edge.h"

#define ID "{user}"

/* All keys of one form. */
struct shape {
    const char *text; /* ref; each ID in it stands for an id */
    enum id_type type;
    bool open; /* anything may follow */
};

static size_t id_at(const char *s)
{
    return strncmp(s, ID, strlen(ID)) == 0 ? strlen(ID) : 0;
}

/* Whether a key of a, of which the part before p is matched, can be one of b,
 * which has been matched up to q. Each call consumes a byte of the key; an id
 * that gives it may end there, or go on. (Where both are ids that both go on,
 * nothing is new.) */
static bool meet(const struct shape *a, const char *p, const struct shape *b,
                 const char *q)
{
    size_t p_id = id_at(p), q_id = id_at(q);

    if (!*q && b->open)
        return true;
    if (!*p || !*q)
        return *p == *q;
    if (p_id && q_id)
        return meet(a, p + p_id, b, q + q_id) || meet(a, p + p_id, b, q) ||
               meet(a, p, b, q + q_id);
    if (p_id)
        return id_may_hold(a->type, *q) &&
               (meet(a, p + p_id, b, q + 1) || meet(a, p, b, q + 1));
    if (q_id)
        return id_may_hold(b->type, *p) &&
               (meet(a, p + 1, b, q + q_id) || meet(a, p + 1, b, q));
    return *p == *q && meet(a, p + 1, b, q + 1);
}

static bool shapes_meet(const struct shape *a, const struct shape *b)
{
    return meet(a, a->text, b, b->text);
}

bool key_meets_key(const char *a, const char *b, enum id_type type)
{
    struct shape left = {.text = a, .type = type};
    struct shape right = {.text = b, .type = type};

    return shapes_meet(&left, &right);
}

/* The type of the other id is not asked: those of text have all the bytes that
 * others have. */
static bool meets_own_text(const struct shape *key, struct buf *own)
{
    struct shape shape = {.text = buf_cstr(own), .type = ID_TEXT};
    bool rc = shapes_meet(key, &shape);

    buf_clear(own, 0);
    return rc;
}

static bool meets_kind(const struct shape *key, const struct edge_kind *kind)
{
    struct buf own = {0};
    bool rc;

    buf_puts(&own, kind->registry);
    rc = meets_own_text(key, &own);
    buf_printf(&own, "%s" ID, kind->set_prefix);
    rc |= meets_own_text(key, &own);
    buf_printf(&own, "%s" ID "_" ID, kind->hash_prefix);
    rc |= meets_own_text(key, &own);
    if (!kind->has_lists) { /* behind likesync:unsynced: */
        buf_printf(&own, "%s:post:" ID, kind->name);
        rc |= meets_own_text(key, &own);
        buf_printf(&own, "%s:user:" ID, kind->name);
        rc |= meets_own_text(key, &own);
    }
    if (kind->counter_prefix) {
        buf_printf(&own, "%s" ID "%s", kind->counter_prefix,
                   kind->counter_suffix);
        rc |= meets_own_text(key, &own);
    }
    buf_free(&own);
    return rc;
}

/* A key that starts with an id and ':' is in order: no id is "likesync" in its
 * key form, and none holds a ':' (core/ids.h). */
static bool meets_internal(const struct shape *key)
{
    static const struct shape INTERNAL = {.text = "likesync:", .open = true};

    return strncmp(key->text, ID ":", strlen(ID ":")) != 0 &&
           shapes_meet(key, &INTERNAL);
}

bool key_meets_own(const char *template, enum id_type type)
{
    struct shape key = {.text = template, .type = type};

    for (int i = 0; i < EDGE_COUNT; i++) {
        if (meets_kind(&key, edge_kinds[i]))
            return true;
    }
    return meets_internal(&key);
}
