/* SPDX-License-Identifier: MIT */
/* Ids: every spelling, every conversion, one order. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/mem.h"
#include "core/ids.h"

#define UUID "123e4567-e89b-12d3-a456-426614174abc"

static void check_id(enum id_type t, const char *in, const char *expected)
{
    char key[ID_KEY_MAX];
    size_t len = 0;
    const char *why = NULL;
    if (id_parse(t, in, strlen(in), key, &len, &why) != 0)
        fail_msg("%s \"%s\": %s", id_type_name(t), in, why);
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(key, expected, len);
    assert_int_equal(id_check_key(t, key, len), 0);
}

static void check_refused_bytes(enum id_type t, const char *in, size_t len,
                                const char *expected)
{
    char key[ID_KEY_MAX];
    size_t key_len = 0;
    const char *why = "";
    if (id_parse(t, in, len, key, &key_len, &why) != -1)
        fail_msg("%s \"%s\" was taken", id_type_name(t), in);
    assert_non_null(strstr(why, expected));
}

static void check_refused(enum id_type t, const char *in, const char *expected)
{
    check_refused_bytes(t, in, strlen(in), expected);
}

static void test_types(void **state)
{
    (void)state;
    assert_int_equal(id_type_oid(ID_BIGINT), 20);
    assert_int_equal(id_type_array_oid(ID_BIGINT), 1016);
    assert_string_equal(id_type_name(ID_BIGINT), "bigint");
    assert_int_equal(id_type_oid(ID_UUID), 2950);
    assert_int_equal(id_type_array_oid(ID_UUID), 2951);
    assert_string_equal(id_type_name(ID_UUID), "uuid");
    assert_int_equal(id_type_oid(ID_TEXT), 25);
    assert_int_equal(id_type_array_oid(ID_TEXT), 1009);
    assert_string_equal(id_type_name(ID_TEXT), "text");
}

static void test_bigint(void **state)
{
    static const char *const bad[] = {
        "",    "-1",
        "-0",  "+1",
        " 1",  "1 ",
        "1.0", "0x10",
        "1e3", "9223372036854775808",
        "a",   "-",
        "1\n", "18446744073709551617",
    };
    (void)state;
    check_id(ID_BIGINT, "0", "0");
    check_id(ID_BIGINT, "0000", "0");
    check_id(ID_BIGINT, "42", "42");
    check_id(ID_BIGINT, "000000000042", "42");
    check_id(ID_BIGINT, "10", "10");
    check_id(ID_BIGINT, "9223372036854775807", "9223372036854775807");
    check_id(ID_BIGINT, "00000000000000000000009223372036854775807",
             "9223372036854775807");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check_refused(ID_BIGINT, bad[i], "0 to 9223372036854775807");
    check_refused_bytes(ID_BIGINT, "1\0", 2, "decimal");
}

static void test_uuid(void **state)
{
    static const char *const bad[] = {
        "",
        "123e4567-e89b-12d3-a456-426614174ab",
        "123e4567-e89b-12d3-a456-426614174abcd",
        "123e4567-e89b-12d3-a456-426614174abg",
        "123e4567-e89b-12d3-a456_426614174abc",
        "123e4567e89b12d3-a456-426614174abc--",
        "123e-4567-e89b12d3-a456-426614174abc",
        "123e4567-e89b-12d3-a456-42661417-abc",
        "123e4567e89b12d3a456426614174ab",
        "123e4567e89b12d3a456426614174ab-",
        "{123e4567-e89b-12d3-a456-426614174abc}",
    };
    (void)state;
    check_id(ID_UUID, UUID, UUID);
    check_id(ID_UUID, "123E4567-E89B-12d3-A456-426614174ABC", UUID);
    check_id(ID_UUID, "123e4567E89B12d3a456426614174abC", UUID);
    check_id(ID_UUID, "00000000-9999-AAAA-aaaa-FFFFffff0000",
             "00000000-9999-aaaa-aaaa-ffffffff0000");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check_refused(ID_UUID, bad[i], "expected a UUID");
}

static void test_text(void **state)
{
    char longest[ID_TEXT_MAX + 2];
    (void)state;
    check_id(ID_TEXT, "alice", "alice");
    check_id(ID_TEXT, "a!b/c-d.e@f", "a!b/c-d.e@f");
    check_id(ID_TEXT, "a:b:", "a%3Ab%3A");
    check_id(ID_TEXT, "a_b", "a%5Fb");
    check_id(ID_TEXT, "%5F", "%255F");
    check_id(ID_TEXT, "{a} \t\n\x1f\x7f", "%7Ba%7D%20%09%0A%1F%7F");
    check_id(ID_TEXT, "set", "%73et");
    check_id(ID_TEXT, "sets", "sets");
    check_id(ID_TEXT, "set_1", "set%5F1");
    check_id(ID_TEXT, "SET", "SET");
    check_id(ID_TEXT, "likesync", "%6Cikesync");
    check_id(ID_TEXT, "likesync:", "likesync%3A");
    check_id(ID_TEXT, "likesyncd", "likesyncd");
    check_id(ID_TEXT, "likesyn", "likesyn");
    check_id(ID_TEXT, "Likesync", "Likesync");
    check_id(ID_TEXT, "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x91\x8d",
             "h\xc3\xa9%20\xe2\x82\xac%20\xf0\x9f\x91\x8d");
    memset(longest, '_', sizeof(longest));
    longest[ID_TEXT_MAX + 1] = '\0';
    check_refused(ID_TEXT, longest, "1 to 128 bytes");
    check_refused(ID_TEXT, "", "1 to 128 bytes");
    check_refused_bytes(ID_TEXT, "a\0b", 3, "without NUL");
}

static void test_text_of_the_greatest_size(void **state)
{
    char raw[ID_TEXT_MAX];
    char key[ID_KEY_MAX];
    size_t len = 0;
    const char *why;
    (void)state;
    memset(raw, '_', sizeof(raw));
    assert_int_equal(id_parse(ID_TEXT, raw, sizeof(raw), key, &len, &why), 0);
    assert_int_equal(len, ID_KEY_MAX);
    assert_int_equal(id_check_key(ID_TEXT, key, len), 0);
}

static void test_utf8(void **state)
{
    static const char *const good[] = {
        "\xc2\x80",     "\xdf\xbf",     "\xe0\xa0\x80",     "\xed\x9f\xbf",
        "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
    };
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc2",
        "\xc2\x7f",
        "\xc2\xc0",
        "\xe0\x9f\xbf",
        "\xe0\xa0",
        "\xe1\x80\x7f",
        "\xe1\x80\xc0",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf",
        "\xf0\x90\x80",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "a\xc3",
        "\xf1\x80\x80\x41",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        check_id(ID_TEXT, good[i], good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check_refused(ID_TEXT, bad[i], "UTF-8");
}

/* Without a NUL behind it, so that ASan sees a read too far. */
static char *bare_copy(const char *s, size_t *len_r)
{
    *len_r = strlen(s);
    return memcpy(mem_alloc(*len_r > 0 ? *len_r : 1), s, *len_r);
}

