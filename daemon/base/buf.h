/* SPDX-License-Identifier: MIT */
/* A growable byte buffer. Zero-initialised is empty. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct buf {
    char *data; /* owned; the live bytes are data[0 .. len) */
    size_t len;
    size_t cap;
};

/* Makes room for `more` bytes after len; returns where they go. */
char *buf_reserve(struct buf *b, size_t more);
void buf_append(struct buf *b, const void *p, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Big-endian integers, as PostgreSQL's binary format has them. */
void buf_put_be16(struct buf *b, uint16_t v);
void buf_put_be32(struct buf *b, uint32_t v);
void buf_put_be64(struct buf *b, uint64_t v);
/* Decimal, faster than printf. */
void buf_put_i64(struct buf *b, int64_t v);
/* Drops the first `len` bytes. */
void buf_consume(struct buf *b, size_t len);
/* Empties; keeps memory up to `keep` bytes, gives the rest back. */
void buf_clear(struct buf *b, size_t keep);
/* A NUL behind the content (not counted in len), for use as a C string. */
const char *buf_cstr(struct buf *b);
void buf_free(struct buf *b);

#endif
