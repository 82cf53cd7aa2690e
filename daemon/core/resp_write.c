/* SPDX-License-Identifier: MIT */
/* Writes replies in RESP2 and RESP3. */
#include "core/resp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put_line(struct buf *b, char mark, int64_t n)
{
    buf_putc(b, mark);
    buf_put_i64(b, n);
    buf_append(b, "\r\n", 2);
}

void resp_simple(struct buf *b, const char *s)
{
    buf_putc(b, '+');
    buf_puts(b, s);
    buf_append(b, "\r\n", 2);
}

void resp_error(struct buf *b, const char *fmt, ...)
{
    char text[RESP_ERROR_MAX + 1];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p != '\0'; p++) {
        if (*p == '\r' || *p == '\n')
            *p = ' ';
    }
    buf_putc(b, '-');
    buf_puts(b, text);
    buf_append(b, "\r\n", 2);
}

void resp_int(struct buf *b, int64_t v)
{
    put_line(b, ':', v);
}

void resp_bulk(struct buf *b, const char *s, size_t len)
{
    put_line(b, '$', (int64_t)len);
    buf_append(b, s, len);
    buf_append(b, "\r\n", 2);
}

void resp_bulk_str(struct buf *b, const char *s)
{
    resp_bulk(b, s, strlen(s));
}

void resp_array(struct buf *b, size_t n)
{
    put_line(b, '*', (int64_t)n);
}

void resp_map(struct buf *b, int proto, size_t n)
{
    if (proto >= 3)
        put_line(b, '%', (int64_t)n);
    else
        resp_array(b, 2 * n);
}

void resp_set(struct buf *b, int proto, size_t n)
{
    put_line(b, proto >= 3 ? '~' : '*', (int64_t)n);
}

void resp_null(struct buf *b, int proto)
{
    buf_puts(b, proto >= 3 ? "_\r\n" : "$-1\r\n");
}

const char *resp_show(const struct resp_arg *a, char out[RESP_SHOW_MAX])
{
    size_t max = RESP_SHOW_MAX - sizeof("...");
    size_t n = a->len < max ? a->len : max;
    for (size_t i = 0; i < n; i++) {
        char c = a->data[i];
        out[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    snprintf(out + n, RESP_SHOW_MAX - n, "%s", a->len > n ? "..." : "");
    return out;
}
