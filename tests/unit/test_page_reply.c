/* SPDX-License-Identifier: MIT */
/* Ranges of lists of all short lengths, as ZRANGE counts them; and times. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "services/page_reply.h"

static void assert_reply(struct buf *b, const char *expected)
{
    assert_string_equal(buf_cstr(b), expected);
    buf_clear(b, 1024);
}

static void items_put(struct args *items, int n)
{
    for (int i = 0; i < n; i++) {
        char item[16];

        snprintf(item, sizeof(item), ":%d\r\n", i);
        args_put_str(items, item);
    }
}

/* Item by item: the rank itself, or as counted from the end. */
static bool is_meant(const struct page_args *a, int i, int n)
{
    int64_t start = a->start < 0 ? a->start + n : a->start;
    int64_t stop = a->stop < 0 ? a->stop + n : a->stop;

    return i >= start && i <= stop;
}

static void expect(struct buf *b, const struct page_args *a, int n)
{
    struct buf meant = {0};
    int count = 0;

    for (int i = 0; i < n; i++) {
        if (!is_meant(a, i, n) || (a->count && count == a->count))
            continue;
        buf_printf(&meant, ":%d\r\n", i);
        count++;
    }
    buf_printf(b, "*%d\r\n", count);
    buf_append(b, meant.data, meant.len);
    buf_free(&meant);
}

static void check_slice(const struct args *items, const struct page_args *a)
{
    struct buf got = {0};
    struct buf expected = {0};

    page_put_slice(&got, items, a);
    expect(&expected, a, items->n);
    assert_string_equal(buf_cstr(&got), buf_cstr(&expected));
    buf_free(&got);
    buf_free(&expected);
}

static void test_slices(void **state)
{
    (void)state;
    for (int n = 0; n < 5; n++) {
        struct args items = {0};

        items_put(&items, n);
        for (int i = 0; i < 15 * 15 * 4; i++) {
            const struct page_args a = {
                .start = i % 15 - 7,
                .stop = i / 15 % 15 - 7,
                .count = i / 225,
            };

            check_slice(&items, &a);
        }
        args_free(&items);
    }
}

static void test_sizes(void **state)
{
    static const struct {
        struct page_args args;
        int64_t size;
        bool from_end;
    } CASES[] = {
        {{.start = 0, .stop = 9}, 10, false},
        {{.start = 3, .stop = 3}, 1, false},
        {{.start = 3, .stop = 2}, 0, false},
        {{.start = 0, .stop = -1}, INT64_MAX, false},
        {{.start = 0, .stop = -2}, INT64_MAX, true},
        {{.start = -1, .stop = 5}, INT64_MAX, true},
        {{.start = 0, .stop = 9, .count = 4}, 4, false},
        {{.start = 0, .stop = 1, .count = 4}, 2, false},
        {{.start = 0, .stop = -1, .count = 4}, 4, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        assert_int_equal(page_range_size(&CASES[i].args), CASES[i].size);
        assert_int_equal(page_range_from_end(&CASES[i].args),
                         CASES[i].from_end);
    }
}

static void test_times(void **state)
{
    struct buf b = {0};

    (void)state;
    page_put_time(&b, INT64_C(1750000000000000));
    assert_reply(&b, "$10\r\n1750000000\r\n");
    page_put_time(&b, INT64_C(1750000300250000));
    assert_reply(&b, "$13\r\n1750000300.25\r\n");
    page_put_time(&b, 1);
    assert_reply(&b, "$8\r\n0.000001\r\n");
    page_put_time(&b, 0);
    assert_reply(&b, "$1\r\n0\r\n");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
