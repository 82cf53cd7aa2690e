/* SPDX-License-Identifier: MIT */
/* Any bytes as a stream of requests. However they are cut into pieces they give
 * the same requests; each keeps the limits, lies within what was given and is
 * the same after printing; tighter limits only end the stream earlier. */
#include "fuzz.h"

#include <ctype.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "core/resp.h"

/* What a parser may keep between requests, and per byte of one under way. */
enum { ARGS_KEEP = 16, TEXT_KEEP = 1024 };

static const struct resp_limits WIDE = {
    .max_args = 65536,
    .max_arg_bytes = 1024 * 1024,
    .max_inline = 64 * 1024,
    .max_request = 64 * 1024 * 1024,
};

static const struct resp_limits NARROW[] = {
    {.max_args = 10,
     .max_arg_bytes = 16 * 1024,
     .max_inline = 64 * 1024,
     .max_request = 1024 * 1024,
     .unauthenticated = true},
    {.max_args = 3, .max_arg_bytes = 5, .max_inline = 16, .max_request = 34},
};

/* What came of a stream. */
struct outcome {
    struct buf events; /* owned: each request printed, and how it ended */
    size_t good;       /* bytes of events before the one that broke it */
};

struct feed {
    const struct resp_limits *limits;
    struct resp_parser parser;
    struct choice *pieces; /* ref: NULL gives all at once */
    struct outcome *out;   /* ref */
};

static void put_request(struct buf *out, const struct resp_parser *p)
{
    resp_array(out, (size_t)p->argc);
    for (int i = 0; i < p->argc; i++)
        resp_bulk(out, p->argv[i].data, p->argv[i].len);
}

static void check_printed_again(const struct resp_parser *p)
{
    struct buf printed = {0}, again = {0};
    struct resp_parser q;

    put_request(&printed, p);
    resp_parser_init(&q);
    CHECK(resp_parse(&q, &WIDE, printed.data, printed.len) == RESP_REQUEST);
    CHECK(q.used == printed.len);
    put_request(&again, &q);
    CHECK(buf_same(&printed, &again));
    resp_parser_free(&q);
    buf_free(&again);
    buf_free(&printed);
}

static void check_arg(const struct resp_arg *a)
{
    char shown[RESP_SHOW_MAX];
    size_t len = strlen(resp_show(a, shown));

    CHECK(len < sizeof(shown) && len >= (a->len < 128 ? a->len : 128));
    for (size_t i = 0; i < len; i++)
        CHECK(isprint((unsigned char)shown[i]));
    CHECK(!resp_arg_is(a, "PING") ||
          (a->len == 4 && memchr("pP", a->data[0], 2)));
}

/* An array's arguments lie in its bytes, an inline command's in the parser; in
 * both, one behind the other. */
static void check_places(const struct resp_parser *p, const char *data)
{
    const char *from = data[0] == '*' ? data : p->text.data;
    const char *end = data[0] == '*' ? data + p->used : from + p->text.len;

    for (int i = 0; i < p->argc; i++) {
        const struct resp_arg *a = &p->argv[i];

        CHECK(a->data >= from && a->data <= end);
        CHECK(a->len <= (size_t)(end - a->data));
        from = a->data + a->len;
    }
}

static void check_request(const struct feed *f, const char *data, size_t len)
{
    const struct resp_parser *p = &f->parser;

    CHECK(p->argc > 0 && (size_t)p->argc <= f->limits->max_args);
    CHECK(p->used > 0 && p->used <= len && p->used <= f->limits->max_request);
    check_places(p, data);
    for (int i = 0; i < p->argc; i++) {
        CHECK(p->argv[i].len <= f->limits->max_arg_bytes);
        check_arg(&p->argv[i]);
    }
    check_printed_again(p);
}

/* Memory goes with what has come, not with what is announced. */
static void check_memory(const struct resp_parser *p, size_t len)
{
    CHECK(p->cap <= ARGS_KEEP + len);
    CHECK(p->text.cap <= TEXT_KEEP + 2 * len);
}

/* A client may not make us wait, and keep its bytes, for ever. */
static void check_more(const struct resp_limits *limits, const char *data,
                       size_t len)
{
    size_t most = limits->max_inline;

    if (len > 0 && data[0] == '*')
        most += limits->max_request;
    CHECK(len <= most);
}

