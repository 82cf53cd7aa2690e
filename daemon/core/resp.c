/* SPDX-License-Identifier: MIT */
/* Parses requests: arrays of bulk strings, and inline commands (a line of
 * words, for people with telnet). It takes and refuses what Redis does, in
 * Redis' words, since clients look for them.
 *
 * The steps below return 1 done, 0 more bytes needed, -1 broken. */
#include "core/resp.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/num.h"
#include "core/hex.h"

/* What an idle client may keep: argument slots, and bytes of unquoted text. */
#define ARGS_KEEP 16
#define TEXT_KEEP 1024

void resp_parser_init(struct resp_parser *p)
{
    *p = (struct resp_parser){.bulk_len = -1};
}

void resp_parser_free(struct resp_parser *p)
{
    free(p->argv);
    free(p->offsets);
    buf_free(&p->text);
    resp_parser_init(p);
}

size_t resp_parser_bytes(const struct resp_parser *p)
{
    return p->cap * (sizeof(*p->argv) + sizeof(*p->offsets)) + p->text.cap;
}

static void set_cap(struct resp_parser *p, size_t cap)
{
    p->argv = mem_realloc(p->argv, cap * sizeof(*p->argv));
    p->offsets = mem_realloc(p->offsets, cap * sizeof(*p->offsets));
    p->cap = cap;
}

static void begin_request(struct resp_parser *p)
{
    p->argc = 0;
    if (p->cap > ARGS_KEEP)
        set_cap(p, ARGS_KEEP);
    buf_clear(&p->text, TEXT_KEEP);
}

static void add_arg(struct resp_parser *p, size_t offset, size_t len)
{
    if ((size_t)p->argc == p->cap)
        set_cap(p, p->cap == 0 ? ARGS_KEEP : 2 * p->cap);
    p->offsets[p->argc] = offset;
    p->argv[p->argc].len = len;
    p->argc++;
}

/* Only now is it known where the bytes are: they moved while the request was
 * coming in. */
static enum resp_status finish_request(struct resp_parser *p, const char *base)
{
    for (int i = 0; i < p->argc; i++)
        p->argv[i].data = base + p->offsets[i];
    p->used = p->pos;
    p->pos = 0;
    p->scan = 0;
    return p->argc > 0 ? RESP_REQUEST : RESP_EMPTY;
}

static int fail_at(struct resp_parser *p, enum resp_fault fault,
                   const char *why)
{
    p->fault = fault;
    p->why = why;
    return -1;
}

static int fail(struct resp_parser *p, const char *why)
{
    return fail_at(p, RESP_FAULT_PROTOCOL, why);
}

static enum resp_status more_or_broken(int rc)
{
    return rc == 0 ? RESP_MORE : RESP_BROKEN;
}

/* The line at pos; *end_r is behind its LF. */
static int find_line(struct resp_parser *p, size_t max, const char *data,
                     size_t len, size_t *end_r, const char *too_big)
{
    size_t from = p->scan > p->pos ? p->scan : p->pos;
    const char *lf = memchr(data + from, '\n', len - from);
    size_t end = lf == NULL ? len : (size_t)(lf - data) + 1;
    p->scan = end;
    if (end - p->pos > max)
        return fail_at(p, RESP_FAULT_REQUEST, too_big);
    *end_r = end;
    return lf != NULL;
}

/* ---- arrays ---- */

struct length_words {
    const char *too_big;
    const char *invalid;
};

/* A header line: its mark, already looked at, a number, CR LF. */
static int read_length(struct resp_parser *p, const struct resp_limits *limits,
                       const char *data, size_t len,
                       const struct length_words *words, int64_t *n_r)
{
    size_t end;
    int rc = find_line(p, limits->max_inline, data, len, &end, words->too_big);
    if (rc <= 0)
        return rc;
    const char *digits = data + p->pos + 1;
    size_t n = end - p->pos - 2;
    if (n == 0 || digits[n - 1] != '\r' ||
        num_parse_redis(digits, n - 1, n_r) != 0)
        return fail(p, words->invalid);
    p->pos = end;
    return 1;
}

static int begin_array(struct resp_parser *p, const struct resp_limits *limits,
                       const char *data, size_t len)
{
    static const struct length_words words = {
        "Protocol error: too big mbulk count string",
        "Protocol error: invalid multibulk length",
    };
    int64_t n;
    int rc = read_length(p, limits, data, len, &words, &n);
    if (rc <= 0)
        return rc;
    if (n > INT_MAX)
        return fail(p, words.invalid);
    if (n > 0 && (size_t)n > limits->max_args)
        return fail_at(p, RESP_FAULT_ARGS,
                       limits->unauthenticated
                           ? "Protocol error: unauthenticated multibulk length"
                           : "Protocol error: too many arguments "
                             "(server.max_args)");
    p->left = n;
    return 1;
}

static int fail_not_bulk(struct resp_parser *p, char got)
{
    snprintf(p->why_text, sizeof(p->why_text),
             "Protocol error: expected '$', got '%c'", got);
    return fail(p, p->why_text);
}

