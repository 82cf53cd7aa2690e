/* SPDX-License-Identifier: MIT */
/* RESP, the Redis protocol (https://redis.io/docs/reference/protocol-spec):
 * an incremental request parser, reply writers for versions 2 and 3, and a
 * reply reader for likesyncctl. Pure: no I/O. */
#ifndef CORE_RESP_H
#define CORE_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"

/* ---- requests ---- */

struct resp_arg {
    const char *data; /* ref: into the bytes given to resp_parse, or, from an
                         inline command, into the parser */
    size_t len;
};

struct resp_limits {
    size_t max_args;      /* arguments of a request, its name included */
    size_t max_arg_bytes; /* one argument */
    size_t max_inline;  /* an inline line or a header line, its end included */
    size_t max_request; /* all of one request */
    bool unauthenticated; /* these limits hold until AUTH: the errors say so */
};

enum resp_status {
    RESP_REQUEST, /* one whole request: argv, argc and used are set */
    RESP_MORE,    /* incomplete: call again with more bytes */
    RESP_EMPTY,   /* an empty line or array: skip `used` bytes */
    RESP_BROKEN,  /* protocol error: reply `why` and close (Redis' words) */
    RESP_ATTACK,  /* `POST` or `Host:` at the start of a line: close */
};

/* Which limit a broken request went over. */
enum resp_fault {
    RESP_FAULT_PROTOCOL, /* none: it is not RESP */
    RESP_FAULT_ARGS,     /* max_args */
    RESP_FAULT_ARG_BYTES,
    RESP_FAULT_REQUEST, /* max_inline, max_request */
};

struct resp_parser {
    struct resp_arg *argv; /* owned; good until the next resp_parse */
    int argc;
    size_t used;     /* bytes of the request that was returned */
    const char *why; /* "Protocol error: ..."; good until the next resp_parse */
    enum resp_fault fault; /* after RESP_BROKEN */
    /* Internal. Where an incomplete request was left, so that nothing is parsed
     * twice; positions are offsets into the request. */
    size_t *offsets;  /* owned: start of each argument */
    size_t cap;       /* of argv and offsets: grows as arguments arrive */
    size_t pos;       /* parsed up to here; 0: before or in the first line */
    size_t scan;      /* no line end between pos and here */
    int64_t left;     /* arguments still to come */
    int64_t bulk_len; /* of the argument at pos; -1: its header comes first */
    struct buf text;  /* owned: the unquoted arguments of an inline command */
    char why_text[48];
};

void resp_parser_init(struct resp_parser *p);
void resp_parser_free(struct resp_parser *p);
/* The memory that it holds, itself not included. */
size_t resp_parser_bytes(const struct resp_parser *p);
/* Looks at data[0..len), which must start where the last request ended, and
 * after RESP_MORE must hold the same bytes and more (they may have moved).
 * Called at the start of a request, also with len 0, it gives back what an
 * unusually big one before it took. After RESP_BROKEN and RESP_ATTACK the
 * parser can only be freed. */
enum resp_status resp_parse(struct resp_parser *p,
                            const struct resp_limits *limits, const char *data,
                            size_t len);

/* Whether it is this word, in either case. What holds a NUL never is. */
bool resp_arg_is(const struct resp_arg *a, const char *word);

/* ---- replies ---- */

void resp_simple(struct buf *b, const char *s);
/* With its code: "ERR ...". CR and LF become spaces; cut at RESP_ERROR_MAX. */
#define RESP_ERROR_MAX 512
void resp_error(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void resp_int(struct buf *b, int64_t v);
void resp_bulk(struct buf *b, const char *s, size_t len);
void resp_bulk_str(struct buf *b, const char *s);
void resp_array(struct buf *b, size_t n);
/* A map in RESP3, an array of 2n in RESP2. */
void resp_map(struct buf *b, int proto, size_t n);
/* A set in RESP3, an array in RESP2. */
void resp_set(struct buf *b, int proto, size_t n);
void resp_null(struct buf *b, int proto);
/* An argument for messages: at most 128 bytes of it, "..." if there are more,
 * with bytes that are not printable ASCII shown as '?'. Returns out. */
#define RESP_SHOW_MAX 132
const char *resp_show(const struct resp_arg *a, char out[RESP_SHOW_MAX]);

/* ---- reading replies (likesyncctl) ---- */

#define RESP_DEPTH_MAX 8

enum resp_type {
    RESP_T_SIMPLE,
    RESP_T_ERROR,
    RESP_T_INT,
    RESP_T_BULK,
    RESP_T_ARRAY,
    RESP_T_NULL
};

struct resp_value {
    enum resp_type type;
    char *str; /* owned; simple, error, bulk; NUL-terminated */
    size_t len;
    int64_t num;
    struct resp_value *items; /* owned; arrays, and maps as arrays of 2n */
    size_t n_items;
};

/* Reads what the writers above write. 1 one value read and *used_r set (v_r is
 * to be freed), 0 more bytes needed, -1 malformed, nested deeper than
 * RESP_DEPTH_MAX or larger than max_bytes. */
MUST_CHECK int resp_read_value(const char *data, size_t len, size_t max_bytes,
                               struct resp_value *v_r, size_t *used_r);
void resp_value_free(struct resp_value *v);

#endif
