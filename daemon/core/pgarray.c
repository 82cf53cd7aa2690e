/* SPDX-License-Identifier: MIT */
/* PostgreSQL's binary arrays and values. */
#include "core/pgarray.h"

void pgarray_begin(struct buf *b, uint32_t element_oid, uint32_t n)
{
    buf_put_be32(b, n > 0 ? 1 : 0); /* dimensions: an empty array has none */
    buf_put_be32(b, 0);             /* no NULLs */
    buf_put_be32(b, element_oid);
    if (n == 0)
        return;
    buf_put_be32(b, n);
    buf_put_be32(b, 1); /* lower bound */
}

void pgarray_put_i16(struct buf *b, int16_t v)
{
    buf_put_be32(b, sizeof(v));
    buf_put_be16(b, (uint16_t)v);
}

void pgarray_put_i64(struct buf *b, int64_t v)
{
    buf_put_be32(b, sizeof(v));
    buf_put_be64(b, (uint64_t)v);
}

void pgarray_put_time_us(struct buf *b, int64_t unix_us)
{
    pgarray_put_i64(b, unix_us - PG_EPOCH_US);
}

void pgarray_put_text(struct buf *b, const char *s, uint32_t len)
{
    buf_put_be32(b, len);
    buf_append(b, s, len);
}

void pgarray_put_id(struct buf *b, enum id_type t, const char *key, size_t len)
{
    size_t at = b->len;
    buf_put_be32(b, 0);
    id_put_binary(t, key, len, b);
    uint32_t n = (uint32_t)(b->len - at - sizeof(n));
    for (int i = 0; i < 4; i++)
        b->data[at + (size_t)i] = (char)(n >> (24 - 8 * i));
}

static uint64_t read_be(const char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

int64_t pgvalue_i16(const char *p)
{
    return (int16_t)read_be(p, 2);
}

int64_t pgvalue_i64(const char *p)
{
    return (int64_t)read_be(p, 8);
}

int64_t pgvalue_time_us(const char *p)
{
    int64_t v = pgvalue_i64(p);
    if (v == INT64_MIN || v > INT64_MAX - PG_EPOCH_US)
        return v < 0 ? INT64_MIN : INT64_MAX;
    return v + PG_EPOCH_US;
}
