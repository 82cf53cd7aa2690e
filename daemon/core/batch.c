/* SPDX-License-Identifier: MIT */
/* Rows of a batch. */
#include "core/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/pgarray.h"

#define CHUNK_BYTES 16384

struct batch_chunk {
    struct batch_chunk *next; /* owned */
    size_t used;
    size_t size;
    char bytes[];
};

void batch_init(struct batch *b, const char *id)
{
    memset(b, 0, sizeof(*b));
    snprintf(b->id, sizeof(b->id), "%s", id);
}

void batch_reset(struct batch *b)
{
    while (b->chunks) {
        struct batch_chunk *c = b->chunks;

        b->chunks = c->next;
        free(c);
    }
    b->n_rows = 0;
    b->n_orphans = 0;
}

void batch_free(struct batch *b)
{
    batch_reset(b);
    free(b->rows);
    free(b->orphans);
    b->rows = NULL;
    b->orphans = NULL;
}

/* Ids are far shorter than a chunk: at most ID_KEY_MAX, or what somebody else
 * wrote, which is kept whole, since its ack has to name it. */
static const char *keep(struct batch *b, const char *s, size_t len)
{
    struct batch_chunk *c = b->chunks;
    char *p;

    if (!c || len > c->size - c->used) {
        size_t size = len < CHUNK_BYTES ? CHUNK_BYTES : len;

        c = mem_alloc(sizeof(*c) + size);
        c->next = b->chunks;
        c->used = 0;
        c->size = size;
        b->chunks = c;
    }
    p = c->bytes + c->used;
    memcpy(p, s, len);
    c->used += len;
    return p;
}

struct batch_row *batch_add(struct batch *b, const char *owner,
                            size_t owner_len, const char *member,
                            size_t member_len)
{
    struct batch_row *r;

    if (b->n_rows == b->cap_rows) {
        b->cap_rows = b->cap_rows ? 2 * b->cap_rows : 512;
        b->rows = mem_realloc(b->rows, b->cap_rows * sizeof(*b->rows));
    }
    r = &b->rows[b->n_rows++];
    memset(r, 0, sizeof(*r));
    r->owner_len = (uint32_t)owner_len;
    r->member_len = (uint32_t)member_len;
    r->owner = keep(b, owner, r->owner_len);
    r->member = keep(b, member, r->member_len);
    return r;
}

/* Few: those of one claim. */
static bool has_orphan(const struct batch *b, const char *owner,
                       size_t owner_len)
{
    for (size_t i = 0; i < b->n_orphans; i++) {
        const struct batch_orphan *o = &b->orphans[i];

        if (o->owner_len == owner_len &&
            memcmp(o->owner, owner, owner_len) == 0)
            return true;
    }
    return false;
}

void batch_add_orphan(struct batch *b, const char *owner, size_t owner_len,
                      int64_t delta)
{
    struct batch_orphan *o;

    if (has_orphan(b, owner, owner_len))
        return;
    if (b->n_orphans == b->cap_orphans) {
        b->cap_orphans = b->cap_orphans ? 2 * b->cap_orphans : 64;
        b->orphans =
            mem_realloc(b->orphans, b->cap_orphans * sizeof(*b->orphans));
    }
    o = &b->orphans[b->n_orphans++];
    o->owner_len = (uint32_t)owner_len;
    o->owner = keep(b, owner, o->owner_len);
    o->delta = delta;
}

struct sort_types {
    enum id_type owner;
    enum id_type member;
};

static bool writable(const struct batch_row *r)
{
    return r->status >= 0;
}

