/* SPDX-License-Identifier: MIT */
/* What is recalled of pairs, for how long, and how much of it. */
#include "services/recall.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/ids.h"
#include "services/lookup.h"

#define START ((uint64_t)1000000000) /* us */

static struct recall *recall;

static int setup(void **state)
{
    (void)state;
    metric_set(M_RECALL_ENTRIES_LIKE, 0);
    metric_set(M_RECALL_HITS, 0);
    recall = recall_new(M_RECALL_ENTRIES_LIKE);
    recall_history(recall, START, "0 1", 3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    recall_free(recall);
    return 0;
}

static struct recall_pair pair_of(const char *owner, const char *member)
{
    return (struct recall_pair){owner, strlen(owner), member, strlen(member)};
}

static void put(uint64_t asked_us, const char *owner, const char *member,
                int status)
{
    struct recall_pair pair = pair_of(owner, member);
    struct lookup_state state = {
        .found = status >= 0,
        .status = status > 0,
        .mtime_us = status < 0 ? 0 : 1234,
        .ctime_us = status < 0 ? 0 : 123,
    };

    recall_put(recall, asked_us, &pair, &state);
}

/* The status, or -1: not known. */
static int get(uint64_t now_us, const char *owner, const char *member)
{
    struct recall_pair pair = pair_of(owner, member);
    struct lookup_state state;

    return recall_get(recall, now_us, &pair, &state) ? state.status : -1;
}

static void assert_entries(size_t n)
{
    assert_int_equal((size_t)metric_get(M_RECALL_ENTRIES_LIKE), n);
}

static void test_found_or_not(void **test)
{
    struct recall_pair pair = pair_of("42", "7");
    struct lookup_state state;

    (void)test;
    put(START + 1, "42", "7", 1);
    put(START + 1, "42", "8", -1);
    put(START + 1, "42", "9", 0);
    assert_true(recall_get(recall, START + 2, &pair, &state));
    assert_true(state.found);
    assert_int_equal(state.status, 1);
    assert_int_equal(state.mtime_us, 1234);
    assert_int_equal(state.ctime_us, 123);
    pair = pair_of("42", "8");
    assert_true(recall_get(recall, START + 2, &pair, &state));
    assert_false(state.found);
    assert_int_equal(state.status, 0);
    assert_int_equal(state.mtime_us, 0);
    assert_int_equal(get(START + 2, "42", "9"), 0);
    assert_int_equal((int)metric_get(M_RECALL_HITS), 3);
    /* Not one for the other. */
    assert_int_equal(get(START + 2, "7", "42"), -1);
    assert_int_equal(get(START + 2, "4", "27"), -1);
    assert_int_equal((int)metric_get(M_RECALL_HITS), 3);
    assert_entries(3);
}

static void test_as_old_as_the_question(void **test)
{
    (void)test;
    put(START + 1, "42", "7", 1);
    assert_int_equal(get(START + RECALL_US, "42", "7"), 1);
    assert_int_equal(get(START + 1 + RECALL_US, "42", "7"), -1);
}

static void test_the_later_question_counts(void **test)
{
    (void)test;
    put(START + 20, "42", "7", 1);
    put(START + 10, "42", "7", 0); /* its answer came behind */
    assert_int_equal(get(START + 30, "42", "7"), 1);
    put(START + 40, "42", "7", 0);
    assert_int_equal(get(START + 50, "42", "7"), 0);
    assert_int_equal(get(START + 39 + RECALL_US, "42", "7"), 0);
    assert_entries(1);
}

static void test_another_history(void **test)
{
    (void)test;
    put(START + 1, "42", "7", 1);
    recall_history(recall, START + 5, "0 1", 3); /* the same */
    assert_int_equal(get(START + 6, "42", "7"), 1);
    recall_history(recall, START + 10, "1 2", 3);
    assert_int_equal(get(START + 11, "42", "7"), -1);
    put(START + 9, "42", "7", 1); /* was under way */
    assert_int_equal(get(START + 11, "42", "7"), -1);
    put(START + 10, "42", "7", 0);
    assert_int_equal(get(START + 13, "42", "7"), 0);
    /* Back at the first one: what it had is gone. */
    recall_history(recall, START + 20, "0 1", 3);
    assert_int_equal(get(START + 21, "42", "7"), -1);
}

static void test_no_history(void **test)
{
    char lengthy[200];

    (void)test;
    put(START + 1, "42", "7", 1);
    recall_history(recall, START + 10, "", 0);
    put(START + 11, "42", "8", 1);
    assert_int_equal(get(START + 12, "42", "7"), -1);
    assert_int_equal(get(START + 12, "42", "8"), -1);
    memset(lengthy, '1', sizeof(lengthy));
    recall_history(recall, START + 20, lengthy, sizeof(lengthy));
    put(START + 21, "42", "8", 1);
    assert_int_equal(get(START + 22, "42", "8"), -1);
    recall_history(recall, START + 30, "0 1", 3);
    assert_int_equal(get(START + 31, "42", "7"), -1);
}

static void test_forget(void **test)
{
    struct recall_pair pair = pair_of("42", "7");

    (void)test;
    put(START + 1, "42", "7", 1);
    put(START + 1, "42", "8", 1);
    recall_forget(recall, &pair);
    recall_forget(recall, &pair);
    assert_int_equal(get(START + 2, "42", "7"), -1);
    assert_int_equal(get(START + 2, "42", "8"), 1);
    assert_entries(1);
}

static void test_the_oldest_go_out(void **test)
{
    char id[24];

    (void)test;
    for (int i = 0; i < RECALL_MAX + 10; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(START + 1 + (uint64_t)i, id, "7", 1);
    }
    assert_entries(RECALL_MAX);
    assert_int_equal(get(START + RECALL_MAX + 11, "9", "7"), -1);
    assert_int_equal(get(START + RECALL_MAX + 11, "10", "7"), 1);
    assert_int_equal(get(START + RECALL_MAX + 11, id, "7"), 1);
}

/* Of text ids there are fewer. */
static void test_bounded_bytes(void **test)
{
    char owner[ID_KEY_MAX + 1];
    char member[ID_KEY_MAX + 1];
    size_t most = RECALL_BYTES / (sizeof(owner) + sizeof(member));
    size_t n;

    (void)test;
    memset(owner, 'o', ID_KEY_MAX);
    memset(member, 'm', ID_KEY_MAX);
    owner[ID_KEY_MAX] = member[ID_KEY_MAX] = '\0';
    for (size_t i = 0; i < most + 100; i++) {
        member[snprintf(member, sizeof(member), "%08zu", i)] = 'm';
        put(START + 1 + i, owner, member, 1);
    }
    n = (size_t)metric_get(M_RECALL_ENTRIES_LIKE);
    assert_in_range(n, most / 2, most);
    assert_int_equal(get(START + most + 101, owner, member), 1);
}

/* What is too old makes room as new ones come, though there is enough. */
static void test_old_ones_leave(void **test)
{
    char id[24];

    (void)test;
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(START + 1, id, "7", 1);
    }
    for (int i = 0; i < 250; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(START + 1 + RECALL_US, id, "8", 1);
    }
    assert_entries(250);
    recall_history(recall, START + 2 + RECALL_US, "1 2", 3);
    for (int i = 0; i < 63; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(START + 3 + RECALL_US, id, "9", 1);
    }
    assert_entries(63);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_found_or_not),
        TEST(test_as_old_as_the_question),
        TEST(test_the_later_question_counts),
        TEST(test_another_history),
        TEST(test_no_history),
        TEST(test_forget),
        TEST(test_the_oldest_go_out),
        TEST(test_bounded_bytes),
        TEST(test_old_ones_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
