/* SPDX-License-Identifier: MIT */
/* A growable byte buffer. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

enum { BUF_MIN_CAP = 64 };

/* Doubles, so that appending stays linear in what is appended. */
static size_t grown_cap(size_t cap, size_t need)
{
    if (cap < BUF_MIN_CAP)
        cap = BUF_MIN_CAP;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    return cap;
}

char *buf_reserve(struct buf *b, size_t more)
{
    if (more > SIZE_MAX - b->len) {
        log_error("memory", "buffer of %zu bytes cannot grow", b->len);
        abort();
    }
    if (!b->data || b->cap - b->len < more) {
        b->cap = grown_cap(b->cap, b->len + more);
        b->data = mem_realloc(b->data, b->cap);
    }
    return b->data + b->len;
}

void buf_append(struct buf *b, const void *p, size_t len)
{
    if (!len)
        return;
    memcpy(buf_reserve(b, len), p, len);
    b->len += len;
}

void buf_puts(struct buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
    *buf_reserve(b, 1) = c;
    b->len++;
}

/* Most texts fit into what is free, so one formatting pass is the rule. */
void buf_printf(struct buf *b, const char *fmt, ...)
{
    char *to = buf_reserve(b, 1);
    size_t room = b->cap - b->len;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(to, room, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    if ((size_t)n >= room) {
        to = buf_reserve(b, (size_t)n + 1);
        va_start(args, fmt);
        vsnprintf(to, (size_t)n + 1, fmt, args);
        va_end(args);
    }
    b->len += (size_t)n;
}

static void put_be(struct buf *b, uint64_t v, size_t bytes)
{
    char *to = buf_reserve(b, bytes);

    for (size_t i = bytes; i-- > 0; v >>= 8)
        to[i] = (char)(v & 0xff);
    b->len += bytes;
}

void buf_put_be16(struct buf *b, uint16_t v)
{
    put_be(b, v, 2);
}

void buf_put_be32(struct buf *b, uint32_t v)
{
    put_be(b, v, 4);
}

void buf_put_be64(struct buf *b, uint64_t v)
{
    put_be(b, v, 8);
}

void buf_put_i64(struct buf *b, int64_t v)
{
    char digits[20]; /* of 2^63, which has 19 */
    size_t at = sizeof(digits);
    uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;

    do {
        digits[--at] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0)
        digits[--at] = '-';
    buf_append(b, digits + at, sizeof(digits) - at);
}

void buf_consume(struct buf *b, size_t len)
{
    if (!len)
        return;
    b->len -= len;
    memmove(b->data, b->data + len, b->len);
}

void buf_clear(struct buf *b, size_t keep)
{
    b->len = 0;
    if (b->cap <= keep)
        return;
    free(b->data);
    b->data = keep ? mem_alloc(keep) : NULL;
    b->cap = keep;
}

const char *buf_cstr(struct buf *b)
{
    *buf_reserve(b, 1) = '\0';
    return b->data;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
