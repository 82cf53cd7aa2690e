/* SPDX-License-Identifier: MIT */
/* Rows and pairs that are not synced, merged: against a plain count of what each
 * pair is. The result is one of our own (no libpq). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pgarray.h"
#include "services/likers_rows.h"

/* ---- a result ---- */

enum { ROWS_MAX = 64, COLS = 4 };

struct pg_result {
    int n;
    char bytes[ROWS_MAX][COLS][8];
};

int pg_result_rows(const struct pg_result *r, int stmt)
{
    assert_int_equal(stmt, 0);
    return r->n;
}

const char *pg_result_value(const struct pg_result *r, int stmt, int row,
                            int col, int *len_r)
{
    assert_int_equal(stmt, 0);
    assert_in_range(row, 0, r->n - 1);
    *len_r = col == COLS - 1 ? 2 : 8;
    return r->bytes[row][col];
}

static void put_be(char *p, int64_t v, int size)
{
    for (int i = 0; i < size; i++)
        p[i] = (char)((uint64_t)v >> 8 * (size - 1 - i));
}

static void result_add(struct pg_result *r, int64_t pair, int64_t id,
                       int64_t us, int status)
{
    assert_true(r->n < ROWS_MAX);
    put_be(r->bytes[r->n][0], pair, 8);
    put_be(r->bytes[r->n][1], id, 8);
    put_be(r->bytes[r->n][2], us - PG_EPOCH_US, 8);
    put_be(r->bytes[r->n][3], status, 2);
    r->n++;
}

/* ---- the fixture ---- */

static const struct engine engine = {.owner_type = ID_BIGINT,
                                     .member_type = ID_BIGINT};
static const struct likers_pos START = {.any = true};

static void add_pair(struct likers_rows *r, int64_t id, int status, int64_t us)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%lld", (long long)id);

    likers_rows_add(r, text, (size_t)len, status, us);
}

static struct likers_pos behind(int64_t us, const char *id)
{
    struct likers_pos pos = {.time_us = us, .len = strlen(id)};

    memcpy(pos.id, id, pos.len);
    return pos;
}

static void assert_entries(const struct likers_rows *r, const char *expected)
{
    struct buf text = {0};

    for (size_t i = 0; i < r->n; i++) {
        const struct likers_entry *e = &r->entries[i];

        buf_printf(&text, "%.*s@%lld ", (int)e->len, r->ids.data + e->at,
                   (long long)e->time_us);
    }
    if (r->more)
        buf_puts(&text, "...");
    assert_string_equal(buf_cstr(&text), expected);
    buf_free(&text);
}

/* ---- tests ---- */

static void test_the_newer_counts(void **state)
{
    struct likers_rows r = {.engine = &engine};
    struct pg_result result = {0};

    (void)state;
    add_pair(&r, 1, 1, 50); /* not in PostgreSQL */
    add_pair(&r, 2, 0, 50); /* taken back since */
    add_pair(&r, 3, 1, 50); /* taken back in PostgreSQL later */
    add_pair(&r, 4, 0, 50); /* liked again in PostgreSQL */
    add_pair(&r, 5, 1, 50); /* as old: the hash counts */
    add_pair(&r, 6, 1, 50); /* the same in both */
    result_add(&result, 2, 2, 40, 1);
    result_add(&result, 3, 3, 60, 0);
    result_add(&result, 4, 4, 60, 1);
    result_add(&result, 5, 5, 50, 0);
    result_add(&result, 6, 6, 50, 1);
    result_add(&result, 0, 7, 55, 1); /* a row of its own */
    assert_int_equal(likers_rows_read(&r, &result, &START, false, 9), 0);
    assert_entries(&r, "4@60 7@55 6@50 5@50 1@50 ");
    likers_rows_free(&r);
}

static void test_order_of_ids(void **state)
{
    struct likers_rows r = {.engine = &engine};
    struct pg_result result = {0};

    (void)state;
    add_pair(&r, 9, 1, 50);
    add_pair(&r, 100, 1, 50);
    result_add(&result, 0, 10, 50, 1);
    assert_int_equal(likers_rows_read(&r, &result, &START, true, 9), 0);
    assert_entries(&r, "9@50 10@50 100@50 ");
    likers_rows_free(&r);
}

static void test_what_is_in_front_of_a_place(void **state)
{
    static const struct {
        bool oldest_first;
        const char *expected;
    } CASES[] = {{false, "10@50 7@49 "}, {true, "12@50 7@51 "}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct likers_rows r = {.engine = &engine};
        struct pg_result result = {0};
        struct likers_pos pos = behind(50, "11");

        add_pair(&r, 10, 1, 50);
        add_pair(&r, 11, 1, 50);
        add_pair(&r, 12, 1, 50);
        add_pair(&r, 7, 1, i ? 51 : 49);
        assert_int_equal(
            likers_rows_read(&r, &result, &pos, CASES[i].oldest_first, 9), 0);
        assert_entries(&r, CASES[i].expected);
        likers_rows_free(&r);
    }
}

