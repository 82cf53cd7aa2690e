/* SPDX-License-Identifier: MIT */
/* Replies: what is written, and that it is read back. */
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
#include "core/resp.h"

#define ROOM 4096

static void assert_written(struct buf *b, const char *expected)
{
    assert_string_equal(buf_cstr(b), expected);
    assert_int_equal(b->len, strlen(expected));
    buf_free(b);
}

static void test_write_scalars(void **state)
{
    struct buf b = {0};
    (void)state;
    resp_simple(&b, "OK");
    assert_written(&b, "+OK\r\n");
    resp_int(&b, INT64_MIN);
    assert_written(&b, ":-9223372036854775808\r\n");
    resp_bulk_str(&b, "");
    assert_written(&b, "$0\r\n\r\n");
    resp_bulk(&b, "a\r\nb", 3);
    assert_written(&b, "$3\r\na\r\n\r\n");
    resp_null(&b, 2);
    assert_written(&b, "$-1\r\n");
    resp_null(&b, 3);
    assert_written(&b, "_\r\n");
}

static void test_write_containers(void **state)
{
    struct buf b = {0};
    (void)state;
    resp_array(&b, 0);
    assert_written(&b, "*0\r\n");
    resp_array(&b, 12);
    assert_written(&b, "*12\r\n");
    resp_map(&b, 2, 3);
    assert_written(&b, "*6\r\n");
    resp_map(&b, 3, 3);
    assert_written(&b, "%3\r\n");
    resp_set(&b, 2, 3);
    assert_written(&b, "*3\r\n");
    resp_set(&b, 3, 3);
    assert_written(&b, "~3\r\n");
}

/* Whatever a caller puts into the text, it stays one line. */
static void test_write_error(void **state)
{
    struct buf b = {0};
    char big[2 * RESP_ERROR_MAX];
    (void)state;
    resp_error(&b, "ERR %s %d", "a\r\n+OK\nb", 7);
    assert_written(&b, "-ERR a  +OK b 7\r\n");
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    resp_error(&b, "%s", big);
    assert_int_equal(b.len, 1 + RESP_ERROR_MAX + 2);
    assert_memory_equal(b.data + b.len - 3, "x\r\n", 3);
    buf_free(&b);
}

static void check_show(const char *in, size_t len, const char *expected)
{
    char out[RESP_SHOW_MAX];
    struct resp_arg a = {in, len};
    assert_ptr_equal(resp_show(&a, out), out);
    assert_string_equal(out, expected);
}

static void test_show(void **state)
{
    char in[129];
    char expected[RESP_SHOW_MAX];
    (void)state;
    check_show("", 0, "");
    check_show("a b~", 4, "a b~");
    check_show("\0\x1f\x7f\x80\xff\r\n", 7, "???????");
    memset(in, 'x', sizeof(in));
    memset(expected, 'x', 128);
    expected[128] = '\0';
    check_show(in, 128, expected);
    memcpy(expected + 128, "...", 4);
    check_show(in, 129, expected);
}

/* ---- reading ---- */

/* From a copy of exactly these bytes, so that ASan sees a read too far. */
static int read_copy(const char *data, size_t len, size_t max,
                     struct resp_value *v, size_t *used_r)
{
    char *copy = mem_alloc(len + 1);
    memcpy(copy + 1, data, len);
    int rc = resp_read_value(copy + 1, len, max, v, used_r);
    free(copy);
    return rc;
}

/* Every true prefix wants more, with a limit that the value just fits; the
 * whole is read, and what follows is left alone. */
static void read_all(const char *data, size_t len, struct resp_value *v)
{
    size_t used = 0;
    for (size_t n = 0; n < len; n++)
        assert_int_equal(read_copy(data, n, len, v, &used), 0);
    assert_int_equal(used, 0);
    assert_int_equal(read_copy(data, len, len, v, &used), 1);
    assert_int_equal(used, len);
    resp_value_free(v);

    struct buf longer = {0};
    buf_append(&longer, data, len);
    buf_puts(&longer, "+next\r\n");
    assert_int_equal(read_copy(longer.data, longer.len, ROOM, v, &used), 1);
    assert_int_equal(used, len);
    buf_free(&longer);
}

static void check_text(const char *in, enum resp_type type, const char *text,
                       size_t text_len)
{
    struct resp_value v;
    read_all(in, strlen(in), &v);
    assert_int_equal(v.type, type);
    assert_int_equal(v.len, text_len);
    assert_memory_equal(v.str, text, text_len + 1);
    resp_value_free(&v);
}

static void check_null(const char *in)
{
    struct resp_value v;
    read_all(in, strlen(in), &v);
    assert_int_equal(v.type, RESP_T_NULL);
    resp_value_free(&v);
}

