/* SPDX-License-Identifier: MIT */
#include "core/json.h"

#include <string.h>

#include "base/utf8.h"

static void put_char(struct buf *out, const char *s, size_t len)
{
    unsigned char c = (unsigned char)s[0];

    if (len == 0)
        buf_puts(out, "\\ufffd");
    else if (c == '"' || c == '\\')
        buf_printf(out, "\\%c", c);
    else if (c == '\n')
        buf_puts(out, "\\n");
    else if (c < ' ' || c == 0x7f)
        buf_printf(out, "\\u%04x", c);
    else
        buf_append(out, s, len);
}

void json_put(struct buf *out, const char *s, size_t len)
{
    buf_putc(out, '"');
    while (len > 0) {
        size_t n = utf8_char_len(s, len);

        put_char(out, s, n);
        n = n ? n : 1;
        s += n;
        len -= n;
    }
    buf_putc(out, '"');
}

void json_put_text(struct buf *out, const char *s)
{
    json_put(out, s, strlen(s));
}
