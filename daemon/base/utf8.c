/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

#include <string.h>

size_t utf8_char_len(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        n = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        n = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        n = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (n > len || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    }
    return n;
}

size_t utf8_plain_len(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = utf8_char_len(text, len);

    if (n == 1 && (s[0] < ' ' || s[0] == 0x7f))
        return 0;
    return n == 2 && s[0] == 0xc2 && s[1] < 0xa0 ? 0 : n;
}

static size_t plain_one(struct buf *out, const char *s, size_t len)
{
    size_t n = utf8_char_len(s, len);

    if (strchr("\n\r\t", s[0]))
        buf_putc(out, ' ');
    else if (utf8_plain_len(s, len) == 0)
        buf_putc(out, '?');
    else
        buf_append(out, s, n);
    return n > 0 ? n : 1;
}

/* Each step appends as many bytes as it takes, or fewer. */
void utf8_put_plain(struct buf *out, const char *text, size_t max)
{
    size_t len = strlen(text);
    size_t end = 0;

    while (end < len) {
        size_t n = utf8_char_len(text + end, len - end);

        n = n > 0 ? n : 1;
        if (n > max - end)
            break;
        end += plain_one(out, text + end, len - end);
    }
    if (end < len)
        buf_puts(out, "...");
}