static void test_there_are_more(void **state)
{
    struct likers_rows r = {.engine = &engine};
    struct pg_result result = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        result_add(&result, 0, i, 50 - i, 1);
    assert_int_equal(likers_rows_read(&r, &result, &START, false, 2), 0);
    assert_entries(&r, "0@50 1@49 ...");
    likers_rows_clear(&r);
    assert_int_equal(likers_rows_read(&r, &result, &START, false, 3), 0);
    assert_entries(&r, "0@50 1@49 2@48 ");
    likers_rows_clear(&r);
    add_pair(&r, 8, 1, 10);
    assert_int_equal(likers_rows_read(&r, &result, &START, false, 3), 0);
    assert_entries(&r, "0@50 1@49 2@48 ...");
    likers_rows_free(&r);
}

/* A set may hold what somebody else put there. */
static void test_no_id(void **state)
{
    struct likers_rows r = {.engine = &engine};
    struct pg_result result = {0};

    (void)state;
    likers_rows_add(&r, "x", 1, 1, 50);
    likers_rows_add(&r, "", 0, 1, 50);
    add_pair(&r, 1, 1, 50);
    assert_int_equal(r.n_pairs, 1);
    assert_int_equal(likers_rows_read(&r, &result, &START, false, 9), 0);
    assert_entries(&r, "1@50 ");
    likers_rows_clear(&r);
    result_add(&result, 0, -1, 50, 1); /* no id is negative */
    assert_int_equal(likers_rows_read(&r, &result, &START, false, 9), -1);
    likers_rows_free(&r);
}

/* ---- the query ---- */

static void assert_param(const struct likers_rows *r, int i, uint32_t oid,
                         const char *bytes, int len)
{
    assert_int_equal(r->params[i].oid, oid);
    assert_int_equal(r->params[i].len, len);
    assert_memory_equal(r->params[i].data, bytes, (size_t)len);
}

static void test_query(void **state)
{
    static const struct engine mixed = {.owner_type = ID_TEXT,
                                        .member_type = ID_BIGINT};
    struct likers_rows r = {.engine = &mixed, .side = LIKERS_OF_POST};
    struct likers_pos pos = behind(PG_EPOCH_US + 3, "258");

    (void)state;
    likers_rows_add(&r, "7", 1, 1, 50);
    likers_rows_ask(&r, "a%5Fb", 5, &pos, false, 20);
    assert_int_equal(r.stmt.n_params, 5);
    assert_non_null(strstr(r.stmt.sql, "(mtime, user_id) < ($2, $3)"));
    assert_non_null(strstr(r.stmt.sql, "ORDER BY mtime DESC, user_id DESC"));
    assert_param(&r, 0, PG_OID_TEXT, "a_b", 3);
    assert_param(&r, 1, PG_OID_TIMESTAMPTZ, "\0\0\0\0\0\0\0\3", 8);
    assert_param(&r, 2, PG_OID_INT8, "\0\0\0\0\0\0\1\2", 8);
    assert_param(&r, 3, PG_OID_INT8, "\0\0\0\0\0\0\0\25", 8);
    assert_int_equal(r.params[4].oid, PG_OID_INT8_ARRAY);
    likers_rows_free(&r);
}

/* The first page has no place to begin behind. */
static void test_query_of_all(void **state)
{
    static const struct engine mixed = {.owner_type = ID_TEXT,
                                        .member_type = ID_UUID};
    struct likers_rows r = {.engine = &mixed, .side = LIKERS_OF_POST};
    char zeros[16] = {0};

    (void)state;
    likers_rows_ask(&r, "x", 1, &START, false, 1);
    assert_param(&r, 1, PG_OID_TIMESTAMPTZ, "\x7f\xff\xff\xff\xff\xff\xff\xff",
                 8);
    assert_param(&r, 2, id_type_oid(ID_UUID), zeros, 16);
    r.side = LIKERS_OF_USER;
    likers_rows_ask(&r, "00000000-0000-0000-0000-000000000000", 36, &START,
                    true, 1);
    assert_non_null(strstr(r.stmt.sql, "(mtime, post_id) > ($2, $3)"));
    assert_param(&r, 0, id_type_oid(ID_UUID), zeros, 16);
    assert_param(&r, 1, PG_OID_TIMESTAMPTZ, "\x80\0\0\0\0\0\0\0", 8);
    assert_param(&r, 2, PG_OID_TEXT, "", 0);
    likers_rows_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newer_counts),
        cmocka_unit_test(test_order_of_ids),
        cmocka_unit_test(test_what_is_in_front_of_a_place),
        cmocka_unit_test(test_there_are_more),
        cmocka_unit_test(test_no_id),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_query_of_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