/* Members of sets that somebody else filled. */
static void test_check_key(void **state)
{
    static const struct {
        enum id_type type;
        const char *key;
    } bad[] = {
        {ID_BIGINT, ""},
        {ID_BIGINT, "007"},
        {ID_BIGINT, "-7"},
        {ID_BIGINT, "7 "},
        {ID_BIGINT, "seven"},
        {ID_UUID, ""},
        {ID_UUID, "123E4567-e89b-12d3-a456-426614174abc"},
        {ID_UUID, "123e4567e89b12d3a456426614174abc"},
        {ID_TEXT, ""},
        {ID_TEXT, "a_b"},
        {ID_TEXT, "a b"},
        {ID_TEXT, "set"},
        {ID_TEXT, "%5f"},
        {ID_TEXT, "%41"},
        {ID_TEXT, "a%"},
        {ID_TEXT, "a%5"},
        {ID_TEXT, "%z5"},
        {ID_TEXT, "%00"},
        {ID_TEXT, "\xff"},
        {ID_TEXT, "%FF"},
        {ID_TEXT, "%73ets"},
        {ID_TEXT, "likesync"},
        {ID_TEXT, "%6cikesync"},
        {ID_TEXT, "%6Cikesyncd"},
        {ID_TEXT, "a:b"},
        {ID_TEXT, "%3a"},
    };
    char longer[ID_KEY_MAX + 1];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        size_t len;
        char *key = bare_copy(bad[i].key, &len);
        if (id_check_key(bad[i].type, key, len) != -1)
            fail_msg("\"%s\" was taken", bad[i].key);
        free(key);
    }
    memset(longer, 'a', sizeof(longer));
    assert_int_equal(id_check_key(ID_TEXT, longer, 128), 0);
    assert_int_equal(id_check_key(ID_TEXT, longer, 129), -1);
    memset(longer, '0', sizeof(longer));
    assert_int_equal(id_check_key(ID_BIGINT, longer, sizeof(longer)), -1);
}

static void check_convert(enum id_type t, const char *key, const char *raw,
                          const char *binary, size_t binary_len)
{
    struct buf b = {0};
    char back[ID_KEY_MAX];
    size_t back_len = 0;
    id_put_raw(t, key, strlen(key), &b);
    assert_string_equal(buf_cstr(&b), raw);
    assert_int_equal(b.len, strlen(raw));
    buf_clear(&b, 0);
    id_put_binary(t, key, strlen(key), &b);
    assert_int_equal(b.len, binary_len);
    assert_memory_equal(b.data, binary, binary_len);
    assert_int_equal(id_from_binary(t, b.data, b.len, back, &back_len), 0);
    assert_int_equal(back_len, strlen(key));
    assert_memory_equal(back, key, back_len);
    buf_free(&b);
}

