/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "adapters/pg.h"
#include "adapters/pg_text.h"
#include "base/buf.h"
#include "base/compiler.h"

static void test_line(void **state)
{
    char out[32];

    (void)state;
    pg_text_line(out, sizeof(out), NULL);
    assert_string_equal(out, "");
    pg_text_line(out, sizeof(out), "one\ntwo\n");
    assert_string_equal(out, "one; two");
    pg_text_line(out, sizeof(out), "a\r\x1b[1m\n\tIs it running?\nb\n\n");
    assert_string_equal(out, "a  [1m; b");
    pg_text_line(out, sizeof(out), "why\nLOCATION:  f, file.c:1\n");
    assert_string_equal(out, "why");
    pg_text_line(out, 6, "one\ntwo");
    assert_string_equal(out, "one; ");
    pg_text_line(out, 3, "three");
    assert_string_equal(out, "th");
}

static void test_sqlstate(void **state)
{
    const struct {
        const char *message, *rest, *sqlstate;
    } rows[] = {
        {"server at \"h\" failed: FATAL:  28P01: no: way",
         "server at \"h\" "
         "failed: FATAL: no: "
         "way",
         "28P01"},
        {"FATAL:  wait:  3D000: no database", "FATAL:  wait: no database",
         "3D000"},
        {"server closed the connection", "server closed the connection", ""},
        {"a:  b:  ABCDEF: c", "a:  b:  ABCDEF: c", ""},
        {"x:  28P0", "x:  28P0", ""},
        {"", "", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char message[128], sqlstate[6];

        pg_text_line(message, sizeof(message), rows[i].message);
        pg_text_cut_sqlstate(message, sqlstate);
        assert_string_equal(message, rows[i].rest);
        assert_string_equal(sqlstate, rows[i].sqlstate);
    }
}

static void test_conninfo(void **state)
{
    static const char *const MALFORMED[] = {
        "host=a password=my secret", "host=a password='my secret",
        "postgresql://u:secret@[h/d", "postgresql://u:%zzsecret@h/d"};
    struct buf why = {.len = 0};

    (void)state;
    assert_int_equal(pg_check_conninfo("host=a,b dbname=c", &why), 0);
    assert_int_equal(pg_check_conninfo("postgresql://u@h:1/d", &why), 0);
    assert_int_equal(why.len, 0);
    assert_int_equal(pg_check_conninfo("hots=a", &why), -1);
    assert_string_equal(buf_cstr(&why), "invalid connection option \"hots\"");
    /* What libpq quotes of these may be a piece of a password. */
    for (size_t i = 0; i < ARRAY_LEN(MALFORMED); i++) {
        buf_clear(&why, 0);
        assert_int_equal(pg_check_conninfo(MALFORMED[i], &why), -1);
        assert_null(strstr(buf_cstr(&why), "secret"));
        assert_non_null(strstr(buf_cstr(&why), "expected name=value pairs"));
    }
    buf_free(&why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_sqlstate),
        cmocka_unit_test(test_conninfo),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