static void test_read_scalars(void **state)
{
    struct resp_value v;
    (void)state;
    check_text("+OK\r\n", RESP_T_SIMPLE, "OK", 2);
    check_text("+\r\n", RESP_T_SIMPLE, "", 0);
    check_text("-ERR no\r\n", RESP_T_ERROR, "ERR no", 6);
    check_text("$0\r\n\r\n", RESP_T_BULK, "", 0);
    check_text("$5\r\na\r\nbc\r\n", RESP_T_BULK, "a\r\nbc", 5);
    check_null("_\r\n");
    check_null("$-1\r\n");
    check_null("*-1\r\n");
    read_all(":-42\r\n", 6, &v);
    assert_int_equal(v.type, RESP_T_INT);
    assert_int_equal(v.num, -42);
    resp_value_free(&v);
}

/* What a STATUS reply looks like, in both versions. */
static void check_written_map_reads_back(int proto)
{
    struct buf b = {0};
    struct resp_value v;
    resp_map(&b, proto, 2);
    resp_bulk_str(&b, "state");
    resp_null(&b, proto);
    resp_bulk_str(&b, "rows");
    resp_array(&b, 3);
    resp_int(&b, 7);
    resp_error(&b, "ERR x");
    resp_array(&b, 0);
    read_all(b.data, b.len, &v);
    assert_int_equal(v.type, RESP_T_ARRAY);
    assert_int_equal(v.n_items, 4);
    assert_string_equal(v.items[0].str, "state");
    assert_int_equal(v.items[1].type, RESP_T_NULL);
    assert_string_equal(v.items[2].str, "rows");
    assert_int_equal(v.items[3].n_items, 3);
    assert_int_equal(v.items[3].items[0].num, 7);
    assert_int_equal(v.items[3].items[1].type, RESP_T_ERROR);
    assert_int_equal(v.items[3].items[2].type, RESP_T_ARRAY);
    assert_int_equal(v.items[3].items[2].n_items, 0);
    resp_value_free(&v);
    buf_free(&b);
}

static void test_read_what_is_written(void **state)
{
    (void)state;
    check_written_map_reads_back(2);
    check_written_map_reads_back(3);
}

static void test_read_long_array(void **state)
{
    struct buf b = {0};
    struct resp_value v;
    size_t used;
    (void)state;
    resp_array(&b, 1000);
    for (int i = 0; i < 1000; i++)
        resp_int(&b, i);
    assert_int_equal(resp_read_value(b.data, b.len, b.len, &v, &used), 1);
    assert_int_equal(v.n_items, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.items[i].num, i);
    resp_value_free(&v);
    buf_free(&b);
}

static void test_read_malformed(void **state)
{
    static const char *const cases[] = {
        "x\r\n",
        "\r\n",
        "\n",
        "+\n",
        "+OK\n",
        ":\r\n",
        ":1x\r\n",
        ":9223372036854775808\r\n",
        "$\r\n",
        "$-2\r\n",
        "$x\r\n",
        "$1\r\nab\r\n",
        "$1\r\na\nx",
        "*-2\r\n",
        "*x\r\n",
        "%-1\r\n",
        "_x\r\n",
        "*1\r\nx\r\n",
        "*2\r\n:1\r\n:\r\n",
    };
    struct resp_value v;
    size_t used;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int rc = read_copy(cases[i], strlen(cases[i]), ROOM, &v, &used);
        if (rc != -1)
            fail_msg("case %zu: got %d", i, rc);
    }
}

static int read_text(const char *in, size_t max)
{
    struct resp_value v;
    size_t used;
    int rc = read_copy(in, strlen(in), max, &v, &used);
    if (rc == 1)
        resp_value_free(&v);
    return rc;
}

static void test_read_bounds(void **state)
{
    struct buf b = {0};
    (void)state;
    assert_int_equal(read_text("+OK\r\n", 5), 1);
    assert_int_equal(read_text("+OK\r\n", 4), -1);
    assert_int_equal(read_text("+OK", 3), -1);
    assert_int_equal(read_text("$4096\r\n", ROOM), 0);
    assert_int_equal(read_text("$4097\r\n", ROOM), -1);
    assert_int_equal(read_text("$9223372036854775807\r\n", ROOM), -1);
    assert_int_equal(read_text("*4097\r\n", ROOM), -1);
    assert_int_equal(read_text("%9223372036854775807\r\n", ROOM), -1);
    assert_int_equal(read_text("*4096\r\n", ROOM), 0);
    for (int depth = 1; depth < RESP_DEPTH_MAX; depth++)
        buf_puts(&b, "*1\r\n");
    buf_puts(&b, "*0\r\n");
    assert_int_equal(read_text(buf_cstr(&b), ROOM), 1);
    buf_clear(&b, 0);
    for (int depth = 1; depth <= RESP_DEPTH_MAX; depth++)
        buf_puts(&b, "*1\r\n");
    buf_puts(&b, "*0\r\n");
    assert_int_equal(read_text(buf_cstr(&b), ROOM), -1);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_scalars),
        cmocka_unit_test(test_write_containers),
        cmocka_unit_test(test_write_error),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_read_scalars),
        cmocka_unit_test(test_read_what_is_written),
        cmocka_unit_test(test_read_long_array),
        cmocka_unit_test(test_read_malformed),
        cmocka_unit_test(test_read_bounds),
    };
    return cmocka_run_group_tests_name("resp_reply", tests, NULL, NULL);
}
