/* SPDX-License-Identifier: MIT */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* Length of the UTF-8 character at s, of which len bytes, at least one, are there;
 * or 0: no overlong forms, no surrogates, nothing above U+10FFFF (Unicode 15, table
 * 3-7). */
size_t utf8_char_len(const char *s, size_t len);

#endif
