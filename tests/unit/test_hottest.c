/* SPDX-License-Identifier: MIT */
/* What comes most often: exact while there are places, found among many others
 * when there are not, and forgotten when it comes no more. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "core/hottest.h"

static void add(struct hottest *h, const char *prefix, unsigned i)
{
    char key[32];

    snprintf(key, sizeof(key), "%s%u", prefix, i);
    hottest_add(h, key, strlen(key));
}

static void check(const struct hottest_entry *e, const char *key,
                  uint64_t count)
{
    assert_int_equal(e->len, strlen(key));
    assert_memory_equal(e->key, key, e->len);
    assert_int_equal(e->count, count);
}

static void test_few_are_counted_exactly(void **state)
{
    struct hottest *h = hottest_new();
    struct hottest_entry top[HOTTEST_PLACES + 1];

    (void)state;
    assert_int_equal(hottest_top(h, top, 10), 0);
    for (unsigned i = 1; i <= HOTTEST_PLACES; i++)
        for (unsigned n = 0; n < i; n++)
            add(h, "post-", i);
    assert_int_equal(hottest_top(h, top, ARRAY_LEN(top)), HOTTEST_PLACES);
    for (unsigned i = 0; i < HOTTEST_PLACES; i++) {
        char key[32];

        snprintf(key, sizeof(key), "post-%u", HOTTEST_PLACES - i);
        check(&top[i], key, HOTTEST_PLACES - i);
    }
    assert_int_equal(hottest_top(h, top, 1), 1);
    check(&top[0], "post-128", 128);
    hottest_free(h);
}

/* One of them has a byte 0, one the greatest length. */
static void test_keys_are_bytes(void **state)
{
    struct hottest *h = hottest_new();
    struct hottest_entry top[3];
    char longest[ID_KEY_MAX];

    (void)state;
    memset(longest, 'x', sizeof(longest));
    for (int i = 0; i < 3; i++)
        hottest_add(h, longest, sizeof(longest));
    for (int i = 0; i < 2; i++)
        hottest_add(h, "a\0b", 3);
    hottest_add(h, "a\0c", 3);
    assert_int_equal(hottest_top(h, top, 3), 3);
    assert_int_equal(top[0].len, sizeof(longest));
    assert_memory_equal(top[0].key, longest, sizeof(longest));
    assert_memory_equal(top[1].key, "a\0b", 3);
    assert_memory_equal(top[2].key, "a\0c", 3);
    hottest_free(h);
}

/* Of 100 000 events each 10th is for one of three posts, in this order; all
 * others are for posts that come once. */
static void test_the_hot_ones_are_found(void **state)
{
    struct hottest *h = hottest_new();
    struct hottest_entry top[3];

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        unsigned turn = i / 10 % 6;

        if (i % 10 == 0)
            add(h, "hot-", turn < 3 ? 1 : turn < 5 ? 2 : 3);
        else
            add(h, "cold-", i);
    }
    assert_int_equal(hottest_top(h, top, 3), 3);
    for (unsigned i = 0; i < 3; i++) {
        char key[32];

        snprintf(key, sizeof(key), "hot-%u", i + 1);
        assert_int_equal(top[i].len, strlen(key));
        assert_memory_equal(top[i].key, key, top[i].len);
    }
    /* At most what a place that was taken had: the mean of all. */
    assert_in_range(top[0].count, 4000, 5000 + 100000 / HOTTEST_PLACES);
    hottest_free(h);
}

static void test_what_comes_no_more_fades(void **state)
{
    struct hottest *h = hottest_new();
    struct hottest_entry top[3];

    (void)state;
    for (int i = 0; i < 100; i++)
        add(h, "old-", 1);
    add(h, "once-", 1);
    hottest_fade(h);
    assert_int_equal(hottest_top(h, top, 3), 1);
    check(&top[0], "old-1", 50);
    for (int i = 0; i < 60; i++)
        add(h, "new-", 1);
    add(h, "once-", 1); /* its place was given back */
    assert_int_equal(hottest_top(h, top, 3), 3);
    check(&top[0], "new-1", 60);
    check(&top[1], "old-1", 50);
    check(&top[2], "once-1", 1);
    for (int i = 0; i < 7; i++)
        hottest_fade(h);
    assert_int_equal(hottest_top(h, top, 3), 0);
    hottest_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_are_counted_exactly),
        cmocka_unit_test(test_keys_are_bytes),
        cmocka_unit_test(test_the_hot_ones_are_found),
        cmocka_unit_test(test_what_comes_no_more_fades),
    };

    return cmocka_run_group_tests_name("hottest", tests, NULL, NULL);
}
