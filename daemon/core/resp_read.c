/* SPDX-License-Identifier: MIT */
/* Reads replies. A value that is not whole yet is read again from its start
 * when more has come: good for a tool that waits for one answer, not for a
 * server. */
#include "core/resp.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/num.h"

/* The steps return 1 done, 0 more bytes needed, -1 malformed. */
struct reader {
    const char *data; /* ref */
    size_t len;
    size_t pos;
    size_t max_bytes;
};

struct line {
    char mark;
    const char *text; /* ref: without mark and line end */
    size_t len;
};

static int read_value(struct reader *r, int depth, struct resp_value *v);

void resp_value_free(struct resp_value *v)
{
    for (size_t i = 0; i < v->n_items; i++)
        resp_value_free(&v->items[i]);
    free(v->items);
    free(v->str);
    *v = (struct resp_value){.type = RESP_T_NULL};
}

static int read_line(struct reader *r, struct line *line)
{
    if (r->pos == r->len)
        return 0;
    const char *start = r->data + r->pos;
    const char *lf = memchr(start, '\n', r->len - r->pos);
    if (lf == NULL)
        return 0;
    size_t n = (size_t)(lf - start);
    if (n < 2 || lf[-1] != '\r')
        return -1;
    *line = (struct line){start[0], start + 1, n - 2};
    r->pos += n + 1;
    return 1;
}

static int set_text(struct resp_value *v, enum resp_type type, const char *s,
                    size_t len)
{
    v->type = type;
    v->str = mem_strndup(s, len);
    v->len = len;
    return 1;
}

static int read_bulk(struct reader *r, size_t len, struct resp_value *v)
{
    size_t here = r->len - r->pos;
    if (here < 2 || len > here - 2)
        return 0;
    const char *s = r->data + r->pos;
    if (memcmp(s + len, "\r\n", 2) != 0)
        return -1;
    r->pos += len + 2;
    return set_text(v, RESP_T_BULK, s, len);
}

/* Memory grows with what has come, not with the number announced. */
static int read_items(struct reader *r, uint64_t n, int depth,
                      struct resp_value *v)
{
    size_t cap = 0;
    v->type = RESP_T_ARRAY;
    while (v->n_items < n) {
        if (v->n_items == cap) {
            cap = cap == 0 ? 8 : 2 * cap;
            v->items = mem_realloc(v->items, cap * sizeof(*v->items));
        }
        int rc = read_value(r, depth + 1, &v->items[v->n_items]);
        if (rc <= 0)
            return rc;
        v->n_items++;
    }
    return 1;
}

/* $ * % with the number in their line; -1 is RESP2's null. */
static int read_sized(struct reader *r, char mark, int64_t n, int depth,
                      struct resp_value *v)
{
    if (n == -1 && mark != '%') {
        v->type = RESP_T_NULL;
        return 1;
    }
    if (n < 0 || (uint64_t)n > r->max_bytes)
        return -1;
    if (mark == '$')
        return read_bulk(r, (size_t)n, v);
    return read_items(r, mark == '%' ? 2 * (uint64_t)n : (uint64_t)n, depth, v);
}

static int read_any(struct reader *r, int depth, struct resp_value *v)
{
    struct line line;
    int rc = read_line(r, &line);
    if (rc <= 0)
        return rc;
    switch (line.mark) {
    case '+':
        return set_text(v, RESP_T_SIMPLE, line.text, line.len);
    case '-':
        return set_text(v, RESP_T_ERROR, line.text, line.len);
    case '_':
        v->type = RESP_T_NULL;
        return line.len == 0 ? 1 : -1;
    case ':':
        v->type = RESP_T_INT;
        return num_parse_i64(line.text, line.len, &v->num) == 0 ? 1 : -1;
    case '$':
    case '*':
    case '%': {
        int64_t n;
        if (num_parse_i64(line.text, line.len, &n) != 0)
            return -1;
        return read_sized(r, line.mark, n, depth, v);
    }
    default:
        return -1;
    }
}

/* v holds memory only when this returns 1. */
static int read_value(struct reader *r, int depth, struct resp_value *v)
{
    *v = (struct resp_value){.type = RESP_T_NULL};
    if (depth > RESP_DEPTH_MAX)
        return -1;
    int rc = read_any(r, depth, v);
    if (rc <= 0)
        resp_value_free(v);
    return rc;
}

int resp_read_value(const char *data, size_t len, size_t max_bytes,
                    struct resp_value *v_r, size_t *used_r)
{
    struct reader r = {data, len < max_bytes ? len : max_bytes, 0, max_bytes};
    int rc = read_value(&r, 1, v_r);
    if (rc == 1)
        *used_r = r.pos;
    /* Not whole within max_bytes: more would not help. */
    return rc == 0 && len >= max_bytes ? -1 : rc;
}
