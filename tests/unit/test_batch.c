/* SPDX-License-Identifier: MIT */
/* Rows of a batch: sorted by one rule, distinct, what cannot be written last;
 * the arrays that are sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "core/pgarray.h"

static struct batch_row *add(struct batch *b, const char *owner,
                             const char *member, int status, int64_t mtime)
{
    struct batch_row *r =
        batch_add(b, owner, strlen(owner), member, strlen(member));

    r->status = (int8_t)status;
    r->mtime_us = mtime;
    return r;
}

static void assert_row(const struct batch *b, size_t i, const char *owner,
                       const char *member)
{
    const struct batch_row *r = &b->rows[i];

    assert_int_equal(r->owner_len, strlen(owner));
    assert_memory_equal(r->owner, owner, strlen(owner));
    assert_int_equal(r->member_len, strlen(member));
    assert_memory_equal(r->member, member, strlen(member));
}

static void test_sorts_by_value(void **state)
{
    struct batch b;

    (void)state;
    batch_init(&b, "x");
    add(&b, "10", "1", 1, 1);
    add(&b, "9", "20", 1, 1);
    add(&b, "9", "3", 0, 1);
    assert_int_equal(batch_sort(&b, ID_BIGINT, ID_BIGINT), 3);
    assert_row(&b, 0, "9", "3");
    assert_row(&b, 1, "9", "20");
    assert_row(&b, 2, "10", "1");
    batch_free(&b);
}

static void test_keeps_the_newest_of_a_pair(void **state)
{
    struct batch b;

    (void)state;
    batch_init(&b, "x");
    add(&b, "1", "1", 1, 5);
    add(&b, "1", "1", 0, 7);
    add(&b, "1", "1", 1, 6);
    assert_int_equal(batch_sort(&b, ID_BIGINT, ID_BIGINT), 1);
    assert_int_equal(b.n_rows, 1);
    assert_int_equal(b.rows[0].mtime_us, 7);
    assert_int_equal(b.rows[0].status, 0);
    batch_free(&b);
}

static void test_puts_last_what_cannot_be_written(void **state)
{
    struct batch b;

    (void)state;
    batch_init(&b, "x");
    add(&b, "1", "1", ROW_MISSING, 0);
    add(&b, "2", "not-an-id", 1, 1);
    add(&b, "03", "1", 1, 1); /* not canonical: another spelling of 3 */
    add(&b, "3", "1", ROW_MALFORMED, 0);
    add(&b, "4", "1", 1, 1);
    assert_int_equal(batch_sort(&b, ID_BIGINT, ID_BIGINT), 1);
    assert_int_equal(b.n_rows, 5);
    assert_row(&b, 0, "4", "1");
    for (size_t i = 1; i < b.n_rows; i++)
        assert_true(b.rows[i].status < 0);
    batch_free(&b);
}

static void test_text_sorts_by_raw_bytes(void **state)
{
    struct batch b;

    (void)state;
    batch_init(&b, "x");
    add(&b, "a%5Fb", "1", 1, 1); /* a_b: '_' is 0x5f */
    add(&b, "aZ", "1", 1, 1);    /* 0x5a */
    add(&b, "aa", "1", 1, 1);    /* 0x61 */
    assert_int_equal(batch_sort(&b, ID_TEXT, ID_BIGINT), 3);
    assert_row(&b, 0, "aZ", "1");
    assert_row(&b, 1, "a%5Fb", "1");
    assert_row(&b, 2, "aa", "1");
    batch_free(&b);
}

static void test_many_rows_against_an_order(void **state)
{
    struct batch b;
    unsigned seed = 20261130;
    char owner[16];
    char member[16];

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    batch_init(&b, "x");
    for (int i = 0; i < 20000; i++) {
        snprintf(owner, sizeof(owner), "%d", rand() % 200);
        snprintf(member, sizeof(member), "%d", rand() % 200);
        add(&b, owner, member, rand() % 2, rand());
    }
    batch_sort(&b, ID_BIGINT, ID_BIGINT);
    assert_true(b.n_rows > 10000 && b.n_rows <= 40000);
    for (size_t i = 1; i < b.n_rows; i++) {
        const struct batch_row *p = &b.rows[i - 1];
        const struct batch_row *r = &b.rows[i];
        int c = id_compare(ID_BIGINT, p->owner, p->owner_len, r->owner,
                           r->owner_len);

        assert_true(c < 0 ||
                    (c == 0 && id_compare(ID_BIGINT, p->member, p->member_len,
                                          r->member, r->member_len) < 0));
    }
    batch_free(&b);
}

static void test_arrays(void **state)
{
    struct batch b;
    struct buf out = {0};
    struct buf want = {0};

    (void)state;
    batch_init(&b, "x");
    add(&b, "1", "7", 1, 1000000)->foreign = true;
    add(&b, "2", "8", 0, 2000000);
    assert_int_equal(batch_sort(&b, ID_BIGINT, ID_BIGINT), 2);

    assert_int_equal(
        batch_put_array(&b, 0, 2, BATCH_MEMBER, ID_BIGINT, false, &out),
        PG_OID_INT8_ARRAY);
    pgarray_begin(&want, PG_OID_INT8, 2);
    pgarray_put_i64(&want, 7);
    pgarray_put_i64(&want, 8);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, out.len);

    buf_clear(&out, 0);
    buf_clear(&want, 0);
    assert_int_equal(
        batch_put_array(&b, 0, 2, BATCH_MTIME, ID_BIGINT, true, &out),
        PG_OID_TIMESTAMPTZ_ARRAY);
    pgarray_begin(&want, PG_OID_TIMESTAMPTZ, 1);
    pgarray_put_time_us(&want, 1000000);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, out.len);
    assert_int_equal(batch_count_foreign(&b, 0, 2), 1);

    buf_free(&out);
    buf_free(&want);
    batch_free(&b);
}

static void test_reset_and_long_members(void **state)
{
    struct batch b;
    char *huge = malloc(100000);

    (void)state;
    memset(huge, 'x', 100000);
    batch_init(&b, "x");
    batch_add(&b, "1", 1, huge, 100000)->status = 1;
    assert_int_equal(b.rows[0].member_len, 100000); /* for its ack */
    assert_memory_equal(b.rows[0].member, huge, 100000);
    assert_int_equal(batch_sort(&b, ID_BIGINT, ID_BIGINT), 0);
    batch_add_orphan(&b, "5", 1, -3);
    batch_add_orphan(&b, huge, 100000, 2);
    batch_add_orphan(&b, "5", 1, -3); /* read twice */
    assert_int_equal(b.n_orphans, 2);
    assert_int_equal(b.orphans[0].delta, -3);
    batch_reset(&b);
    assert_int_equal(b.n_rows, 0);
    assert_int_equal(b.n_orphans, 0);
    assert_int_equal(batch_sort(&b, ID_BIGINT, ID_BIGINT), 0);
    batch_free(&b);
    free(huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorts_by_value),
        cmocka_unit_test(test_keeps_the_newest_of_a_pair),
        cmocka_unit_test(test_puts_last_what_cannot_be_written),
        cmocka_unit_test(test_text_sorts_by_raw_bytes),
        cmocka_unit_test(test_many_rows_against_an_order),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_reset_and_long_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
