/* SPDX-License-Identifier: MIT */
/* Ids: checks what clients send, and converts between what they send (raw
 * form), what stands in Redis keys (key form) and PostgreSQL's binary. */
#include "core/ids.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "core/hex.h"

#define UUID_BYTES 16
#define UUID_TEXT  36

struct id_type_info {
    const char *name;
    uint32_t oid;
    uint32_t array_oid;
    const char *expected;
};

static const struct id_type_info types[] = {
    [ID_BIGINT] = {"bigint", 20, 1016,
                   "expected a decimal from 0 to 9223372036854775807"},
    [ID_UUID] = {"uuid", 2950, 2951,
                 "expected a UUID of 32 hexadecimal digits, with hyphens as in "
                 "123e4567-e89b-12d3-a456-426614174000 or without any"},
    [ID_TEXT] = {"text", 25, 1009,
                 "expected 1 to 128 bytes of UTF-8 without NUL"},
};

uint32_t id_type_oid(enum id_type t)
{
    return types[t].oid;
}

uint32_t id_type_array_oid(enum id_type t)
{
    return types[t].array_oid;
}

const char *id_type_name(enum id_type t)
{
    return types[t].name;
}

/* ---- bigint ---- */

static int parse_bigint(const char *s, size_t len, char *out, size_t *len_r)
{
    int64_t v;
    if (len == 0 || s[0] == '-' || num_parse_i64(s, len, &v) != 0)
        return -1;
    while (len > 1 && s[0] == '0') {
        s++;
        len--;
    }
    memcpy(out, s, len);
    *len_r = len;
    return 0;
}

/* ---- uuid ---- */

static bool hyphen_at(size_t i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

static int parse_uuid(const char *s, size_t len, char *out, size_t *len_r)
{
    static const char digits[] = "0123456789abcdef";
    bool hyphens = len == UUID_TEXT;
    if (!hyphens && len != 2 * UUID_BYTES)
        return -1;
    for (size_t i = 0; i < UUID_TEXT; i++) {
        if (hyphen_at(i)) {
            if (hyphens && *s++ != '-')
                return -1;
            out[i] = '-';
            continue;
        }
        int v = hex_value(*s++);
        if (v < 0)
            return -1;
        out[i] = digits[v];
    }
    *len_r = UUID_TEXT;
    return 0;
}

static void put_uuid_binary(const char *key, struct buf *out)
{
    for (size_t i = 0; i < UUID_TEXT; i += 2) {
        if (hyphen_at(i))
            i++;
        buf_putc(out, (char)hex_byte(key + i));
    }
}

static size_t format_uuid(const char *p, char *out)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        if (hyphen_at(n))
            out[n++] = '-';
        out[n++] = digits[(unsigned char)p[i] >> 4];
        out[n++] = digits[p[i] & 15];
    }
    return n;
}

/* ---- text ---- */

static bool is_valid_text(const char *s, size_t len)
{
    if (len == 0 || len > ID_TEXT_MAX || memchr(s, '\0', len) != NULL)
        return false;
    while (len > 0) {
        size_t n = utf8_char_len(s, len);
        if (n == 0)
            return false;
        s += n;
        len -= n;
    }
    return true;
}

static bool needs_escape(unsigned char c)
{
    return c <= ' ' || c == 0x7f || c == '%' || c == '_' || c == '{' ||
           c == '}' || c == ':';
}

/* Ids that would read as a part of our own key names. */
static bool is_own_word(const char *s, size_t len)
{
    static const char *const words[] = {"set", "likesync"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (len == strlen(words[i]) && memcmp(s, words[i], len) == 0)
            return true;
    }
    return false;
}

static int parse_text(const char *s, size_t len, char *out, size_t *len_r)
{
    static const char digits[] = "0123456789ABCDEF";
    if (!is_valid_text(s, len))
        return -1;
    bool own_word = is_own_word(s, len);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (needs_escape(c) || (own_word && i == 0)) {
            out[n++] = '%';
            out[n++] = digits[c >> 4];
            out[n++] = digits[c & 15];
        } else {
            out[n++] = (char)c;
        }
    }
    *len_r = n;
    return 0;
}

/* The next raw byte of a valid key form. */
static unsigned char next_raw(const char **key)
{
    const char *p = *key;
    if (p[0] != '%') {
        *key = p + 1;
        return (unsigned char)p[0];
    }
    *key = p + 3;
    return hex_byte(p + 1);
}

