/* SPDX-License-Identifier: MIT */
/* Replies as JSON, for --json. */
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "ctl.h"

static void put_value(struct buf *out, const struct resp_value *v)
{
    if (v->type == RESP_T_INT)
        buf_printf(out, "%lld", (long long)v->num);
    else if (v->str)
        json_put(out, v->str, v->len);
    else
        buf_puts(out, "null");
}

static void put_repeated(struct buf *out, const struct resp_value *v,
                         const char *repeated, const char *plural)
{
    const char *comma = "";

    json_put_text(out, plural);
    buf_puts(out, ": [");
    for (size_t i = 0; i + 1 < v->n_items; i += 2) {
        if (!v->items[i].str || strcmp(v->items[i].str, repeated) != 0)
            continue;
        buf_puts(out, comma);
        put_value(out, &v->items[i + 1]);
        comma = ", ";
    }
    buf_putc(out, ']');
}

void ctl_json_map(struct buf *out, const struct resp_value *v,
                  const char *repeated, const char *plural)
{
    const char *comma = "";

    buf_putc(out, '{');
    for (size_t i = 0; i + 1 < v->n_items; i += 2) {
        const struct resp_value *value = &v->items[i + 1];
        const char *name = v->items[i].str;

        if (!name || value->type == RESP_T_ARRAY ||
            (repeated && strcmp(name, repeated) == 0))
            continue;
        buf_puts(out, comma);
        json_put_text(out, name);
        buf_puts(out, ": ");
        put_value(out, value);
        comma = ", ";
    }
    if (repeated) {
        buf_puts(out, comma);
        put_repeated(out, v, repeated, plural);
    }
    buf_putc(out, '}');
}

void ctl_json_list(struct buf *out, const struct resp_value *v,
                   const char *name)
{
    const struct resp_value *list = ctl_find(v, name);

    ctl_json_map(out, v, NULL, NULL);
    out->len--; /* its brace */
    buf_puts(out, ", ");
    json_put_text(out, name);
    buf_puts(out, ": [");
    for (size_t i = 0; list && i < list->n_items; i++) {
        buf_puts(out, i > 0 ? ", " : "");
        ctl_json_map(out, &list->items[i], NULL, NULL);
    }
    buf_puts(out, "]}");
}

void ctl_json_print(struct buf *out)
{
    puts(buf_cstr(out));
    buf_free(out);
}
