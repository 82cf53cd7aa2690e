/* SPDX-License-Identifier: MIT */
#include "core/glob.h"

#include <ctype.h>
#include <string.h>

static int lower(char c)
{
    return tolower((unsigned char)c);
}

static bool in_range(char c, char from, char to)
{
    int a = lower(from);
    int b = lower(to);

    return a <= b ? lower(c) >= a && lower(c) <= b
                  : lower(c) >= b && lower(c) <= a;
}

/* Behind a "[". A set that is not closed ends with the pattern, as in Redis. */
static bool match_set(const char **p, const char *end, char c)
{
    bool negated = *p < end && **p == '^';
    bool found = false;

    *p += negated;
    for (; *p < end && **p != ']'; (*p)++) {
        if (**p == '\\' && end - *p >= 2) {
            (*p)++;
            found |= lower(**p) == lower(c);
        } else if (end - *p >= 3 && (*p)[1] == '-') {
            found |= in_range(c, (*p)[0], (*p)[2]);
            *p += 2;
        } else {
            found |= lower(**p) == lower(c);
        }
    }
    *p += *p < end;
    return found != negated;
}

/* One character by what stands at *p, which is not a star, and behind it. */
static bool match_one(const char **p, const char *end, char c)
{
    char sign = *(*p)++;

    if (sign == '?')
        return true;
    if (sign == '[')
        return match_set(p, end, c);
    if (sign == '\\' && *p < end)
        sign = *(*p)++;
    return lower(sign) == lower(c);
}

/* Only the last star needs to be tried again, with one character more. */
bool glob_match(const char *pattern, size_t len, const char *text)
{
    const char *p = pattern;
    const char *end = pattern + len;
    const char *after_star = NULL;
    const char *again = NULL;

    if (len > GLOB_MAX)
        return false;
    while (*text) {
        if (p < end && *p == '*') {
            after_star = ++p;
            again = text;
        } else if (p < end && match_one(&p, end, *text)) {
            text++;
        } else if (after_star) {
            p = after_star;
            text = ++again;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

bool glob_is_pattern(const char *pattern, size_t len)
{
    return memchr(pattern, '*', len) || memchr(pattern, '?', len) ||
           memchr(pattern, '[', len);
}
