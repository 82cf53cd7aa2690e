/* SPDX-License-Identifier: MIT */
/* Binary arrays and values, against bytes written by hand from array_recv. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "core/pgarray.h"

#define ASSERT_BYTES(b, bytes)                                                 \
    do {                                                                       \
        assert_int_equal((b)->len, sizeof(bytes) - 1);                         \
        assert_memory_equal((b)->data, bytes, sizeof(bytes) - 1);              \
        buf_free(b);                                                           \
    } while (0)

static void test_empty(void **state)
{
    struct buf b = {0};
    (void)state;
    pgarray_begin(&b, PG_OID_TEXT, 0);
    ASSERT_BYTES(&b, "\0\0\0\0\0\0\0\0\0\0\0\x19");
}

static void test_i64(void **state)
{
    struct buf b = {0};
    (void)state;
    pgarray_begin(&b, PG_OID_INT8, 2);
    pgarray_put_i64(&b, 258);
    pgarray_put_i64(&b, -2);
    ASSERT_BYTES(&b, "\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0\2\0\0\0\1"
                     "\0\0\0\10\0\0\0\0\0\0\1\2"
                     "\0\0\0\10\xff\xff\xff\xff\xff\xff\xff\xfe");
}

static void test_i16(void **state)
{
    struct buf b = {0};
    (void)state;
    pgarray_begin(&b, PG_OID_INT2, 2);
    pgarray_put_i16(&b, 1);
    pgarray_put_i16(&b, -1);
    ASSERT_BYTES(&b, "\0\0\0\1\0\0\0\0\0\0\0\x15\0\0\0\2\0\0\0\1"
                     "\0\0\0\2\0\1"
                     "\0\0\0\2\xff\xff");
}

static void test_text(void **state)
{
    struct buf b = {0};
    (void)state;
    pgarray_begin(&b, PG_OID_TEXT, 2);
    pgarray_put_text(&b, "ab", 2);
    pgarray_put_text(&b, "", 0);
    ASSERT_BYTES(&b, "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\2\0\0\0\1"
                     "\0\0\0\2ab"
                     "\0\0\0\0");
}

static void test_ids(void **state)
{
    struct buf b = {0};
    (void)state;
    pgarray_put_id(&b, ID_BIGINT, "7", 1);
    ASSERT_BYTES(&b, "\0\0\0\10\0\0\0\0\0\0\0\7");
    pgarray_put_id(&b, ID_TEXT, "a%5F", 4);
    ASSERT_BYTES(&b, "\0\0\0\2a_");
    pgarray_put_id(&b, ID_UUID, "00010203-0405-0607-0809-0a0b0c0d0e0f", 36);
    ASSERT_BYTES(&b, "\0\0\0\20\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17");
}

/* 2000-01-01 00:00:01.000002 UTC. */
static void test_time(void **state)
{
    struct buf b = {0};
    (void)state;
    pgarray_put_time_us(&b, INT64_C(946684801000002));
    ASSERT_BYTES(&b, "\0\0\0\10\0\0\0\0\0\x0f\x42\x42");
    pgarray_put_time_us(&b, 0);
    assert_int_equal(pgvalue_time_us(b.data + 4), 0);
    buf_free(&b);
    assert_int_equal(pgvalue_time_us("\0\0\0\0\0\x0f\x42\x42"),
                     INT64_C(946684801000002));
    assert_int_equal(pgvalue_time_us("\x7f\xff\xff\xff\xff\xff\xff\xff"),
                     INT64_MAX);
    assert_int_equal(pgvalue_time_us("\x80\0\0\0\0\0\0\0"), INT64_MIN);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(pgvalue_i16("\0\1"), 1);
    assert_int_equal(pgvalue_i16("\xff\xff"), -1);
    assert_int_equal(pgvalue_i16("\x80\0"), INT16_MIN);
    assert_int_equal(pgvalue_i64("\0\0\0\0\0\0\1\2"), 258);
    assert_int_equal(pgvalue_i64("\xff\xff\xff\xff\xff\xff\xff\xfe"), -2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),  cmocka_unit_test(test_i64),
        cmocka_unit_test(test_i16),    cmocka_unit_test(test_text),
        cmocka_unit_test(test_ids),    cmocka_unit_test(test_time),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests_name("pgarray", tests, NULL, NULL);
}
