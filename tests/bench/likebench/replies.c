/* SPDX-License-Identifier: MIT */
#include "replies.h"

#include <stdlib.h>
#include <string.h>

static enum reply kind_of(const struct replies *r)
{
    if (r->line[0] == '-')
        return REPLY_ERROR;
    if (r->is_element || r->line[0] != ':')
        return REPLY_OTHER;
    if (strcmp(r->line, ":0") == 0)
        return REPLY_ZERO;
    return strcmp(r->line, ":1") == 0 ? REPLY_ONE : REPLY_OTHER;
}

/* A line is complete, without its end. Whether a reply is, too. */
static bool line_done(struct replies *r)
{
    long long n = strtoll(r->line + 1, NULL, 10);

    if (r->open > 0)
        r->open--;
    if (r->line[0] == '$' && n >= 0)
        r->skip = (uint64_t)n + 2;
    if (r->line[0] == '*' && n > 0) {
        r->open += (uint64_t)n;
        r->is_element = true;
    }
    return r->open == 0 && r->skip == 0;
}

static bool tell(struct replies *r, reply_cb cb, void *arg)
{
    enum reply kind = kind_of(r);

    r->is_element = false;
    return cb(arg, kind, r->line);
}

void replies_read(struct replies *r, const char *bytes, size_t len, reply_cb cb,
                  void *arg)
{
    const char *p = bytes;
    const char *end = bytes + len;

    while (p < end) {
        size_t left = (size_t)(end - p);
        const char *line_end;

        if (r->skip > 0) {
            size_t n = left < r->skip ? left : (size_t)r->skip;

            p += n;
            r->skip -= n;
            if (r->skip == 0 && r->open == 0 && !tell(r, cb, arg))
                return;
            continue;
        }
        line_end = memchr(p, '\n', left);
        left = line_end ? (size_t)(line_end - p) : left;
        if (left > sizeof(r->line) - 1 - r->len)
            left = sizeof(r->line) - 1 - r->len;
        memcpy(r->line + r->len, p, left);
        r->len += left;
        if (!line_end)
            return;
        p = line_end + 1;
        while (r->len > 0 && r->line[r->len - 1] == '\r')
            r->len--;
        r->line[r->len] = '\0';
        r->len = 0;
        if (line_done(r) && !tell(r, cb, arg))
            return;
    }
}