static int row_compare(const void *pa, const void *pb, void *arg)
{
    const struct batch_row *a = pa;
    const struct batch_row *b = pb;
    const struct sort_types *t = arg;
    int c;

    if (writable(a) != writable(b))
        return writable(a) ? -1 : 1;
    if (!writable(a)) { /* not ids of their type, perhaps */
        c = id_compare(ID_TEXT, a->owner, a->owner_len, b->owner, b->owner_len);
        return c ? c
                 : id_compare(ID_TEXT, a->member, a->member_len, b->member,
                              b->member_len);
    }
    c = id_compare(t->owner, a->owner, a->owner_len, b->owner, b->owner_len);
    if (c == 0)
        c = id_compare(t->member, a->member, a->member_len, b->member,
                       b->member_len);
    if (c == 0)
        c = (a->mtime_us < b->mtime_us) - (a->mtime_us > b->mtime_us);
    return c;
}

static bool same_pair(const struct batch_row *a, const struct batch_row *b)
{
    return a->owner_len == b->owner_len && a->member_len == b->member_len &&
           memcmp(a->owner, b->owner, a->owner_len) == 0 &&
           memcmp(a->member, b->member, a->member_len) == 0;
}

size_t batch_sort(struct batch *b, enum id_type owner_type,
                  enum id_type member_type)
{
    struct sort_types types = {owner_type, member_type};
    size_t kept = 0;
    size_t n = 0;

    for (size_t i = 0; i < b->n_rows; i++) {
        struct batch_row *r = &b->rows[i];

        if (writable(r) &&
            (id_check_key(owner_type, r->owner, r->owner_len) != 0 ||
             id_check_key(member_type, r->member, r->member_len) != 0))
            r->status = ROW_MALFORMED;
    }
    if (b->n_rows)
        qsort_r(b->rows, b->n_rows, sizeof(*b->rows), row_compare, &types);
    for (size_t i = 0; i < b->n_rows; i++) {
        if (kept && same_pair(&b->rows[kept - 1], &b->rows[i]))
            continue;
        b->rows[kept++] = b->rows[i];
        n += writable(&b->rows[kept - 1]);
    }
    b->n_rows = kept;
    return n;
}

static void put_element(const struct batch_row *r, enum batch_column column,
                        enum id_type type, struct buf *out)
{
    switch (column) {
    case BATCH_OWNER:
        pgarray_put_id(out, type, r->owner, r->owner_len);
        break;
    case BATCH_MEMBER:
        pgarray_put_id(out, type, r->member, r->member_len);
        break;
    case BATCH_STATUS:
        pgarray_put_i16(out, r->status);
        break;
    case BATCH_CTIME:
        pgarray_put_time_us(out, r->ctime_us);
        break;
    case BATCH_MTIME:
        pgarray_put_time_us(out, r->mtime_us);
        break;
    }
}

uint32_t batch_put_array(const struct batch *b, size_t from, size_t to,
                         enum batch_column column, enum id_type type,
                         bool foreign_only, struct buf *out)
{
    static const struct {
        uint32_t element;
        uint32_t array;
    } oids[] = {
        [BATCH_STATUS] = {PG_OID_INT2, PG_OID_INT2_ARRAY},
        [BATCH_CTIME] = {PG_OID_TIMESTAMPTZ, PG_OID_TIMESTAMPTZ_ARRAY},
        [BATCH_MTIME] = {PG_OID_TIMESTAMPTZ, PG_OID_TIMESTAMPTZ_ARRAY},
    };
    bool is_id = column == BATCH_OWNER || column == BATCH_MEMBER;
    size_t n = foreign_only ? batch_count_foreign(b, from, to) : to - from;

    pgarray_begin(out, is_id ? id_type_oid(type) : oids[column].element,
                  (uint32_t)n);
    for (size_t i = from; i < to; i++)
        if (!foreign_only || b->rows[i].foreign)
            put_element(&b->rows[i], column, type, out);
    return is_id ? id_type_array_oid(type) : oids[column].array;
}

size_t batch_count_foreign(const struct batch *b, size_t from, size_t to)
{
    size_t n = 0;

    for (size_t i = from; i < to; i++)
        n += b->rows[i].foreign;
    return n;
}
