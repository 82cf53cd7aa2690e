/* SPDX-License-Identifier: MIT */
/* The rings of samples and flushes. They are static, so the tests go on where
 * the one before them ended. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "core/edge.h"
#include "core/history.h"
#include "core/metrics.h"

static int64_t now_ms = 1700000000000;

static size_t n_samples(void)
{
    size_t n = 0;

    while (history_sample_at(n))
        n++;
    return n;
}

static const struct history_sample *newest(void)
{
    return history_sample_at(n_samples() - 1);
}

static void test_nothing_yet(void **state)
{
    (void)state;
    assert_null(history_sample_at(0));
    assert_null(history_flush_at(0));
}

/* What came before it is no rate. */
static void test_the_first_sample(void **state)
{
    (void)state;
    metric_add(M_REQUESTS, 1000);
    metric_add(M_EVENTS_LIKE_SAME, 900);
    metric_set(M_BACKLOG_ROWS_LIKE, 7);
    history_tick(now_ms);
    assert_int_equal(n_samples(), 1);
    assert_int_equal(newest()->at_ms, now_ms);
    assert_true(newest()->events == 0 && newest()->reads == 0);
    assert_true(newest()->backlog == 7);
}

static void test_rates(void **state)
{
    (void)state;
    metric_add(M_REQUESTS, 100);
    metric_add(M_EVENTS_LIKE_CHANGED, 10);
    metric_add(M_EVENTS_UNLIKE_SAME, 15);
    metric_add(M_EVENTS_UNFOLLOW_ERROR, 25);
    metric_add(M_ROWS_WRITTEN, 20);
    metric_set(M_BACKLOG_ROWS_FOLLOW, 5);
    metric_set(M_SYNC_LAG_LIKE, 1.5);
    metric_set(M_SYNC_LAG_FOLLOW, 0.5);
    history_tick(now_ms + HISTORY_STEP_MS - 1);
    assert_int_equal(n_samples(), 1); /* not due */
    now_ms += 2 * HISTORY_STEP_MS;    /* late */
    history_tick(now_ms);
    assert_int_equal(n_samples(), 2);
    assert_true(newest()->events == 5);
    assert_true(newest()->reads == 5);
    assert_true(newest()->written == 2);
    assert_true(newest()->backlog == 12);
    assert_true(newest()->lag_s == 1.5);
}

static void test_what_is_not_known(void **state)
{
    (void)state;
    metric_set(M_SYNC_LAG_FOLLOW, NAN);
    metric_set(M_BACKLOG_ROWS_LIKE, NAN);
    now_ms += HISTORY_STEP_MS;
    history_tick(now_ms);
    assert_true(isnan(newest()->lag_s));
    assert_true(isnan(newest()->backlog));
    metric_set(M_SYNC_LAG_FOLLOW, 0);
    metric_set(M_BACKLOG_ROWS_LIKE, 0);
}

/* Requests are counted as they come, events as they are answered. */
static void test_events_of_earlier_requests(void **state)
{
    (void)state;
    metric_add(M_EVENTS_FOLLOW_CHANGED, 50);
    now_ms += HISTORY_STEP_MS;
    history_tick(now_ms);
    assert_true(newest()->events == 10);
    assert_true(newest()->reads == 0);
}

/* A clock that was set back neither stops the samples nor makes rates of it. */
static void test_a_clock_set_back(void **state)
{
    size_t n = n_samples();

    (void)state;
    metric_add(M_EVENTS_LIKE_CHANGED, 10);
    history_tick(now_ms - 3600000);
    assert_int_equal(n_samples(), n + 1);
    assert_true(newest()->events == 0);
    history_tick(now_ms - 3600000 + HISTORY_STEP_MS);
    assert_int_equal(n_samples(), n + 2);
}

static void test_the_oldest_samples_go(void **state)
{
    (void)state;
    for (int i = 0; i < HISTORY_SAMPLES + 10; i++) {
        now_ms += HISTORY_STEP_MS;
        history_tick(now_ms);
    }
    assert_int_equal(n_samples(), HISTORY_SAMPLES);
    for (size_t i = 0; i < HISTORY_SAMPLES; i++)
        assert_int_equal(history_sample_at(i)->at_ms,
                         now_ms - (int64_t)(HISTORY_SAMPLES - 1 - i) *
                                      HISTORY_STEP_MS);
}

static void test_the_oldest_flushes_go(void **state)
{
    (void)state;
    for (size_t i = 0; i < HISTORY_FLUSHES + 3; i++) {
        const struct history_flush f = {.kind = EDGE_FOLLOW, .rows = i};

        history_flushed(&f);
        assert_int_equal(history_flush_at(0)->rows,
                         i < HISTORY_FLUSHES ? 0 : i + 1 - HISTORY_FLUSHES);
    }
    assert_null(history_flush_at(HISTORY_FLUSHES));
    assert_int_equal(history_flush_at(HISTORY_FLUSHES - 1)->rows,
                     HISTORY_FLUSHES + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_yet),
        cmocka_unit_test(test_the_first_sample),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_what_is_not_known),
        cmocka_unit_test(test_events_of_earlier_requests),
        cmocka_unit_test(test_a_clock_set_back),
        cmocka_unit_test(test_the_oldest_samples_go),
        cmocka_unit_test(test_the_oldest_flushes_go),
    };

    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
