/* SPDX-License-Identifier: MIT */
/* What a connection does with the request parser, written down as text, for
 * the tests of it. It parses from a copy of exactly the bytes that are there,
 * always at a new address, so that ASan sees a read too far or a pointer that
 * was kept. */
#ifndef TESTS_RESP_STREAM_H
#define TESTS_RESP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "core/resp.h"

/* A request is noted as [arg,arg], an empty one as (), an error as !why, an
 * attack as !!. */
struct stream {
    struct resp_parser parser;
    const struct resp_limits *limits;
    size_t start; /* of the request that is coming in */
    bool ended;
    struct buf out;
};

static inline void put_shown(struct buf *out, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] > ' ' && s[i] <= '~' && s[i] != '\\')
            buf_putc(out, s[i]);
        else
            buf_printf(out, "\\%02x", (unsigned char)s[i]);
    }
}

static inline void note_request(struct stream *s)
{
    for (int i = 0; i < s->parser.argc; i++) {
        buf_putc(&s->out, i == 0 ? '[' : ',');
        put_shown(&s->out, s->parser.argv[i].data, s->parser.argv[i].len);
    }
    buf_putc(&s->out, ']');
    s->start += s->parser.used;
}

static inline void note(struct stream *s, enum resp_status status)
{
    switch (status) {
    case RESP_REQUEST:
        note_request(s);
        break;
    case RESP_EMPTY:
        buf_puts(&s->out, "()");
        s->start += s->parser.used;
        break;
    case RESP_BROKEN:
        buf_printf(&s->out, "!%s", s->parser.why);
        s->ended = true;
        break;
    case RESP_ATTACK:
        buf_puts(&s->out, "!!");
        s->ended = true;
        break;
    case RESP_MORE:
        break;
    }
}

static inline void stream_open(struct stream *s,
                               const struct resp_limits *limits)
{
    *s = (struct stream){.limits = limits};
    resp_parser_init(&s->parser);
}

static inline void stream_close(struct stream *s)
{
    resp_parser_free(&s->parser);
    buf_free(&s->out);
}

/* data[0..len) has come in so far. */
static inline void stream_feed(struct stream *s, const char *data, size_t len)
{
    enum resp_status status = RESP_EMPTY;
    while (status != RESP_MORE && !s->ended) {
        size_t n = len - s->start;
        char *copy = mem_alloc(n + 1);
        memcpy(copy + 1, data + s->start, n);
        status = resp_parse(&s->parser, s->limits, copy + 1, n);
        note(s, status);
        free(copy);
    }
}

#endif