/* A byte that came in place of '$' is shown as it is, as Redis does. */
static void check_why(const char *why)
{
    const char *got = strstr(why, "got '");

    CHECK(strncmp(why, "Protocol error: ", 16) == 0);
    for (; *why; why++)
        CHECK(isprint((unsigned char)*why) || (got && why == got + 5));
}

/* 1 go on behind `used` bytes, 0 more are needed, -1 this is the end. */
static int note(struct feed *f, enum resp_status status, const char *data,
                size_t len)
{
    struct outcome *out = f->out;

    switch (status) {
    case RESP_REQUEST:
        check_request(f, data, len);
        put_request(&out->events, &f->parser);
        break;
    case RESP_EMPTY:
        CHECK(f->parser.used > 0 && f->parser.used <= len);
        buf_puts(&out->events, "empty\r\n");
        break;
    case RESP_MORE:
        check_more(f->limits, data, len);
        return 0;
    case RESP_BROKEN:
        check_why(f->parser.why);
        out->good = out->events.len;
        buf_puts(&out->events, f->parser.why);
        return -1;
    case RESP_ATTACK:
        buf_puts(&out->events, "attack");
        out->good = out->events.len;
        return -1;
    }
    out->good = out->events.len;
    return 1;
}

/* Each call gets a copy of its own: the bytes of a client move, too. Now and
 * then a request is asked for twice, as by a client that has to wait. */
static int step(struct feed *f, const uint8_t *data, size_t len)
{
    char *copy = exact_copy(data, len);
    enum resp_status status = resp_parse(&f->parser, f->limits, copy, len);
    int rc;

    if (status == RESP_REQUEST && f->pieces && choose(f->pieces, 8) == 0)
        CHECK(resp_parse(&f->parser, f->limits, copy, len) == RESP_REQUEST);
    rc = note(f, status, copy, len);
    check_memory(&f->parser, len);
    free(copy);
    return rc;
}

static size_t piece(struct feed *f, size_t left)
{
    static const size_t MOST[] = {1, 4, 16, 256};
    size_t n;

    if (!f->pieces)
        return left;
    n = 1 + choose(f->pieces, MOST[choose(f->pieces, ARRAY_LEN(MOST))]);
    return n < left ? n : left;
}

static void feed(struct feed *f, const uint8_t *data, size_t size)
{
    size_t start = 0, end = piece(f, size);
    int rc;

    resp_parser_init(&f->parser);
    while ((rc = step(f, data + start, end - start)) >= 0) {
        if (rc > 0)
            start += f->parser.used;
        else if (end == size)
            break;
        else
            end += piece(f, size - end);
    }
    if (start == size && rc >= 0) {
        CHECK(resp_parse(&f->parser, f->limits, "", 0) == RESP_MORE);
        check_memory(&f->parser, 0);
    }
    resp_parser_free(&f->parser);
}

/* Whole and in pieces; the outcome is the caller's to free. */
static struct outcome outcome_of(const struct resp_limits *limits,
                                 const uint8_t *data, size_t size)
{
    struct choice pieces = choice_of(data, size);
    struct outcome whole = {0}, cut = {0};

    feed(&(struct feed){.limits = limits, .out = &whole}, data, size);
    feed(&(struct feed){.limits = limits, .out = &cut, .pieces = &pieces}, data,
         size);
    CHECK(buf_same(&whole.events, &cut.events));
    buf_free(&cut.events);
    return whole;
}

static void check_narrow(const struct outcome *wide,
                         const struct outcome *narrow)
{
    const struct buf *a = &wide->events, *b = &narrow->events;

    CHECK(narrow->good <= a->len);
    if (narrow->good > 0)
        CHECK(memcmp(a->data, b->data, narrow->good) == 0);
    CHECK(narrow->good < b->len || narrow->good == a->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome wide = outcome_of(&WIDE, data, size);

    for (size_t i = 0; i < ARRAY_LEN(NARROW); i++) {
        struct outcome narrow = outcome_of(&NARROW[i], data, size);

        check_narrow(&wide, &narrow);
        buf_free(&narrow.events);
    }
    buf_free(&wide.events);
    return 0;
}
