/* SPDX-License-Identifier: MIT */
/* Strict numbers. */
#include "base/num.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TIME_MAX_S UINT64_C(253402300799) /* 9999-12-31 23:59:59 */
#define US_PER_S   UINT64_C(1000000)

int num_parse_u64(const char *s, size_t len, uint64_t *v_r)
{
    uint64_t v = 0;

    if (!len)
        return -1;
    for (size_t i = 0; i < len; i++) {
        unsigned digit = (unsigned)(unsigned char)s[i] - '0';

        if (digit > 9 || v > (UINT64_MAX - digit) / 10)
            return -1;
        v = v * 10 + digit;
    }
    *v_r = v;
    return 0;
}

int num_parse_i64(const char *s, size_t len, int64_t *v_r)
{
    size_t sign;
    uint64_t u;

    if (!len)
        return -1;
    sign = s[0] == '-';
    if (num_parse_u64(s + sign, len - sign, &u) < 0)
        return -1;
    if (u > (uint64_t)INT64_MAX + sign)
        return -1;
    if (sign)
        *v_r = u ? -(int64_t)(u - 1) - 1 : 0;
    else
        *v_r = (int64_t)u;
    return 0;
}

int num_parse_redis(const char *s, size_t len, int64_t *v_r)
{
    size_t sign = len > 0 && s[0] == '-';

    if (len > 1 && s[sign] == '0')
        return -1;
    return num_parse_i64(s, len, v_r);
}

/* The first six decimals; the others must be digits too. */
static int parse_decimals(const char *s, size_t len, uint64_t *us_r)
{
    uint64_t us = 0;
    size_t i;

    if (!len)
        return -1;
    for (i = 0; i < len; i++) {
        unsigned digit = (unsigned)(unsigned char)s[i] - '0';

        if (digit > 9)
            return -1;
        if (i < 6)
            us = us * 10 + digit;
    }
    for (; i < 6; i++)
        us *= 10;
    *us_r = us;
    return 0;
}

int num_parse_time_us(const char *s, size_t len, int64_t *us_r)
{
    const char *dot = len ? memchr(s, '.', len) : NULL;
    size_t whole = dot ? (size_t)(dot - s) : len;
    uint64_t seconds, us = 0;

    if (num_parse_u64(s, whole, &seconds) < 0 || seconds > TIME_MAX_S)
        return -1;
    if (dot && parse_decimals(dot + 1, len - whole - 1, &us) < 0)
        return -1;
    *us_r = (int64_t)(seconds * US_PER_S + us);
    return 0;
}

size_t num_format_time_us(int64_t us, char out[NUM_TIME_MAX])
{
    uint64_t u = us < 0 ? -(uint64_t)us : (uint64_t)us;

    return (size_t)snprintf(out, NUM_TIME_MAX, "%s%" PRIu64 ".%06" PRIu64,
                            us < 0 ? "-" : "", u / US_PER_S, u % US_PER_S);
}

const char *num_format_grouped(int64_t v, char out[NUM_GROUPED_MAX])
{
    char plain[24];
    int n = snprintf(plain, sizeof(plain), "%" PRId64, v);
    char *to = out;

    for (int i = 0; i < n; i++) {
        bool inside = i > 0 && plain[i - 1] != '-';

        if (inside && (n - i) % 3 == 0)
            *to++ = ',';
        *to++ = plain[i];
    }
    *to = '\0';
    return out;
}