static int unescape(const char *key, size_t len, char raw[ID_KEY_MAX],
                    size_t *len_r)
{
    const char *end = key + len;
    size_t n = 0;
    while (key < end) {
        if (*key == '%' &&
            (end - key < 3 || hex_value(key[1]) < 0 || hex_value(key[2]) < 0))
            return -1;
        raw[n++] = (char)next_raw(&key);
    }
    *len_r = n;
    return 0;
}

static int compare_text(const char *a, size_t a_len, const char *b,
                        size_t b_len)
{
    const char *a_end = a + a_len;
    const char *b_end = b + b_len;
    while (a < a_end && b < b_end) {
        int d = next_raw(&a) - next_raw(&b);
        if (d != 0)
            return d;
    }
    return (a < a_end) - (b < b_end);
}

/* ---- all types ---- */

int id_parse(enum id_type t, const char *s, size_t len, char out[ID_KEY_MAX],
             size_t *len_r, const char **why_r)
{
    int rc = -1;
    switch (t) {
    case ID_BIGINT:
        rc = parse_bigint(s, len, out, len_r);
        break;
    case ID_UUID:
        rc = parse_uuid(s, len, out, len_r);
        break;
    case ID_TEXT:
        rc = parse_text(s, len, out, len_r);
        break;
    }
    if (rc != 0)
        *why_r = types[t].expected;
    return rc;
}

bool id_may_hold(enum id_type t, char c)
{
    switch (t) {
    case ID_BIGINT:
        return c >= '0' && c <= '9';
    case ID_UUID:
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
    case ID_TEXT:
        return c == '%' || !needs_escape((unsigned char)c);
    }
    return true;
}

/* A key form is what comes out again when its raw form is parsed. */
int id_check_key(enum id_type t, const char *s, size_t len)
{
    char raw[ID_KEY_MAX];
    char key[ID_KEY_MAX];
    size_t raw_len;
    size_t key_len;
    const char *why;
    if (len == 0 || len > ID_KEY_MAX)
        return -1;
    if (t == ID_TEXT) {
        if (unescape(s, len, raw, &raw_len) != 0)
            return -1;
    } else {
        memcpy(raw, s, len);
        raw_len = len;
    }
    if (id_parse(t, raw, raw_len, key, &key_len, &why) != 0)
        return -1;
    return key_len == len && memcmp(key, s, len) == 0 ? 0 : -1;
}

void id_put_raw(enum id_type t, const char *key, size_t len, struct buf *out)
{
    if (t != ID_TEXT) {
        buf_append(out, key, len);
        return;
    }
    const char *end = key + len;
    while (key < end)
        buf_putc(out, (char)next_raw(&key));
}

void id_put_binary(enum id_type t, const char *key, size_t len, struct buf *out)
{
    int64_t v = 0;
    switch (t) {
    case ID_BIGINT:
        for (size_t i = 0; i < len; i++)
            v = 10 * v + (key[i] - '0');
        buf_put_be64(out, (uint64_t)v);
        break;
    case ID_UUID:
        put_uuid_binary(key, out);
        break;
    case ID_TEXT:
        id_put_raw(t, key, len, out);
        break;
    }
}

static int bigint_from_binary(const char *p, size_t len, char *out,
                              size_t *len_r)
{
    if (len != 8)
        return -1;
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++)
        v = v << 8 | (unsigned char)p[i];
    if (v > INT64_MAX)
        return -1;
    *len_r = (size_t)snprintf(out, ID_KEY_MAX, "%" PRIu64, v);
    return 0;
}

int id_from_binary(enum id_type t, const char *p, size_t len,
                   char out[ID_KEY_MAX], size_t *len_r)
{
    switch (t) {
    case ID_BIGINT:
        return bigint_from_binary(p, len, out, len_r);
    case ID_UUID:
        if (len != UUID_BYTES)
            return -1;
        *len_r = format_uuid(p, out);
        return 0;
    case ID_TEXT:
        return parse_text(p, len, out, len_r);
    }
    return -1;
}

int id_compare(enum id_type t, const char *a, size_t a_len, const char *b,
               size_t b_len)
{
    if (t == ID_TEXT)
        return compare_text(a, a_len, b, b_len);
    /* Without leading zeros the longer decimal is the greater one; UUIDs are of
     * one length. */
    if (a_len != b_len)
        return a_len < b_len ? -1 : 1;
    return memcmp(a, b, a_len);
}
