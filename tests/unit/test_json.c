/* SPDX-License-Identifier: MIT */
/* Text in JSON: what must be escaped is, and what is no UTF-8 does not get in. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/compiler.h"
#include "core/json.h"

static void check(const char *in, size_t len, const char *expected)
{
    struct buf out = {0};

    json_put(&out, in, len);
    assert_string_equal(buf_cstr(&out), expected);
    buf_free(&out);
}

static void test_text(void **state)
{
    (void)state;
    check("", 0, "\"\"");
    check("a\"b\\c</d>", 9, "\"a\\\"b\\\\c</d>\"");
    check("\n\t\r\x1b\x7f", 5, "\"\\n\\u0009\\u000d\\u001b\\u007f\"");
    check("a\0b", 3, "\"a\\u0000b\"");
    check("n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10,
          "\"n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void test_no_utf8(void **state)
{
    static const struct {
        const char *in;
        const char *out;
    } rows[] = {
        {"\xff", "\"\\ufffd\""},
        {"a\xc3", "\"a\\ufffd\""},                    /* cut off */
        {"\xc3z", "\"\\ufffdz\""},                    /* and something else */
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},           /* overlong */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""} /* a surrogate */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(rows[i].in, strlen(rows[i].in), rows[i].out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_no_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
