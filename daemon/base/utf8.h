/* SPDX-License-Identifier: MIT */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

#include "base/buf.h"

/* Length of the UTF-8 character at s, of which len bytes, at least one, are there;
 * or 0: no overlong forms, no surrogates, nothing above U+10FFFF (Unicode 15, table
 * 3-7). */
size_t utf8_char_len(const char *s, size_t len);

/* As that, but 0 also for a control character: below U+0020, U+007F to U+009F. */
size_t utf8_plain_len(const char *s, size_t len);

/* Appends what others said so that it is harmless in a line, a terminal or a message
 * to systemd, which drops what is not UTF-8: a line's end or a tab becomes a space,
 * other control characters (U+0080 to U+009F, too) and bytes of no character '?'. Of
 * a text longer than max bytes, its whole characters within them, and "...". */
void utf8_put_plain(struct buf *out, const char *text, size_t max);

#endif