static int begin_bulk(struct resp_parser *p, const struct resp_limits *limits,
                      const char *data, size_t len)
{
    static const struct length_words words = {
        "Protocol error: too big bulk count string",
        "Protocol error: invalid bulk length",
    };
    if (p->pos == len)
        return 0;
    if (data[p->pos] != '$')
        return fail_not_bulk(p, data[p->pos]);
    int64_t n;
    int rc = read_length(p, limits, data, len, &words, &n);
    if (rc <= 0)
        return rc;
    if (n < 0)
        return fail(p, words.invalid);
    if ((uint64_t)n > limits->max_arg_bytes)
        return fail_at(p, RESP_FAULT_ARG_BYTES,
                       limits->unauthenticated
                           ? "Protocol error: unauthenticated bulk length"
                           : "Protocol error: too long an argument "
                             "(server.max_arg_bytes)");
    size_t room =
        limits->max_request > p->pos ? limits->max_request - p->pos : 0;
    if (room < 2 || (uint64_t)n > room - 2)
        return fail_at(p, RESP_FAULT_REQUEST,
                       "Protocol error: too big request");
    p->bulk_len = n;
    return 1;
}

static int read_bulk(struct resp_parser *p, const struct resp_limits *limits,
                     const char *data, size_t len)
{
    if (p->bulk_len < 0) {
        int rc = begin_bulk(p, limits, data, len);
        if (rc <= 0)
            return rc;
    }
    size_t n = (size_t)p->bulk_len;
    size_t here = len - p->pos;
    if (here < 2 || n > here - 2)
        return 0;
    /* Redis does not look; but here a wrong length is found where it is, not
     * somewhere behind it. */
    if (memcmp(data + p->pos + n, "\r\n", 2) != 0)
        return fail(p, "Protocol error: expected CRLF after bulk");
    add_arg(p, p->pos, n);
    p->pos += n + 2;
    p->bulk_len = -1;
    p->left--;
    return 1;
}

static enum resp_status parse_array(struct resp_parser *p,
                                    const struct resp_limits *limits,
                                    const char *data, size_t len)
{
    if (p->pos == 0) {
        int rc = begin_array(p, limits, data, len);
        if (rc <= 0)
            return more_or_broken(rc);
    }
    while (p->left > 0) {
        int rc = read_bulk(p, limits, data, len);
        if (rc <= 0)
            return more_or_broken(rc);
    }
    return finish_request(p, data);
}

/* ---- inline commands ---- */

#define TOO_BIG_INLINE "Protocol error: too big inline request"

struct words {
    const char *p;
    const char *end;
    struct buf *out; /* ref */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Behind a backslash within "...". */
static char unescape(struct words *w)
{
    if (w->end - w->p >= 3 && w->p[0] == 'x' && hex_value(w->p[1]) >= 0 &&
        hex_value(w->p[2]) >= 0) {
        w->p += 3;
        return (char)hex_byte(w->p - 2);
    }
    char c = *w->p++;
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return c;
    }
}

/* Behind an opening quote. Within '...' only \' is an escape. */
static int read_quoted(struct words *w, char quote)
{
    while (w->p < w->end) {
        char c = *w->p++;
        if (c == quote)
            return w->p == w->end || is_blank(*w->p) ? 0 : -1;
        if (c == '\\' && w->p < w->end && (quote == '"' || *w->p == quote))
            c = unescape(w);
        buf_putc(w->out, c);
    }
    return -1;
}

/* Quotes may begin within a word, but must end it. */
static int read_word(struct words *w)
{
    while (w->p < w->end && !is_blank(*w->p)) {
        char c = *w->p++;
        if (c == '"' || c == '\'')
            return read_quoted(w, c);
        buf_putc(w->out, c);
    }
    return 0;
}

static int read_words(struct resp_parser *p, const struct resp_limits *limits,
                      struct words *w)
{
    for (;;) {
        while (w->p < w->end && is_blank(*w->p))
            w->p++;
        if (w->p == w->end)
            return 1;
        size_t start = w->out->len;
        if (read_word(w) < 0)
            return fail(p, "Protocol error: unbalanced quotes in request");
        size_t n = w->out->len - start;
        if ((size_t)p->argc == limits->max_args)
            return fail_at(p, RESP_FAULT_ARGS, TOO_BIG_INLINE);
        if (n > limits->max_arg_bytes)
            return fail_at(p, RESP_FAULT_ARG_BYTES, TOO_BIG_INLINE);
        add_arg(p, start, n);
    }
}

/* A web page can make a browser send a POST with commands in its body to a
 * port of its own machine. */
static bool is_http(const char *data, size_t len)
{
    if (len < 5)
        return false;
    return strncasecmp(data, "host:", 5) == 0 ||
           (strncasecmp(data, "post", 4) == 0 && is_blank(data[4]));
}

static enum resp_status parse_inline(struct resp_parser *p,
                                     const struct resp_limits *limits,
                                     const char *data, size_t len)
{
    if (is_http(data, len))
        return RESP_ATTACK;
    size_t max = limits->max_inline < limits->max_request ? limits->max_inline
                                                          : limits->max_request;
    size_t end;
    int rc = find_line(p, max, data, len, &end, TOO_BIG_INLINE);
    if (rc <= 0)
        return more_or_broken(rc);
    buf_reserve(&p->text, end);
    struct words w = {data, data + end, &p->text};
    rc = read_words(p, limits, &w);
    if (rc <= 0)
        return more_or_broken(rc);
    p->pos = end;
    return finish_request(p, p->text.data);
}

enum resp_status resp_parse(struct resp_parser *p,
                            const struct resp_limits *limits, const char *data,
                            size_t len)
{
    if (p->pos == 0)
        begin_request(p);
    if (len == 0)
        return RESP_MORE;
    if (data[0] == '*')
        return parse_array(p, limits, data, len);
    return parse_inline(p, limits, data, len);
}

bool resp_arg_is(const struct resp_arg *a, const char *word)
{
    return strlen(word) == a->len && strncasecmp(a->data, word, a->len) == 0;
}