static void test_conversions(void **state)
{
    (void)state;
    check_convert(ID_BIGINT, "0", "0", "\0\0\0\0\0\0\0\0", 8);
    check_convert(ID_BIGINT, "258", "258", "\0\0\0\0\0\0\1\2", 8);
    check_convert(ID_BIGINT, "9223372036854775807", "9223372036854775807",
                  "\x7f\xff\xff\xff\xff\xff\xff\xff", 8);
    check_convert(ID_UUID, UUID, UUID,
                  "\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17"
                  "\x4a\xbc",
                  16);
    check_convert(ID_TEXT, "a%5Fb%20\xc3\xa9", "a_b \xc3\xa9", "a_b \xc3\xa9",
                  6);
    check_convert(ID_TEXT, "%73et", "set", "set", 3);
    check_convert(ID_TEXT, "%6Cikesync", "likesync", "likesync", 8);
    check_convert(ID_TEXT, "a%3Ab", "a:b", "a:b", 3);
}

static void check_binary_refused(enum id_type t, const char *p, size_t len)
{
    char out[ID_KEY_MAX];
    size_t n = 0;
    assert_int_equal(id_from_binary(t, p, len, out, &n), -1);
}

static void test_from_binary_refuses(void **state)
{
    char longer[ID_TEXT_MAX + 1];
    (void)state;
    check_binary_refused(ID_BIGINT, "\0\0\0\0\0\0\0", 7);
    check_binary_refused(ID_BIGINT, "\0\0\0\0\0\0\0\0\1", 9);
    check_binary_refused(ID_BIGINT, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    check_binary_refused(ID_UUID, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 15);
    check_binary_refused(ID_TEXT, "", 0);
    memset(longer, 'a', sizeof(longer));
    check_binary_refused(ID_TEXT, longer, sizeof(longer));
}

/* a before b, in all directions. */
static void check_order(enum id_type t, const char *a_text, const char *b_text)
{
    size_t a_len;
    size_t b_len;
    char *a = bare_copy(a_text, &a_len);
    char *b = bare_copy(b_text, &b_len);
    assert_true(id_compare(t, a, a_len, b, b_len) < 0);
    assert_true(id_compare(t, b, b_len, a, a_len) > 0);
    assert_int_equal(id_compare(t, a, a_len, a, a_len), 0);
    assert_int_equal(id_compare(t, b, b_len, b, b_len), 0);
    free(a);
    free(b);
}

static void test_compare(void **state)
{
    (void)state;
    check_order(ID_BIGINT, "0", "1");
    check_order(ID_BIGINT, "9", "10");
    check_order(ID_BIGINT, "19", "20");
    check_order(ID_BIGINT, "999999999999999999", "9223372036854775807");
    check_order(ID_UUID, "00000000-0000-0000-0000-000000000000",
                "f0000000-0000-0000-0000-000000000000");
    check_order(ID_UUID, "00000000-0000-0000-0000-00000000000a",
                "00000000-0000-0000-0000-00000000000b");
    check_order(ID_TEXT, "a", "ab");
    check_order(ID_TEXT, "B", "a");
    /* '%' sorts before '0', but what it stands for does not. */
    check_order(ID_TEXT, "0", "%5F");
    check_order(ID_TEXT, "a%20", "a!");
    check_order(ID_TEXT, "%5Fa", "%5Fb");
    check_order(ID_TEXT, "z", "\xc3\xa9");
    check_order(ID_TEXT, "%73et", "set2");
    check_order(ID_TEXT, "%6Cikesync", "likesyncd");
    check_order(ID_TEXT, "likesyn", "%6Cikesync");
    check_order(ID_TEXT, "9", "%3A");
}

/* Every key form is made of what id_may_hold names, and each byte that it names
 * stands in some key form. */
static void test_bytes_of_keys(void **state)
{
    bool seen[256] = {false};
    char key[ID_KEY_MAX];
    size_t len = 0;
    const char *why;
    (void)state;
    for (int c = 1; c < 256; c++) {
        /* As far as they are UTF-8: alone, and as a first or second byte. */
        const char raws[][2] = {
            {(char)c, 'a'}, {(char)c, '\x80'}, {'\xc3', (char)c}};
        for (size_t i = 0; i < ARRAY_LEN(raws); i++) {
            if (id_parse(ID_TEXT, raws[i], 2, key, &len, &why) != 0)
                continue;
            for (size_t j = 0; j < len; j++)
                seen[(unsigned char)key[j]] = true;
        }
    }
    for (int c = 0; c < 0x80; c++)
        assert_int_equal(id_may_hold(ID_TEXT, (char)c), seen[c]);
    for (int c = 0x80; c < 256; c++)
        assert_true(id_may_hold(ID_TEXT, (char)c) || !seen[c]);
    for (int c = 0; c < 256; c++) {
        bool digit = c >= '0' && c <= '9';
        assert_int_equal(id_may_hold(ID_BIGINT, (char)c), digit);
        assert_int_equal(id_may_hold(ID_UUID, (char)c),
                         digit || (c >= 'a' && c <= 'f') || c == '-');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_bigint),
        cmocka_unit_test(test_uuid),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_of_the_greatest_size),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_check_key),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_from_binary_refuses),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_bytes_of_keys),
    };
    return cmocka_run_group_tests_name("ids", tests, NULL, NULL);
}
