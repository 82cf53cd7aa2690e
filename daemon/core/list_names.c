/* SPDX-License-Identifier: MIT */
/* Keys of lists, made from their templates and taken apart again. */
#include "core/list_names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char placeholder[] = "{user}";

static void split(struct list_names *n, enum list_side side,
                  const char *template)
{
    const char *at = strstr(template, placeholder);

    assert(at);
    n->pre[side] = mem_strndup(template, (size_t)(at - template));
    n->post[side] = mem_strdup(at + strlen(placeholder));
}

void list_names_init(struct list_names *n, const char *follow, const char *fans)
{
    split(n, LIST_FOLLOW, follow);
    split(n, LIST_FANS, fans);
}

void list_names_free(struct list_names *n)
{
    for (int side = 0; side < 2; side++) {
        free(n->pre[side]);
        free(n->post[side]);
    }
    memset(n, 0, sizeof(*n));
}

void list_key_put(const struct list_names *n, enum list_side side,
                  const char *user, size_t len, struct buf *out)
{
    buf_puts(out, n->pre[side]);
    buf_append(out, user, len);
    buf_puts(out, n->post[side]);
}

int list_key_parse(const struct list_names *n, enum list_side side,
                   const char *key, size_t len, const char **user_r,
                   size_t *len_r)
{
    size_t pre = strlen(n->pre[side]);
    size_t post = strlen(n->post[side]);

    if (len <= pre + post || memcmp(key, n->pre[side], pre) != 0 ||
        memcmp(key + len - post, n->post[side], post) != 0)
        return -1;
    *user_r = key + pre;
    *len_r = len - pre - post;
    return 0;
}

static void put_literal(struct buf *out, const char *s)
{
    for (; *s; s++) {
        if (strchr("*?[]\\", *s))
            buf_putc(out, '\\');
        buf_putc(out, *s);
    }
}

void list_key_glob(const struct list_names *n, enum list_side side,
                   struct buf *out)
{
    put_literal(out, n->pre[side]);
    buf_putc(out, '*');
    put_literal(out, n->post[side]);
}
