/* SPDX-License-Identifier: MIT */
/* The options of a page. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "services/page_args.h"

#define MAX_ARGS 12

/* The words of a line as arguments; `rules` as those of text ids that may have a
 * viewer, unless it is `plain`. */
static int parse(struct page_args *p, const char *line, bool plain,
                 struct buf *reply)
{
    const struct page_rules rules = {
        .id_type = ID_TEXT,
        .may_view = !plain,
        .viewer_type = ID_BIGINT,
        .count_max = 50,
        .count_option = "some.option",
    };
    struct resp_arg argv[MAX_ARGS];
    int argc = 0;

    while (*line) {
        size_t len = strcspn(line, " ");

        assert_true(argc < MAX_ARGS);
        argv[argc++] = (struct resp_arg){line, len};
        line += len + strspn(line + len, " ");
    }
    return page_args_parse(p, &rules, argc, argv, reply);
}

static struct page_args good(const char *line)
{
    struct page_args p;
    struct buf reply = {0};

    assert_int_equal(parse(&p, line, false, &reply), 0);
    assert_int_equal(reply.len, 0);
    return p;
}

static void check_bad(const char *line, bool plain, const char *expected)
{
    struct page_args p;
    struct buf reply = {0};

    assert_int_equal(parse(&p, line, plain, &reply), -1);
    if (!strstr(buf_cstr(&reply), expected))
        fail_msg("%s: %s", line, reply.data);
    assert_memory_equal(reply.data, "-ERR ", 5);
    buf_free(&reply);
}

static void test_nothing_is_all(void **state)
{
    struct page_args p = good("");

    (void)state;
    assert_false(p.by_cursor || p.with_times || p.has_viewer);
    assert_int_equal(p.start, 0);
    assert_int_equal(p.stop, -1);
    assert_int_equal(p.count, 0);
    assert_int_equal(p.order, PAGE_NEWEST_FIRST);
}

static void test_options(void **state)
{
    struct page_args p = good("viewer 007 Range 3 -4 WITHTIMES asc COUNT 50");

    (void)state;
    assert_true(p.with_times && p.has_viewer && !p.by_cursor);
    assert_int_equal(p.start, 3);
    assert_int_equal(p.stop, -4);
    assert_int_equal(p.count, 50);
    assert_int_equal(p.order, PAGE_OLDEST_FIRST);
    assert_int_equal(p.viewer_len, 1);
    assert_memory_equal(p.viewer, "7", 1);
    assert_int_equal(good("DESC").order, PAGE_NEWEST_FIRST);
}

/* Lua counts in doubles. */
static void test_ranks_are_exact_in_a_double(void **state)
{
    struct page_args p = good("RANGE -9223372036854775808 9223372036854775807");

    (void)state;
    assert_true(p.start < -1000000000 && p.stop > 1000000000);
    assert_true((double)p.start - 1 < (double)p.start);
    assert_true((double)p.stop + 1 > (double)p.stop);
}

static void check_cursor(const char *time, const char *member)
{
    struct page_args p;
    struct buf line = {0};

    buf_printf(&line, "CURSOR %s_%s", time, member);
    p = good(buf_cstr(&line));
    assert_true(p.by_cursor);
    assert_int_equal(p.time_len, strlen(time));
    assert_memory_equal(p.time, time, p.time_len);
    assert_int_equal(p.member_len, strlen(member));
    assert_memory_equal(p.member, member, p.member_len);
    buf_free(&line);
}

static void test_cursors(void **state)
{
    static const char *const times[] = {
        "0",
        "1700000000",
        "1700000000.1234560",
        "-1",
        "-0.25",
        "1e+20",
        "-3.5e-07",
        "inf",
        "-inf",
        "-1.7976931348623157e+308",
    };
    struct buf longest = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        check_cursor(times[i], "a%5Fb");
    for (int i = 0; i < ID_TEXT_MAX; i++)
        buf_puts(&longest, "%5F");
    check_cursor("1", buf_cstr(&longest));
    buf_free(&longest);
    check_cursor("12345678901234567890123456789012", "0");
    assert_true(good("CURSOR 0").by_cursor);
    assert_int_equal(good("CURSOR 0").time_len, 0);
    assert_int_equal(good("CURSOR 0").member_len, 0);
}

static void test_bad_cursors(void **state)
{
    static const char *const cursors[] = {
        "00",
        "1",
        "-",
        "_",
        "_a",
        "1_",
        "-_a",
        "+1_a",
        "1._a",
        ".5_a",
        "1e_a",
        "1e5_a",
        "1e+_a",
        "e+5_a",
        "in_a",
        "inff_a",
        "nan_a",
        "0x1_a",
        "1_a_b",
        "1_a%5f",
        "1_set",
        "1_{a}",
        "123456789012345678901234567890123_a",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cursors); i++) {
        struct buf line = {0};

        buf_printf(&line, "CURSOR %s", cursors[i]);
        check_bad(buf_cstr(&line), false, "invalid CURSOR");
        buf_free(&line);
    }
}

static void test_errors(void **state)
{
    static const struct {
        const char *line;
        const char *expected;
    } cases[] = {
        {"COUNT 51", "invalid COUNT '51': expected a number from 1 to 50 "
                     "(some.option)\r\n"},
        {"COUNT 0", "invalid COUNT '0'"},
        {"COUNT COUNT", "invalid COUNT 'COUNT'"},
        {"COUNT", "COUNT is not complete: expected a number behind it\r\n"},
        {"COUNT 1 COUNT 1", "COUNT is given twice\r\n"},
        {"RANGE 1", "RANGE is not complete: expected start and stop behind"},
        {"RANGE x 1", "invalid RANGE start 'x'"},
        {"RANGE 1 x", "invalid RANGE stop 'x'"},
        {"RANGE 1 2 CURSOR 0", "RANGE and CURSOR are given"},
        {"CURSOR 0 RANGE 1 2", "CURSOR and RANGE are given"},
        {"CURSOR", "CURSOR is not complete"},
        {"ASC DESC", "ASC and DESC are given: expected one of them\r\n"},
        {"DESC ASC", "DESC and ASC are given"},
        {"VIEWER", "VIEWER is not complete: expected a user behind it\r\n"},
        {"VIEWER x", "invalid VIEWER id 'x': expected a decimal"},
        {"WITHSCORES", "unknown option 'WITHSCORES': expected RANGE, CURSOR, "
                       "COUNT, ASC, DESC, WITHTIMES or VIEWER\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_bad(cases[i].line, false, cases[i].expected);
    check_bad("VIEWER 7", true,
              "unknown option 'VIEWER': expected RANGE, "
              "CURSOR, COUNT, ASC, DESC or WITHTIMES\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_all),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_ranks_are_exact_in_a_double),
        cmocka_unit_test(test_cursors),
        cmocka_unit_test(test_bad_cursors),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
